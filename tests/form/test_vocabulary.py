"""The five protocol families share one vocabulary, and each family's blocking and asyncio variants have the same names."""

from __future__ import annotations

import importlib
import inspect
import runpy
import types
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.form

ROOT = Path(__file__).resolve().parents[2]
VOCABULARY = runpy.run_path(str(ROOT / "tools" / "vocabulary.py"))
PUBLIC: dict[str, tuple[str, str]] = runpy.run_path(str(ROOT / "tools" / "public_api.py"))["PUBLIC"]
FAMILIES: dict[str, str] = VOCABULARY["FAMILIES"]
CONCEPTS: dict[str, tuple[str, ...]] = VOCABULARY["CONCEPTS"]
PACKAGES = [name for package in FAMILIES.values() for name in (package, f"{package}.aio")]
# These act at once in both variants. Everything else that the asyncio variant awaits is a coroutine there.
PLAIN = {
    "abort",
    "closed",
    "error",
    "finish",
    "offer",
    "peer_address",
    "peer_certificate",
    "poll",
    "stats",
    "try_receive",
    "try_send",
}
AWAITED = {"close", "read", "readexactly", "receive", "request", "send", "serve", "shutdown", "wait"}
# Objects that belong to neither variant: none of their methods wait for a peer.
OF_NO_VARIANT = {"MediaDriver", "Recordings", "ServerTickets", "SessionCache"}
# Members with different arguments: asyncio's `write` does not wait (`drain` does); a blocking `serve` calls its handler itself.
DIFFERENT = {"write", ("Responder", "serve")}
# Settings of a driver and its client keep Aeron's names, and events and counters keep its units.
AERONS_OWN = {"ClientSettings", "DriverSettings", "ClientContext", "MediaDriver"}


def cells() -> list[Any]:
    """Return each name of the table in each variant."""
    return [
        pytest.param(package, name.strip(), id=f"{package}:{name.strip()}")
        for names in CONCEPTS.values()
        for package, cell in zip(FAMILIES.values(), names, strict=True)
        if not cell.startswith("(")
        for name in cell.split(",")
    ]


def resolve(package: str, name: str) -> Any:
    value: Any = importlib.import_module(package)
    for part in name.split("."):
        value = getattr(value, part)
    return value


def public_classes(package: str) -> dict[str, type]:
    module = importlib.import_module(package)
    values = {name: getattr(module, name) for name in module.__all__}
    return {
        name: value
        for name, value in values.items()
        if isinstance(value, type) and not issubclass(value, BaseException)
    }


def resources(package: str) -> dict[str, type]:
    """Return the classes that hold resources, which are those with a ``close``."""
    return {name: kind for name, kind in public_classes(package).items() if hasattr(kind, "close")}


def members(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


@pytest.mark.parametrize(("package", "name"), cells())
def test_each_family_has_each_name_in_both_variants(package: str, name: str) -> None:
    resolve(package, name)
    if not name.endswith("Settings"):
        resolve(f"{package}.aio", name)


@pytest.mark.parametrize("package", FAMILIES.values())
def test_both_variants_export_the_same_resources(package: str) -> None:
    blocking, asynchronous = (set(resources(name)) for name in (package, f"{package}.aio"))
    assert blocking - asynchronous <= OF_NO_VARIANT
    assert asynchronous <= blocking


@pytest.mark.parametrize("package", PUBLIC)
def test_no_class_is_named_for_its_variant(package: str) -> None:
    assert [name for name in public_classes(package) if name.startswith(("Async", "Aio", "Blocking", "Sync"))] == []


def is_awaited(function: Any) -> bool:
    """Return whether a function of the asyncio variant returns an awaitable."""
    if inspect.iscoroutinefunction(function):
        return True
    returned = str(inspect.signature(function).return_annotation)
    return returned.startswith(("Awaitable", "Coroutine", "Future", "Opening", "Request["))


@pytest.mark.parametrize("package", FAMILIES.values())
def test_methods_are_awaited_or_plain_by_their_names(package: str) -> None:
    wrong = []
    for variant in (package, f"{package}.aio"):
        for name, kind in resources(variant).items():
            if name in OF_NO_VARIANT:
                continue
            for member in members(kind) & (PLAIN | AWAITED):
                function = inspect.getattr_static(kind, member)
                if not isinstance(function, types.FunctionType):
                    continue  # a property or a compiled method is not awaited
                if is_awaited(function) != (member in AWAITED and variant.endswith(".aio")):
                    wrong.append(f"{variant}.{name}.{member}")
    assert wrong == []


@pytest.mark.parametrize("package", FAMILIES.values())
def test_methods_take_the_same_arguments_in_both_variants(package: str) -> None:
    asynchronous = resources(f"{package}.aio")
    different = []
    for name, kind in resources(package).items():
        for member in members(kind) & members(asynchronous.get(name, object)):
            if (name, member) in DIFFERENT or member in DIFFERENT:
                continue
            pair = [inspect.getattr_static(owner, member) for owner in (kind, asynchronous[name])]
            if all(isinstance(function, types.FunctionType) for function in pair):
                first, second = (
                    [(p.name, p.kind, p.default) for p in inspect.signature(f).parameters.values()] for f in pair
                )
                if first != second:
                    different.append(f"{name}.{member}: {first} and {second}")
    assert different == []


@pytest.mark.parametrize("package", FAMILIES.values())
@pytest.mark.parametrize("name", ["connect", "serve"])
def test_connect_and_serve_take_the_same_arguments_and_open_in_two_ways(package: str, name: str) -> None:
    if package == "mainstem" and name == "serve":
        pytest.skip("a Responder serves requests of Aeron")
    blocking, asynchronous = (
        inspect.signature(getattr(importlib.import_module(each), name)) for each in (package, f"{package}.aio")
    )
    assert [(p.name, p.kind, p.default) for p in blocking.parameters.values()] == [
        (p.name, p.kind, p.default) for p in asynchronous.parameters.values()
    ]
    assert str(asynchronous.return_annotation).startswith("Opening[")
    expected = {"connect": ["host", "port"], "serve": ["handler", "host", "port"]}[name]
    if package == "mainstem":
        expected = ["directory"]
    positional = [p.name for p in blocking.parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    assert positional == expected


@pytest.mark.parametrize("package", PACKAGES)
def test_what_holds_something_is_a_context_manager_with_state_and_a_repr(package: str) -> None:
    missing = []
    for name, kind in resources(package).items():
        if name in ("ServerTickets", "SessionCache"):
            continue
        if name not in OF_NO_VARIANT:
            missing += [f"{name}.{member}" for member in ("closed", "error") if not hasattr(kind, member)]
        entered = "__aenter__" if package.endswith(".aio") and name not in OF_NO_VARIANT else "__enter__"
        if not hasattr(kind, entered):
            missing.append(f"{name}.{entered}")
        if kind.__repr__ is object.__repr__:
            missing.append(f"{name}.__repr__")
    assert missing == []


@pytest.mark.parametrize("package", PACKAGES)
def test_times_are_seconds(package: str) -> None:
    """No public member, argument or field is in nanoseconds; a ``timeout`` is a float, and ``None`` waits forever."""
    module = importlib.import_module(package)
    wrong = []
    for name, kind in public_classes(package).items():
        if name in AERONS_OWN:
            continue
        wrong += [f"{name}.{member}" for member in members(kind) if member.endswith("_ns")]
        for member in members(kind):
            function = inspect.getattr_static(kind, member)
            if isinstance(function, types.FunctionType):
                wrong += [f"{name}.{member}({p})" for p in wrong_times(function)]
    for name in module.__all__:
        value = getattr(module, name)
        if isinstance(value, types.FunctionType):
            wrong += [f"{name}({p})" for p in wrong_times(value)]
    assert wrong == []


def wrong_times(function: types.FunctionType) -> list[str]:
    parameters = inspect.signature(function).parameters.values()
    return [
        str(p)
        for p in parameters
        if p.name.endswith("_ns") or (p.name == "timeout" and "float" not in str(p.annotation))
    ]


@pytest.mark.parametrize("package", PACKAGES)
def test_stats_returns_a_dataclass(package: str) -> None:
    import dataclasses

    for name, kind in resources(package).items():
        if hasattr(kind, "stats"):
            returned = str(inspect.signature(kind.stats).return_annotation).partition("[")[0]
            module = inspect.getmodule(kind.stats)
            found = getattr(importlib.import_module(package), returned, None) or getattr(module, returned, None)
            assert returned.endswith("Stats"), f"{name}.stats returns {returned}"
            assert found is None or dataclasses.is_dataclass(found)


def test_the_page_shows_the_table() -> None:
    assert VOCABULARY["table"]() in (ROOT / "docs" / "reference" / "vocabulary.md").read_text()

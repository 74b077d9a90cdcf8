"""Both API variants of both multiplexers have the same names with the same arguments."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from mainstem import bymux, jmux
from mainstem._internal.overrides import apply_overrides
from mainstem.errors import ConfigurationError

CLASSES = {bymux: ("Connection", "Server", "Stream"), jmux: ("Client", "ClientSession", "Server", "ServerSession")}
EACH_CLASS = pytest.mark.parametrize(
    ("package", "name"), [(package, name) for package, names in CLASSES.items() for name in names]
)
# A blocking `write` waits as `drain` does.
ONLY_ASYNCIO = {
    "Connection": {"ssl_object"},
    "Stream": {"drain"},
    "ClientSession": {"drain"},
    "ServerSession": {"drain"},
}


def parameters(function: Any) -> list[tuple[str, object, object]]:
    return [(p.name, p.kind, p.default) for p in inspect.signature(function).parameters.values()]


def public(kind: type) -> dict[str, Any]:
    return {name: member for name, member in inspect.getmembers(kind) if not name.startswith("_")}


@pytest.mark.parametrize("package", [bymux, jmux])
def test_the_asyncio_api_has_the_names_of_the_blocking_one(package: Any) -> None:
    assert {*package.aio.__all__, "aio"} == set(package.__all__)
    assert not [name for name in package.__all__ if name.startswith(("Async", "Blocking", "Jmux"))]


@pytest.mark.parametrize(
    ("package", "names"),
    [
        (bymux, ("INFINITE", "EndpointStats", "HalfState", "InitialStream", "Role", "Settings", "StreamStats")),
        (jmux, ("EndpointStats", "Settings", "StreamStats")),
    ],
)
def test_types_that_never_wait_are_shared(package: Any, names: tuple[str, ...]) -> None:
    assert all(getattr(package.aio, name) is getattr(package, name) for name in names)


@pytest.mark.parametrize(
    ("package", "names"), [(bymux, ("attach", "connect", "over_publications", "serve")), (jmux, ("connect", "serve"))]
)
def test_functions_take_the_same_arguments(package: Any, names: tuple[str, ...]) -> None:
    for name in names:
        assert parameters(getattr(package, name)) == parameters(getattr(package.aio, name))


@EACH_CLASS
def test_classes_have_the_same_members(package: Any, name: str) -> None:
    blocking, asynchronous = (public(getattr(module, name)) for module in (package, package.aio))
    assert blocking.keys() <= asynchronous.keys()
    assert asynchronous.keys() - blocking.keys() == ONLY_ASYNCIO.get(name, set())
    for member, value in blocking.items():
        other = asynchronous[member]
        assert isinstance(value, property) == isinstance(other, property), member
        if not isinstance(value, property):
            left_out = ("timeout",) if member == "write" else ()
            assert [each for each in parameters(value) if each[0] not in left_out] == parameters(other), member


@EACH_CLASS
def test_resources_are_context_managers_with_the_usual_closing_methods(package: Any, name: str) -> None:
    words = {"closed", "error", "close", "abort"}
    words |= {"wait", "shutdown", "stats"} if name == "Server" else {"peer_address", "peer_certificate"}
    for module, enters in ((package, "__enter__"), (package.aio, "__aenter__")):
        kind = getattr(module, name)
        assert hasattr(kind, enters)
        assert words <= public(kind).keys()


@pytest.mark.parametrize("module", [bymux, bymux.aio, jmux, jmux.aio])
def test_settings_may_be_passed_by_name(module: Any) -> None:
    with pytest.raises(ConfigurationError, match="read_limit=0"):
        module.connect("127.0.0.1", 1, read_limit=0)
    with pytest.raises(ConfigurationError, match="max_handlers=0"):
        module.serve(print, "127.0.0.1", 0, settings=module.Settings(read_limit=7), max_handlers=0)
    with pytest.raises(ConfigurationError, match="did you mean max_connections"):
        module.connect("127.0.0.1", 1, max_conections=1)
    with pytest.raises(ConfigurationError, match=r"'wholly_unknown' is not a setting of Settings$"):
        module.serve(print, "127.0.0.1", 0, wholly_unknown=1)


def test_names_override_a_settings_object() -> None:
    base = bymux.Settings(peer_streams=3)
    assert apply_overrides(bymux.Settings, base, {"stream_window": 5}) == bymux.Settings(
        peer_streams=3, stream_window=5
    )

"""Both API variants have the same names with the same arguments."""

from __future__ import annotations

import inspect

import pytest

import mainstem.jmux.aio
from mainstem import jmux
from mainstem.errors import ConfigurationError
from mainstem.jmux import aio

CLASSES = ("Client", "ClientSession", "Server", "ServerSession")
# `write` of the blocking variant waits as `drain` does. One of its handlers may close a blocking server.
ONLY_ASYNCIO = {"ClientSession": {"drain"}, "ServerSession": {"drain"}}


def test_the_asyncio_api_has_the_names_of_the_blocking_one() -> None:
    assert mainstem.jmux.aio is aio
    assert set(aio.__all__) == set(jmux.__all__) - {"aio"}
    assert not [name for name in jmux.__all__ if name.startswith(("Async", "Blocking", "Jmux"))]


def parameters(item: object) -> list[tuple[str, object, object]]:
    found = inspect.signature(item).parameters.values()  # type: ignore[arg-type]
    return [(p.name, p.kind, p.default) for p in found]


@pytest.mark.parametrize("name", ["connect", "serve"])
def test_functions_take_the_same_arguments(name: str) -> None:
    assert parameters(getattr(jmux, name)) == parameters(getattr(aio, name))


def public(kind: type) -> dict[str, object]:
    return {name: member for name, member in inspect.getmembers(kind) if not name.startswith("_")}


@pytest.mark.parametrize("name", CLASSES)
def test_classes_have_the_same_members(name: str) -> None:
    blocking, asynchronous = (public(getattr(module, name)) for module in (jmux, aio))
    assert asynchronous.keys() - blocking.keys() == ONLY_ASYNCIO.get(name, set())
    assert blocking.keys() <= asynchronous.keys()
    for member, value in blocking.items():
        other = asynchronous[member]
        assert isinstance(value, property) == isinstance(other, property), member
        if not isinstance(value, property) and member != "write":
            assert parameters(value) == parameters(other), member


@pytest.mark.parametrize("name", CLASSES)
def test_resources_are_context_managers_with_the_usual_closing_methods(name: str) -> None:
    words = {"closed", "error", "close", "abort"}
    words |= {"wait", "shutdown", "stats"} if name == "Server" else {"peer_address", "peer_certificate"}
    for module, enters in ((jmux, "__enter__"), (aio, "__aenter__")):
        kind = getattr(module, name)
        assert hasattr(kind, enters)
        assert words <= public(kind).keys()


@pytest.mark.parametrize("module", [jmux, aio])
def test_settings_may_be_passed_by_name(module: object) -> None:
    connect, serve = module.connect, module.serve  # type: ignore[attr-defined]
    with pytest.raises(ConfigurationError, match="fragment_limit=0"):
        connect("127.0.0.1", 1, fragment_limit=0)
    with pytest.raises(ConfigurationError, match="max_handlers=0"):
        serve(print, "127.0.0.1", 0, settings=jmux.Settings(fragment_limit=7), max_handlers=0)
    with pytest.raises(ConfigurationError, match="did you mean max_connections"):
        connect("127.0.0.1", 1, max_conections=1)
    with pytest.raises(ConfigurationError, match=r"'wholly_unknown' is not a setting of Settings$"):
        serve(print, "127.0.0.1", 0, wholly_unknown=1)

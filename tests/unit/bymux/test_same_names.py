"""Both API variants have the same names with the same arguments."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import mainstem.bymux.aio
from mainstem import bymux
from mainstem.bymux import aio
from mainstem.errors import ConfigurationError


def parameters(function: Any, *left_out: str) -> list[tuple[str, Any, Any]]:
    found = inspect.signature(function).parameters.values()
    return [(p.name, p.kind, p.default) for p in found if p.name not in left_out]


def public_names(kind: type) -> set[str]:
    return {name for name, _ in inspect.getmembers(kind) if not name.startswith("_")}


def test_the_asyncio_api_has_the_names_of_the_blocking_one() -> None:
    assert mainstem.bymux.aio is aio
    assert {*aio.__all__, "aio"} == set(bymux.__all__)


@pytest.mark.parametrize(
    "name", ["INFINITE", "EndpointStats", "HalfState", "InitialStream", "Role", "Settings", "StreamStats"]
)
def test_types_that_never_wait_are_shared(name: str) -> None:
    assert getattr(aio, name) is getattr(bymux, name)


@pytest.mark.parametrize("name", ["attach", "connect", "over_publications", "serve"])
def test_functions_take_the_same_arguments(name: str) -> None:
    # The blocking variant limits threads; the asyncio variant limits tasks by what the peers may open.
    threads = ("max_handlers", "max_handlers_per_address")
    assert parameters(getattr(bymux, name), *threads) == parameters(getattr(aio, name))


@pytest.mark.parametrize(
    ("name", "only_asyncio"), [("Connection", {"ssl_object"}), ("Server", set[str]()), ("Stream", {"drain"})]
)
def test_classes_have_the_same_names(name: str, only_asyncio: set[str]) -> None:
    blocking, asynchronous = (public_names(getattr(module, name)) for module in (bymux, aio))
    assert (blocking - asynchronous, asynchronous - blocking) == (set(), only_asyncio)


def methods() -> list[tuple[str, str]]:
    kinds = ("Connection", "Server", "Stream")
    found = [(kind, name) for kind in kinds for name, _ in inspect.getmembers(getattr(bymux, kind), inspect.isfunction)]
    return [(kind, name) for kind, name in found if not name.startswith("_")]


@pytest.mark.parametrize(("kind", "name"), methods())
def test_methods_take_the_same_arguments(kind: str, name: str) -> None:
    blocking, asynchronous = (getattr(getattr(module, kind), name) for module in (bymux, aio))
    # A blocking `write` waits, as `drain` does.
    left_out = ("timeout",) if name == "write" else ()
    assert parameters(blocking, *left_out) == parameters(asynchronous)


def test_settings_may_be_passed_by_name() -> None:
    misspelt = "'stream_windw' is not a setting of Settings; did you mean stream_window"
    with pytest.raises(ConfigurationError, match=misspelt):
        aio.connect("127.0.0.1", 1, stream_windw=5)
    with pytest.raises(ConfigurationError, match=misspelt):
        bymux.serve(print, "127.0.0.1", 0, stream_windw=5)
    base = bymux.Settings(peer_streams=3)
    assert bymux.Settings.of(base, {"stream_window": 5}) == bymux.Settings(peer_streams=3, stream_window=5)

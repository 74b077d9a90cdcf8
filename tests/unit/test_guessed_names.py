"""A name that someone guesses, and that does not exist, leads to the one that does."""

from __future__ import annotations

from importlib import import_module

import pytest


@pytest.mark.parametrize(
    ("module", "guess", "meant"),
    [
        ("mainstem", "Driver", "MediaDriver"),
        ("mainstem", "Subscriber", "Subscription"),
        ("mainstem", "Archive", "archive.connect"),
        ("mainstem.archive", "Archive", "connect"),
        ("mainstem.aqueduct", "Client", "connect"),
        ("mainstem.jmux", "Connect", "connect"),
        ("mainstem.spark", "read_recordings", "recordings"),
    ],
)
def test_a_guessed_name_is_answered_with_the_right_one(module: str, guess: str, meant: str) -> None:
    with pytest.raises(AttributeError) as raised:
        getattr(import_module(module), guess)
    assert str(raised.value) == f"module {module!r} has no attribute {guess!r}; did you mean {meant}?"


@pytest.mark.parametrize("name", ["__wrapped__", "_private", "zzz"])
def test_nothing_is_suggested_for_a_name_that_is_near_none(name: str) -> None:
    with pytest.raises(AttributeError) as raised:
        getattr(import_module("mainstem"), name)
    assert str(raised.value) == f"module 'mainstem' has no attribute {name!r}"


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("mainstem.Aeron", "Aeron.connect()"),
        ("mainstem.aio.Aeron", "Aeron.connect()"),
        ("mainstem.MediaDriver", "MediaDriver.launch()"),
        ("mainstem.archive.Client", "mainstem.archive.connect()"),
        ("mainstem.archive.aio.Client", "mainstem.archive.aio.connect()"),
        ("mainstem.aqueduct.Connection", "mainstem.aqueduct.connect()"),
        ("mainstem.aqueduct.Server", "mainstem.aqueduct.serve()"),
        ("mainstem.bymux.Connection", "mainstem.bymux.connect()"),
        ("mainstem.duologue.Client", "mainstem.duologue.connect()"),
        ("mainstem.duologue.Server", "mainstem.duologue.serve()"),
        ("mainstem.duologue.aio.Client", "mainstem.duologue.aio.connect()"),
        ("mainstem.duologue.aio.Server", "mainstem.duologue.aio.serve()"),
        ("mainstem.jmux.Client", "mainstem.jmux.connect()"),
        ("mainstem.jmux.Server", "serve()"),
        ("mainstem.jmux.aio.Client", "mainstem.jmux.aio.connect()"),
    ],
)
@pytest.mark.parametrize("arguments", [(), ("localhost",), ("localhost", 9000)])
def test_a_class_that_is_not_called_says_what_to_call(name: str, instead: str, arguments: tuple[object, ...]) -> None:
    module, _, kind = name.rpartition(".")
    with pytest.raises(TypeError) as raised:
        getattr(import_module(module), kind)(*arguments)
    assert str(raised.value) == f"call {instead} instead of {kind}()"

"""The blocking and the asyncio client have the same public names and signatures, except where one of them cannot."""

from __future__ import annotations

import inspect
from dataclasses import is_dataclass
from typing import Any

import pytest

import mainstem
from mainstem.recording import PersistentSubscription
from mainstem.recording import aio as recording_aio

# Only the blocking client has these. Aeron's `async_add_...` returns an operation to poll, and a coroutine already is one.
BLOCKING_ONLY = {
    "Aeron": {f"async_add_{what}" for what in ("counter", "exclusive_publication", "publication", "subscription")},
    "ExclusivePublication": {"async_add_destination"},
    "Image": {"async_reject"},
    # These can wait for a store, which a call that is not awaited must not do.
    "PersistentSubscription": {"poll_arrow", "poll_bytes"},
    "Publication": {"async_add_destination"},
    "Subscription": {"async_add_destination"},
}
# A blocking responder handles one request at a time, in the thread that calls `serve`.
OTHER_PARAMETERS = {("Responder", "serve")}

PAIRS: dict[str, tuple[Any, Any]] = {
    name: (getattr(mainstem, name), getattr(mainstem.aio, name)) for name in mainstem.aio.__all__
} | {"PersistentSubscription": (PersistentSubscription, recording_aio.PersistentSubscription)}
CLASSES = {name: pair for name, pair in PAIRS.items() if isinstance(pair[0], type) and pair[0] is not pair[1]}
# `Operation` is the result of `async_add_...`. Recordings are opened by programs that can wait for a disk.
NOT_IN_AIO = {"Operation", "Recordings", "aio", "open_recordings"}
# Internals of an engine and durations in nanoseconds do not belong on user-facing objects.
INTERNAL = ("detach", "is_closed", "raise_failure", "set_images", "sync", "take_messages")


def public(kind: type) -> set[str]:
    annotated = {name for each in kind.__mro__ for name in vars(each).get("__annotations__", ())}
    return {name for name in {*dir(kind), *annotated} if not name.startswith("_")}


def parameters(callable_: Any) -> list[tuple[str, Any, Any]] | None:
    """Return names, kinds and defaults, or None for a compiled call, which both variants inherit unchanged."""
    try:
        return [(each.name, each.kind, each.default) for each in inspect.signature(callable_).parameters.values()]
    except ValueError:
        return None


def test_both_variants_export_the_same_names() -> None:
    assert set(mainstem.__all__) - set(mainstem.aio.__all__) == NOT_IN_AIO
    assert set(mainstem.aio.__all__) <= set(mainstem.__all__)


def test_non_blocking_classes_are_shared_by_both_variants() -> None:
    assert mainstem.aio.MediaDriver is mainstem.MediaDriver
    assert mainstem.aio.OfferStatus is mainstem.OfferStatus
    assert mainstem.aio.Timeout is mainstem.errors.Timeout


@pytest.mark.parametrize("name", CLASSES)
def test_both_variants_have_the_same_public_names(name: str) -> None:
    blocking, asynchronous = (public(kind) for kind in CLASSES[name])
    assert blocking - asynchronous == BLOCKING_ONLY.get(name, set())
    assert asynchronous - blocking == set()


@pytest.mark.parametrize("name", PAIRS)
def test_both_variants_are_called_with_the_same_arguments(name: str) -> None:
    blocking, asynchronous = PAIRS[name]
    assert parameters(blocking) == parameters(asynchronous)
    if isinstance(blocking, type):
        for method in public(blocking) & public(asynchronous):
            ours, theirs = (inspect.getattr_static(kind, method, None) for kind in (blocking, asynchronous))
            if inspect.isroutine(ours) and (name, method) not in OTHER_PARAMETERS:
                assert parameters(getattr(blocking, method)) == parameters(getattr(asynchronous, method)), method
            assert isinstance(ours, property) == isinstance(theirs, property), method


@pytest.mark.parametrize("name", CLASSES)
def test_resources_share_names_for_closing_and_state(name: str) -> None:
    for kind in CLASSES[name]:
        assert kind.__name__ == name
        assert kind.__repr__ is not object.__repr__
        assert not public(kind) & {*INTERNAL}
        if hasattr(kind, "close"):
            assert {"closed", "error"} <= public(kind)
            assert inspect.iscoroutinefunction(kind.close) == kind.__module__.rpartition(".")[0].endswith("aio") or (
                name == "PersistentSubscription"
            )


@pytest.mark.parametrize("name", [name for name in CLASSES if hasattr(CLASSES[name][0], "stats")])
def test_numbers_are_a_dataclass_that_users_can_import(name: str) -> None:
    blocking, asynchronous = (inspect.signature(kind.stats).return_annotation for kind in CLASSES[name])
    assert blocking == asynchronous
    assert is_dataclass(getattr(mainstem, blocking))


@pytest.mark.parametrize("name", CLASSES)
def test_no_argument_is_in_nanoseconds(name: str) -> None:
    for kind in CLASSES[name]:
        for method in public(kind):
            member = getattr(kind, method, None)
            names = [each for each, *_ in parameters(member) or ()] if inspect.isroutine(member) else []
            assert not [each for each in [method, *names] if each.endswith("_ns")], method


@pytest.mark.parametrize("name", CLASSES)
def test_waiting_calls_take_a_timeout(name: str) -> None:
    asynchronous = CLASSES[name][1]
    for method in public(asynchronous):
        member = getattr(asynchronous, method, None)
        returned = str(inspect.signature(member).return_annotation) if inspect.isroutine(member) else ""
        waits = inspect.iscoroutinefunction(member) or returned.startswith(("AsyncIterator", "Opening"))
        # `close` waits for no peer; `serve` ends with its responder.
        if waits and method not in ("close", "serve"):
            assert "timeout" in inspect.signature(member).parameters, method

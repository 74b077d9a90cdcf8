"""A subscriber that polls between any two stores of a publisher reads whole messages or none.

The uncompiled appender runs in one thread, and a reader polls after each of its stores. This tests the order in which the source
stores; the primitives make compilers and processors keep that order (``memory/atomics.pxd``).
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit._core.logs import UNCOMPILED, Log

if TYPE_CHECKING:
    from collections.abc import Callable

STORES = (
    "mark32",
    "mark64",
    "put8",
    "put16",
    "put32",
    "put64",
    "st8",
    "st16",
    "st32",
    "st64",
    "copy_bytes",
    "zero_out",
    "cas32",
    "cas64",
)
KINDS = ("concurrent", "exclusive")


def watch(monkeypatch: pytest.MonkeyPatch, after: Callable[[], None]) -> None:
    """Call ``after`` after every store of the appender."""
    module = UNCOMPILED.append
    for name in STORES:
        if hasattr(module, name):
            monkeypatch.setattr(module, name, _watched(getattr(module, name), after))


def _watched(store: Callable[..., Any], after: Callable[[], None]) -> Callable[..., Any]:
    def stored(*arguments: Any) -> Any:
        result = store(*arguments)
        after()
        return result

    return stored


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", ["offer", "fragments", "claim", "many"])
def test_polling_between_two_stores_reads_whole_messages(kind: str, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(way)
    lengths = {"offer": 1300, "fragments": 5000, "claim": 1300, "many": 300}
    sent = [rng.randbytes(rng.randrange(1, lengths[way])) for _ in range(60)]
    log = Log(UNCOMPILED)
    appender, image = getattr(log, kind)(), log.image()
    received: list[bytes] = []
    polls = 0

    def poll() -> None:
        nonlocal polls
        polls += 1
        image.poll_messages(lambda fragment: received.append(bytes(fragment)), 100)
        assert received == sent[: len(received)]

    watch(monkeypatch, poll)
    for first in range(0, len(sent), 5):
        batch = sent[first : first + 5]
        if way == "many":
            while batch:
                batch = batch[appender.offer_many(batch)[0] :]
            continue
        for message in batch:
            if way != "claim":
                while appender.offer(message) < 0:
                    pass
                continue
            claim = UNCOMPILED.append.BufferClaim()
            while appender.try_claim(len(message), claim) < 0:
                pass
            claim.view[:] = message
            claim.commit()
    poll()
    assert received == sent
    assert polls > len(sent)

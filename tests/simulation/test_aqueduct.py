"""The simulator detects faults planted in its Aqueduct."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mainstem.aqueduct.halves import ReceiverHalf
from mainstem.aqueduct.send import Sending
from mainstem.aqueduct.streams import Streams
from mainstem.sim.runner import run_one

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mainstem.aqueduct.halves import Stream

pytestmark = pytest.mark.simulation


def is_noticed(monkeypatch: pytest.MonkeyPatch, owner: object, name: str, fault: object) -> bool:
    """Return whether any of a few seeds detects the fault."""
    monkeypatch.setattr(owner, name, fault)
    return any(run_one("aqueduct", seed).failure for seed in range(1, 61))


def test_the_checker_detects_a_reset_that_overtakes_its_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    def reset_at_once(self: Streams, stream: Stream, code: int) -> None:
        if not stream.out_done:
            self._output.reset(stream.stream_id, code)
            stream.out_done = True
            self.forget_if_done(stream)

    assert is_noticed(monkeypatch, Streams, "reset", reset_at_once)


def test_the_checker_detects_a_nack_that_does_not_bind(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetful(self: ReceiverHalf, number: int, limits: object) -> bool:
        return True

    assert is_noticed(monkeypatch, ReceiverHalf, "note_unreliable", forgetful)


def test_the_checker_detects_forgotten_links(monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_noticed(monkeypatch, Sending, "lose_messages", lambda core, sender, entries: None)


def test_the_checker_detects_an_orderly_end_without_every_message(monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_noticed(
        monkeypatch, ReceiverHalf, "is_accounted_for", property(lambda half: half.finish_count is not None)
    )


def test_the_checker_detects_messages_out_of_order(monkeypatch: pytest.MonkeyPatch) -> None:
    def put_first(self: ReceiverHalf, payloads: Iterable[bytes], numbers: range | None = None) -> None:
        put(self, payloads, numbers)
        self.queue.rotate()

    put = ReceiverHalf.put
    assert is_noticed(monkeypatch, ReceiverHalf, "put", put_first)

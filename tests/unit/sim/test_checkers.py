"""A checker that cannot fail proves nothing, so each of its rules is broken here once."""

from __future__ import annotations

import pytest

from mainstem.sim.checkers import MonotoneChecker, StreamChecker, Violation


def checker() -> StreamChecker:
    made = StreamChecker("stream 1001")
    for message in (b"one", b"two", b"three"):
        made.offered(message)
    return made


def test_accepts_every_message_once_and_in_order() -> None:
    stream = checker()
    for position, message in enumerate((b"one", b"two", b"three"), 1):
        stream.delivered(message, 32 * position)
    stream.finish()
    assert stream.delivered_count == 3


def test_sees_a_lost_message() -> None:
    stream = checker()
    stream.delivered(b"one", 32)
    with pytest.raises(Violation, match="message 1 differs"):
        stream.delivered(b"three", 96)


def test_sees_a_duplicate() -> None:
    stream = checker()
    stream.delivered(b"one", 32)
    with pytest.raises(Violation, match="message 1 differs"):
        stream.delivered(b"one", 64)


def test_detects_messages_that_were_never_offered() -> None:
    stream = StreamChecker("stream 1001")
    with pytest.raises(Violation, match="only 0 were offered"):
        stream.delivered(b"one", 32)


def test_sees_a_position_that_does_not_grow() -> None:
    stream = checker()
    stream.delivered(b"one", 64)
    with pytest.raises(Violation, match="position went from 64 to 64"):
        stream.delivered(b"two", 64)


def test_sees_messages_missing_at_the_end() -> None:
    stream = checker()
    stream.delivered(b"one", 32)
    with pytest.raises(Violation, match="2 of 3 messages never arrived"):
        stream.finish()


def test_sees_a_value_that_goes_back() -> None:
    value = MonotoneChecker("sub-pos")
    value.observe(5)
    value.observe(5)
    with pytest.raises(Violation, match="went back from 5 to 4"):
        value.observe(4)

"""The distinct error log."""

from __future__ import annotations

import struct

from mainstem._core.memory.buffer import AtomicBuffer
from mainstem.aeron.error_log import DistinctErrorLog, read_errors


def test_an_entry_is_laid_out_as_the_reference_does():
    buffer = AtomicBuffer(bytearray(256))
    assert DistinctErrorLog(buffer).record("oops!", now_ms=1_700_000_000_000)
    expected = struct.pack("<iiqq5sxxx", 29, 1, 1_700_000_000_000, 1_700_000_000_000, b"oops!")
    assert buffer.get_bytes(0, 32) == expected


def test_a_repeated_error_counts_up_and_moves_its_last_time():
    buffer = AtomicBuffer(bytearray(256))
    log = DistinctErrorLog(buffer)
    for now_ms, text in [(10, "first"), (20, "second"), (30, "first")]:
        assert log.record(text, now_ms=now_ms)
    first, second = read_errors(buffer)
    assert (first.text, first.observation_count, first.first_observation_ms, first.last_observation_ms) == (
        "first",
        2,
        10,
        30,
    )
    assert (second.text, second.observation_count) == ("second", 1)
    assert [error.text for error in read_errors(buffer, since_ms=25)] == ["first"]


def test_a_full_log_takes_no_new_error_and_still_counts_old_ones():
    buffer = AtomicBuffer(bytearray(64))
    log = DistinctErrorLog(buffer)
    assert log.record("x" * 20, now_ms=1)
    assert not log.record("y", now_ms=2)
    assert log.record("x" * 20, now_ms=3)
    assert [(error.observation_count, error.last_observation_ms) for error in read_errors(buffer)] == [(2, 3)]


def test_a_log_continues_after_existing_content():
    buffer = AtomicBuffer(bytearray(256))
    DistinctErrorLog(buffer).record("old", now_ms=1)
    log = DistinctErrorLog(buffer)
    log.record("new", now_ms=2)
    log.record("old", now_ms=3)
    assert [(error.text, error.observation_count) for error in read_errors(buffer)] == [("old", 2), ("new", 1)]


def test_reading_ends_at_an_invalid_length():
    buffer = AtomicBuffer(bytearray(256))
    log = DistinctErrorLog(buffer)
    log.record("one", now_ms=1)
    for length in (-1, 8, 4096):
        buffer.put_i32(32, length)
        assert [error.text for error in read_errors(buffer)] == ["one"]

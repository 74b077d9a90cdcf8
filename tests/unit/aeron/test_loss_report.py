"""The loss report."""

from __future__ import annotations

import struct

import pytest

from mainstem._core.memory.buffer import AtomicBuffer
from mainstem.aeron.loss_report import LossReport, read_losses

IMAGE = {"session_id": -5, "stream_id": 1001, "channel": "aeron:ipc", "source": "127.0.0.1:40456"}


@pytest.fixture
def buffer():
    return AtomicBuffer(bytearray(512))


def test_an_entry_is_laid_out_as_the_reference_does(buffer):
    assert LossReport(buffer).create_entry(64, now_ms=1000, **IMAGE)
    expected = struct.pack("<qqqqiii9sxxxi15s", 1, 64, 1000, 1000, -5, 1001, 9, b"aeron:ipc", 15, b"127.0.0.1:40456")
    assert buffer.get_bytes(0, len(expected)) == expected


def test_observations_add_up(buffer):
    entry = LossReport(buffer).create_entry(64, now_ms=1000, **IMAGE)
    entry.record(32, now_ms=2000)
    (read,) = read_losses(buffer)
    assert (read.observation_count, read.total_bytes_lost) == (2, 96)
    assert (read.first_observation_ms, read.last_observation_ms) == (1000, 2000)
    assert {name: getattr(read, name) for name in IMAGE} == IMAGE


def test_entries_are_aligned_and_appended_to_existing_ones(buffer):
    LossReport(buffer).create_entry(64, now_ms=1, **IMAGE)
    second = LossReport(buffer).create_entry(96, now_ms=2, **(IMAGE | {"session_id": 6}))
    second.record(1, now_ms=3)
    assert buffer.get_i64(128) == 2
    assert [(entry.session_id, entry.total_bytes_lost) for entry in read_losses(buffer)] == [(-5, 64), (6, 97)]


def test_a_full_report_takes_no_new_entry(buffer):
    report = LossReport(buffer)
    made = [report.create_entry(1, now_ms=1, **IMAGE) for _ in range(6)]
    assert [entry is not None for entry in made] == [True] * 4 + [False] * 2
    assert len(read_losses(buffer)) == 4


@pytest.mark.parametrize("length", [-1, 5000, 4000])
def test_reading_ends_at_an_invalid_entry(buffer, length):
    report = LossReport(buffer)
    report.create_entry(1, now_ms=1, **IMAGE)
    report.create_entry(2, now_ms=1, **IMAGE)
    buffer.put_i32(128 + 40, length)
    assert [entry.total_bytes_lost for entry in read_losses(buffer)] == [1]
    buffer.put_i32(128 + 40, 9)
    buffer.put_i32(128 + 56, length)
    assert [entry.total_bytes_lost for entry in read_losses(buffer)] == [1]

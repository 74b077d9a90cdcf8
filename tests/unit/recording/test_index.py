"""The index file (positions and times) as a reader sees it."""

from __future__ import annotations

import random
import threading
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from mainstem.errors import RecordingError
from mainstem.recording.index import HEADER_LENGTH, IndexEntry, IndexWriter, LocalIndex, index_file

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def test_a_reader_sees_the_whole_file_or_none(tmp_path: Path) -> None:
    recordings = range(300)
    begun = threading.Event()
    found: list[int] = []
    failures: list[Exception] = []

    def read() -> None:
        begun.set()
        for number in recordings:
            while not index_file(tmp_path, number).exists():
                pass
            try:
                reader = LocalIndex(tmp_path, number)
                found.append(reader.recorded_position)
                reader.close()
            except Exception as error:
                failures.append(error)

    thread = threading.Thread(target=read)
    thread.start()
    begun.wait()
    for number in recordings:
        IndexWriter(tmp_path, number, 64 * number).close()
    thread.join()
    assert failures == []
    assert found == [64 * number for number in recordings]


def test_a_file_truncated_by_a_crash_is_started_over(tmp_path: Path) -> None:
    index_file(tmp_path, 1).write_bytes(bytes(HEADER_LENGTH - 1))
    IndexWriter(tmp_path, 1, 128).close()
    reader = LocalIndex(tmp_path, 1)
    assert reader.recorded_position == 128
    assert reader.count == 0
    assert reader.around(0, 128) == []
    assert (reader.after(0), reader.at_or_before(128)) == (None, None)
    reader.close()


def test_entries_past_the_position_are_cut_when_the_recorder_restarts(tmp_path: Path) -> None:
    writer = IndexWriter(tmp_path, 1, 0)
    entries = [IndexEntry(position, 1, position // 64) for position in (64, 128, 192)]
    writer.append(*entries)
    writer.publish(192, 1)
    writer.close()
    IndexWriter(tmp_path, 1, 128).close()
    reader = LocalIndex(tmp_path, 1)
    assert (reader.recorded_position, reader.around(0, 1000)) == (128, entries[:2])
    reader.close()


@pytest.mark.parametrize("seed", range(20))
def test_every_lookup_agrees_with_a_linear_search(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    writer = IndexWriter(tmp_path, 1, 0)
    entries, position, time_ns, messages = [], 0, 100, 0
    for _ in range(rng.randrange(40)):
        position += rng.randrange(1, 5) * 64
        # Time and message count may not advance between entries: a message can be longer than the spacing of entries.
        time_ns += rng.randrange(3)
        messages += rng.randrange(3)
        entries.append(IndexEntry(position, time_ns, messages, rng.getrandbits(32)))
    writer.append(*entries)
    recorded = rng.choice(entries).position if entries else 0
    writer.publish(recorded, 1)
    reader = LocalIndex(tmp_path, 1)
    # Entries past the recorded position are not visible yet.
    entries = [entry for entry in entries if entry.position <= recorded]
    assert reader.count == len(entries)
    for _ in range(100):
        at, end, when, most = (rng.randrange(-64, position + 128) for _ in range(4))
        when, most = 98 + when % 50, most % 50 - 1
        assert reader.at_or_before(at) == last(entries, lambda entry, at=at: entry.position <= at)
        assert reader.after(at) == first(entries, lambda entry, at=at: entry.position > at)
        assert reader.at_time(when) == first(entries, lambda entry, when=when: entry.time_ns >= when)
        assert reader.before_time(when) == last(entries, lambda entry, when=when: entry.time_ns < when)
        assert reader.within(most, at) == last(
            entries, lambda entry, most=most, at=at: entry.messages <= most and entry.position <= at
        )
        begin, stop = sorted((at, end))
        before, behind = reader.at_or_before(begin), reader.after(stop - 1)
        around = [entry for entry in entries if begin < entry.position < stop]
        expected = [*([before] if before else []), *around, *([behind] if behind and behind != before else [])]
        assert reader.around(begin, stop) == expected
        positions, times = reader.times_around(begin, stop)
        assert list(zip(positions, times, strict=True)) == [(entry.position, entry.time_ns) for entry in expected]
    writer.close()
    reader.close()


def first(entries: list[IndexEntry], holds: Callable[[IndexEntry], bool]) -> IndexEntry | None:
    return next(filter(holds, entries), None)


def last(entries: list[IndexEntry], holds: Callable[[IndexEntry], bool]) -> IndexEntry | None:
    return next(filter(holds, reversed(entries)), None)


@pytest.mark.parametrize("position", [-32, 33, (1 << 63) - 1])
def test_a_recorded_position_must_be_a_frame_boundary(tmp_path: Path, position: int) -> None:
    with closing(IndexWriter(tmp_path, 1, 0)) as writer:
        writer.publish(position, 1)
        with closing(LocalIndex(tmp_path, 1)) as reader, pytest.raises(RecordingError, match=str(position)):
            assert reader.recorded_position


@pytest.mark.parametrize("position", [-32, 33])
def test_an_entry_must_be_at_a_frame_boundary(tmp_path: Path, position: int) -> None:
    with closing(IndexWriter(tmp_path, 1, 0)) as writer:
        writer.append(IndexEntry(position, 1, 0))
        writer.publish(64, 1)
        with closing(LocalIndex(tmp_path, 1)) as reader, pytest.raises(RecordingError, match=str(position)):
            reader.after(-64)

"""The file of positions as a reader finds it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from mainstem.recording.positions import HEADER_LENGTH, IndexEntry, PositionsReader, PositionsWriter, positions_file

if TYPE_CHECKING:
    from pathlib import Path


def test_a_reader_finds_the_file_whole_or_not_at_all(tmp_path: Path) -> None:
    recordings = range(300)
    begun = threading.Event()
    found: list[int] = []
    failures: list[Exception] = []

    def read() -> None:
        begun.set()
        for number in recordings:
            while not positions_file(tmp_path, number).exists():
                pass
            try:
                reader = PositionsReader(tmp_path, number)
                found.append(reader.recorded_position)
                reader.close()
            except Exception as error:
                failures.append(error)

    thread = threading.Thread(target=read)
    thread.start()
    begun.wait()
    for number in recordings:
        PositionsWriter(tmp_path, number, 64 * number).close()
    thread.join()
    assert failures == []
    assert found == [64 * number for number in recordings]


def test_a_file_that_a_crash_left_short_is_begun_anew(tmp_path: Path) -> None:
    positions_file(tmp_path, 1).write_bytes(bytes(HEADER_LENGTH - 1))
    PositionsWriter(tmp_path, 1, 128).close()
    reader = PositionsReader(tmp_path, 1)
    assert reader.recorded_position == 128
    assert reader.count == 0
    assert reader.around(0, 128) == []
    assert (reader.after(0), reader.at_or_before(128)) == (None, None)
    reader.close()


def test_entries_past_the_position_are_cut_when_the_recorder_goes_on(tmp_path: Path) -> None:
    writer = PositionsWriter(tmp_path, 1, 0)
    entries = [IndexEntry(position, 1, position // 64) for position in (64, 128, 192)]
    for entry in entries:
        writer.append(entry)
    writer.publish(192, 1)
    writer.close()
    PositionsWriter(tmp_path, 1, 128).close()
    reader = PositionsReader(tmp_path, 1)
    assert (reader.recorded_position, reader.around(0, 1000)) == (128, entries[:2])
    reader.close()

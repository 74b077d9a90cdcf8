"""Many recordings in one location: few files are open at once, and a directory is listed again only when it has changed."""

from __future__ import annotations

import gc
import os
from typing import TYPE_CHECKING

import pytest
from tests.support.many_recordings import make_recordings
from tests.support.streams import Stream, record

from mainstem.recording import Recorder, archive, messages, open_recording, open_recordings
from mainstem.recording import recordings as opening
from mainstem.recording.archive import DirectoryArchive
from mainstem.recording.reader import OpenFiles, RecordingReader
from mainstem.recording.segments import segment_name
from mainstem.store.local import LocalStore

if TYPE_CHECKING:
    from pathlib import Path

MANY = 300
MOST = 20  # maximum number of readers with open files in these tests
FILES = 5  # maximum number of files per reader


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.fixture
def location(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    make_recordings(tmp_path / "many", MANY)
    monkeypatch.setattr(opening, "OpenFiles", lambda: OpenFiles(MOST))
    return tmp_path / "many"


def test_reading_many_recordings_keeps_few_files_open(location: Path) -> None:
    before, rows, most = descriptors(), 0, 0
    with open_recordings(location) as recordings:
        for _ in range(2):  # the second pass reopens released files
            for batch in recordings.scan(["recording_id", "position"]).to_batches():
                rows += len(batch)
                most = max(most, descriptors())
    assert rows == 2 * 10 * MANY
    assert most - before <= MOST * FILES
    assert descriptors() <= before + 1


def test_opening_a_location_opens_no_file_of_a_recording(location: Path) -> None:
    before = descriptors()
    with open_recordings(location) as recordings:
        assert len(recordings) == MANY
        assert descriptors() <= before  # what earlier tests left may be collected meanwhile


def test_a_reader_that_nobody_keeps_closes_its_files_at_once(location: Path) -> None:
    before = descriptors()
    gc.disable()
    try:
        reader = open_recording(location, 0)
        assert reader.walk(0, reader.end_position()).messages == 10
        assert descriptors() > before
        del reader
        assert descriptors() <= before  # what earlier tests left may be collected meanwhile
    finally:
        gc.enable()


def test_readers_that_a_program_keeps_share_the_bound(location: Path) -> None:
    before = descriptors()
    with open_recordings(location) as recordings:
        readers = list(recordings)
        for reader in readers:
            assert len(list(messages(reader, reader.start_position, reader.end_position()))) == 10
        assert descriptors() - before <= MOST * FILES
        # Readers whose files were released work like those whose files are open.
        assert [reader.index is None for reader in readers] == [False] * MANY
        assert descriptors() - before <= MOST * FILES


def test_a_run_that_is_held_outlives_the_release_of_its_reader(location: Path) -> None:
    with open_recordings(location) as recordings:
        first = recordings[0]
        runs = first.ranges(first.start_position, first.end_position())
        run = next(runs)
        index = first.index
        assert index is not None
        for reader in recordings:
            list(messages(reader, reader.start_position, reader.end_position()))
        assert first.index is not index
        assert index.recorded_position == first.end_position()
        assert bytes(memoryview(run.memory)[run.offset : run.offset + 4]) == (96 + 32).to_bytes(4, "little")
        assert list(runs) == []


def test_a_reader_that_was_closed_opens_nothing_again(location: Path) -> None:
    with open_recordings(location) as recordings:
        reader = recordings[0]
        reader.close()
        before = descriptors()
        assert reader.index is None
        reader.release()
        assert reader.index is None
        assert descriptors() <= before  # what earlier tests left may be collected meanwhile


def test_a_segment_that_appears_or_disappears_is_seen_at_once(tmp_path: Path) -> None:
    with Recorder(tmp_path, segment_length=65536) as recorder:
        writer = Stream().start(recorder)
        record(writer, Stream(), [bytes(1_000)] * 200)
    directory = DirectoryArchive(LocalStore(tmp_path))
    (descriptor,) = directory.recordings()
    with RecordingReader(directory, descriptor) as reader:
        bases = list(directory.segments(descriptor))
        assert len(bases) > 2
        age(tmp_path)
        assert list(directory.segments(descriptor)) == bases
        (tmp_path / segment_name(0, 0)).rename(tmp_path / "elsewhere")
        assert reader.start_position == bases[1]
        age(tmp_path)
        assert reader.start_position == bases[1]
        (tmp_path / "elsewhere").rename(tmp_path / segment_name(0, 0))
        assert reader.start_position == 0


def test_names_are_read_once_while_nothing_changes(location: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    age(location)
    lists = []
    list_names = os.listdir
    monkeypatch.setattr(os, "listdir", lambda path: lists.append(path) or list_names(path))
    monkeypatch.setattr(archive, "NAMES_NS", 1 << 62)
    with open_recordings(location) as recordings:
        for reader in recordings:
            assert list(reader.archive.segments(reader.descriptor)) == [0]
    assert len(lists) == 1


def test_a_scan_does_not_list_a_directory_that_has_just_changed(
    location: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lists = []
    list_names = os.listdir
    monkeypatch.setattr(os, "listdir", lambda path: lists.append(path) or list_names(path))
    with open_recordings(location) as recordings:
        (location / "later").touch()
        assert recordings.scan(["position"]).to_arrow().num_rows == 10 * MANY
    assert lists == []


def test_a_directory_without_the_time_of_its_change_is_read_again(
    location: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = DirectoryArchive(LocalStore(location))
    descriptor = directory.recordings()[0]
    age(location)
    assert list(directory.segments(descriptor)) == [0]
    (location / segment_name(0, 0)).unlink()
    age(location)
    monkeypatch.setattr(archive, "NAMES_NS", 0)
    assert list(directory.segments(descriptor)) == []


def age(directory: Path) -> None:
    """Set the directory's modification time to an hour ago."""
    then = 1_700_000_000
    os.utime(directory, (then, then))

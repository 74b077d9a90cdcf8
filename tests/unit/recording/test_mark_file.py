"""The mark file that keeps recorders and Aeron Archive out of each other's directories, in ArchiveMarkFile's layout."""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING

import pytest
from tests.support.shipping import ManualClock

from mainstem._internal.clock import NS_PER_MS
from mainstem.errors import RecordingError
from mainstem.recording import Recorder
from mainstem.recording.mark_file import LINK_FILE, MARK_FILE

if TYPE_CHECKING:
    from pathlib import Path

VERSION = 3 << 16 | 1 << 8
STREAM = {"session_id": 77, "stream_id": 1001, "initial_term_id": -5, "term_buffer_length": 65536, "mtu_length": 1408}


def mark(activity_ms: int, *, version: int = VERSION, pid: int = 4321, sbe_header: bool = True) -> bytes:
    """Return a mark file as an archive writes it."""
    block = struct.pack("<i4xqqq3iii4xq", version, activity_ms, 1, pid, 10, 10, 0, 8192, 1 << 20, 7).ljust(128, b"\0")
    channel = b"aeron:ipc?term-length=64k"
    texts = b"".join(struct.pack("<I", len(text)) + text for text in (b"", channel, b"", b"/dev/shm/aeron"))
    start = struct.pack("<4H", 128, 200, 100, 2) if sbe_header else b""
    return (start + block + texts).ljust(8192 + (1 << 20), b"\0")


def activity(path: Path) -> int:
    return int.from_bytes(path.read_bytes()[16:24], "little", signed=True)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def now_ms(clock: ManualClock) -> int:
    return clock.epoch_ns() // NS_PER_MS


@pytest.mark.parametrize("sbe_header", [True, False])
def test_a_directory_with_an_active_archive_is_refused_and_left_as_it_is(
    tmp_path: Path, clock: ManualClock, sbe_header: bool
) -> None:
    for name, data in (
        ("archive.catalog", bytes(1 << 20)),
        (MARK_FILE, mark(now_ms(clock) - 9_999, sbe_header=sbe_header)),
    ):
        (tmp_path / name).write_bytes(data)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(RecordingError, match=rf"{tmp_path} is in use: an Aeron Archive \(pid 4321\).*end that archive"):
        Recorder(tmp_path, clock=clock)
    after = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert after.pop("mainstem-recorder.lock") == b""
    assert after == before


@pytest.mark.parametrize("sbe_header", [True, False])
@pytest.mark.parametrize("age_ms", [10_000, None])
def test_the_mark_of_a_dead_archive_is_taken_over(
    tmp_path: Path, clock: ManualClock, age_ms: int | None, sbe_header: bool
) -> None:
    path = tmp_path / MARK_FILE
    path.write_bytes(mark(-1 if age_ms is None else now_ms(clock) - age_ms, sbe_header=sbe_header))
    with Recorder(tmp_path, clock=clock):
        header, block = (
            struct.unpack_from("<4H", path.read_bytes()),
            struct.unpack_from("<i4xqqq", path.read_bytes(), 8),
        )
        assert header == (128, 200, 100, 2)
        assert block == (VERSION, now_ms(clock), now_ms(clock), os.getpid())
    assert activity(path) == -1


def test_the_mark_is_fresh_while_recording_and_records_the_end(tmp_path: Path, clock: ManualClock) -> None:
    path = tmp_path / MARK_FILE
    recorder = Recorder(tmp_path, clock=clock)
    assert path.stat().st_size == 8192 + (1 << 20)
    for _ in range(3):
        clock.advance(1)
        recorder.do_work()
        assert activity(path) == now_ms(clock)
    recorder.close()
    assert activity(path) == -1


def test_the_mark_of_a_killed_recorder_does_not_keep_its_successor_out(tmp_path: Path, clock: ManualClock) -> None:
    killed = Recorder(tmp_path, clock=clock)
    os.close(killed._directory._lock)
    with Recorder(tmp_path, clock=clock) as recorder:
        assert recorder.start(**STREAM, join_position=0).descriptor.recording_id == 0


def test_the_mark_of_an_archive_that_is_starting_is_honored(tmp_path: Path) -> None:
    path = tmp_path / MARK_FILE
    for starting in (mark(0, version=0), bytes(8192 + (1 << 20))):
        path.write_bytes(starting)
        with pytest.raises(RecordingError, match="is in use"):
            Recorder(tmp_path)
        assert path.read_bytes() == starting
        # The archive died during startup.
        os.utime(path, (1, 1))
        Recorder(tmp_path).close()


def test_a_mark_in_the_future_says_that_the_clock_was_set_back(tmp_path: Path, clock: ManualClock) -> None:
    path = tmp_path / MARK_FILE
    path.write_bytes(mark(now_ms(clock) + 3_600_000))
    with pytest.raises(
        RecordingError, match=r"3600\.0 s in the future.*the clock was set back.*delete archive-mark\.dat"
    ):
        Recorder(tmp_path, clock=clock)
    path.unlink()
    Recorder(tmp_path, clock=clock).close()


def test_the_mark_of_another_major_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / MARK_FILE).write_bytes(mark(-1, version=2 << 16))
    with pytest.raises(RecordingError, match="version 2, not 3; migrate it"):
        Recorder(tmp_path)


def test_the_mark_is_found_where_the_link_names_its_directory(tmp_path: Path, clock: ManualClock) -> None:
    marks, directory = tmp_path / "marks", tmp_path / "archive"
    marks.mkdir()
    directory.mkdir()
    (directory / LINK_FILE).write_text(str(marks))
    (marks / MARK_FILE).write_bytes(mark(now_ms(clock)))
    with pytest.raises(RecordingError, match="is in use"):
        Recorder(directory, clock=clock)
    clock.advance(10)
    Recorder(directory, clock=clock).close()
    assert activity(marks / MARK_FILE) == -1
    # A dangling link would hide the mark file from the archive's tools.
    (marks / MARK_FILE).unlink()
    marks.rmdir()
    Recorder(directory, clock=clock).close()
    assert activity(directory / MARK_FILE) == -1
    assert not (directory / LINK_FILE).exists()


def test_the_error_log_of_an_archive_is_kept(tmp_path: Path, clock: ManualClock) -> None:
    data = bytearray(mark(-1))
    data[8192:8200] = b"an error"
    (tmp_path / MARK_FILE).write_bytes(data)
    Recorder(tmp_path, clock=clock).close()
    assert (tmp_path / MARK_FILE).read_bytes()[8192:] == bytes(data[8192:])

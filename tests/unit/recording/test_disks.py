"""What a recorder leaves on a failing disk, and on a device that keeps only flushed data."""

from __future__ import annotations

import errno
import os
import shutil
from typing import TYPE_CHECKING

import pytest
from tests.support.streams import Stream, record

from mainstem.recording import Recorder, messages, open_recording
from mainstem.recording.verify_recordings import find_problems
from mainstem.store.disk import Disk

if TYPE_CHECKING:
    from pathlib import Path

TERM = 65536
STREAM = {"session_id": 77, "stream_id": 1001, "initial_term_id": -5, "term_buffer_length": TERM, "mtu_length": 1408}
PAYLOADS = [index.to_bytes(4, "little") + bytes(1_500) for index in range(60)]


def recorded(directory: Path) -> list[bytes]:
    with open_recording(directory, 0) as reader:
        end = reader.end_position()
        assert list(find_problems(reader, 0, end)) == []
        assert reader.count_before(end).messages == len(list(messages(reader, 0, end)))
        return [payload for _, payload in messages(reader, 0, end)]


class FullDisk(Disk):
    """A disk that refuses the header of the first padding frame, once."""

    def __init__(self) -> None:
        self.refusals = 0
        self.is_armed = False

    def write_some(self, fd: int, data: bytes | memoryview, offset: int) -> int:
        if self.is_armed and len(data) == 32 and data[5] == 0xC0 and not self.refusals:
            self.refusals += 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write_some(fd, data, offset)


def test_a_partly_written_run_is_retried_as_a_whole(tmp_path: Path) -> None:
    disk = FullDisk()
    with Recorder(tmp_path, segment_length=2 * TERM, disk=disk) as recorder:
        writer = recorder.start(**STREAM, join_position=0)
        disk.is_armed = True
        runs = [run for _, run in Stream(term_length=TERM).runs(PAYLOADS)]
        # The last message of the first term and the padding after it form one run.
        padding = next(index for index, run in enumerate(runs) if len(run) < 1_536)
        for run in (*runs[: padding - 1], runs[padding - 1] + runs[padding], *runs[padding + 1 :]):
            before = writer.position
            try:
                writer.write(memoryview(run), 0)
            except OSError:
                assert (writer.position, writer.messages) == (before, padding - 1)
                writer.write(memoryview(run), 0)
        assert writer.messages == len(PAYLOADS)
    assert disk.refusals == 1
    assert recorded(tmp_path) == PAYLOADS


class Device(Disk):
    """A disk that copies files to a device when they are flushed; a renamed file keeps the device's content."""

    def __init__(self, device: Path) -> None:
        self.device = device
        self.paths: dict[int, Path] = {}

    def open(self, path: Path) -> int:
        fd = super().open(path)
        self.paths[fd] = path
        return fd

    def rename(self, path: Path, target: Path) -> None:
        super().rename(path, target)
        (self.device / path.name).replace(self.device / target.name)

    def sync(self, fd: int) -> None:
        super().sync(fd)
        shutil.copy(self.paths[fd], self.device)


def test_durable_writes_are_on_the_device(tmp_path: Path) -> None:
    (tmp_path / "device").mkdir()
    recorder = Recorder(tmp_path / "here", segment_length=TERM, durable=True, disk=Device(tmp_path / "device"))
    writer = recorder.start(**STREAM, join_position=0)
    stream = Stream(term_length=TERM)
    record(writer, stream, PAYLOADS[:1])
    assert recorded(tmp_path / "device") == PAYLOADS[:1]
    record(writer, stream, PAYLOADS[1:])
    assert recorded(tmp_path / "device") == PAYLOADS
    # The host crashes; the next recorder ends the recording where the device's data ends.
    Recorder(tmp_path / "device").close()
    assert recorded(tmp_path / "device") == PAYLOADS
    recorder.close()


class Counting(Disk):
    """A disk that counts flushes."""

    flushes = 0

    def sync(self, fd: int) -> None:
        super().sync(fd)
        self.flushes += 1


@pytest.mark.parametrize("durable", [False, True])
def test_only_a_durable_recorder_waits_for_the_device(tmp_path: Path, durable: bool) -> None:
    disk = Counting()
    with Recorder(tmp_path, durable=durable, disk=disk) as recorder:
        # A directory's one-time files are always flushed to the device.
        disk.flushes = 0
        record(recorder.start(**STREAM, join_position=0), Stream(), PAYLOADS[:2])
    assert bool(disk.flushes) is durable


class FullCatalog(Disk):
    """A disk that refuses one write of a catalog entry, once: the first or the second of eight bytes."""

    def __init__(self, number: int) -> None:
        self.left = 0
        self.number = number

    def write_some(self, fd: int, data: bytes | memoryview, offset: int) -> int:
        if self.left and bytes(data) == b"\xff" * 8:
            self.left -= 1
            if not self.left:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write_some(fd, data, offset)


@pytest.mark.parametrize("number", [1, 2])
def test_a_recording_that_the_disk_would_not_extend_is_extended_later(tmp_path: Path, number: int) -> None:
    stream, disk = Stream(), FullCatalog(number)
    with Recorder(tmp_path, disk=disk) as recorder:
        writer = recorder.start(**STREAM, join_position=0)
        record(writer, stream, PAYLOADS[:2])
        recorder.stop(writer)
        disk.left = number
        with pytest.raises(OSError, match="No space left"):
            recorder.start(**STREAM, join_position=0)
        writer = recorder.start(**STREAM, join_position=0)
        assert writer.descriptor.recording_id == 0
        record(writer, stream, PAYLOADS[2:4])
    assert recorded(tmp_path) == PAYLOADS[:4]

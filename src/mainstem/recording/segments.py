"""Segment files, in Aeron Archive's own layout: names, arithmetic, and how the end of what was written is found.

``<recordingId>-<segmentBasePosition>.rec`` holds the frames exactly as they lie in the term buffer; the frame at stream
position p lies at offset p - segmentBasePosition. A file has the recording's full segment length from the start, sparse and
zero. Of a padding frame only the header is written.
"""

from __future__ import annotations

import os
import re
import zlib
from dataclasses import dataclass
from mmap import ACCESS_READ, PAGESIZE, mmap
from typing import TYPE_CHECKING

from mainstem._core.layout import DATA_HEADER_LENGTH, FRAME_ALIGNMENT, WALK_AT_END, WALK_AT_LIMIT, WALK_CORRUPT
from mainstem._core.log.columns import FrameWalk
from mainstem.errors import RecordingError
from mainstem.recording.catalog import MAX_POSITION, open_file

if TYPE_CHECKING:
    from pathlib import Path

    from mainstem.recording.catalog import RecordingDescriptor

# Read and summed at a time.
PIECE = 1 << 20
ZEROS = memoryview(bytes(1 << 16))

_NAME = re.compile(r"(\d+)-(\d+)\.rec")


def segment_name(recording_id: int, base: int) -> str:
    """The file name of the segment that starts at stream position ``base``."""
    return f"{recording_id}-{base}.rec"


def first_segment_base(descriptor: RecordingDescriptor) -> int:
    """Where the first segment starts: the start position rounded down to the term length."""
    return descriptor.start_position // descriptor.term_buffer_length * descriptor.term_buffer_length


def segment_base(descriptor: RecordingDescriptor, position: int) -> int:
    """The base of the segment that holds stream position ``position``."""
    first = first_segment_base(descriptor)
    return first + (position - first) // descriptor.segment_file_length * descriptor.segment_file_length


def segment_bases(directory: Path, recording_id: int) -> list[int]:
    """The bases of the segment files that are there, in ascending order."""
    matches = (_NAME.fullmatch(name) for name in os.listdir(directory))
    return sorted(int(match[2]) for match in matches if match and int(match[1]) == recording_id)


def segments_of(directory: Path, descriptor: RecordingDescriptor) -> list[int]:
    """As ``segment_bases``, without files at positions where this recording can have no segment."""
    first, step = first_segment_base(descriptor), descriptor.segment_file_length
    bases = segment_bases(directory, descriptor.recording_id)
    return [base for base in bases if first <= base <= MAX_POSITION and not (base - first) % step]


class SegmentMemory:
    """One segment file mapped for reading: ``memory`` from stream position ``base``, ``length`` bytes of it there."""

    def __init__(self, path: Path, base: int) -> None:
        self.path, self.base = path, base
        try:
            with path.open("rb") as file:
                self.length = os.fstat(file.fileno()).st_size
                self.memory: mmap | bytes = mmap(file.fileno(), 0, access=ACCESS_READ) if self.length else b""
        except FileNotFoundError as error:
            raise RecordingError(f"segment {path} is missing") from error
        except OSError as error:
            raise RecordingError(f"segment {path}: {error.strerror}") from error

    def close(self) -> None:
        """Unmaps the file; may be called twice."""
        if isinstance(self.memory, mmap):
            self.memory.close()


@dataclass(frozen=True, slots=True)
class RecordingEnd:
    """Where the frames of a recording end.

    ``position`` is the end of the last whole frame. ``suspect`` is where the last frame starts when that frame reaches
    over a page and nothing proves that all of it was written (equal to ``position`` when there is no such frame);
    ``reason`` is what ended the walk: ``end`` of what was written, ``torn``, ``corrupt`` or ``missing`` file.
    """

    position: int
    suspect: int
    reason: str


def find_end(
    directory: Path, descriptor: RecordingDescriptor, *, limit: int | None = None, known: int = 0
) -> RecordingEnd:
    """Walks the last segment from its start until no whole frame follows (or ``limit`` is reached).

    ``known`` is a frame boundary up to which an earlier walk came; this one goes on from there.
    """
    bases = segments_of(directory, descriptor)
    start = descriptor.start_position
    if limit is not None:
        bases = [base for base in bases if base < limit]
    if not bases:
        return RecordingEnd(start, start, "end" if limit in (None, start) else "missing")
    base = bases[-1]
    segment = SegmentMemory(directory / segment_name(descriptor.recording_id, base), base)
    try:
        end = segment.length if limit is None else min(segment.length, limit - base)
        begin = max(start - base, known - base, 0)
        if begin > end:
            return RecordingEnd(start, start, "torn")
        walk = FrameWalk()
        walk.term_mask = descriptor.term_buffer_length - 1
        stopped = walk.run(segment.memory, begin, end)
        position = base + walk.offset
        if stopped == WALK_AT_LIMIT:
            whole = limit is None or position == limit
            return RecordingEnd(position, position, "end" if whole else "missing")
        reason = {WALK_AT_END: "end", WALK_CORRUPT: "corrupt"}.get(stopped, "torn")
        last = walk.last
        crosses = walk.offset > begin and last // PAGESIZE != (walk.offset - 1) // PAGESIZE
        return RecordingEnd(position, base + last if crosses else position, reason)
    finally:
        segment.close()


def checksum(directory: Path, descriptor: RecordingDescriptor, start: int, end: int) -> int:
    """The CRC-32 of the bytes ``[start, end)`` of a recording. Raises RecordingError when a file is missing or short."""
    value, position = 0, start
    while position < end:
        base = segment_base(descriptor, position)
        path = directory / segment_name(descriptor.recording_id, base)
        stop = min(end, base + descriptor.segment_file_length)
        try:
            with path.open("rb", buffering=0) as file:
                while position < stop:
                    data = os.pread(file.fileno(), min(PIECE, stop - position), position - base)
                    if not data:
                        raise RecordingError(f"{path} ends before position {stop}")
                    value = zlib.crc32(data, value)
                    position += len(data)
        except FileNotFoundError as error:
            raise RecordingError(f"segment {path} is missing") from error
        except OSError as error:
            raise RecordingError(f"segment {path}: {error.strerror}") from error
    return value


class SegmentWriter:
    """Writes runs of frames at their stream position; opens, preallocates and closes segment files as it goes.

    Opening cuts whatever lies past ``position``: the rest of its segment becomes zero, later segments are deleted.
    With ``durable`` a segment is on the device before it is left for the next one.
    """

    def __init__(
        self, directory: Path, descriptor: RecordingDescriptor, position: int, *, durable: bool = False
    ) -> None:
        descriptor.check()
        if position % FRAME_ALIGNMENT:
            raise RecordingError(f"recording {descriptor.recording_id}: position {position} is no frame boundary")
        self._directory = directory
        self._descriptor = descriptor
        self._durable = durable
        self._fd = -1
        self._base = -1
        self.position = position
        self._cut()

    def _cut(self) -> None:
        recording_id, length = self._descriptor.recording_id, self._descriptor.segment_file_length
        for base in segments_of(self._directory, self._descriptor):
            path = self._directory / segment_name(recording_id, base)
            if base >= self.position:
                try:
                    path.unlink()
                except IsADirectoryError as error:
                    raise RecordingError(f"segment {path}: {error.strerror}") from error
            elif base + length > self.position:
                fd = open_file(path)
                os.ftruncate(fd, self.position - base)
                os.ftruncate(fd, length)
                os.close(fd)

    def _open(self, position: int) -> None:
        base = segment_base(self._descriptor, position)
        if base == self._base:
            return
        self.close()
        path = self._directory / segment_name(self._descriptor.recording_id, base)
        self._fd = open_file(path)
        self._base = base
        if os.fstat(self._fd).st_size < self._descriptor.segment_file_length:
            os.truncate(path, self._descriptor.segment_file_length)

    def write(self, frames: memoryview) -> None:
        """Writes whole frames, none of them padding, at ``position`` and moves it on. They must not cross a segment."""
        self._open(self.position)
        at, written, length = self.position - self._base, 0, frames.nbytes
        if at + length > self._descriptor.segment_file_length:
            raise RecordingError(f"{length} bytes at {self.position} reach over the end of their segment")
        while written < length:
            written += os.pwrite(self._fd, frames[written:], at + written)
        self.position += length

    def write_padding(self, header: memoryview, aligned_length: int) -> None:
        """Writes the header of a padding frame and moves the position over the whole of it."""
        self._open(self.position)
        os.pwrite(self._fd, header[:DATA_HEADER_LENGTH], self.position - self._base)
        self.position += aligned_length

    def sync(self) -> None:
        """Waits until what was written to the open segment is on the device."""
        if self._fd >= 0:
            os.fdatasync(self._fd)

    def close(self) -> None:
        """Closes the open segment; may be called twice."""
        if self._fd >= 0:
            if self._durable:
                self.sync()
            os.close(self._fd)
            self._fd, self._base = -1, -1

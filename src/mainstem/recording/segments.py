"""Segment files in Aeron Archive's layout: names, arithmetic, reading and writing.

``<recordingId>-<segmentBasePosition>.rec`` has the frames as they are in the term buffer. The frame at stream position p is at
offset p - segmentBasePosition. A file has the full segment length of the recording from the start, and is sparse and zero. Only the
header of a padding frame is written.
"""

from __future__ import annotations

import fcntl
import os
import re
import struct
import zlib
from contextlib import suppress
from typing import TYPE_CHECKING

from mainstem._core.layout import (
    DATA_HEADER_LENGTH,
    FLAG_BEGIN,
    FRAME_ALIGNMENT,
    FRAME_STREAM_ID_OFFSET,
    FRAME_TERM_OFFSET_OFFSET,
    TYPE_DATA,
    TYPE_PAD,
)
from mainstem._internal.guarded_map import GuardedMap
from mainstem._internal.regular_files import open_regular
from mainstem.aeron.logbuffer.descriptor import wrap_i32
from mainstem.errors import RecordingError
from mainstem.recording.catalog import MAX_POSITION, MAX_RECORDING_ID
from mainstem.store.disk import DISK, Disk

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from mmap import mmap
    from pathlib import Path

    from mainstem.recording.catalog import RecordingDescriptor

# Bytes to read at a time.
CHUNK = 1 << 20
ZEROS = memoryview(bytes(1 << 16))

_SEGMENT_NAME = re.compile(r"(0|[1-9][0-9]{0,18})-(0|[1-9][0-9]{0,18})\.rec")
# Older versions of Aeron Archive renamed files with this suffix before deleting them.
OLD_SUFFIX = ".del"
# Pages that were read are released in steps of this size, because each call has a cost.
BYTES_PER_RELEASE = 16 << 20
# Parts of a frame's header: the length, version, flags and type at its start; the term offset, and after the session id, as
# bytes, the stream id and the term id.
_BEGINNING, _PLACE, _STREAM_AND_TERM = struct.Struct("<iBBH"), struct.Struct("<i4x8s"), struct.Struct("<ii")


def segment_name(recording_id: int, base: int) -> str:
    return f"{recording_id}-{base}.rec"


def parse_segment_name(name: str) -> tuple[int, int] | None:
    """Return the recording id and the base position of a segment's file name; None for any other name.

    Other programs and people put files into the directory too. So only names that ``segment_name`` can return count, with ids and
    positions that a recording can have.
    """
    match = _SEGMENT_NAME.fullmatch(name)
    if match is None:
        return None
    recording_id, base = int(match[1]), int(match[2])
    return (recording_id, base) if recording_id <= MAX_RECORDING_ID and base <= MAX_POSITION else None


def first_segment_base(descriptor: RecordingDescriptor) -> int:
    return descriptor.start_position // descriptor.term_buffer_length * descriptor.term_buffer_length


def segment_base(descriptor: RecordingDescriptor, position: int) -> int:
    first = first_segment_base(descriptor)
    return first + (position - first) // descriptor.segment_file_length * descriptor.segment_file_length


def segment_bases(directory: Path, recording_id: int) -> list[int]:
    return sorted(all_segment_bases(directory).get(recording_id, ()))


def all_segment_bases(directory: Path) -> dict[int, list[int]]:
    """Like ``segment_bases``, but for each recording with a segment file, whether or not it is in the catalog."""
    bases: dict[int, list[int]] = {}
    for found in map(parse_segment_name, os.listdir(directory)):
        if found is not None:
            bases.setdefault(found[0], []).append(found[1])
    return bases


def segments_of(directory: Path, descriptor: RecordingDescriptor) -> list[int]:
    """Like ``segment_bases``, but without files at invalid positions."""
    return segments_among(descriptor, segment_bases(directory, descriptor.recording_id))


def segments_among(descriptor: RecordingDescriptor, bases: Iterable[int]) -> list[int]:
    """Return the valid bases for this recording among ``bases``, ascending."""
    first, step = first_segment_base(descriptor), descriptor.segment_file_length
    return [base for base in sorted(bases) if first <= base <= MAX_POSITION and not (base - first) % step]


def is_frame(header: bytes | memoryview, descriptor: RecordingDescriptor, position: int) -> bool:
    """Return whether a header belongs to the frame at ``position`` of a recording."""
    if len(header) < DATA_HEADER_LENGTH:
        return False
    offset, stream_and_term = _PLACE.unpack_from(header, FRAME_TERM_OFFSET_OFFSET)
    term_offset = position % descriptor.term_buffer_length
    return (offset, stream_and_term) == (term_offset, _stream_and_term(descriptor, position))


def check_term(memory: mmap | bytes, at: int, descriptor: RecordingDescriptor, position: int, name: str) -> None:
    """Raise RecordingError if the frame in memory at ``at`` is of another recording than the one with this descriptor.

    Publishers choose their first term id at random, so the frames of a recording that has replaced another one under the same name
    almost never have the term ids of the positions at which they are.
    """
    length = int.from_bytes(memory[at : at + 4], "little", signed=True)
    offset, stream_and_term = _PLACE.unpack_from(memory, at + FRAME_TERM_OFFSET_OFFSET)
    if length <= 0 or offset != position % descriptor.term_buffer_length:
        return  # nothing was written there, or the header is invalid
    _, found = _STREAM_AND_TERM.unpack(stream_and_term)
    expected = wrap_i32(descriptor.initial_term_id + position // descriptor.term_buffer_length)
    if found != expected:
        raise RecordingError(
            f"{name} is of another recording than {descriptor.recording_id}: the frame at position {position} has term id {found},"
            f" not {expected}; open the recordings again"
        )


def first_message(data: bytes, descriptor: RecordingDescriptor, position: int) -> int | None:
    """Return the position of the first message in the bytes at ``position``, found by its header; None if there is none.

    A header states its stream and its place, so damaged frames, and payloads that look like frames, are passed over.
    """
    end = position + len(data)
    while position < end:
        # The stream and the term are the same in all headers of a term.
        pattern = _stream_and_term(descriptor, position)
        term_end = min((position // descriptor.term_buffer_length + 1) * descriptor.term_buffer_length, end)
        first = end - len(data)
        at, limit = position - first, term_end - first
        while (found := data.find(pattern, at + FRAME_STREAM_ID_OFFSET, limit)) >= 0:
            # The only frame boundary at which the pattern can belong to a header.
            at = (found - FRAME_STREAM_ID_OFFSET + FRAME_ALIGNMENT - 1) // FRAME_ALIGNMENT * FRAME_ALIGNMENT
            header = data[at : at + DATA_HEADER_LENGTH]
            if is_frame(header, descriptor, first + at) and _is_message(header, descriptor, first + at):
                return first + at
            at += 0 if found < at + FRAME_STREAM_ID_OFFSET else FRAME_ALIGNMENT
        position = term_end
    return None


def _stream_and_term(descriptor: RecordingDescriptor, position: int) -> bytes:
    term_id = wrap_i32(descriptor.initial_term_id + position // descriptor.term_buffer_length)
    return _STREAM_AND_TERM.pack(descriptor.stream_id, term_id)


def _is_message(header: bytes, descriptor: RecordingDescriptor, position: int) -> bool:
    """Return whether a frame is the first one of a message or padding, and fits into its term."""
    length, _, flags, kind = _BEGINNING.unpack_from(header)
    room = descriptor.term_buffer_length - position % descriptor.term_buffer_length
    return DATA_HEADER_LENGTH <= length <= room and kind in (TYPE_DATA, TYPE_PAD) and bool(flags & FLAG_BEGIN)


class CutShortError(RecordingError):
    """Another process truncated a file while it was read."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name} was cut short while it was read")


def check_whole(memory: mmap | bytes, name: str) -> None:
    """Raise CutShortError if a mapped file was truncated, so that lost bytes were read as zeros."""
    if isinstance(memory, GuardedMap) and memory.was_cut:
        raise CutShortError(name)


class SegmentMemory:
    """One segment file, mapped for reading: ``memory`` starts at stream position ``base`` and has ``length`` bytes."""

    is_mapped = True

    def __init__(self, path: Path, base: int) -> None:
        self.name, self.base = str(path), base
        try:
            with open(path, "rb", opener=open_regular) as file:
                # The mapping keeps the descriptor, and with it the lock, so shipping does not delete this segment
                # (`shipping/local_retention.py`). On a file system without locks, the segment is read without one.
                with suppress(OSError):
                    fcntl.flock(file.fileno(), fcntl.LOCK_SH | fcntl.LOCK_NB)
                self.length = os.fstat(file.fileno()).st_size
                self.memory: mmap | bytes = GuardedMap(file.fileno(), self.length) if self.length else b""
        except FileNotFoundError as error:
            raise RecordingError(f"segment {path} is missing") from error
        except OSError as error:
            raise RecordingError(f"segment {path}: {error.strerror}") from error
        except ValueError:
            raise CutShortError(self.name) from None

    def place(self, offset: int) -> int:
        return offset

    def chunks(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        if start < end:
            yield start, end

    def read(self, start: int, end: int) -> bytes:
        if end > self.length:
            raise RecordingError(f"{self.name} ends at {self.length} bytes, before {end}")
        data = self.memory[start:end]
        check_whole(self.memory, self.name)
        return data

    def close(self) -> None:
        if isinstance(self.memory, GuardedMap):
            self.memory.close()


def checksum(directory: Path, descriptor: RecordingDescriptor, start: int, end: int) -> int:
    """Return the CRC-32 of the bytes ``[start, end)`` of a recording. Raises RecordingError if a file is missing or too short."""
    value = 0
    for run in stored_runs(directory, descriptor, start, end):
        value = zlib.crc32(run, value)
    return value


def stored_runs(directory: Path, descriptor: RecordingDescriptor, start: int, end: int) -> Iterator[memoryview]:
    """Yield the bytes ``[start, end)`` of a recording, one segment at a time.

    Raises RecordingError if a file is missing or too short.
    """
    position = start
    while position < end:
        base = segment_base(descriptor, position)
        stop = min(end, base + descriptor.segment_file_length)
        segment = SegmentMemory(directory / segment_name(descriptor.recording_id, base), base)
        try:
            if stop - base > segment.length:
                raise RecordingError(f"{segment.name} ends before position {stop}")
            with memoryview(segment.memory) as memory, memory[position - base : stop - base] as data:
                yield data
            check_whole(segment.memory, segment.name)
        finally:
            segment.close()
        position = stop


def _has_data(fd: int, offset: int) -> bool:
    """Return whether a file has nonzero bytes from an offset on. Holes of a sparse file are not read."""
    while True:
        try:
            offset = os.lseek(fd, offset, os.SEEK_DATA)
        except OSError:
            return False
        data = os.pread(fd, CHUNK, offset)
        if not data or data.strip(b"\0"):
            return bool(data)
        offset += len(data)


class SegmentWriter:
    """Writes runs of frames at their stream position, and opens, preallocates and closes segment files.

    Opening it truncates everything past ``position``, on the device too: the rest of the segment becomes zero, and later segments
    are deleted. These are found by name, so that a very large directory is not listed. ``later`` has the bases of further segments
    that are known to exist.

    With ``durable``, everything before ``position`` is on the device when the constructor returns, whichever process wrote it. The
    name of a segment is on the device before the segment is written to, and its contents are before the next segment begins.
    """

    def __init__(
        self,
        directory: Path,
        descriptor: RecordingDescriptor,
        position: int,
        *,
        later: Iterable[int] = (),
        durable: bool = False,
        disk: Disk = DISK,
    ) -> None:
        descriptor.check()
        if position % FRAME_ALIGNMENT:
            raise RecordingError(f"recording {descriptor.recording_id}: position {position} is not a frame boundary")
        self._directory = directory
        self._descriptor = descriptor
        self._durable = durable
        self._disk = disk
        self._fd = -1
        self._base = -1
        self.position = position
        self._cut(later)
        if durable:
            self._sync_earlier()

    def _cut(self, later: Iterable[int]) -> None:
        d = self._descriptor
        base = segment_base(d, self.position)
        bases = set(segments_among(d, later))
        while self._path(base).exists():
            bases.add(base)
            base += d.segment_file_length
        has_deleted = False
        for base in sorted(bases):
            # An empty recording has no segment: the file can be one that a migration gave to another recording.
            if base >= self.position or self.position == d.start_position:
                has_deleted = True
                try:
                    self._disk.delete(self._path(base))
                except IsADirectoryError as error:
                    raise RecordingError(f"segment {self._path(base)}: {error.strerror}") from error
                except FileNotFoundError:
                    continue  # deleted by retention
            elif base + d.segment_file_length > self.position:
                fd = self._disk.open(self._path(base))
                try:
                    had_data = _has_data(fd, self.position - base)
                    self._disk.resize(fd, self.position - base)
                    self._disk.resize(fd, d.segment_file_length)
                    if had_data:
                        self._disk.sync(fd)
                finally:
                    self._disk.close(fd)
        if has_deleted:
            self._disk.sync_directory(self._directory)

    def _sync_earlier(self) -> None:
        d = self._descriptor
        for base in range(first_segment_base(d), self.position, d.segment_file_length):
            if self._path(base).exists():
                fd = self._disk.open(self._path(base))
                try:
                    self._disk.sync(fd)
                finally:
                    self._disk.close(fd)

    def _path(self, base: int) -> Path:
        return self._directory / segment_name(self._descriptor.recording_id, base)

    def _open(self, position: int) -> None:
        base = segment_base(self._descriptor, position)
        if base == self._base:
            return
        self.close()
        fd = self._disk.open(self._path(base))
        try:
            if os.fstat(fd).st_size < self._descriptor.segment_file_length:
                self._disk.resize(fd, self._descriptor.segment_file_length)
            if self._durable:
                # Also if the file exists: the attempt that created it may have failed here.
                self._disk.sync_directory(self._directory)
        except BaseException:
            self._disk.close(fd)
            raise
        self._fd, self._base = fd, base

    def write(self, frames: memoryview) -> None:
        """Write whole frames without padding at ``position``, within one segment, and advance the position."""
        self._open(self.position)
        at, length = self.position - self._base, frames.nbytes
        if at + length > self._descriptor.segment_file_length:
            raise RecordingError(f"{length} bytes at {self.position} extend past the end of their segment")
        self._disk.write(self._fd, frames, at)
        self.position += length

    def write_padding(self, header: memoryview, aligned_length: int) -> None:
        """Write the header of a padding frame, and advance the position past the frame."""
        self._open(self.position)
        self._disk.write(self._fd, header[:DATA_HEADER_LENGTH], self.position - self._base)
        self.position += aligned_length

    def sync(self) -> None:
        if self._fd >= 0:
            self._disk.sync(self._fd)

    def finish(self) -> None:
        """Close the files at the end of a recording.

        If the recording ends at the end of a segment, create an empty next segment, like Aeron Archive, whose tools expect it.
        """
        d = self._descriptor
        if self.position > d.start_position and segment_base(d, self.position) == self.position:
            with suppress(OSError):
                self._open(self.position)
        self.close()

    def close(self) -> None:
        if self._fd >= 0:
            if self._durable:
                self.sync()
            fd, self._fd, self._base = self._fd, -1, -1
            self._disk.close(fd)

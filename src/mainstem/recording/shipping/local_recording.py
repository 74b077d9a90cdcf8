"""What a recorder's directory has to ship: the end of each recording, and chunks of them.

It reads like any other reader, without a lock. Nothing stays open between two calls.
"""

from __future__ import annotations

import os
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mainstem._core.log.columns import FrameWalk
from mainstem._internal.clock import NS_PER_SECOND
from mainstem.errors import RecordingError
from mainstem.recording.archive import local_archive
from mainstem.recording.catalog import CATALOG_FILE, NULL, read_catalog
from mainstem.recording.ends import find_end
from mainstem.recording.index import ENTRY_LENGTH, LocalIndex, open_index, recorded_position
from mainstem.recording.reader import RecordingReader
from mainstem.recording.segments import checksum, segment_base, segment_name, segments_of
from mainstem.recording.shipping.chunks import UNKNOWN

if TYPE_CHECKING:
    from pathlib import Path

    from mainstem.recording.catalog import RecordingDescriptor

# 2 MiB of index in a chunk, at most: a stream of a message each 100 ms has more index than frames.
MAX_ENTRIES = 1 << 16
# A file's time is as coarse as the kernel's clock: a recently changed file may change again under the same time.
CATALOG_GRAIN_NS = 2 * NS_PER_SECOND


class LocalCatalog:
    """The catalog of a directory, decoded again only when the file has changed."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._seen: tuple[int, int] | None = None
        self._descriptors: list[RecordingDescriptor] = []

    def recordings(self, epoch_ns: int) -> list[RecordingDescriptor]:
        """The current recordings; none if there is no catalog yet."""
        try:
            status = (self._directory / CATALOG_FILE).stat()
        except FileNotFoundError:
            return []
        seen = (status.st_mtime_ns, status.st_size)
        if seen != self._seen or epoch_ns - status.st_mtime_ns < CATALOG_GRAIN_NS:
            self._descriptors = read_catalog(self._directory)
            self._seen = seen
        return self._descriptors


def local_end(directory: Path, descriptor: RecordingDescriptor, known: int) -> int:
    """The end of a recording. ``known`` is a frame boundary that it has reached before."""
    if descriptor.stop_position != NULL:
        return descriptor.stop_position
    recorded = recorded_position(directory, descriptor.recording_id, origin=descriptor.origin)
    return find_end(local_archive(directory), descriptor, known=known).suspect if recorded is None else recorded


@dataclass(frozen=True, slots=True)
class PlannedChunk:
    """A chunk to ship. With ``is_boundary`` a frame ends at ``end``, so that the shipped part may end there."""

    start: int
    end: int
    is_boundary: bool
    index: bytes
    before: int
    messages: int
    first_ns: int
    last_ns: int
    has_index: bool


def first_available(directory: Path, descriptor: RecordingDescriptor, position: int) -> int:
    """The first position at or after ``position`` whose segment exists; ``position`` if there is none."""
    step = descriptor.segment_file_length
    bases = [base for base in segments_of(directory, descriptor) if base + step > position]
    return max(position, bases[0]) if bases else position


def next_chunk(
    directory: Path, descriptor: RecordingDescriptor, start: int, end: int, length: int, epoch_ns: int
) -> PlannedChunk:
    """The next chunk of ``[start, end)``: within one segment, up to ``length`` bytes. ``epoch_ns`` is the present time.

    Raises RecordingError if a file of the recording is missing or corrupt.
    """
    limit = min(end, segment_base(descriptor, start) + descriptor.segment_file_length)
    with RecordingReader(local_archive(directory), descriptor) as reader:
        index = reader.index
        if index is None:
            stop, is_boundary = _last_frame(directory, descriptor, start, limit, length)
            return PlannedChunk(start, stop, is_boundary, b"", 0, 0, UNKNOWN, UNKNOWN, has_index=False)
        assert isinstance(index, LocalIndex)
        stop, is_boundary = limit, True
        if limit - start > length:
            near = index.at_or_before(start + length)
            if near is not None and near.position > start:
                stop = near.position
            else:
                stop, is_boundary = _last_frame(directory, descriptor, start, limit, length)
        first, entries = index.inside(start, stop, MAX_ENTRIES + 1)
        if len(entries) > MAX_ENTRIES * ENTRY_LENGTH:
            stop, is_boundary = index.numbered(first + MAX_ENTRIES).position, True
            entries = entries[: MAX_ENTRIES * ENTRY_LENGTH]
        entry, following = index.at_or_before(start), index.after(stop - 1)
        # Never too early: retention goes by it.
        last_ns = following.time_ns if following is not None else index.recorded_time_ns or epoch_ns
        first_ns = entry.time_ns if entry is not None else UNKNOWN
        before = reader.messages_before(start)
        messages = max(reader.messages_before(stop) - before, 0) if is_boundary else 0
        return PlannedChunk(start, stop, is_boundary, entries, before, messages, first_ns, last_ns, has_index=True)


def _last_frame(
    directory: Path, descriptor: RecordingDescriptor, start: int, limit: int, length: int
) -> tuple[int, bool]:
    """Where the last whole frame within ``length`` bytes ends; the end of those bytes, and False, if none does."""
    if limit - start <= length:
        return limit, True
    walk = FrameWalk()
    walk.term_mask = descriptor.term_buffer_length - 1
    walk.run(frames(directory, descriptor, start, start + length), 0, length)
    # A padding frame may be longer than a chunk.
    return (start + walk.offset, True) if walk.offset else (start + length, False)


def frames(directory: Path, descriptor: RecordingDescriptor, start: int, end: int) -> bytes:
    """The bytes ``[start, end)`` of one segment. Raises RecordingError if it is missing or short."""
    base = segment_base(descriptor, start)
    path = directory / segment_name(descriptor.recording_id, base)
    try:
        with path.open("rb", buffering=0) as file:
            parts, at = [], start
            while at < end and (part := os.pread(file.fileno(), end - at, at - base)):
                parts.append(part)
                at += len(part)
    except FileNotFoundError as error:
        raise RecordingError(f"segment {path} is missing") from error
    except OSError as error:
        raise RecordingError(f"segment {path}: {error.strerror}") from error
    if at < end:
        raise RecordingError(f"{path} ends before position {end}")
    return parts[0] if len(parts) == 1 else b"".join(parts)


def checksum_of(directory: Path, descriptor: RecordingDescriptor, start: int, end: int) -> int:
    """The current CRC-32 of a chunk ``[start, end)``. Raises RecordingError if a segment is missing."""
    value = checksum(directory, descriptor, start, end)
    if index := open_index(directory, descriptor):
        try:
            value = zlib.crc32(index.inside(start, end, (end - start) // ENTRY_LENGTH)[1], value)
        finally:
            index.close()
    return value


def recorded_since(directory: Path, descriptor: RecordingDescriptor, position: int, epoch_ns: int) -> int:
    """Since when (epoch) bytes after a position have existed; ``epoch_ns``, the present time, if unknown."""
    index = open_index(directory, descriptor)
    if index is None:
        return epoch_ns
    try:
        entry = index.at_or_before(position)
    finally:
        index.close()
    return min(entry.time_ns, epoch_ns) if entry is not None else epoch_ns

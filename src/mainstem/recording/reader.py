"""Reads recordings of Mainstem and Aeron Archive by position, even while they are written."""

from __future__ import annotations

import weakref
import zlib
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from mmap import MADV_DONTNEED, PAGESIZE
from typing import TYPE_CHECKING, Protocol

from mainstem._core.layout import DATA_HEADER_LENGTH, FRAME_ALIGNMENT, WALK_AT_LIMIT
from mainstem._core.log.columns import FrameWalk
from mainstem._internal.clock import NS_PER_MS
from mainstem._internal.guarded_map import GuardedMap
from mainstem.errors import RecordingError
from mainstem.recording.archive import find_end, readable_start
from mainstem.recording.catalog import NULL, RecordingDescriptor
from mainstem.recording.segments import (
    BYTES_PER_RELEASE,
    CutShortError,
    check_term,
    check_whole,
    first_message,
    first_segment_base,
    segment_base,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from mmap import mmap

    from mainstem.recording.archive import Archive, ArchiveSegment
    from mainstem.recording.index import RecordingIndex


# -- open files --------------------------------------------------------------------------------------------------------


# A reader opens an index file and up to four segments, so this is at most 320 of the usual limit of 1,024 descriptors.
MAX_OPEN_READERS = 64


class Releasable(Protocol):
    def release(self) -> None: ...


class OpenFiles:
    """The readers with open files. Beyond ``most`` readers, the one that opened its files first closes them."""

    def __init__(self, most: int = MAX_OPEN_READERS) -> None:
        self._most = most
        # Weak, so that a reader that nobody refers to closes its files at once.
        self._readers: OrderedDict[int, weakref.ref[Releasable]] = OrderedDict()

    def opened(self, reader: Releasable) -> None:
        self._readers[id(reader)] = weakref.ref(reader)
        self._readers.move_to_end(id(reader))
        if len(self._readers) > self._most:
            oldest = self._readers.popitem(last=False)[1]()
            if oldest is not None:
                oldest.release()

    def closed(self, reader: Releasable) -> None:
        self._readers.pop(id(reader), None)


# Bytes to search for a message at a time.
BYTES_PER_SEARCH = 1 << 20
# Segments that a reader keeps mapped. Reading goes forward, and splitting a recording into partitions reads few segments.
MAX_MAPPED_SEGMENTS = 4


@dataclass(frozen=True, slots=True)
class MappedRange:
    """Frames in memory: ``memory[offset:limit]`` starts at the stream position ``position``. ``path`` names the file.

    A range is valid until the reader is closed. In a remote recording it is valid only until the next range.
    """

    memory: mmap | bytes
    offset: int
    limit: int
    position: int
    path: str

    def check(self) -> None:
        """Raise CutShortError if the file was truncated in the meantime, so the memory that was read cannot be trusted."""
        check_whole(self.memory, self.path)

    def release(self, start: int, end: int) -> int:
        """Return the pages of a mapped file, from ``start`` on, to the kernel, whose cache keeps them. Return where that ended.

        Otherwise the resident memory of a reader would grow by everything it reads, up to ``MAX_MAPPED_SEGMENTS`` segments. Ranges
        of remote segments reuse memory.
        """
        if not isinstance(self.memory, GuardedMap):
            return end
        first, last = start // PAGESIZE * PAGESIZE, end // PAGESIZE * PAGESIZE
        if last > first:
            self.memory.madvise(MADV_DONTNEED, first, last - first)
        return last


@dataclass(frozen=True, slots=True)
class Progress:
    """The result of a walk: the end of the last whole message, and the number of messages that ended.

    ``frames`` are the frames that were walked, with padding and those after the last whole message.
    """

    position: int
    messages: int
    frames: int = 0


class RecordingReader:
    """One recording, read by position. Use it as a context manager.

    Attributes:
        descriptor (RecordingDescriptor): The recording's catalog entry: its id, stream, session, positions and times.
    """

    def __init__(
        self,
        archive: Archive,
        descriptor: RecordingDescriptor,
        *,
        open_files: OpenFiles | None = None,
        owns_archive: bool = False,
    ) -> None:
        self.archive = archive
        self.descriptor = descriptor
        self._open_files = open_files or OpenFiles()
        self._owns_archive = owns_archive
        self._index: RecordingIndex | None = None
        self._is_released = True
        self._segments: OrderedDict[int, ArchiveSegment] = OrderedDict()
        self._walked = 0
        self._counted: Progress | None = None

    def __enter__(self) -> RecordingReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Unmap the segments; close the archive if ``open_recording`` returned this reader. Idempotent."""
        self._open_files.closed(self)
        while self._segments:
            self._segments.popitem()[1].close()
        if self._index is not None:
            self._index.close()
        self._index, self._is_released = None, False
        if self._owns_archive:
            self.archive.close()

    def release(self) -> None:
        """Release open files. The next read opens them again.

        They are dropped, not closed, so existing ranges and iterators stay valid.
        """
        self._open_files.closed(self)
        self._segments.clear()
        if self._index is not None and self._index.has_file:
            self._index, self._is_released = None, True

    @property
    def index(self) -> RecordingIndex | None:
        """The recorded position and the index, or None if the recording has no index. It is opened when it is first used."""
        if self._is_released:
            self._index, self._is_released = self.archive.index(self.descriptor), False
            if self._index is not None and self._index.has_file:
                self._open_files.opened(self)
        return self._index

    def update(self, descriptor: RecordingDescriptor) -> None:
        """Use ``descriptor``, the catalog's current entry, after the recording has ended or was extended."""
        self.descriptor = descriptor

    @property
    def start_position(self) -> int:
        """The first readable position, later than the recording's start if segments were purged."""
        return readable_start(self.archive, self.descriptor)

    def end_position(self) -> int:
        """Return the current end of the recording.

        This is the stop position. If there is none, it is the recorded position, and if there is none either, the end of a walk. A
        walk excludes a last frame that crosses a page boundary, because nothing proves yet that all of it is written.

        Returns:
            A stream position in bytes.

        Raises:
            RecordingError: A segment is missing.
        """
        if self.descriptor.stop_position != NULL:
            return self.descriptor.stop_position
        if self.index is not None:
            self.index.refresh()
            return self.index.recorded_position
        if (recorded := self._position_of_archive()) is not None:
            return recorded
        end = find_end(self.archive, self.descriptor, known=self._walked)
        self._walked = max(end.suspect, self._walked)
        return self._walked

    @property
    def has_recorded_end(self) -> bool:
        """Whether ``end_position`` was published by a recorder. Otherwise, a walk determined it."""
        has_own = self.descriptor.stop_position != NULL or self.index is not None
        return has_own or self._position_of_archive() is not None

    def _position_of_archive(self) -> int | None:
        """Return the archive's recorded position for a recording without an index."""
        (position,) = self.archive.recorded_positions([self.descriptor])
        return position

    def boundary_after(self, position: int, end: int) -> int:
        """Return the next available index entry or segment after ``position``, or ``end``.

        A segment begins between two messages, because messages do not cross terms.
        """
        lengths = self.archive.segments(self.descriptor)
        boundaries = [base for base in lengths if position < base < end]
        entry = self.index.after(position) if self.index is not None else None
        if entry is not None and entry.position < end:
            base = segment_base(self.descriptor, entry.position)
            if entry.position - base < lengths.get(base, 0):
                boundaries.append(entry.position)
        return min(boundaries, default=end)

    def message_after(self, position: int, end: int) -> int:
        """Return where reading up to ``end`` can continue after a frame at ``position`` that cannot be read.

        This is the next message, recognized by a header that states its position, or else ``boundary_after``.
        """
        boundary = self.boundary_after(position, end)
        base, start = segment_base(self.descriptor, position), position + FRAME_ALIGNMENT
        try:
            segment = self._segment(base)
            try:
                limit = min(base + segment.length, base + self.descriptor.segment_file_length, boundary)
                while start < limit:
                    chunk = segment.read(start - base, min(start + BYTES_PER_SEARCH, limit) - base)
                    found = first_message(chunk, self.descriptor, start)
                    if found is not None:
                        return found
                    start += len(chunk)
            finally:
                if not segment.is_mapped:
                    segment.close()
        except CutShortError:
            raise
        except RecordingError:
            pass  # the segment is missing
        return boundary

    def ranges(self, start: int, end: int) -> Iterator[MappedRange]:
        """Return the memory from ``start``, a frame boundary, to ``end``: a range per segment, or per range fetched from a store.

        A range has whole frames. In a mapped file it is valid until the reader is closed, in a remote one until the next range.
        Raises RecordingError if a segment is missing, too short, or of another recording.
        """
        position = start
        while position < end:
            base = segment_base(self.descriptor, position)
            segment = self._segment(base)
            stop = min(end, base + self.descriptor.segment_file_length)
            limit = min(stop - base, segment.length)
            if limit <= position - base:
                raise RecordingError(f"{segment.name} ends at {segment.length} bytes, before position {position}")
            try:
                for at, chunk_end in segment.chunks(position - base, limit):
                    place = segment.place(at)
                    if base + at == position and chunk_end - at >= DATA_HEADER_LENGTH:
                        check_term(segment.memory, place, self.descriptor, position, segment.name)
                    run = MappedRange(segment.memory, place, place + chunk_end - at, base + at, segment.name)
                    yield run
                    if chunk_end - at >= BYTES_PER_RELEASE:
                        run.release(run.offset, run.limit)
            finally:
                if not segment.is_mapped:
                    segment.close()
            if base + limit < stop:
                raise RecordingError(f"{segment.name} ends at {segment.length} bytes, before position {stop}")
            position = stop

    def _segment(self, base: int) -> ArchiveSegment:
        if base in self._segments:
            self._segments.move_to_end(base)
            return self._segments[base]
        if base < first_segment_base(self.descriptor):
            raise RecordingError(f"recording {self.descriptor.recording_id} starts after position {base}")
        segment = self.archive.segment(self.descriptor, base)
        if not segment.is_mapped:
            # Its memory is valid only during one iteration.
            return segment
        self._segments[base] = segment
        self._open_files.opened(self)
        if len(self._segments) > MAX_MAPPED_SEGMENTS:
            # Dropped, not closed: an iterator can still hold a range of it.
            self._segments.popitem(last=False)
        return segment

    def checksum(self, start: int, end: int) -> int:
        """Return the CRC-32 of the bytes from ``start`` to ``end``, computed like those in the index.

        Raises RecordingError if a segment is missing or too short.
        """
        value = 0
        for run in self.ranges(start, end):
            with memoryview(run.memory) as memory, memory[run.offset : run.limit] as data:
                value = zlib.crc32(data, value)
            run.check()
        return value

    def walk(self, start: int, end: int, *, max_messages: int | None = None) -> Progress:
        """Walk the frames from ``start``, where a message starts, to ``end``, a number of messages, or a problem.

        Return the end of the last whole message, and the number of messages that ended, at most ``max_messages``. Raises
        RecordingError if a segment is missing.
        """
        walk, position, messages, frames = FrameWalk(), start, 0, 0
        walk.term_mask = self.descriptor.term_buffer_length - 1
        for run in self.ranges(start, end):
            left = -1 if max_messages is None else max_messages - messages
            stopped = walk.run(run.memory, run.offset, run.limit, left)
            run.check()
            position = run.position + walk.boundary - run.offset if walk.boundary > run.offset else position
            messages += walk.messages
            frames += walk.frames + walk.others
            if stopped != WALK_AT_LIMIT or messages == max_messages:
                break
        return Progress(position, messages, frames)

    def advance(self, start: int, end: int, *, max_bytes: int | None = None, max_messages: int | None = None) -> int:
        """Return the end of the last whole message between ``start`` and ``end`` within limits; ``start`` if no message ends.

        There are at most ``max_messages``, and ``max_bytes`` unless the first message is longer. Raises RecordingError if a
        segment is missing.
        """
        if max_messages is not None:
            return self.advance_counted(start, end, max_messages, max_bytes=max_bytes).position
        target = end if max_bytes is None else min(end, start + max_bytes)
        if target <= start:
            return start
        entry = self.index.at_or_before(target) if self.index is not None else None
        near = entry.position if entry is not None and entry.position > start else start
        position = self.walk(near, target).position if near < target else near
        if position == start and target < end:
            position = self.walk(start, end, max_messages=1).position
        return position

    def advance_counted(self, start: int, end: int, max_messages: int, *, max_bytes: int | None = None) -> Progress:
        """Like ``advance``, but also return how many messages there are between ``start`` and the position.

        There are at most ``max_messages`` of them before ``end``, and ``max_bytes`` unless the first message is longer.
        """
        target = end if max_bytes is None else min(end, start + max_bytes)
        if target <= start:
            return Progress(start, 0)
        progress = self._count_to(start, target, max_messages)
        if progress.position == start and target < end:
            progress = self.walk(start, end, max_messages=1)
        return progress

    def _count_to(self, start: int, target: int, max_messages: int) -> Progress:
        if self.index is None:
            return self.walk(start, target, max_messages=max_messages)
        before = self.messages_before(start)
        near, left = start, max_messages
        entry = self.index.within(before + max_messages, target)
        if entry is not None and entry.position > start:
            near, left = entry.position, before + max_messages - entry.messages
        progress = self.walk(near, target, max_messages=left) if near < target and left else Progress(near, 0)
        messages = max_messages - left + progress.messages
        self._counted = Progress(progress.position, before + messages)
        return Progress(progress.position, messages)

    def messages_before(self, position: int) -> int:
        """Return how many messages of the recording end at or before ``position``.

        Raises RecordingError if a segment is missing.
        """
        return self.count_before(position).messages

    def count_before(self, position: int) -> Progress:
        """Return how many messages end at or before ``position``, and where the last of them ends.

        That is ``position`` itself if it is between two messages. Raises RecordingError if a segment is missing.
        """
        if self._counted is not None and self._counted.position == position:
            return self._counted
        entry = self.index.at_or_before(position) if self.index is not None else None
        if entry is not None:
            # Segments are listed only if the one with the entry is missing, because a directory can have very many files.
            with suppress(RecordingError):
                progress = self.walk(entry.position, position)
                return Progress(progress.position, entry.messages + progress.messages)
        progress = self.walk(self.start_position, position)
        return Progress(progress.position, progress.messages)

    def cuts(self, start: int, end: int, parts: int) -> list[tuple[int, int]]:
        """Split the range from ``start`` to ``end`` into up to ``parts`` ranges of about equal size, and return their bounds.

        Each begins where a message starts. Everything after a problem is in one range, so that the reader of the range finds it.
        """
        borders = [start]
        for i in range(1, parts):
            target = start + (end - start) * i // parts
            if target > borders[-1]:
                try:
                    border = self.advance(borders[-1], end, max_bytes=target - borders[-1])
                except RecordingError:
                    break
                if borders[-1] < border < end:
                    borders.append(border)
        borders.append(end)
        return [(a, b) for a, b in pairwise(borders) if a < b]

    @property
    def has_times(self) -> bool:
        """Whether recording times are known. Only the index has times, and recordings of Aeron Archive have no index."""
        return self.index is not None

    def recorded_time_ns(self, position: int) -> int | None:
        """Return when the frame that starts at a position was recorded.

        Args:
            position: A stream position.

        Returns:
            Epoch time in nanoseconds, exact to an index entry (64 KiB or 100 ms); None if unknown.
        """
        entry = self.index.at_or_before(position) if self.index is not None else None
        return None if entry is None else entry.time_ns

    def position_at_time(self, time_ns: int) -> int:
        """Return where to start reading in order to get everything that was recorded at or after a time.

        Args:
            time_ns: Epoch time in nanoseconds.

        Returns:
            A position between two messages.

        Raises:
            RecordingError: The recording has no times.
        """
        if self.index is None:
            raise RecordingError(
                f"recording {self.descriptor.recording_id} in {self.archive.url} has no index, so its times are not known;"
                " give a position"
            )
        entry = self.index.before_time(time_ns)
        return max(entry.position if entry else 0, self.start_position)

    def stamped_since(self, time_ns: int) -> int | None:
        """Return where the rows recorded at ``time_ns`` (epoch) or later begin; None if there are no such rows yet.

        A row has the time of the index entry before it, so this is exact for rows. If ``has_times`` is false, the start of the
        recording is the only known time and applies to all rows.
        """
        if self.index is not None and self.index.count:
            entry = self.index.at_time(time_ns)
            return None if entry is None else entry.position
        return self.start_position if self.descriptor.start_timestamp * NS_PER_MS >= time_ns else None

"""Reading recordings by position: those of Mainstem's recorder and those of Aeron Archive alike, also while being written."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from mainstem._core.layout import WALK_AT_LIMIT
from mainstem._core.log.columns import FrameWalk
from mainstem.clock import NS_PER_MS
from mainstem.errors import RecordingError
from mainstem.recording.catalog import NULL, RecordingDescriptor, read_catalog
from mainstem.recording.positions import PositionsReader, positions_file
from mainstem.recording.segments import (
    SegmentMemory,
    find_end,
    first_segment_base,
    segment_base,
    segment_bases,
    segment_name,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from mmap import mmap

# Segments that a reader keeps mapped at once: reading goes forward, and a cut into partitions looks at few.
MAX_MAPPED_SEGMENTS = 4


@dataclass(frozen=True, slots=True)
class Run:
    """Frames in memory: ``memory[offset:limit]`` starts at stream position ``position``. Valid until the reader closes."""

    memory: mmap | bytes
    offset: int
    limit: int
    position: int
    path: Path


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a walk came: the end of the last whole message, and how many messages ended on the way."""

    position: int
    messages: int


class RecordingReader:
    """One recording, read by position. Use it as a context manager."""

    def __init__(self, directory: Path | str, descriptor: RecordingDescriptor) -> None:
        self.directory = Path(directory)
        self.descriptor = descriptor
        self.positions: PositionsReader | None = None
        if positions_file(self.directory, descriptor.recording_id).exists():
            self.positions = PositionsReader(self.directory, descriptor.recording_id)
        self._segments: OrderedDict[int, SegmentMemory] = OrderedDict()
        self._walked = 0
        self._counted: Progress | None = None

    def __enter__(self) -> RecordingReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Unmaps everything; may be called twice."""
        while self._segments:
            self._segments.popitem()[1].close()
        if self.positions is not None:
            self.positions.close()
            self.positions = None

    def update(self, descriptor: RecordingDescriptor) -> None:
        """Takes in what the catalog says now: a recording ends, or goes on."""
        self.descriptor = descriptor

    @property
    def start_position(self) -> int:
        """The first position that can still be read: later than the recording's own start when segments were purged."""
        bases = segment_bases(self.directory, self.descriptor.recording_id)
        return max(self.descriptor.start_position, bases[0]) if bases else self.descriptor.start_position

    def end_position(self) -> int:
        """How far the recording can be read now: where it stopped, else its recorded position, else what a walk finds.

        A walk leaves out a last frame that reaches over a page, because nothing shows yet that all of it is there.
        """
        if self.descriptor.stop_position != NULL:
            return self.descriptor.stop_position
        if self.positions is not None:
            return self.positions.recorded_position
        end = find_end(self.directory, self.descriptor, known=self._walked)
        self._walked = max(end.suspect, self._walked)
        return self._walked

    @property
    def is_sure_of_its_end(self) -> bool:
        """Whether everything before ``end_position`` was said to be written, rather than found by a walk."""
        return self.descriptor.stop_position != NULL or self.positions is not None

    def boundary_after(self, position: int, end: int) -> int:
        """Where reading can go on after a fault at ``position``: the next entry of the index, else ``end``."""
        entry = self.positions.after(position) if self.positions is not None else None
        return min(entry.position, end) if entry is not None else end

    def runs(self, start: int, end: int) -> Iterator[Run]:
        """The memory of ``[start, end)``, one run for each segment. Raises RecordingError when a segment is missing."""
        position = start
        while position < end:
            base = segment_base(self.descriptor, position)
            segment = self._segment(base)
            stop = min(end, base + self.descriptor.segment_file_length)
            limit = min(stop - base, segment.length)
            if limit <= position - base:
                raise RecordingError(f"{segment.path} ends at {segment.length} bytes, before position {position}")
            yield Run(segment.memory, position - base, limit, position, segment.path)
            if base + limit < stop:
                raise RecordingError(f"{segment.path} ends at {segment.length} bytes, before position {stop}")
            position = stop

    def _segment(self, base: int) -> SegmentMemory:
        if base in self._segments:
            self._segments.move_to_end(base)
            return self._segments[base]
        if base < first_segment_base(self.descriptor):
            raise RecordingError(f"recording {self.descriptor.recording_id} starts after position {base}")
        segment = SegmentMemory(self.directory / segment_name(self.descriptor.recording_id, base), base)
        self._segments[base] = segment
        if len(self._segments) > MAX_MAPPED_SEGMENTS:
            # Dropped, not closed: an iterator may still hold a run of it.
            self._segments.popitem(last=False)
        return segment

    def walk(self, start: int, end: int, *, max_messages: int | None = None) -> Progress:
        """Walks ``[start, end)`` from a message's start; stops at ``end``, after so many messages, or at a fault."""
        walk, position, messages = FrameWalk(), start, 0
        walk.term_mask = self.descriptor.term_buffer_length - 1
        for run in self.runs(start, end):
            left = -1 if max_messages is None else max_messages - messages
            stopped = walk.run(run.memory, run.offset, run.limit, left)
            position = run.position + walk.boundary - run.offset if walk.boundary > run.offset else position
            messages += walk.messages
            if stopped != WALK_AT_LIMIT or messages == max_messages:
                break
        return Progress(position, messages)

    def advance(self, start: int, end: int, *, max_bytes: int | None = None, max_messages: int | None = None) -> int:
        """The end of the last whole message in ``[start, end)`` within these limits; ``start`` where there is none.

        ``start`` must be where a message starts. A message longer than ``max_bytes`` is taken whole all the same.
        """
        target = end if max_bytes is None else min(end, start + max_bytes)
        if target <= start:
            return start
        found = self._advance_to(start, target, max_messages)
        if found == start and target < end:
            found = self.walk(start, end, max_messages=1).position
        return found

    def _advance_to(self, start: int, target: int, max_messages: int | None) -> int:
        if self.positions is None:
            return self.walk(start, target, max_messages=max_messages).position
        if max_messages is None:
            entry = self.positions.at_or_before(target)
            near = entry.position if entry is not None and entry.position > start else start
            return self.walk(near, target).position if near < target else near
        before = self.messages_before(start)
        near, left = start, max_messages
        entry = self.positions.within(before + max_messages, target)
        if entry is not None and entry.position > start:
            near, left = entry.position, before + max_messages - entry.messages
        progress = self.walk(near, target, max_messages=left) if near < target and left else Progress(near, 0)
        self._counted = Progress(progress.position, before + max_messages - left + progress.messages)
        return progress.position

    def messages_before(self, position: int) -> int:
        """How many messages of the recording end at or before ``position``."""
        return self.count_before(position).messages

    def count_before(self, position: int) -> Progress:
        """The same, with the end of the last of those messages: ``position`` itself when it lies between two messages."""
        if self._counted is not None and self._counted.position == position:
            return self._counted
        near, count = self.start_position, 0
        entry = self.positions.at_or_before(position) if self.positions is not None else None
        if entry is not None and entry.position >= near:
            near, count = entry.position, entry.messages
        progress = self.walk(near, position)
        return Progress(progress.position, count + progress.messages)

    def cuts(self, start: int, end: int, parts: int) -> list[tuple[int, int]]:
        """``[start, end)`` in up to ``parts`` ranges of about equal size; each starts where a message starts.

        What follows a fault stays in one range: whoever reads it meets the fault.
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

    def position_at_time(self, time_ns: int) -> int:
        """Where to start so as to meet everything recorded at or after epoch ``time_ns``; the start without an index."""
        if self.positions is None:
            return self.start_position
        entry = self.positions.before_time(time_ns)
        return max(entry.position if entry else 0, self.start_position)

    def stamped_since(self, time_ns: int) -> int | None:
        """Where what is stamped with ``time_ns`` or later begins; None when there is nothing of it yet.

        Rows are stamped with the time of the index entry before them, so this is exact for rows. Without an index the whole
        recording is stamped with the time of its start.
        """
        if self.positions is not None and self.positions.count:
            entry = self.positions.at_time(time_ns)
            return None if entry is None else entry.position
        return self.start_position if self.descriptor.start_timestamp * NS_PER_MS >= time_ns else None


def open_recordings(directory: Path | str) -> list[RecordingReader]:
    """A reader for each recording of ``directory``. Raises RecordingError where there is no catalog."""
    path = Path(directory)
    return [RecordingReader(path, descriptor) for descriptor in read_catalog(path)]


def open_recording(directory: Path | str, recording_id: int) -> RecordingReader:
    """A reader for one recording. Raises RecordingError when the catalog has none of that id."""
    path = Path(directory)
    for descriptor in read_catalog(path):
        if descriptor.recording_id == recording_id:
            return RecordingReader(path, descriptor)
    raise RecordingError(f"{directory} holds no recording {recording_id}")

"""What a recording contains before the position at which a writer continues it.

The index of a recording says most of it. Recordings of Java's archive have none, nor have migrated ones. Then all frames are read,
in steps, because a recording can have any length and the caller may have other things to do.
"""

from __future__ import annotations

import zlib
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mainstem._core.layout import WALK_AT_LIMIT
from mainstem._core.log.columns import FrameWalk
from mainstem.errors import RecordingError
from mainstem.recording.archive import local_archive
from mainstem.recording.reader import RecordingReader
from mainstem.recording.segments import SegmentMemory, check_whole, segment_base, segment_name

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from mainstem.recording.catalog import RecordingDescriptor

STEP_LENGTH = 256 << 10  # bytes; takes a fraction of a millisecond


@dataclass(frozen=True, slots=True)
class EarlierFrames:
    """The frames of a recording before a position.

    Attributes:
        messages: The number of messages that end there.
        is_whole: Whether a message ends at the position.
        checksum: The CRC-32 of the frames; None if an index entry makes it unnecessary.
    """

    messages: int = 0
    is_whole: bool = True
    checksum: int | None = None


def earlier_frames(directory: Path, descriptor: RecordingDescriptor) -> Generator[None, None, EarlierFrames]:
    """Examine a stopped recording up to its stop position, step by step. Raises RecordingError."""
    start, stop = descriptor.start_position, descriptor.stop_position
    if start == stop:
        return EarlierFrames()
    with RecordingReader(local_archive(directory), descriptor) as reader:
        if reader.index is not None and reader.index.at_or_before(stop) is not None:
            count = reader.count_before(stop)
            return EarlierFrames(count.messages, count.position == stop)
    position = boundary = start
    messages = checksum = 0
    walk, is_walking = FrameWalk(), True
    walk.term_mask = descriptor.term_buffer_length - 1
    while position < stop:
        base = segment_base(descriptor, position)
        end = min(stop, base + descriptor.segment_file_length)
        with closing(SegmentMemory(directory / segment_name(descriptor.recording_id, base), base)) as segment:
            if end - base > segment.length:
                raise RecordingError(f"{segment.name} ends before position {end}")
            at = position - base  # where the walk is; a frame can end after a step
            while position < end:
                limit = min(position + STEP_LENGTH, end)
                with memoryview(segment.memory) as memory, memory[position - base : limit - base] as data:
                    checksum = zlib.crc32(data, checksum)
                if is_walking:
                    is_walking = walk.run(segment.memory, at, limit - base) == WALK_AT_LIMIT or limit < end
                    messages += walk.messages
                    boundary = base + walk.boundary if walk.boundary > at else boundary
                    at = walk.offset
                check_whole(segment.memory, segment.name)
                position = limit
                yield
    return EarlierFrames(messages, boundary == stop, checksum)


def at_once(steps: Generator[None, None, EarlierFrames]) -> EarlierFrames:
    """Run all steps, and return the result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: EarlierFrames = end.value
            return result

"""Finds the end of a recording by walking its last segment, for recordings without a stored end."""

from __future__ import annotations

from dataclasses import dataclass
from mmap import PAGESIZE
from typing import TYPE_CHECKING

from mainstem._core.layout import WALK_AT_END, WALK_AT_LIMIT, WALK_CORRUPT
from mainstem._core.log.columns import FrameWalk
from mainstem.recording.segments import check_whole

if TYPE_CHECKING:
    from mainstem.recording.archive import Archive
    from mainstem.recording.catalog import RecordingDescriptor


@dataclass(frozen=True, slots=True)
class RecordingEnd:
    """The end of a recording's frames, and why the walk ended there.

    ``position`` is the end of the last whole frame. Usually, ``suspect`` is the same. But if the walk ended before the limit, and
    the last frame crosses a page boundary, ``suspect`` is the start of that frame, because nothing proves that all of its pages
    were written.

    ``reason`` is ``end`` if the limit was reached or nothing more was written, ``torn`` if a frame is truncated, ``corrupt`` if a
    frame header is invalid, and ``missing`` if a segment file is missing or too short.
    """

    position: int
    suspect: int
    reason: str


def find_end(
    archive: Archive, descriptor: RecordingDescriptor, *, limit: int | None = None, known: int = 0
) -> RecordingEnd:
    """Walk the last segment and return where its whole frames end.

    The walk begins at ``known`` if that is a frame boundary in the part of the segment that is walked. With ``limit``, segments
    that begin at or after it are ignored, and the walk does not go past it.
    """
    bases = list(archive.segments(descriptor))
    start = descriptor.start_position
    if limit is not None:
        bases = [base for base in bases if base < limit]
    if not bases:
        return RecordingEnd(start, start, "end" if limit in (None, start) else "missing")
    base = bases[-1]
    segment = archive.segment(descriptor, base)
    try:
        end = segment.length if limit is None else min(segment.length, limit - base)
        begin = max(start - base, 0)
        if begin > end:
            return RecordingEnd(start, start, "torn")
        if begin < known - base <= end:
            begin = known - base
        walk = FrameWalk()
        walk.term_mask = descriptor.term_buffer_length - 1
        offset, last, stopped = begin, begin, WALK_AT_LIMIT
        for at, chunk_end in segment.chunks(begin, end):
            first = segment.place(at)
            stopped = walk.run(segment.memory, first, first + chunk_end - at)
            check_whole(segment.memory, segment.name)
            offset = at + walk.offset - first
            last = at + walk.last - first if offset > at else last
            if stopped != WALK_AT_LIMIT:
                break
        position = base + offset
        if stopped == WALK_AT_LIMIT:
            whole = limit is None or position == limit
            return RecordingEnd(position, position, "end" if whole else "missing")
        reason = {WALK_AT_END: "end", WALK_CORRUPT: "corrupt"}.get(stopped, "torn")
        crosses = offset > begin and last // PAGESIZE != (offset - 1) // PAGESIZE
        return RecordingEnd(position, base + last if crosses else position, reason)
    finally:
        segment.close()

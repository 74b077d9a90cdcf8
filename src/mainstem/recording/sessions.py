"""Tells which session recorded each position of a recording.

Theory of operation. A session belongs to a range of positions: an archive that extends a recording does so with the session of
another publication, and its catalog has only the last one. Every frame on disk has its session id in its header, in a directory, in
a shipped chunk and on a server. There are two exceptions. An archive that records checksums stores them in place of the session
ids. And an archive sends a replay with a session of its own, so over ``aeron-archive://`` nobody but the archive knows. In both
cases the session is that of the catalog, unless the index has another one.

The index has the session of the bytes before each entry. Where two neighboring entries have the same one, so have all frames
between them, because an extension begins with an entry if it begins between two messages. Everywhere else the frames decide.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from mainstem._core.layout import DATA_HEADER_LENGTH, FRAME_ALIGNMENT, FRAME_SESSION_ID_OFFSET
from mainstem._core.log.columns import FrameWalk
from mainstem.errors import RecordingError
from mainstem.recording.frame_checksums import algorithm_of, end_of_session
from mainstem.recording.life import NO_LIFE, OF_ARCHIVE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from mmap import mmap

    from mainstem.recording.reader import MappedRange, RecordingReader


class RecordingSessions:
    """The sessions of ``[start, end)`` of a recording, for a reader that goes forward."""

    def __init__(self, reader: RecordingReader, start: int, end: int) -> None:
        self._default = self._last = reader.descriptor.session_id
        self._has_own = reader.archive.has_sessions
        self._entries = _indexed(reader, start, end) if self._has_own else []
        self._at = 0
        # What was found last, and up to which position it is known.
        self._found: int | None = None
        self._until = -1

    def forget(self) -> None:
        """Look at the frames again: the last one did not end before the limit."""
        self._until = -1

    def next(self, run: MappedRange, offset: int, limit: int) -> tuple[int, int]:
        """Return the session of the frame at ``offset`` of a run, and up to where, at most ``limit``, frames have that session."""
        if not self._has_own:
            return self._default, limit
        session, end = self.find(run, offset, limit)
        return self._default if session is None else session, end

    def find(self, run: MappedRange, offset: int, limit: int) -> tuple[int | None, int]:
        """Like ``next``, but the session is None if the frames have checksums instead and the index does not have it."""
        position = run.position + offset - run.offset
        if position >= self._until:
            self._found, end = self._find(run, position, offset, limit)
            self._until = position + end - offset
        return self._found, min(limit, offset + self._until - position)

    def _find(self, run: MappedRange, position: int, offset: int, limit: int) -> tuple[int | None, int]:
        while self._at < len(self._entries) and self._entries[self._at].end <= position:
            self._at += 1
        known = self._entries[self._at] if self._at < len(self._entries) else None
        if known is None:
            return self._of_frames(run.memory, offset, limit)
        if known.start > position:
            return self._of_frames(run.memory, offset, min(limit, offset + known.start - position))
        limit = min(limit, offset + known.end - position)
        if known.is_certain:
            self._last = known.session_id
            return known.session_id, limit
        session, end = self._of_frames(run.memory, offset, limit)
        return known.session_id if session is None else session, end

    def _of_frames(self, memory: mmap | bytes, offset: int, limit: int) -> tuple[int | None, int]:
        if (end := end_of_session(memory, offset, limit, self._last)) > offset:
            return self._last, end
        frame_end = offset + _aligned_length(memory, offset)
        if frame_end > limit:
            return self._last, limit  # a truncated frame, which has no row
        found = _session_at(memory, offset)
        algorithm = algorithm_of(memory, offset + DATA_HEADER_LENGTH, frame_end, found)
        if algorithm is not None:
            return None, limit if algorithm.check(memory, offset, limit) else max(algorithm.offset, frame_end)
        self._last = found
        return found, end_of_session(memory, offset, limit, found)


class _Indexed(NamedTuple):
    """A range of positions and the session of its last frames; if it ``is_certain``, of all its frames."""

    start: int
    end: int
    session_id: int
    is_certain: bool


def _indexed(reader: RecordingReader, start: int, end: int) -> list[_Indexed]:
    """Return what the index says about a range, ascending."""
    if reader.index is None:
        return []
    ranges: list[_Indexed] = []
    positions, sessions = reader.index.sessions_around(start, end)
    for i in range(1, len(positions)):
        session, begin = sessions[i], positions[i - 1]
        # Older files have no sessions.
        if not session or positions[i] <= begin:
            continue
        is_certain = session == sessions[i - 1]
        if is_certain and ranges and ranges[-1][1:] == (begin, session, True):
            begin = ranges.pop().start
        ranges.append(_Indexed(begin, positions[i], session, is_certain))
    return ranges


def _session_at(memory: mmap | bytes, offset: int) -> int:
    at = offset + FRAME_SESSION_ID_OFFSET
    return int.from_bytes(memory[at : at + 4], "little", signed=True)


def _aligned_length(memory: mmap | bytes, offset: int) -> int:
    length = int.from_bytes(memory[offset : offset + 4], "little", signed=True)
    return max(length + FRAME_ALIGNMENT - 1, FRAME_ALIGNMENT) // FRAME_ALIGNMENT * FRAME_ALIGNMENT


def sessions_at(reader: RecordingReader, position: int) -> tuple[int | None, int | None]:
    """Return the session of the frame before a position, and of the one after it: the same one if the position is inside a frame.

    A session is None if there is no such frame, or if its session is unknown. Raises RecordingError if a segment is missing.
    """
    if not reader.archive.has_sessions:
        return None, None
    term = reader.descriptor.term_buffer_length
    # Frames do not cross the end of a term.
    near = max((position - 1) // term * term, reader.start_position)
    if reader.index is not None and (entry := reader.index.at_or_before(position - 1)) is not None:
        near = max(near, entry.position)
    end = reader.end_position()
    before, is_boundary = _last_session(reader, near, min(position, end))
    if not is_boundary:
        return before, before
    sessions = RecordingSessions(reader, position, end)
    for run in reader.ranges(position, min(position // term * term + term, end)):
        after, _ = sessions.find(run, run.offset, run.limit)
        run.check()
        return before, after
    return before, None


def _last_session(reader: RecordingReader, start: int, end: int) -> tuple[int | None, bool]:
    """Return the session of the last frame of a range, and whether a frame ends where the range ends."""
    found, is_boundary = None, True
    if start >= end:
        return found, is_boundary
    walk, sessions = FrameWalk(), RecordingSessions(reader, start, end)
    walk.term_mask = reader.descriptor.term_buffer_length - 1
    for run in reader.ranges(start, end):
        walk.run(run.memory, run.offset, run.limit)
        is_boundary, at = walk.offset == run.limit, run.offset
        while at < run.limit:
            found, following = sessions.find(run, at, run.limit)
            at = max(following, at + FRAME_ALIGNMENT)
        run.check()
    return found, is_boundary


def has_one_session(reader: RecordingReader) -> bool:
    """Return whether all of a recording is of the catalog's session. Reads at most the first block of an index.

    If it returns False, the recording may have been extended by another session. Of a shipped recording with an index it returns
    True if the first and the last session are the same.
    """
    descriptor = reader.descriptor
    if not reader.archive.has_sessions:
        return True
    index = reader.index
    if index is None:
        # An archive replaces the origin of a recording that it extends.
        return descriptor.origin == OF_ARCHIVE
    if index.life != NO_LIFE:
        return index.life == index.origin
    # The index of a shipped recording does not have the lives.
    try:
        return not index.count or index.at(0).session_id in (descriptor.session_id, 0)
    except RecordingError:
        return False


def may_have_session(reader: RecordingReader, wanted: frozenset[int]) -> bool:
    """Return whether a recording may have frames of one of these sessions."""
    return reader.descriptor.session_id in wanted or not has_one_session(reader)


def session_ranges(reader: RecordingReader, start: int, end: int, wanted: frozenset[int]) -> Iterator[tuple[int, int]]:
    """Yield the parts of ``[start, end)`` that one of these sessions recorded."""
    if has_one_session(reader):
        if reader.descriptor.session_id in wanted:
            yield start, end
        return
    sessions, first, last, position = RecordingSessions(reader, start, end), start, start, start
    try:
        for run in reader.ranges(start, end):
            at = run.offset
            while at < run.limit:
                session, following = sessions.next(run, at, run.limit)
                position = run.position + at - run.offset
                at = max(following, at + FRAME_ALIGNMENT)
                if session in wanted:
                    first = first if first < last == position else position
                    last = run.position + at - run.offset
                elif first < last:
                    yield first, last
                    first = last
            run.check()
            position = run.position + run.limit - run.offset
    except RecordingError:
        # Whoever reads the rest finds the problem, and knows whether to go on after it.
        last, first = end, first if first < last else position
    if first < last:
        yield first, last

"""The parts of recordings to read for rows within a range of times and positions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mainstem.errors import RecordingError
from mainstem.recording.sessions import may_have_session, session_ranges

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mainstem.recording.reader import RecordingReader
    from mainstem.recording.rows.filters import PredicateBounds


@dataclass(frozen=True, kw_only=True)
class ScanRange:
    """A range of times in ns since 1970 and of positions in bytes. Ends are exclusive, and None means unbounded."""

    from_time_ns: int | None = None
    to_time_ns: int | None = None
    from_position: int | None = None
    to_position: int | None = None

    @property
    def is_unbounded(self) -> bool:
        return self == ScanRange()

    @property
    def has_times(self) -> bool:
        """Whether it is bounded by time. Only recordings with an index have times."""
        return self.from_time_ns is not None or self.to_time_ns is not None

    def of_times(self, reader: RecordingReader, start: int, end: int) -> tuple[int, int]:
        """Return ``[start, end)`` narrowed to the range of times."""
        if self.from_time_ns is not None:
            since = reader.stamped_since(self.from_time_ns)
            start = end if since is None else min(max(start, since), end)
        if self.to_time_ns is not None and (after := reader.stamped_since(self.to_time_ns)) is not None:
            end = max(min(end, after), start)
        return start, end

    def of_positions(self, reader: RecordingReader, start: int, end: int, *, frames: bool) -> tuple[int, int]:
        """Return ``[start, end)`` narrowed to the range of positions. ``frames`` says whether the rows are frames."""
        if self.from_position is not None:
            start = first_reaching(reader, self.from_position, start, end)
        if self.to_position is not None:
            end = last_before(reader, self.to_position, start, end, frames=frames)
        return start, end


def ranges_within(
    readers: Iterable[RecordingReader], bounds: PredicateBounds, *, frames: bool
) -> Iterator[tuple[RecordingReader, int, int]]:
    """Yield the ranges to read for rows within ``bounds``: a reader, start and end."""
    times, positions = bounds.recorded_at, bounds.position
    wanted = ScanRange(
        from_time_ns=None if times.low is None else times.low * 1000,
        to_time_ns=None if times.high is None else (times.high + 1) * 1000,
        from_position=None if positions.low is None else max(positions.low, 0),
        to_position=None if positions.high is None else max(positions.high + 1, 0),
    )
    for reader in readers:
        descriptor = reader.descriptor
        ids = (
            (bounds.recording_id, descriptor.recording_id),
            (bounds.stream_id, descriptor.stream_id),
        )
        # If the recording times are unknown, no condition on them is true.
        if any(chosen is not None and each not in chosen for chosen, each in ids) or (
            wanted.has_times and not reader.has_times
        ):
            continue
        chosen = bounds.session_id
        if chosen is not None and not may_have_session(reader, chosen):
            continue
        start, end = wanted.of_times(reader, reader.start_position, reader.end_position())
        start, end = wanted.of_positions(reader, start, end, frames=frames)
        if start < end:
            parts = [(start, end)] if chosen is None else session_ranges(reader, start, end, chosen)
            yield from ((reader, first, last) for first, last in parts)


def _near(reader: RecordingReader, position: int, start: int) -> int:
    """Return the start of a message at or before ``position``, but not before ``start``.

    It is that of the last index entry in the term, or the start of the term, so that it is in the segment of ``position``.
    """
    # A message never crosses the end of a term.
    near = max(position - position % reader.descriptor.term_buffer_length, start)
    entry = None if reader.index is None else reader.index.at_or_before(position)
    return near if entry is None else max(entry.position, near)


def first_reaching(reader: RecordingReader, position: int, start: int, end: int) -> int:
    """Return where in ``[start, end)`` the first message begins that ends at or after ``position``.

    If a problem is found on the way, return the start of a message before it. If the message was purged, return a position that was
    purged, so that the caller notices the loss.
    """
    # A message's position is its end, so messages that end before ``position`` are skipped.
    last = min(position - 1, end)
    if last <= start:
        return start
    near = _near(reader, last, max(start, reader.start_position))
    if near >= last:
        return last
    try:
        return reader.walk(near, last).position
    except RecordingError:
        return near


def last_before(reader: RecordingReader, position: int, start: int, end: int, *, frames: bool) -> int:
    """Return where in ``[start, end)`` the last message that ends before ``position`` ends; ``end`` if a problem follows.

    With ``frames``, the message around ``position`` is included, because some of its frames end before it.
    """
    last = position - 1
    if last <= start:
        return start
    if last >= end:
        return end
    near = _near(reader, last, max(start, reader.start_position))
    try:
        boundary = reader.walk(near, last).position if near < last else near
        following = reader.walk(boundary, end, max_messages=1)
    except RecordingError:
        return end
    if not following.messages:
        return end
    return following.position if frames and boundary < last else boundary

"""The part of a recording to read for rows within a range of times and positions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mainstem.errors import RecordingError

if TYPE_CHECKING:
    from mainstem.recording.reader import RecordingReader


# -- messages near a position ------------------------------------------------------------------------------------------


def _near(reader: RecordingReader, position: int, start: int) -> int:
    """Return the start of a message at or before ``position``, but not before ``start``.

    It comes from an index entry if there is an index. Otherwise, it is the start of the term.
    """
    if reader.index is not None:
        entry = reader.index.at_or_before(position)
        return start if entry is None else max(entry.position, start)
    # A message never crosses the end of a term.
    return max(position - position % reader.descriptor.term_buffer_length, start)


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
    last = max(position - 1, start)
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
    return following.position if frames else boundary


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

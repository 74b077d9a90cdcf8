"""Finds the messages of a range of positions in a recording."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.errors import RecordingError

if TYPE_CHECKING:
    from mainstem.recording.reader import RecordingReader


def _near(reader: RecordingReader, position: int, start: int) -> int:
    """The start of a message near ``position``: an entry of the index, else the start of its term."""
    if reader.index is not None:
        entry = reader.index.at_or_before(position)
        return start if entry is None else max(entry.position, start)
    # A message never reaches over the end of a term.
    return max(position - position % reader.descriptor.term_buffer_length, start)


def first_reaching(reader: RecordingReader, position: int, start: int, end: int) -> int:
    """Where in ``[start, end)`` the first message begins whose end is at ``position`` or later, or a problem."""
    # A message's position is its end: messages that end before this are left out.
    last = min(position - 1, end)
    if last <= start:
        return start
    near = _near(reader, last, max(start, reader.start_position))
    try:
        return reader.walk(near, last).position if near < last else near
    except RecordingError:
        return start


def last_before(reader: RecordingReader, position: int, start: int, end: int, *, frames: bool) -> int:
    """Where in ``[start, end)`` the last message ends whose end is before ``position``; ``end`` if a problem follows.

    With ``frames``, the message around ``position`` counts, because some of its frames end before.
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

"""Where in a recording the messages of a range of positions lie."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.errors import RecordingError

if TYPE_CHECKING:
    from mainstem.recording.reader import RecordingReader


def _near(reader: RecordingReader, position: int, begin: int) -> int:
    """A start of a message from which ``position`` is not far: an entry of the index, else the start of its term."""
    if reader.positions is not None:
        entry = reader.positions.at_or_before(position)
        return begin if entry is None else max(entry.position, begin)
    # A message never reaches over the end of a term.
    return max(position - position % reader.descriptor.term_buffer_length, begin)


def first_reaching(reader: RecordingReader, position: int, begin: int, stop: int) -> int:
    """Where in ``[begin, stop)`` the first message begins whose end is at ``position`` or later.

    Earlier than that, where a fault lies between: the reader meets it.
    """
    # A position of a message is its end: what ends before this is left out.
    last = min(position - 1, stop)
    if last <= begin:
        return begin
    near = _near(reader, last, max(begin, reader.start_position))
    try:
        return reader.walk(near, last).position if near < last else near
    except RecordingError:
        return begin


def last_before(reader: RecordingReader, position: int, begin: int, stop: int, *, frames: bool) -> int:
    """Where in ``[begin, stop)`` the last message ends whose end is before ``position``; ``stop`` where a fault follows.

    With ``frames`` the message around ``position`` belongs to it: some of its frames end before.
    """
    last = max(position - 1, begin)
    if last >= stop:
        return stop
    near = _near(reader, last, max(begin, reader.start_position))
    try:
        end = reader.walk(near, last).position if near < last else near
        following = reader.walk(end, stop, max_messages=1)
    except RecordingError:
        return stop
    if not following.messages:
        return stop
    return following.position if frames else end

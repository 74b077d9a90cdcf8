"""The part of a recording to read for rows within times and positions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mainstem.recording.rows.search import first_reaching, last_before

if TYPE_CHECKING:
    from mainstem.recording.reader import RecordingReader


@dataclass(frozen=True, kw_only=True)
class ScanRange:
    """Times in ns since 1970 and positions in bytes; ends are exclusive, and None is unbounded."""

    from_time_ns: int | None = None
    to_time_ns: int | None = None
    from_position: int | None = None
    to_position: int | None = None

    @property
    def is_unbounded(self) -> bool:
        return self == ScanRange()

    @property
    def has_times(self) -> bool:
        """Whether a time bounds it: only recordings with an index have times."""
        return self.from_time_ns is not None or self.to_time_ns is not None

    def of_times(self, reader: RecordingReader, start: int, end: int) -> tuple[int, int]:
        """Narrow ``[start, end)`` to the recorded times."""
        if self.from_time_ns is not None:
            since = reader.stamped_since(self.from_time_ns)
            start = end if since is None else min(max(start, since), end)
        if self.to_time_ns is not None and (after := reader.stamped_since(self.to_time_ns)) is not None:
            end = max(min(end, after), start)
        return start, end

    def of_positions(self, reader: RecordingReader, start: int, end: int, *, frames: bool) -> tuple[int, int]:
        """Narrow ``[start, end)`` to the positions. ``frames``: rows are frames."""
        if self.from_position is not None:
            start = first_reaching(reader, self.from_position, start, end)
        if self.to_position is not None:
            end = last_before(reader, self.to_position, start, end, frames=frames)
        return start, end

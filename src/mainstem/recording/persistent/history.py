"""The recordings of one publisher's stream, read forward from a position. There can be gaps between them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from mainstem.aeron.client.persistent_subscription import COLUMNS
from mainstem.errors import RecordingError
from mainstem.recording.catalog import NULL
from mainstem.recording.life import NO_LIFE, OF_ARCHIVE
from mainstem.recording.rows.batches import batches

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainstem.recording.catalog import RecordingDescriptor
    from mainstem.recording.life import StreamLife
    from mainstem.recording.reader import RecordingReader


# -- messages in columns -----------------------------------------------------------------------------------------------


class MessageBatch:
    """Rows from ``Columns.take``. ``next`` is the first row that is not handed out yet."""

    def __init__(self, columns: dict[str, bytearray], rows: int) -> None:
        self.columns, self.rows, self.next = columns, rows, 0
        self._positions = memoryview(columns["position"]).cast("q")
        self._offsets = memoryview(columns["payload_offsets"]).cast("i")

    @property
    def nbytes(self) -> int:
        return self._offsets[self.rows]

    @property
    def last_position(self) -> int:
        return self._positions[self.rows - 1]

    @property
    def is_empty(self) -> bool:
        return self.next == self.rows

    def skip_to(self, position: int) -> None:
        """Skip the messages that end at or before ``position``."""
        while self.next < self.rows and self._positions[self.next] <= position:
            self.next += 1

    def take(self, limit: int) -> tuple[int, int, int]:
        """Hand out up to ``limit`` rows.

        Returns the first row, the row after the last, and the position at which the last row ends.
        """
        assert not self.is_empty, "an empty batch is never kept"
        first = self.next
        self.next = min(first + limit, self.rows)
        return first, self.next, self._positions[self.next - 1]

    def payloads(self, first: int, last: int) -> Iterator[bytes]:
        data, offsets = self.columns["payload"], self._offsets
        return (bytes(data[offsets[i] : offsets[i + 1]]) for i in range(first, last))

    def arrow(self, first: int, last: int) -> Any:
        from mainstem._internal.arrow_batches import record_batch

        return record_batch(self.columns, self.rows).slice(first, last - first)


log = logging.getLogger("mainstem.recording")

ROWS_PER_BATCH = 4096


class History:
    """The recordings of one life of a session, in the order in which they were recorded."""

    def __init__(self, *, strict: bool) -> None:
        self.readers: list[RecordingReader] = []
        self._ends: list[int] = []
        self._strict = strict
        self._batches: Iterator[tuple[dict[str, bytearray], int]] | None = None
        self._reached = 0

    @property
    def start_position(self) -> int:
        return self.readers[0].start_position

    @property
    def end(self) -> int:
        """The end of the readable part at the last refresh; 0 if there are no recordings."""
        return max(self._ends, default=0)

    @property
    def life(self) -> StreamLife:
        """The life of the last recording, or ``NO_LIFE``."""
        positions = self.readers[-1].index if self.readers else None
        return NO_LIFE if positions is None else positions.life

    @property
    def is_growing(self) -> bool:
        return bool(self.readers) and self.readers[-1].descriptor.stop_position == NULL

    def continues_in(self, descriptor: RecordingDescriptor) -> bool:
        """Return whether a later recording with the same ids belongs to the same life. Positions never decrease within a life."""
        if not self.readers:
            return True
        last = self.readers[-1]
        if descriptor.origin == last.descriptor.origin not in (NO_LIFE, OF_ARCHIVE):
            return True
        return descriptor.start_position >= last.end_position()

    def refresh(self) -> None:
        """Find out how far each recording can be read now. In a store, this takes a request per recording."""
        self._ends = [reader.end_position() for reader in self.readers]

    def is_read(self, position: int) -> bool:
        """Return whether ``position`` is the end of everything recorded, and no recorder is continuing it."""
        return self.left_after(position) == 0 and not self.is_growing

    def left_after(self, position: int) -> int:
        """Return the number of bytes recorded after a position, as of the last refresh."""
        return max(max(self._ends, default=position) - position, 0)

    def next_batch(self, position: int) -> MessageBatch | None:
        """Return messages that end after ``position``, or None if there were none at the last refresh.

        If positions are missing, raises RecordingError with ``strict``; otherwise, logs and skips them.
        """
        if self._batches is not None and self._reached == position:
            batch = self._next_of_range()
            if batch is not None:
                return batch
        for reader, end in zip(self.readers, self._ends, strict=False):
            if end <= position:
                continue
            first = reader.start_position
            if first > position:
                self._lost(
                    f"positions {position} to {first} of session {reader.descriptor.session_id} are not recorded"
                )
                position = first
            self._batches = batches(
                reader, position, end, column_mask=COLUMNS, rows=ROWS_PER_BATCH, strict=self._strict
            )
            batch = self._next_of_range()
            if batch is not None:
                return batch
        return None

    def _next_of_range(self) -> MessageBatch | None:
        assert self._batches is not None, "a range is being read"
        columns, rows = next(self._batches, ({}, 0))
        if not rows:
            self._batches = None
            return None
        batch = MessageBatch(columns, rows)
        self._reached = batch.last_position
        return batch

    def _lost(self, what: str) -> None:
        if self._strict:
            raise RecordingError(f"{what}; pass strict=False to skip them")
        log.warning("%s; skipping them", what)

    def release(self) -> None:
        """Drop the range that is being read and the resources that it holds, such as the replay of a running archive."""
        if self._batches is not None:
            self._batches = None
            self.readers[-1].archive.refresh()

    def close(self) -> None:
        self._batches = None
        for reader in self.readers:
            reader.close()

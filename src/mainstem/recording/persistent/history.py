"""The recordings of one publisher's stream, read forward from a position; there may be gaps between them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from mainstem._core import layout
from mainstem.errors import RecordingError
from mainstem.recording.catalog import NULL
from mainstem.recording.life import NO_LIFE, OF_ARCHIVE
from mainstem.recording.reading import batches

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainstem.recording.catalog import RecordingDescriptor
    from mainstem.recording.life import StreamLife
    from mainstem.recording.reader import RecordingReader


# -- messages in columns -----------------------------------------------------------------------------------------------


# The columns of a record batch of ``poll_arrow``.
COLUMNS = layout.COLUMN_POSITION | layout.COLUMN_SESSION_ID | layout.COLUMN_RESERVED_VALUE | layout.COLUMN_PAYLOAD


class MessageBatch:
    """Rows of ``Columns.take``; ``next`` is the first one left."""

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
        """Hand out up to ``limit`` rows: return the first, the one after the last, and where the last ends."""
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


log = logging.getLogger(__name__)

ROWS_PER_BATCH = 4096


class History:
    """Recordings of one life of a session, in the order in which they were made."""

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
        """The readable end at the last refresh; 0 without recordings."""
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
        """Whether a later recording with the same ids belongs to the same life: positions never go back in one."""
        if not self.readers:
            return True
        last = self.readers[-1]
        if descriptor.origin == last.descriptor.origin not in (NO_LIFE, OF_ARCHIVE):
            return True
        return descriptor.start_position >= last.end_position()

    def refresh(self) -> None:
        """Note how far each recording can be read now: in a store, a request for each."""
        self._ends = [reader.end_position() for reader in self.readers]

    def is_read(self, position: int) -> bool:
        """Whether everything before ``position`` is all there is, and no recorder continues."""
        return self.left_after(position) == 0 and not self.is_growing

    def left_after(self, position: int) -> int:
        """Bytes recorded after a position, as of the last refresh."""
        return max(max(self._ends, default=position) - position, 0)

    def next_batch(self, position: int) -> MessageBatch | None:
        """Messages that end after ``position``; None if there were none at the last refresh.

        Raises RecordingError for missing positions, unless data loss is accepted: then they are logged and skipped.
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
        """Give up the range that is being read, with what it holds open: a running archive's replay, for example."""
        if self._batches is not None:
            self._batches = None
            self.readers[-1].archive.refresh()

    def close(self) -> None:
        self._batches = None
        for reader in self.readers:
            reader.close()

"""Messages in columns, handed out from the front."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mainstem._core import layout

if TYPE_CHECKING:
    from collections.abc import Iterator

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

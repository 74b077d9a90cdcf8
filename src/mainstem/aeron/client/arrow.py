"""Messages as Arrow arrays. This module imports pyarrow on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from mainstem._core import layout
from mainstem._internal.arrow_batches import record_batch
from mainstem.errors import ConfigurationError, needs_extras

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from mainstem._core.log.columns import Columns

COLUMNS = layout.COLUMN_POSITION | layout.COLUMN_SESSION_ID | layout.COLUMN_RESERVED_VALUE | layout.COLUMN_PAYLOAD


class ColumnSource(Protocol):
    def _gather_columns(self, columns: Columns, limit: int) -> None: ...


def arrow_buffers(
    column: pa.Array[Any] | pa.ChunkedArray[Any], first: int, count: int
) -> Iterator[tuple[tuple[Any, Any], int, int, bool]]:
    with needs_extras():
        import pyarrow as pa

    total = len(column)
    end = total if count < 0 else first + count
    if not 0 <= first <= end <= total:
        raise ConfigurationError(f"rows [{first}, {end}) lie outside a column of {total} rows")
    for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
        kind = chunk.type
        wide = pa.types.is_large_binary(kind) or pa.types.is_large_string(kind)
        if not (wide or pa.types.is_binary(kind) or pa.types.is_string(kind)):
            raise TypeError(f"a column of messages must be binary or string (got {kind}); cast it first")
        if chunk.null_count:
            raise ConfigurationError(
                f"the column has {chunk.null_count} nulls, but a message is never null; filter them out"
            )
        rows = min(end, len(chunk)) - first
        if rows > 0:
            _validity, offsets, data = chunk.buffers()
            yield (b"" if data is None else data, offsets), chunk.offset + first, rows, wide
        first, end = max(first - len(chunk), 0), max(end - len(chunk), 0)


def poll_arrow(images: Iterable[ColumnSource], limit: int, columns: Columns) -> pa.RecordBatch:
    """Return whole messages of several images as one batch and move the images' positions.

    ``columns`` remembers the batch size.
    """
    for image in images:
        if columns.rows >= limit:
            break
        image._gather_columns(columns, limit - columns.rows)
    rows = columns.rows
    return record_batch(columns.take(), rows)

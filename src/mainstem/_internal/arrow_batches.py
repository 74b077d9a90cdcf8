"""Columns of frames as Arrow: a zero-copy wrapper over ``_core.log.columns``. Needs pyarrow (``mainstem[tables]``)."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from mainstem.errors import needs_extras

if TYPE_CHECKING:
    import pyarrow as pa


@cache
def column_types() -> dict[str, Any]:
    """Return the Arrow type of each column by name, in the order in which a batch has them."""
    with needs_extras():
        import pyarrow as pa

    return {
        "position": pa.int64(),
        "session_id": pa.int32(),
        "stream_id": pa.int32(),
        "term_id": pa.int32(),
        "term_offset": pa.int32(),
        "flags": pa.int16(),
        "type": pa.int16(),
        "reserved_value": pa.int64(),
        "offset": pa.int64(),
        "length": pa.int32(),
        "payload": pa.binary(),
    }


def arrays(buffers_by_column: dict[str, bytearray], rows: int) -> dict[str, Any]:
    """Return Arrow arrays over the buffers of ``Columns.take``, by column name; ``rows`` long, without nulls."""
    with needs_extras():
        import pyarrow as pa

    out: dict[str, Any] = {}
    for name, kind in column_types().items():
        buffer = buffers_by_column.get(name)
        if buffer is None:
            continue
        buffers = [None, pa.py_buffer(buffer)]
        if name == "payload":
            buffers.insert(1, pa.py_buffer(buffers_by_column["payload_offsets"]))
        out[name] = pa.Array.from_buffers(kind, rows, buffers, 0)
    return out


def record_batch(buffers_by_column: dict[str, bytearray], rows: int) -> pa.RecordBatch:
    """Return the same as a record batch; one without columns has no rows, as Arrow defines it."""
    with needs_extras():
        import pyarrow as pa

    columns = arrays(buffers_by_column, rows)
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))

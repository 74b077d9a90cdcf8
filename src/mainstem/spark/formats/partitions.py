"""The rows of each partition of a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa


def split(batch: pa.RecordBatch, keys: Sequence[Any]) -> Iterator[tuple[tuple[Any, ...], pa.RecordBatch]]:
    """The rows of a batch for each combination of the values of ``keys``, arrays as long as the batch; null is a value."""
    import numpy as np
    import pyarrow as pa

    codes = np.zeros(batch.num_rows, np.int64)
    for key in keys:
        encoded = key.dictionary_encode(null_encoding="encode")
        codes = codes * (len(encoded.dictionary) + 1) + encoded.indices.to_numpy(zero_copy_only=False)
        # Dense again, so that any number of keys fits.
        codes = np.unique(codes, return_inverse=True)[1].reshape(-1)
    if not batch.num_rows or not codes.any():
        if batch.num_rows:
            yield tuple(key[0].as_py() for key in keys), batch
        return
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    for start, end in zip(starts, [*starts[1:], batch.num_rows], strict=True):
        rows = order[start:end]
        yield tuple(key[int(rows[0])].as_py() for key in keys), batch.take(pa.array(rows))


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A batch in the columns of a schema, by name; columns that it lacks are null. Raises where a value does not fit."""
    import pyarrow as pa

    names = set(batch.schema.names)
    columns = [
        _cast(batch.column(item.name), item.type) if item.name in names else pa.nulls(batch.num_rows, item.type)
        for item in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _cast(values: Any, kind: Any) -> Any:
    return values if values.type.equals(kind, check_metadata=True) else values.cast(kind)

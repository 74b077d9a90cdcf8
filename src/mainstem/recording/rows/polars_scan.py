"""Recordings as a Polars lazy frame, with pushdown of columns, row limit and predicate.

Polars passes a limit together with a predicate only if the limit comes first: `head(n).filter(p)` takes n rows, then filters them.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from mainstem.errors import needs_extras
from mainstem.recording.rows.filters import EVERYTHING, IDS, RANGES, PredicateBounds, compared

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import polars as pl
    import pyarrow as pa

# Used if the query does not pass a batch size.
ROWS_PER_BATCH = 50_000
_OPERATORS = {"Eq": "=", "Lt": "<", "LtEq": "<=", "Gt": ">", "GtEq": ">="}
_TURNED = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_PER_US = {"Milliseconds": (1000, 1), "Microseconds": (1, 1), "Nanoseconds": (1, 1000)}


def lazy_frame(
    schema: pa.Schema, read: Callable[[Sequence[str], PredicateBounds, int], Iterator[pa.RecordBatch]]
) -> pl.LazyFrame:
    """Return a lazy frame over ``read(column_names, bounds, rows_per_batch)``."""
    with needs_extras():
        import polars as pl
        import pyarrow as pa
        from polars.io.plugins import register_io_source

    def source(
        columns: list[str] | None, predicate: pl.Expr | None, n_rows: int | None, batch_size: int | None
    ) -> Iterator[pl.DataFrame]:
        chosen = schema.names if columns is None else columns
        # The predicate is applied here, so its columns are read too.
        also = [] if predicate is None else sorted(set(predicate.meta.root_names()).difference(chosen))
        # Rows that the predicate excludes count toward the limit, so they have to be read too.
        bounds = EVERYTHING if predicate is None or n_rows is not None else bounds_of(predicate)
        left = n_rows
        for batch in read([*chosen, *also], bounds, batch_size or ROWS_PER_BATCH):
            # Unlike a batch, a table without columns keeps its number of rows in Polars.
            frame = pl.from_arrow(pa.Table.from_batches([batch]))
            assert isinstance(frame, pl.DataFrame), "a table, and not an array, went in"
            if left is not None:
                frame = frame.head(left)
                left -= frame.height
            if predicate is not None:
                frame = frame.filter(predicate)
            yield frame.drop(also)
            if left == 0:
                return

    empty = pl.from_arrow(schema.empty_table())
    assert isinstance(empty, pl.DataFrame), "a table, and not an array, went in"
    return register_io_source(source, schema=empty.schema)


def bounds_of(predicate: pl.Expr) -> PredicateBounds:
    """Return the bounds within which a condition can be true; unbounded if the condition cannot be parsed.

    Polars serializes an expression to JSON whose layout can change between releases. Unknown parts do not narrow the bounds.
    """
    try:
        return _bounds(json.loads(predicate.meta.serialize(format="json")))
    except (ValueError, TypeError, KeyError, AttributeError):
        return EVERYTHING


def _bounds(node: Any) -> PredicateBounds:
    binary = node.get("BinaryExpr") if isinstance(node, dict) else None
    if not binary:
        return EVERYTHING
    left, operator, right = binary["left"], binary["op"], binary["right"]
    if operator in ("And", "LogicalAnd"):
        return _bounds(left) & _bounds(right)
    if operator in ("Or", "LogicalOr"):
        return _bounds(left) | _bounds(right)
    if operator not in _OPERATORS:
        return EVERYTHING
    sign, column, value = _OPERATORS[operator], left.get("Column"), _value(right)
    if column is None:
        sign, column, value = _TURNED[sign], right.get("Column"), _value(left)
    if value is None or (column not in IDS and column not in RANGES):
        return EVERYTHING
    return compared(column, sign, value)


def _value(node: Any) -> int | None:
    """Return an integer, or an exact time in microseconds since the epoch; None for any other value."""
    literal = node.get("Literal") if isinstance(node, dict) else None
    if not isinstance(literal, dict):
        return None
    kinds = literal.get("Scalar") or literal["Dyn"]
    kind, value = next(iter(kinds.items()))
    if kind == "Datetime":
        count, unit, zone = value
        factor, divisor = _PER_US[unit]
        # Polars itself rejects a time without a zone. A time between two microseconds does not narrow the bounds.
        return None if zone is None or count * factor % divisor else count * factor // divisor
    is_whole = kind.startswith(("Int", "UInt")) and isinstance(value, int) and not isinstance(value, bool)
    return value if is_whole else None

"""Checks that the data that arrived is the data that was sent: each row once, in order, with equal values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The differences between the table that arrived and the source."""

    rows: int
    lost: int
    duplicated: int
    out_of_order: int
    unequal_columns: tuple[str, ...]

    @property
    def is_clean(self) -> bool:
        return not (self.lost or self.duplicated or self.out_of_order or self.unequal_columns)


def read_files(files: list[str]) -> Any:
    """Return the Parquet files as one table."""
    import pyarrow as pa
    from pyarrow import parquet

    return pa.concat_tables([parquet.ParquetFile(unquote(name)).read() for name in files])


def compare(arrived: Any, source: Any, *, row: str, position: str) -> Comparison:
    """Compare the tables row by row. ``row`` and ``position`` name the columns with row numbers and stream positions."""
    import numpy as np
    import pyarrow.compute as pc

    by_position = pc.take(arrived.column(row), pc.sort_indices(arrived.column(position)))
    # A message that could not be parsed has no row number.
    numbers = pc.fill_null(by_position, -1).to_numpy()
    different = np.unique(numbers[(numbers >= 0) & (numbers < source.num_rows)])
    unequal: list[str] = []
    if len(different) == len(numbers) == source.num_rows:
        in_order = pc.take(arrived, pc.sort_indices(arrived.column(row)))
        unequal = [name for name in source.column_names if not _equal(in_order.column(name), source.column(name))]
    return Comparison(
        rows=arrived.num_rows,
        lost=source.num_rows - len(different),
        duplicated=len(numbers) - len(np.unique(numbers)),
        out_of_order=int(np.count_nonzero(np.diff(numbers) < 0)),
        unequal_columns=tuple(unequal),
    )


def _equal(arrived: Any, source: Any) -> bool:
    import pyarrow as pa
    import pyarrow.compute as pc

    left, right = arrived.cast(source.type), source
    if left.equals(right):
        return True
    if not pa.types.is_floating(source.type):
        return False
    # NaN is not equal to itself, but counts as equal here.
    same = pc.or_kleene(pc.equal(left, right), pc.and_kleene(pc.is_nan(left), pc.is_nan(right)))
    both_null = pc.and_(pc.is_null(left), pc.is_null(right))
    return bool(pc.all(pc.or_(pc.fill_null(same, False), both_null)).as_py())

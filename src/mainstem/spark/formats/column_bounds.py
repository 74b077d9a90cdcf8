"""The least and the greatest value of columns, gathered while a data file is written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa


class ColumnBounds:
    """Bounds and null counts of columns over all rows of a file.

    Args:
        names: The columns. NaN is not a bound, so none of them is floating.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.rows = 0
        self.nulls = dict.fromkeys(names, 0)
        # Arrow's values, because Python has none for a time after the year 9999.
        self._ends: dict[str, Any] = {}

    def add(self, rows: pa.Table) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        self.rows += rows.num_rows
        for name in self.nulls:
            column = rows.column(name)
            self.nulls[name] += column.null_count
            ends = [pc.min_max(column), *([self._ends[name]] if name in self._ends else [])]
            self._ends[name] = pc.min_max(pa.array([end[key] for end in ends for key in ("min", "max")], column.type))

    def of(self, name: str) -> tuple[Any, Any] | None:
        """The least and the greatest value of a column; None if it has only nulls. Raises OverflowError."""
        if self.nulls[name] == self.rows:
            return None
        return self._ends[name]["min"].as_py(), self._ends[name]["max"].as_py()

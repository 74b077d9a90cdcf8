"""Frames as columns of numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

TIMES = ("time_ns", "packet", "frame_index")
"""The order in which frames are read; every fold has these among its inputs."""


class Events:
    """Columns of equal length: int64 arrays, or object arrays for texts."""

    def __init__(self, columns: Mapping[str, Any], length: int) -> None:
        self._columns, self.length = columns, length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, name: str) -> Any:
        return self._columns[name]

    def part(self, start: int, stop: int) -> Events:
        return Events({name: column[start:stop] for name, column in self._columns.items()}, stop - start)

    def rows(self, names: Iterable[str], where: Any) -> list[tuple[Any, ...]]:
        """The chosen frames as tuples of Python numbers."""
        return list(zip(*(self._columns[name][where].tolist() for name in names), strict=True))


PREFIX = "_"
"""What the columns of a fold are called in a DataFrame: a key may have the same name."""


def from_arrow(batch: Any, names: Iterable[str]) -> Events:
    """The prefixed columns of a record batch whose rows are in order."""
    columns = {}
    for name in names:
        column = batch.column(PREFIX + name)
        if str(column.type) in ("string", "large_string"):
            columns[name] = column.to_numpy(zero_copy_only=False)
        else:
            columns[name] = column.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    return Events(columns, batch.num_rows)


def from_pandas(frame: Any, names: Iterable[str]) -> Events:
    names = tuple(names)
    order = np.lexsort([frame[PREFIX + name].to_numpy() for name in reversed(TIMES)])
    columns = {}
    for name in names:
        values = frame[PREFIX + name].to_numpy()[order]
        columns[name] = values if values.dtype == object else values.astype(np.int64, copy=False)
    return Events(columns, len(order))


def from_rows(rows: Iterable[Mapping[str, Any]], names: Iterable[str]) -> Events:
    """Frames from dicts, for tests and small captures; missing numbers are 0."""
    dicts = list(rows)
    columns = {}
    for name in names:
        values = [row.get(name, 0) for row in dicts]
        texts = any(isinstance(value, str) for value in values)
        columns[name] = np.array(values, object if texts else np.int64)
    return Events(columns, len(dicts))

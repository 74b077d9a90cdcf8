"""A set of integers as sorted, disjoint, half-open ranges. No operation ever walks the numbers themselves."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class RangeSet:
    """Integers as ranges ``[start, stop)``; adjacent ranges are one range."""

    __slots__ = ("_starts", "_stops")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._stops: list[int] = []

    def __len__(self) -> int:
        """How many ranges there are (not how many integers)."""
        return len(self._starts)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(zip(self._starts, self._stops, strict=True))

    def __contains__(self, value: int) -> bool:
        index = bisect_right(self._starts, value) - 1
        return index >= 0 and value < self._stops[index]

    def __repr__(self) -> str:
        return f"RangeSet({list(self)})"

    def add(self, value: int) -> bool:
        """Put in one integer; False where it is there already."""
        stops = self._stops
        # Numbers mostly arrive in order: the last range grows.
        if stops and value == stops[-1]:
            stops[-1] = value + 1
            return True
        starts = self._starts
        if not stops or value > stops[-1]:
            starts.append(value)
            stops.append(value + 1)
            return True
        index = bisect_right(starts, value) - 1
        if index >= 0 and value < stops[index]:
            return False
        self._join(index, value, value + 1)
        return True

    def add_range(self, start: int, stop: int) -> None:
        """Put in ``[start, stop)``, whatever of it is there already."""
        if start >= stop:
            return
        starts, stops = self._starts, self._stops
        first = bisect_right(starts, start) - 1
        if first < 0 or stops[first] < start:
            first += 1
        last = bisect_right(starts, stop) - 1
        if first <= last:
            start = min(start, starts[first])
            stop = max(stop, stops[last])
        starts[first : last + 1] = [start]
        stops[first : last + 1] = [stop]

    def _join(self, index: int, start: int, stop: int) -> None:
        """Insert a range that overlaps nothing after the range at ``index``, and join it with its neighbours."""
        starts, stops = self._starts, self._stops
        left = index >= 0 and stops[index] == start
        right = index + 1 < len(starts) and starts[index + 1] == stop
        if left and right:
            stops[index] = stops[index + 1]
            del starts[index + 1], stops[index + 1]
        elif left:
            stops[index] = stop
        elif right:
            starts[index + 1] = start
        else:
            starts.insert(index + 1, start)
            stops.insert(index + 1, stop)

    def discard_below(self, bound: int) -> None:
        """Take out everything below ``bound``."""
        index = bisect_right(self._starts, bound) - 1
        if index >= 0:
            if self._stops[index] > bound:
                self._starts[index] = bound
                index -= 1
            del self._starts[: index + 1], self._stops[: index + 1]

    def remove(self, value: int) -> None:
        """Take out one integer, if it is there."""
        starts, stops = self._starts, self._stops
        index = bisect_right(starts, value) - 1
        if index < 0 or value >= stops[index]:
            return
        start, stop = starts[index], stops[index]
        pieces = [(a, b) for a, b in ((start, value), (value + 1, stop)) if a < b]
        starts[index : index + 1] = [a for a, _ in pieces]
        stops[index : index + 1] = [b for _, b in pieces]

    def drop_oldest(self) -> None:
        """Forget the lowest range."""
        del self._starts[0], self._stops[0]

    def clear(self) -> None:
        """Forget everything."""
        self._starts.clear()
        self._stops.clear()

    def first_missing(self, start: int = 0) -> int:
        """The lowest integer from ``start`` on that is not in the set."""
        index = bisect_right(self._starts, start) - 1
        if index >= 0 and start < self._stops[index]:
            return self._stops[index]
        return start

    @property
    def top(self) -> int:
        """One more than the highest integer, 0 for the empty set."""
        return self._stops[-1] if self._stops else 0

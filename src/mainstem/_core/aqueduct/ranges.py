"""A set of integers as sorted, disjoint, half-open ranges, for acknowledgments. No operation iterates over the integers.

The numbers are unsigned with up to 64 bits, so they stay Python ints. Each set is used by one thread.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

import cython

if TYPE_CHECKING:
    from collections.abc import Iterator


@cython.cclass
class RangeSet:
    """Integers as ranges ``[start, stop)``; adjacent ranges are one range."""

    starts: list
    stops: list

    def __init__(self) -> None:
        self.starts = []
        self.stops = []

    def __len__(self) -> int:
        """Return the number of ranges (not of integers)."""
        return len(self.starts)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(zip(self.starts, self.stops, strict=True))

    def __contains__(self, value: object) -> bool:
        index: cython.Py_ssize_t = bisect_right(self.starts, value) - 1
        return index >= 0 and value < self.stops[index]

    def __repr__(self) -> str:
        return f"RangeSet({list(self)})"

    def add(self, value: object) -> bool:
        """Add one integer; return False if it was already in the set."""
        starts: list = self.starts
        stops: list = self.stops
        last: cython.Py_ssize_t = len(stops) - 1
        # Numbers mostly arrive in order, which extends the last range.
        if last < 0 or value > stops[last]:
            starts.append(value)
            stops.append(value + 1)
            return True
        if value == stops[last]:
            stops[last] = value + 1
            return True
        index: cython.Py_ssize_t = bisect_right(starts, value) - 1
        if index >= 0 and value < stops[index]:
            return False
        self.add_range(value, value + 1)
        return True

    @cython.ccall
    def add_range(self, start: object, stop: object) -> None:
        """Add ``[start, stop)``; parts of it may already be in the set."""
        starts: list = self.starts
        stops: list = self.stops
        last: cython.Py_ssize_t = len(stops) - 1
        first: cython.Py_ssize_t
        if start >= stop:
            return
        if last < 0 or start > stops[last]:
            starts.append(start)
            stops.append(stop)
            return
        if start == stops[last]:
            stops[last] = stop
            return
        first = bisect_right(starts, start) - 1
        if first < 0 or stops[first] < start:
            first += 1
        last = bisect_right(starts, stop) - 1
        if first <= last:
            start = min(start, starts[first])
            stop = max(stop, stops[last])
        starts[first : last + 1] = [start]
        stops[first : last + 1] = [stop]

    def discard_below(self, bound: object) -> None:
        """Remove everything below ``bound``."""
        starts: list = self.starts
        stops: list = self.stops
        index: cython.Py_ssize_t = bisect_right(starts, bound) - 1
        if index >= 0:
            if stops[index] > bound:
                starts[index] = bound
                index -= 1
            del starts[: index + 1], stops[: index + 1]

    def remove(self, value: object) -> None:
        """Remove one integer, if it is in the set."""
        starts: list = self.starts
        stops: list = self.stops
        index: cython.Py_ssize_t = bisect_right(starts, value) - 1
        if index < 0 or value >= stops[index]:
            return
        start, stop = starts[index], stops[index]
        pieces = [(a, b) for a, b in ((start, value), (value + 1, stop)) if a < b]
        starts[index : index + 1] = [a for a, _ in pieces]
        stops[index : index + 1] = [b for _, b in pieces]

    def drop_oldest(self) -> None:
        del self.starts[0], self.stops[0]

    def clear(self) -> None:
        self.starts.clear()
        self.stops.clear()

    def first_missing(self, start: object = 0) -> int:
        """Return the lowest integer from ``start`` on that is not in the set."""
        index: cython.Py_ssize_t = bisect_right(self.starts, start) - 1
        if index >= 0 and start < self.stops[index]:
            return self.stops[index]
        return start

    @property
    def top(self) -> int:
        """One more than the highest integer, 0 for the empty set."""
        last: cython.Py_ssize_t = len(self.stops) - 1
        return 0 if last < 0 else self.stops[last]

"""Which gaps of an image are to be reported now. Several at once, each with its own timer (docs/protocols/aeron.md, 16.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import cython

if TYPE_CHECKING:
    from collections.abc import Iterable

if not cython.compiled:
    from mainstem._core.layout import *
    from mainstem._core.memory.plain import readonly

    # As many gaps as are repaired at once; those behind them wait until these are closed.
    MAX_GAPS = 64

from mainstem._core.driver.delay import DelayGenerator


@cython.cclass
class LossDetector:
    """Keeps a timer for each gap, a (position, length), that a scan of an image's log has found (docs/protocols/aeron.md, 16.1).

    A gap that is found again as it was keeps its timer; any other is new. Sixty-four are tracked at once. ``deadline_ns`` is when
    ``due`` has something to say, 2**63 - 1 while nothing is missing.
    """

    delay: readonly[DelayGenerator]
    deadline_ns: readonly[cython.longlong]
    counted_to: cython.longlong
    count: cython.int
    before: cython.int
    cursor: cython.int
    position: cython.longlong[MAX_GAPS]
    length: cython.longlong[MAX_GAPS]
    timer: cython.longlong[MAX_GAPS]
    old_position: cython.longlong[MAX_GAPS]
    old_length: cython.longlong[MAX_GAPS]
    old_timer: cython.longlong[MAX_GAPS]

    def __init__(self, delay: DelayGenerator) -> None:
        if not cython.compiled:
            self.position = [0] * MAX_GAPS
            self.length = [0] * MAX_GAPS
            self.timer = [0] * MAX_GAPS
            self.old_position = [0] * MAX_GAPS
            self.old_length = [0] * MAX_GAPS
            self.old_timer = [0] * MAX_GAPS
        self.delay = delay
        self.count = 0
        self.before = 0
        self.cursor = 0
        self.counted_to = 0
        self.deadline_ns = NEVER_NS

    def begin(self) -> cython.void:
        i: cython.int
        for i in range(self.count):
            self.old_position[i] = self.position[i]
            self.old_length[i] = self.length[i]
            self.old_timer[i] = self.timer[i]
        self.before = self.count
        self.cursor = 0
        self.count = 0

    def found(self, position: cython.longlong, length: cython.longlong, now_ns: cython.longlong) -> cython.longlong:
        """One gap of the scan; the bytes of it that were never reported missing before."""
        i: cython.int = self.count
        fresh: cython.longlong = 0
        if i == MAX_GAPS:
            return 0
        self.count = i + 1
        self.position[i] = position
        self.length[i] = length
        while self.cursor < self.before and self.old_position[self.cursor] < position:
            self.cursor += 1
        if (
            self.cursor < self.before
            and self.old_position[self.cursor] == position
            and self.old_length[self.cursor] == length
        ):
            self.timer[i] = self.old_timer[self.cursor]
            return 0
        self.timer[i] = now_ns + self.delay.first()
        if position + length > self.counted_to:
            fresh = position + length - (position if position > self.counted_to else self.counted_to)
            self.counted_to = position + length
        return fresh

    def finish(self) -> cython.void:
        i: cython.int
        self.deadline_ns = NEVER_NS
        for i in range(self.count):
            if self.timer[i] < self.deadline_ns:
                self.deadline_ns = self.timer[i]

    def next_due(self, start: cython.int, now_ns: cython.longlong) -> cython.int:
        """The first gap from ``start`` on whose time has come, its timer started again; -1 where there is none."""
        i: cython.int
        for i in range(start, self.count):
            if self.timer[i] <= now_ns:
                self.timer[i] = now_ns + self.delay.retry()
                return i
        return -1

    @property
    def gaps(self) -> list[tuple[int, int]]:
        """What is known to be missing, in order."""
        return [(self.position[i], self.length[i]) for i in range(self.count)]

    def on_scan(self, gaps: Iterable[tuple[int, int]], now_ns: cython.longlong) -> int:
        """Takes in what a scan found, in order. Returns the bytes that were never reported missing before."""
        fresh: cython.longlong = 0
        self.begin()
        for position, length in gaps:
            fresh += self.found(position, length, now_ns)
        self.finish()
        return fresh

    def due(self, now_ns: cython.longlong) -> list[tuple[int, int]]:
        """The gaps whose time has come; their timers start again."""
        result = []
        i: cython.int = self.next_due(0, now_ns)
        while i >= 0:
            result.append((self.position[i], self.length[i]))
            i = self.next_due(i + 1, now_ns)
        self.finish()
        return result

"""Which gaps of an image are to be reported now. Several at once, each with its own timer (behaviour, 16.1)."""

import cython

if not cython.compiled:
    # As many gaps as are repaired at once; those behind them wait until these are closed.
    MAX_GAPS = 64

from mainstem._core.driver.delay import DelayGenerator

NEVER = cython.declare(cython.longlong, 0x7FFFFFFFFFFFFFFF)


@cython.cclass
class LossDetector:
    """Keeps a timer for each gap that a scan has found.

    A scan is ``begin``, ``found`` for each gap in order, ``finish``. A gap that is found again with the same position and
    length keeps its timer; any other is new.
    """

    def __init__(self, delay: DelayGenerator):
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
        self.deadline_ns = NEVER

    def begin(self):
        i: cython.int
        for i in range(self.count):
            self.old_position[i] = self.position[i]
            self.old_length[i] = self.length[i]
            self.old_timer[i] = self.timer[i]
        self.before = self.count
        self.cursor = 0
        self.count = 0

    def found(self, position, length, now_ns):
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

    def finish(self):
        i: cython.int
        self.deadline_ns = NEVER
        for i in range(self.count):
            if self.timer[i] < self.deadline_ns:
                self.deadline_ns = self.timer[i]

    def next_due(self, start, now_ns):
        """The first gap from ``start`` on whose time has come, its timer started again; -1 where there is none."""
        i: cython.int
        for i in range(start, self.count):
            if self.timer[i] <= now_ns:
                self.timer[i] = now_ns + self.delay.retry()
                return i
        return -1

    @property
    def gaps(self):
        return [(self.position[i], self.length[i]) for i in range(self.count)]

    def on_scan(self, gaps, now_ns: cython.longlong):
        """A whole scan; the bytes that were never reported missing before."""
        fresh: cython.longlong = 0
        self.begin()
        for position, length in gaps:
            fresh += self.found(position, length, now_ns)
        self.finish()
        return fresh

    def due(self, now_ns: cython.longlong):
        """The gaps whose time has come; their timers start again."""
        result = []
        i: cython.int = self.next_due(0, now_ns)
        while i >= 0:
            result.append((self.position[i], self.length[i]))
            i = self.next_due(i + 1, now_ns)
        self.finish()
        return result

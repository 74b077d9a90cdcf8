"""Allocates the blocks of a sparse log before any process touches its pages.

Theory of operation. A page of a mapped file that has no block gets one when it is first touched, by a load or a store. If
the file system is full at that moment, the kernel kills the process that touched the page with SIGBUS: a publisher, a
subscriber or the driver. So the driver allocates the blocks itself, with MADV_POPULATE_WRITE, which reports a full file
system as an error. It lets nobody go beyond the allocated blocks: it limits a publication's limit and an image's window to
them. A stream that waits for space continues when there is some.

Only the first lap through the log needs this, since a page keeps its block. Positions from ``first`` to ``position`` have
their blocks, contiguously. When that covers the whole log, ``position`` becomes the maximum int64, and nothing waits any
more.

How far ahead. ``margin`` is how much may be touched beyond a limit: the limit is checked at a message's start, so a
message of the maximum length may lie behind it, and a reader loads the length word behind the last frame. A publication
has the blocks of its first ``ahead`` bytes before its client learns of it, so that it can write as soon as it is
connected. Beyond that, a stream that has written little gets few blocks, so that a sparse log stays sparse: most streams
are small. A publication gets more when it has used up a part of what it had ahead, and then all of it, one step per cycle:
each step counts as work, after which the driver's thread spins and yields before it sleeps again, and so takes a core from
the programs that spin on it.

Who writes what: the thread that runs the stream's path calls ``take``; any thread may read ``is_waiting`` and ``position``.
If the kernel cannot populate (before Linux 5.14), nothing waits, and a full file system kills the process that touches a
new page, as it would without this class.
"""

from __future__ import annotations

import cython

if not cython.compiled:
    from mainstem._core.layout import *
    from mainstem._core.memory.plain import *

from mainstem._core.memory.buffer import AtomicBuffer

PAGE_LENGTH = cython.declare(cython.longlong, 4096)
# Blocks are allocated in steps that keep no other stream waiting: 64 pages, about 0.2 ms.
STEP_LENGTH = cython.declare(cython.longlong, 256 * 1024)
# A limit goes no further beyond the producers than the bytes they have written so far, or than ``ahead`` if that is more.
MAX_AHEAD = cython.declare(cython.longlong, 16 * 1024 * 1024)
# More blocks are allocated when this part of the lead is used up.
REFILL_PARTS = cython.declare(cython.longlong, 8)
# Retry interval while the file system is full, because each failed attempt costs a system call.
RETRY_NS = cython.declare(cython.longlong, 10_000_000)
NOT_SUPPORTED = cython.declare(cython.int, 22)  # EINVAL


@cython.cclass
class BlockAllocator:
    """The allocated part of a sparse log. ``start`` is the stream's first position; ``margin`` and ``ahead`` are in bytes."""

    log: AtomicBuffer
    base: cython.p_uchar
    length: cython.longlong
    first: cython.longlong
    margin: readonly[cython.longlong]
    ahead: readonly[cython.longlong]
    position: readonly[cython.longlong]
    is_waiting: readonly[cython.bint]
    is_refilling: cython.bint
    retry_ns: cython.longlong
    missed: cython.longlong

    def __init__(
        self,
        log: AtomicBuffer,
        term_length: cython.longlong,
        start: cython.longlong,
        margin: cython.longlong,
        ahead: cython.longlong,
    ) -> None:
        log.check(0, PARTITION_COUNT * term_length)
        self.log = log
        self.base = log.base
        self.length = PARTITION_COUNT * term_length
        self.first = start - start % PAGE_LENGTH
        self.margin = margin + PAGE_LENGTH
        self.ahead = ahead
        self.position = self.first
        self.is_waiting = False
        self.is_refilling = True
        self.retry_ns = 0
        self.missed = 0

    @property
    def is_complete(self) -> bool:
        return self.position == NEVER_NS

    def take(self, goal: cython.longlong, now_ns: cython.longlong) -> cython.bint:
        """Allocate the next step of blocks up to ``goal`` plus the margin; return whether a step was needed and succeeded."""
        at: cython.longlong
        step: cython.longlong
        error: cython.int
        if self.position == NEVER_NS or self.position >= goal + self.margin:
            self.is_waiting = False
            return False
        if self.is_waiting and now_ns < self.retry_ns:
            return False
        at = self.position % self.length
        step = goal + self.margin - self.position
        step += (PAGE_LENGTH - step % PAGE_LENGTH) % PAGE_LENGTH
        step = min(step, STEP_LENGTH, self.length - at, self.first + self.length - self.position)
        error = allocate_pages(self.base, at, step)
        if error != 0 and error != NOT_SUPPORTED:
            self.is_waiting = True
            self.retry_ns = now_ns + RETRY_NS
            return False
        self.is_waiting = False
        self.position += step
        if error == NOT_SUPPORTED or self.position >= self.first + self.length:
            self.position = NEVER_NS
        return True

    def limit(self, goal: cython.longlong, produced: cython.longlong, now_ns: cython.longlong) -> cython.longlong:
        """Return how far toward ``goal`` publishers may go, given that they have written up to ``produced``."""
        ahead: cython.longlong = max(self.ahead, min(produced - self.first, MAX_AHEAD))
        target: cython.longlong = min(goal, produced + ahead)
        if self.position == NEVER_NS:
            return goal
        # A small window limits the lead, and with it the part that may be used up.
        if self.is_refilling or self.position - self.margin < target - (target - produced) // REFILL_PARTS:
            self.is_refilling = self.take(target, now_ns) or self.is_waiting
        return min(goal, self.position - self.margin)

    def first_ranges(self) -> list[tuple[int, int]]:
        """Return offset and length of each part of the log that its first ``ahead`` bytes and their margin may touch."""
        pages = (self.ahead + self.margin) // PAGE_LENGTH + 2
        length = min(self.length, pages * PAGE_LENGTH)
        offset = self.first % self.length
        parts = [(offset, min(length, self.length - offset)), (0, offset + length - self.length)]
        return [part for part in parts if part[1] > 0]

    def begin(self) -> bool:
        """Note that the first ranges have their blocks. Return False if the kernel cannot allocate more of them ahead."""
        self.take(self.first - self.margin + PAGE_LENGTH, 0)
        if self.position != NEVER_NS:
            end = self.first + sum(length for _, length in self.first_ranges())
            self.position = NEVER_NS if end >= self.first + self.length else end
            return True
        return False

    def admits(self, end: cython.longlong) -> cython.bint:
        """Whether data up to ``end`` may be written; data that may not is dropped, and has its blocks when it is sent again."""
        if end <= self.position - self.margin:
            return True
        if end > self.missed:
            self.missed = end
        return False

    def follow(self, goal: cython.longlong, now_ns: cython.longlong) -> cython.bint:
        """``take`` up to a window's end, or up to the end of the data that was not admitted if that is further."""
        return self.take(max(goal, self.missed), now_ns)

    def window(self, position: cython.longlong, length: cython.longlong) -> cython.longlong:
        """Return how much of a window from ``position`` has its blocks."""
        return max(0, min(length, self.position - self.margin - position))

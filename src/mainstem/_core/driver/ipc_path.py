"""IPC publications' ordinary duty cycle, compiled: limit, cleaning, producer position (docs/protocols/aeron.md, 11.6).

Theory of operation. Producers and subscribers of an IPC stream share one log and need no driver to move a message. They
need it for flow control: the conductor's cycle reads the subscribers' positions, and derives from the lowest how far
producers may write.

Who writes what, in the conductor's thread unless stated otherwise:

- pub-lmt: ``lowest position + window``; producers load it with acquire before each claim.
- pub-pos, for operators: the tail, as of the last cycle.
- is-connected, in the log's metadata: stored after the limit that lets producers write.
- zeroes behind the lowest position. Producers write the frames and tails, and subscribers their positions, in their own
  processes.

Invariants:

- The limit rises only while it is less than two terms ahead of the clean position's term, or two if that position begins
  its term. So no producer writes memory that is not zero yet: a position shares its memory with the one three terms later.
- The limit falls only when the last subscriber leaves (to the consumers' position, so that producers stop) and in
  ``clamp_limit``. Producers that loaded the higher limit before may finish their claim: the window allows for it.
- ``trip limit`` is ahead of the limit by a fraction of the window. The path stores the limit only when the new one passes
  the trip limit, so that producers and the conductor rarely contend for its cache line.

Memory ordering: the path loads positions with acquire, so subscribers' reads happen before the cleaning. It stores the
limit with release, before it zeroes the bytes behind the consumers. That is sound because it checks the new limit against
what earlier cycles cleaned; this cycle's zeroes are for later limits.

``populate_ahead`` touches pages before producers do. It writes nothing: MADV_POPULATE_WRITE maps pages and keeps their
content. A sparse log has a ``BlockAllocator`` instead, which keeps the limit within pages that have their blocks.
"""

from __future__ import annotations

import cython

if not cython.compiled:
    from mainstem._core.layout import *
    from mainstem._core.log.term import bits_of, check_stream, clean_to, tail_position
    from mainstem._core.memory.plain import *

from mainstem._core.driver.block_allocator import BlockAllocator
from mainstem._core.driver.loop import Cycle
from mainstem._core.driver.positions import PositionSet
from mainstem._core.driver.table import PathTable
from mainstem._core.memory.buffer import AtomicBuffer

# The limit moves in steps of this part of the window, so that producers do not contend for its cache line on every poll.
LIMIT_STEPS = cython.declare(cython.longlong, 8)
# Pages of a log are mapped in steps that keep no other stream waiting (64 pages, about 0.2 ms), and far enough ahead that a
# producer does not catch up before the next cycle, but never further than it has filled already, because most streams are small.
# Steps come in bursts, when half of the lead is used up: each counts as work, which delays the sleep of the driver's thread.
POPULATE_STEP = cython.declare(cython.longlong, 256 * 1024)
POPULATE_AHEAD = cython.declare(cython.longlong, 16 * 1024 * 1024)


@cython.cclass
class IpcPath:
    """One IPC publication's limit, cleaning and position counters (docs/protocols/aeron.md, 11.6).

    The constructor's ``publisher_limit`` and ``publisher_position`` are counter ids. The log's tails and the counters must hold
    the start position. Setting ``connected`` writes it into the log's metadata. While ``draining``, the limit does not rise.
    """

    log: readonly[AtomicBuffer]
    subscribers: readonly[PositionSet]
    allocator: public[BlockAllocator | None]
    initial_term_id: readonly[cython.int]
    term_length: readonly[cython.longlong]
    window_length: readonly[cython.longlong]
    publisher_limit: readonly[cython.longlong]
    consumer_position: readonly[cython.longlong]
    clean_position: readonly[cython.longlong]
    key: public[cython.int]
    draining: public[cython.bint]
    is_connected: cython.bint
    counters: AtomicBuffer
    base: cython.p_uchar
    cells: cython.p_uchar
    meta: cython.longlong
    bits: cython.int
    limit_at: cython.longlong
    produced_at: cython.longlong
    trip_limit: cython.longlong
    first_position: cython.longlong
    populated_position: cython.longlong
    is_populating: cython.bint

    def __init__(
        self,
        log: AtomicBuffer,
        counters: AtomicBuffer,
        initial_term_id: cython.int,
        term_length: cython.longlong,
        window_length: cython.longlong,
        publisher_limit: cython.longlong,
        publisher_position: cython.longlong,
    ) -> None:
        check_stream(term_length, MTU_MAX_LENGTH, window_length)
        log.check(0, 3 * term_length + LOG_METADATA_LENGTH)
        for counter_id in (publisher_limit, publisher_position):
            counters.check(counter_id * COUNTER_VALUE_LENGTH, COUNTER_VALUE_LENGTH)
        self.log = log
        self.base = log.base
        self.meta = log.capacity - LOG_METADATA_LENGTH
        self.counters = counters
        self.cells = counters.base
        self.initial_term_id = initial_term_id
        self.term_length = term_length
        self.bits = bits_of(term_length)
        self.window_length = window_length
        self.limit_at = publisher_limit * COUNTER_VALUE_LENGTH
        self.produced_at = publisher_position * COUNTER_VALUE_LENGTH
        self.publisher_limit = ld64(self.cells, self.limit_at)
        self.subscribers = PositionSet(counters)
        self.consumer_position = self.producer_position()
        assert self.consumer_position >= 0, f"a stream cannot start at position {self.consumer_position}"
        self.clean_position = self.consumer_position
        self.trip_limit = self.consumer_position
        self.first_position = self.consumer_position
        self.populated_position = self.consumer_position - self.consumer_position % POPULATE_STEP
        self.is_populating = False
        self.draining = False
        self.is_connected = False
        self.key = 0
        self.allocator = None

    @property
    def connected(self) -> bool:
        """Whether producers are told that there is a subscriber."""
        return bool(self.is_connected)

    @connected.setter
    def connected(self, value: cython.bint) -> None:
        self.is_connected = bool(value)
        # Set this after the limit, so that producers that see they are connected can write.
        if value:
            self.work(0)
        st32(self.base, self.meta + LOG_IS_CONNECTED_OFFSET, 1 if value else 0)

    def producer_position(self) -> int:
        """Return the producers' position, from the tail."""
        return tail_position(self.base, self.meta, self.term_length, self.initial_term_id)

    def take_consumed(self, position: cython.longlong) -> None:
        """Take over the position of a subscriber that is being removed, which the last duty cycle may not have seen."""
        produced: cython.longlong = self.producer_position()
        if self.consumer_position < position <= produced:
            self.consumer_position = position

    def clamp_limit(self, position: cython.longlong) -> None:
        """Lower the publisher limit to ``position`` if it is above."""
        assert position >= 0, f"a limit cannot be at position {position}"
        if position < self.publisher_limit:
            self.publisher_limit = position
            st64(self.cells, self.limit_at, position)

    def work(self, now_ns: cython.longlong) -> cython.int:
        """Run one duty cycle; return whether the limit moved or pages were mapped."""
        backed: cython.longlong
        before: cython.longlong
        consumed: cython.longlong
        limit: cython.longlong
        ahead: cython.longlong
        produced: cython.longlong = tail_position(self.base, self.meta, self.term_length, self.initial_term_id)
        st64(self.cells, self.produced_at, produced)
        populated: cython.bint = self.allocator is None and self.populate_ahead(produced)
        if self.subscribers.count == 0:
            if not self.draining and self.publisher_limit > self.consumer_position:
                self.publisher_limit = self.consumer_position
                self.trip_limit = self.consumer_position
                st64(self.cells, self.limit_at, self.consumer_position)
            return populated
        # No producer writes a term beyond its limit, so no subscriber can be there: a corrupt counter of another process must
        # not clean the log.
        consumed = min(self.subscribers.lowest(self.consumer_position), self.publisher_limit + self.term_length)
        if consumed > self.consumer_position:
            self.consumer_position = consumed
        limit = consumed + self.window_length
        if self.draining or limit <= self.trip_limit:
            return populated
        backed = limit
        if self.allocator is not None:
            before = self.allocator.position
            backed = self.allocator.limit(limit, produced, now_ns)
            if self.allocator.position != before:
                populated = True
            if backed <= self.publisher_limit:
                return populated
        # Producers must not write memory that is not clean yet; it holds the data from three terms before. There is nearly
        # always a term in between, so raise the limit first, and clean the consumed bytes afterward.
        ahead = (limit >> self.bits) - (self.clean_position >> self.bits)
        if ahead < 2 or (ahead == 2 and (self.clean_position & (self.term_length - 1)) != 0):
            self.publisher_limit = backed
            st64(self.cells, self.limit_at, backed)
            # If allocated blocks hold the limit back, it moves with each step that is allocated.
            self.trip_limit = backed + (self.window_length // LIMIT_STEPS if backed == limit else 0)
        self.clean_position = clean_to(self.base, self.term_length, self.clean_position, consumed, True)
        return 1

    def populate_ahead(self, produced: cython.longlong) -> cython.bint:
        """Map pages before producers write them for the first time: each fault would stop a producer for microseconds."""
        at: cython.longlong = self.populated_position
        log_length: cython.longlong = PARTITION_COUNT * self.term_length
        ahead: cython.longlong = min(produced - self.first_position, POPULATE_AHEAD)
        if at >= self.first_position + log_length:
            return False
        if at >= produced + (ahead if self.is_populating else ahead // 2):
            self.is_populating = False
            return False
        if (
            not cython.compiled
            or self.term_length < POPULATE_STEP
            or not populate(self.base, at % log_length, POPULATE_STEP)
        ):
            self.populated_position = self.first_position + log_length
            return False
        self.populated_position = at + POPULATE_STEP
        self.is_populating = True
        return True

    def do_work(self, now_ns: cython.longlong = 0) -> int:
        """Run one duty cycle of this publication alone."""
        return self.work(now_ns)


@cython.cclass
class IpcCycle(Cycle):
    """All IPC publications of a driver. Add and remove them in the thread that runs the cycle."""

    path_table: PathTable
    next_key: cython.int

    def __init__(self) -> None:
        Cycle.__init__(self)
        self.path_table = PathTable()
        self.next_key = 0

    def __len__(self) -> int:
        return self.path_table.count

    def add(self, path: IpcPath) -> None:
        self.next_key += 1
        path.key = self.next_key
        self.path_table.put(path.key, 0, path)

    def remove(self, path: IpcPath) -> None:
        self.path_table.remove(path.key, 0)

    def cycle(self, now_ns: cython.longlong) -> cython.int:
        i: cython.int
        work: cython.int = 0
        for i in range(self.path_table.count):
            work += cython.cast(IpcPath, self.path_table.entries[i]).work(now_ns)
        return work

    def do_work(self, now_ns: cython.longlong) -> int:
        return self.run_cycle(now_ns)

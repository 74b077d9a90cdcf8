"""The thread loop that needs no GIL: duty cycles, idling, and the reasons to return to Python."""

from __future__ import annotations

from typing import TYPE_CHECKING

import cython

if TYPE_CHECKING:
    from collections.abc import Iterable

if cython.compiled:
    from cython.cimports.mainstem._core.memory.waiting import (
        add_arrivals,
        close_arrivals,
        nap_or_arrival,
        open_arrivals,
        pause_core,
        steady_ns,
        yield_core,
    )
else:
    from mainstem._core.layout import *
    from mainstem._core.memory.plain import *

    # A thread drives few cycles: at most those of sender, receiver and conductor, plus room for custom ones.
    MAX_CYCLES = 8
    MAX_WATCHES = 4

from mainstem._core.memory.buffer import AtomicBuffer

# Reasons for which ``run`` returns.
DEADLINE = cython.declare(cython.int, 0)
ATTENTION = cython.declare(cython.int, 1)
WOKEN = cython.declare(cython.int, 2)
WATCHED = cython.declare(cython.int, 3)
STOPPED = cython.declare(cython.int, 4)

# Spinning ends after this time, even if there were fewer spins than allowed: polling the sockets takes microseconds, and the
# program that would produce work may be waiting for this core.
MAX_SPIN_NS = cython.declare(cython.longlong, 1000)


@cython.cclass
class Cycle:
    """The ordinary duty cycle of an agent, compiled: no GIL, no Python.

    ``needs_python`` is true while an exceptional event waits for the agent; ``due`` also if its deadline has passed.
    """

    attention: cython.volatile[cython.int]
    next_python_ns: cython.longlong
    timer_ns: cython.longlong

    def __init__(self) -> None:
        self.attention = 0
        self.next_python_ns = NEVER_NS
        self.timer_ns = NEVER_NS

    def cycle(self, now_ns: cython.longlong) -> cython.int:
        """Do the ordinary work that is due; return how much it was."""
        self.next_python_ns = self.timer_ns
        return 0

    def next_due_ns(self) -> cython.longlong:
        """Return when there will be work at the latest if nothing arrives and nobody writes until then."""
        return self.next_python_ns

    def run_cycle(self, now_ns: cython.longlong) -> int:
        """Run one duty cycle at ``now_ns``; return how much work it found."""
        work: cython.int
        with cython.nogil:
            work = self.cycle(now_ns)
        return work

    @property
    def needs_python(self) -> bool:
        return self.attention != 0

    def due(self, now_ns: cython.longlong) -> bool:
        return self.attention != 0 or now_ns >= self.next_python_ns

    def set_deadline(self, deadline_ns: cython.longlong) -> None:
        """Set the latest time at which Python must run (NEVER_NS: none)."""
        self.timer_ns = deadline_ns
        if deadline_ns < self.next_python_ns:
            self.next_python_ns = deadline_ns


@cython.cclass
class Loop:
    """A loop that runs cycles in the calling thread, without the GIL, until Python is needed.

    Idling: ``max_spins`` pauses, within a microsecond, then ``max_yields`` yields, then sleeps that double from ``min_park_ns``
    to ``max_park_ns``. A datagram that arrives at a socket given to ``wake_by`` ends a sleep. ``max_park_ns=0`` never sleeps
    (with ``max_yields=0`` it spins). ``work`` is what the last round found; ``rounds`` and ``longest_round_ns`` are for counters.
    """

    references: list
    cycles: cython.p_void[MAX_CYCLES]
    count: cython.int
    awake: cython.volatile[cython.int]
    stopping: cython.volatile[cython.int]
    max_spins: cython.int
    max_yields: cython.int
    min_park_ns: cython.longlong
    max_park_ns: cython.longlong
    idle_count: cython.int
    idle_ns: cython.longlong
    park_ns: cython.longlong
    arrivals: cython.int
    watched: list
    watch_base: cython.p_uchar[MAX_WATCHES]
    watch_offset: cython.longlong[MAX_WATCHES]
    watch_seen: cython.longlong[MAX_WATCHES]
    watches: cython.int
    work: readonly[cython.int]
    rounds: readonly[cython.longlong]
    longest_round_ns: readonly[cython.longlong]

    def __init__(
        self,
        cycles: Iterable[Cycle] = (),
        max_spins: cython.int = 10,
        max_yields: cython.int = 20,
        min_park_ns: cython.longlong = 1000,
        max_park_ns: cython.longlong = 1000000,
    ) -> None:
        if not cython.compiled:
            set_arrays(self)
        self.references = []
        self.watched = []
        self.count = 0
        self.watches = 0
        self.awake = 0
        self.stopping = 0
        self.max_spins = max_spins
        self.max_yields = max_yields
        self.min_park_ns = min_park_ns
        self.max_park_ns = max_park_ns
        self.idle_count = 0
        self.idle_ns = 0
        self.park_ns = min_park_ns
        self.arrivals = open_arrivals()
        self.work = 0
        self.rounds = 0
        self.longest_round_ns = 0
        for cycle in cycles:
            self.add(cycle)

    def add(self, cycle: Cycle) -> None:
        if self.count == MAX_CYCLES:
            raise OverflowError(f"a loop drives {MAX_CYCLES} cycles at most")
        self.references.append(cycle)
        self.cycles[self.count] = cython.cast(cython.p_void, cycle) if cython.compiled else cycle
        self.count += 1

    def watch(self, buffer: AtomicBuffer, offset: cython.longlong) -> None:
        """Make ``run`` return when this int64 (the tail of a command ring) changes. Four watches at most (OverflowError)."""
        if self.watches == MAX_WATCHES:
            raise OverflowError(f"a loop watches {MAX_WATCHES} places at most")
        buffer.check(offset, 8)
        self.watched.append(buffer)
        self.watch_base[self.watches] = buffer.base
        self.watch_offset[self.watches] = offset
        self.watch_seen[self.watches] = ld64(buffer.base, offset)
        self.watches += 1

    def wake_by(self, fd: cython.int) -> None:
        """Make each datagram that arrives at this socket end a sleep, until the socket is closed."""
        add_arrivals(self.arrivals, fd)

    if cython.compiled:

        def __cinit__(self):
            self.arrivals = -1  # if __init__ rejects its arguments, there is no set to close

        def __dealloc__(self):
            close_arrivals(self.arrivals)

    def wake(self) -> None:
        self.awake = 1

    def stop(self) -> None:
        self.stopping = 1

    @property
    def is_stopped(self) -> bool:
        return self.stopping != 0

    def idle(self, worked: cython.bint, now_ns: cython.longlong) -> cython.void:
        """While there is nothing to do: spin, then yield, then sleep ever longer. ``now_ns`` is when the round began."""
        if worked:
            self.idle_count = 0
            self.park_ns = self.min_park_ns
            return
        if self.idle_count == 0:
            self.idle_ns = now_ns
        elif now_ns - self.idle_ns > MAX_SPIN_NS:
            self.idle_count = max(self.idle_count, self.max_spins)
        if self.idle_count < self.max_spins:
            self.idle_count += 1
            pause_core()
        elif self.idle_count < self.max_spins + self.max_yields or self.max_park_ns <= 0:
            if self.idle_count < self.max_spins + self.max_yields:
                self.idle_count += 1
            if self.max_yields > 0:
                yield_core()
            else:
                pause_core()
        elif nap_or_arrival(self.arrivals, self.park_ns):
            # It may take some rounds until the datagram is read, because a sender does not read its sockets in every round.
            self.idle_count = 0
            self.park_ns = self.min_park_ns
        else:
            self.park_ns = 2 * self.park_ns if 2 * self.park_ns < self.max_park_ns else self.max_park_ns

    def changed(self) -> cython.bint:
        i: cython.int
        value: cython.longlong
        result: cython.bint = False
        for i in range(self.watches):
            value = ld64(self.watch_base[i], self.watch_offset[i])
            if value != self.watch_seen[i]:
                self.watch_seen[i] = value
                result = True
        return result

    def reason(self) -> cython.int:
        if self.stopping:
            return STOPPED
        if self.awake:
            self.awake = 0
            return WOKEN
        return WATCHED if self.changed() else DEADLINE

    def round(self, now_ns: cython.longlong) -> cython.int:
        i: cython.int
        result: cython.int = DEADLINE
        self.work = 0
        for i in range(self.count):
            self.work += cython.cast(Cycle, self.cycles[i]).cycle(now_ns)
            if (
                cython.cast(Cycle, self.cycles[i]).attention
                or now_ns >= cython.cast(Cycle, self.cycles[i]).next_python_ns
            ):
                result = ATTENTION
        self.rounds += 1
        return result

    def turn(self, deadline_ns: cython.longlong, now_ns: cython.longlong) -> cython.int:
        reason: cython.int
        before: cython.longlong = now_ns
        while True:
            reason = self.reason()
            if reason != DEADLINE:
                return reason
            if self.round(now_ns) == ATTENTION:
                self.idle(True, now_ns)
                return ATTENTION
            if now_ns >= deadline_ns:
                return DEADLINE
            self.idle(self.work > 0, now_ns)
            before = now_ns
            now_ns = steady_ns()
            if self.work > 0 and now_ns - before > self.longest_round_ns:
                self.longest_round_ns = now_ns - before

    def run(self, deadline_ns: cython.longlong) -> int:
        """Run until ``deadline_ns`` of the monotonic clock, or until there is a reason to return earlier; return the reason.

        0: the deadline, 1: a cycle needs Python, 2: woken, 3: a watch changed, 4: stopped.
        """
        reason: cython.int
        with cython.nogil:
            reason = self.turn(deadline_ns, steady_ns())
        return reason

    def due_ns(self) -> int:
        i: cython.int
        result: cython.longlong = NEVER_NS
        if self.awake:
            return 0
        for i in range(self.count):
            if cython.cast(Cycle, self.cycles[i]).attention:
                return 0
            result = min(result, cython.cast(Cycle, self.cycles[i]).next_due_ns())
        return result

    def run_once(self, now_ns: cython.longlong) -> int:
        """Run one round at a given time, unless there is a reason to return first; return the same reasons as ``run``."""
        reason: cython.int
        with cython.nogil:
            reason = self.reason()
            if reason == DEADLINE:
                reason = self.round(now_ns)
        return reason

    def run_round(self, now_ns: cython.longlong) -> int:
        """Run one round at a given time, even if there is a reason to return; return 1 if a cycle needs Python, else 0."""
        reason: cython.int
        with cython.nogil:
            reason = self.round(now_ns)
        return reason

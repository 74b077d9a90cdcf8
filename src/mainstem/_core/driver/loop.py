"""The thread loop that needs no GIL: duty cycles, idling, and the reasons to come back to Python."""

import cython

if not cython.compiled:
    from time import monotonic_ns as ms_now

    from mainstem._core.memory.plain import *

    # A thread drives few cycles: sender, receiver and the conductor's at most, with room for one's own.
    MAX_CYCLES = 8
    MAX_WATCHES = 4

    def ms_pause():
        """Nothing: one thread."""

    ms_yield = ms_pause

    def ms_sleep(ns):
        """Nothing: an uncompiled loop serves tests."""


from mainstem._core.memory.buffer import AtomicBuffer

NEVER_NS = 0x7FFFFFFFFFFFFFFF
# Why ``run`` came back.
DEADLINE = cython.declare(cython.int, 0)
ATTENTION = cython.declare(cython.int, 1)
WOKEN = cython.declare(cython.int, 2)
WATCHED = cython.declare(cython.int, 3)
STOPPED = cython.declare(cython.int, 4)


@cython.cclass
class Cycle:
    """One duty cycle without the GIL. ``attention`` says that Python must look, ``next_python_ns`` when at the latest."""

    def __init__(self):
        self.attention = 0
        self.next_python_ns = NEVER_NS
        self.timer_ns = NEVER_NS

    def cycle(self, now_ns):
        """Does the ordinary work that is due; how much it was."""
        self.next_python_ns = self.timer_ns
        return 0

    def run_cycle(self, now_ns: cython.longlong):
        work: cython.int
        with cython.nogil:
            work = self.cycle(now_ns)
        return work

    @property
    def needs_python(self):
        return self.attention != 0

    def due(self, now_ns: cython.longlong):
        return self.attention != 0 or now_ns >= self.next_python_ns

    def set_deadline(self, deadline_ns: cython.longlong):
        self.timer_ns = deadline_ns
        if deadline_ns < self.next_python_ns:
            self.next_python_ns = deadline_ns


@cython.cclass
class Loop:
    """Runs cycles in the calling thread until Python is needed."""

    def __init__(
        self,
        cycles=(),
        max_spins: cython.int = 10,
        max_yields: cython.int = 20,
        min_park_ns: cython.longlong = 1_000,
        max_park_ns: cython.longlong = 1_000_000,
    ):
        if not cython.compiled:
            self.cycles = [None] * MAX_CYCLES
            self.watch_base = [None] * MAX_WATCHES
            self.watch_offset = [0] * MAX_WATCHES
            self.watch_seen = [0] * MAX_WATCHES
        self.kept = []
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
        self.park_ns = min_park_ns
        self.rounds = 0
        self.longest_round_ns = 0
        for cycle in cycles:
            self.add(cycle)

    def add(self, cycle: Cycle):
        if self.count == MAX_CYCLES:
            raise OverflowError(f"a loop drives {MAX_CYCLES} cycles at most")
        self.kept.append(cycle)
        self.cycles[self.count] = cython.cast(cython.p_void, cycle) if cython.compiled else cycle
        self.count += 1

    def watch(self, buffer: AtomicBuffer, offset: cython.longlong):
        if self.watches == MAX_WATCHES:
            raise OverflowError(f"a loop watches {MAX_WATCHES} places at most")
        buffer.check(offset, 8)
        self.watched.append(buffer)
        self.watch_base[self.watches] = buffer.base
        self.watch_offset[self.watches] = offset
        self.watch_seen[self.watches] = ld64(buffer.base, offset)
        self.watches += 1

    def wake(self):
        self.awake = 1

    def stop(self):
        self.stopping = 1

    @property
    def is_stopped(self):
        return self.stopping != 0

    def idle(self, worked):
        """Spins, then yields, then parks for longer and longer while there is nothing to do."""
        if worked:
            self.idle_count = 0
            self.park_ns = self.min_park_ns
            return
        if self.idle_count < self.max_spins:
            self.idle_count += 1
            ms_pause()
        elif self.idle_count < self.max_spins + self.max_yields or self.max_park_ns <= 0:
            if self.idle_count < self.max_spins + self.max_yields:
                self.idle_count += 1
            if self.max_yields > 0:
                ms_yield()
            else:
                ms_pause()
        else:
            ms_sleep(self.park_ns)
            self.park_ns = 2 * self.park_ns if 2 * self.park_ns < self.max_park_ns else self.max_park_ns

    def changed(self):
        i: cython.int
        value: cython.longlong
        result: cython.bint = False
        for i in range(self.watches):
            value = ld64(self.watch_base[i], self.watch_offset[i])
            if value != self.watch_seen[i]:
                self.watch_seen[i] = value
                result = True
        return result

    def turn(self, deadline_ns, now_ns, ticking):
        i: cython.int
        work: cython.int
        wanted: cython.bint
        before: cython.longlong = now_ns
        while True:
            if self.stopping:
                return STOPPED
            if self.awake:
                self.awake = 0
                return WOKEN
            if self.changed():
                return WATCHED
            work = 0
            wanted = False
            for i in range(self.count):
                work += cython.cast(Cycle, self.cycles[i]).cycle(now_ns)
                if (
                    cython.cast(Cycle, self.cycles[i]).attention
                    or now_ns >= cython.cast(Cycle, self.cycles[i]).next_python_ns
                ):
                    wanted = True
            self.rounds += 1
            if wanted:
                self.idle(True)
                return ATTENTION
            if now_ns >= deadline_ns:
                return DEADLINE
            if not ticking:
                return DEADLINE
            self.idle(work > 0)
            before = now_ns
            now_ns = ms_now()
            if work > 0 and now_ns - before > self.longest_round_ns:
                self.longest_round_ns = now_ns - before

    def run(self, deadline_ns: cython.longlong):
        """Runs until ``deadline_ns`` of the monotonic clock, or a reason to come back before."""
        reason: cython.int
        with cython.nogil:
            reason = self.turn(deadline_ns, ms_now(), True)
        return reason

    def run_once(self, now_ns: cython.longlong):
        """One round at a given time, without idling."""
        reason: cython.int
        with cython.nogil:
            reason = self.turn(now_ns, now_ns, False)
        return reason

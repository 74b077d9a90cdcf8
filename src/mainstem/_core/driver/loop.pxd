# Written from loop.py by tools/write_core_stubs.py: edit that file, then run the tool.
from mainstem._core.layout cimport *
from mainstem._core.memory.atomics cimport *
from mainstem._core.memory.buffer cimport AtomicBuffer
from mainstem._core.memory.waiting cimport add_arrivals, close_arrivals, nap_or_arrival, open_arrivals, pause_core, steady_ns, yield_core


cdef enum:
    MAX_CYCLES = 8
    MAX_WATCHES = 4


cdef class Cycle:
    cdef volatile int attention
    cdef long long next_python_ns
    cdef long long timer_ns

    cdef int cycle(self, long long now_ns) noexcept nogil
    cdef long long next_due_ns(self) noexcept nogil


cdef class Loop:
    cdef list references
    cdef void *cycles[MAX_CYCLES]
    cdef int count
    cdef volatile int awake
    cdef volatile int stopping
    cdef int max_spins
    cdef int max_yields
    cdef long long min_park_ns
    cdef long long max_park_ns
    cdef int idle_count
    cdef long long idle_ns
    cdef long long park_ns
    cdef int arrivals
    cdef list watched
    cdef unsigned char *watch_base[MAX_WATCHES]
    cdef long long watch_offset[MAX_WATCHES]
    cdef long long watch_seen[MAX_WATCHES]
    cdef int watches
    cdef readonly int work
    cdef readonly long long rounds
    cdef readonly long long longest_round_ns

    cdef void idle(self, bint worked, long long now_ns) noexcept nogil
    cdef bint changed(self) noexcept nogil
    cdef int reason(self) noexcept nogil
    cdef int round(self, long long now_ns) noexcept nogil
    cdef int turn(self, long long deadline_ns, long long now_ns) noexcept nogil

from libc.stdint cimport int32_t, int64_t, uint8_t

from mainstem._core.memory.atomics cimport *
from mainstem._core.memory.buffer cimport AtomicBuffer

cdef extern from *:
    """
    #include <sched.h>
    #include <time.h>
    #if defined(__x86_64__) || defined(__i386__)
    #define ms_pause() __builtin_ia32_pause()
    #elif defined(__aarch64__)
    #define ms_pause() __asm__ __volatile__("yield")
    #else
    #define ms_pause() ((void)0)
    #endif
    static inline int64_t ms_now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec; }
    static inline void ms_sleep(int64_t ns) { struct timespec t = {ns / 1000000000, ns % 1000000000}; nanosleep(&t, 0); }
    static inline void ms_yield(void) { sched_yield(); }
    """
    void ms_pause() noexcept nogil
    int64_t ms_now() noexcept nogil
    void ms_sleep(int64_t ns) noexcept nogil
    void ms_yield() noexcept nogil


cdef enum:
    MAX_CYCLES = 8
    MAX_WATCHES = 4


cdef class Cycle:
    cdef volatile int32_t attention
    cdef int64_t next_python_ns
    cdef int64_t timer_ns

    cdef int32_t cycle(self, int64_t now_ns) noexcept nogil


cdef class Loop:
    cdef list kept
    cdef void *cycles[MAX_CYCLES]
    cdef int32_t count
    cdef volatile int32_t awake
    cdef volatile int32_t stopping
    cdef int32_t max_spins
    cdef int32_t max_yields
    cdef int64_t min_park_ns
    cdef int64_t max_park_ns
    cdef int32_t idle_count
    cdef int64_t park_ns
    cdef list watched
    cdef uint8_t *watch_base[MAX_WATCHES]
    cdef int64_t watch_offset[MAX_WATCHES]
    cdef int64_t watch_seen[MAX_WATCHES]
    cdef int32_t watches
    cdef readonly int64_t rounds
    cdef readonly int64_t longest_round_ns

    cdef void idle(self, bint worked) noexcept nogil
    cdef bint changed(self) noexcept nogil
    cdef int32_t turn(self, int64_t deadline_ns, int64_t now_ns, bint ticking) noexcept nogil

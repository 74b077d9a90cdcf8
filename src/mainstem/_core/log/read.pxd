from libc.stdint cimport int32_t, int64_t, uint8_t

from mainstem._core.log.assemble cimport FragmentAssembler, MessageBuilder
from mainstem._core.memory.atomics cimport *
from mainstem._core.memory.buffer cimport AtomicBuffer
from mainstem._core.log.fragment cimport Fragment
from mainstem._core.layout cimport *

cdef extern from *:
    """
    #include <sched.h>
    #include <time.h>
    #if defined(__x86_64__) || defined(__i386__)
    #define MS_PAUSE() __builtin_ia32_pause()
    #elif defined(__aarch64__)
    #define MS_PAUSE() __asm__ __volatile__("isb")
    #else
    #define MS_PAUSE() __asm__ __volatile__("" ::: "memory")
    #endif
    MS_INLINE void relax(int n) { for (int i = 0; i < n; i++) MS_PAUSE(); }
    MS_INLINE int64_t steady_ns(void) {
        struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec; }
    MS_INLINE void nap(int64_t ns) { struct timespec t = {0, (long)ns}; nanosleep(&t, 0); }
    /* Looks at the lengths of n frames until one is positive: a few pauses, then yields, then naps of up to 1 ms. */
    MS_INLINE int watch(uint8_t **at, int n, int64_t timeout_ns) {
        int64_t start = steady_ns(), waited = 0, rest = 20000;
        for (int round = 0; ; round++) {
            for (int i = 0; i < n; i++)
                if (__atomic_load_n((const int32_t *)at[i], __ATOMIC_ACQUIRE) > 0) return 1;
            if (round < 100) { relax(4); continue; }
            waited = steady_ns() - start;
            if (waited >= timeout_ns) return 0;
            if (round < 300) { sched_yield(); continue; }
            nap(rest < timeout_ns - waited ? rest : timeout_ns - waited);
            if (rest < 1000000) rest *= 2;
        }
    }
    """
    void nap(int64_t ns) noexcept nogil
    bint watch(uint8_t **at, int n, int64_t timeout_ns) noexcept nogil


cdef class ImageReader:
    cdef readonly AtomicBuffer log
    cdef AtomicBuffer positions
    cdef uint8_t *base
    cdef uint8_t *position_base
    cdef int64_t position_offset
    cdef int64_t meta
    cdef readonly int64_t term_length
    cdef readonly int position_bits
    cdef readonly int32_t initial_term_id
    cdef readonly int32_t session_id
    cdef readonly int32_t stream_id
    cdef readonly int32_t mtu
    cdef readonly int64_t correlation_id
    cdef readonly int64_t join_position
    cdef readonly bint is_closed
    cdef int64_t final_position
    cdef bint ended
    cdef bint withdrawn
    cdef bint busy
    cdef int waiters
    cdef Fragment fragment
    cdef MessageBuilder builder

    cdef int64_t place(self, int64_t position) noexcept
    cdef bint enter(self) except -1
    cdef void leave(self, int64_t passed) noexcept
    cdef int64_t deliver(self, object handler, int64_t limit, int64_t limit_position, bint whole) except -1
    cdef int64_t hand_over_whole(self, object handler, Fragment fragment) except -1
    cdef int64_t control(self, object handler, int64_t limit) except -1
    cdef int64_t block(self, object handler, int64_t limit) except -1
    cdef int gather(self, list out, int64_t limit) except -1
    cdef bint has_data(self) noexcept


cdef class SubscriptionReader:
    cdef readonly tuple images
    cdef int64_t next_image
    cdef readonly bint is_closed

    cdef int64_t start(self) noexcept
    cdef int64_t poll_all(self, object handler, int64_t limit, bint whole) except -1

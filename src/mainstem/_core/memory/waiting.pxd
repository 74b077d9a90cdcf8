# Waiting without the GIL: a steady clock, the pauses of a spinning core, and sleeps. plain.py has the same names but for watch.
from libc.stdint cimport int64_t, uint8_t

cdef extern from *:
    """
    #include <sched.h>
    #include <stdint.h>
    #include <time.h>
    #ifndef MAINSTEM_WAITING
    #define MAINSTEM_WAITING
    #if defined(__x86_64__) || defined(__i386__)
    #define MS_PAUSE() __builtin_ia32_pause()
    #elif defined(__aarch64__)
    #define MS_PAUSE() __asm__ __volatile__("isb")
    #else
    #define MS_PAUSE() __asm__ __volatile__("" ::: "memory")
    #endif
    #define MS_WAIT static inline __attribute__((unused))
    MS_WAIT int64_t steady_ns(void) {
        struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec; }
    MS_WAIT void pause_core(void) { MS_PAUSE(); }
    MS_WAIT void yield_core(void) { sched_yield(); }
    MS_WAIT void nap(int64_t ns) { struct timespec t = {(time_t)(ns / 1000000000), (long)(ns % 1000000000)}; nanosleep(&t, 0); }
    #define MS_SPIN_NS 10000  /* a reply over shared memory takes a fraction of it; longer, and a driver would miss the core */
    #define MS_YIELD_NS 100000
    /* Polls the lengths of n frames until one is positive: pauses for 10 us, then yields, then naps of up to 1 ms. */
    MS_WAIT int watch(uint8_t **at, int n, int64_t timeout_ns) {
        int64_t start = steady_ns(), waited = 0, rest = 20000;
        for (unsigned round = 1; ; round++) {
            for (int i = 0; i < n; i++)
                if (__atomic_load_n((const int32_t *)at[i], __ATOMIC_ACQUIRE) > 0) return 1;
            if (waited < MS_SPIN_NS && round % 16) { MS_PAUSE(); continue; }
            waited = steady_ns() - start;
            if (waited >= timeout_ns) return 0;
            if (waited < MS_SPIN_NS) continue;
            if (waited < MS_YIELD_NS) { sched_yield(); continue; }
            nap(rest < timeout_ns - waited ? rest : timeout_ns - waited);
            if (rest < 1000000) rest *= 2;
        }
    }
    #endif
    """
    int64_t steady_ns() noexcept nogil
    void pause_core() noexcept nogil
    void yield_core() noexcept nogil
    void nap(int64_t ns) noexcept nogil
    bint watch(uint8_t **at, int n, int64_t timeout_ns) noexcept nogil

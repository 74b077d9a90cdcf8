# Waiting without the GIL: a steady clock, the pauses of a spinning core, and sleeps.
# plain.py has the same names except nap, watch and close_arrivals.
from libc.stdint cimport int64_t, uint8_t

cdef extern from *:
    """
    #include <errno.h>
    #include <sched.h>
    #include <stdint.h>
    #include <time.h>
    #include <unistd.h>
    #ifdef __linux__
    #include <sys/epoll.h>
    #include <sys/syscall.h>
    #endif
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
    /* Sleeps that a datagram ends, where the kernel has epoll_pwait2 (Linux 5.11); -1 for a set, and plain naps, elsewhere.
       Edges: a socket whose datagrams stay unread ends one nap and no more. The kernel forgets a socket that is closed. */
    #if defined(__linux__) && defined(SYS_epoll_pwait2)
    MS_WAIT int open_arrivals(void) { return epoll_create1(EPOLL_CLOEXEC); }
    MS_WAIT void add_arrivals(int set, int fd) {
        struct epoll_event event = {EPOLLIN | EPOLLET, {0}}; if (set >= 0) epoll_ctl(set, EPOLL_CTL_ADD, fd, &event); }
    MS_WAIT int nap_or_arrival(int set, int64_t ns) {
        struct epoll_event events[64];
        struct timespec t = {(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
        long arrived = set < 0 ? -1 : syscall(SYS_epoll_pwait2, set, events, 64, &t, 0, 0);
        if (arrived < 0 && (set < 0 || errno == ENOSYS)) nap(ns);
        return arrived > 0; }
    #else
    MS_WAIT int open_arrivals(void) { return -1; }
    MS_WAIT void add_arrivals(int set, int fd) { (void)set; (void)fd; }
    MS_WAIT int nap_or_arrival(int set, int64_t ns) { (void)set; nap(ns); return 0; }
    #endif
    MS_WAIT void close_arrivals(int set) { if (set >= 0) close(set); }
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
    int open_arrivals() noexcept nogil
    void add_arrivals(int set, int fd) noexcept nogil
    bint nap_or_arrival(int set, int64_t ns) noexcept nogil
    void close_arrivals(int set) noexcept nogil
    bint watch(uint8_t **at, int n, int64_t timeout_ns) noexcept nogil

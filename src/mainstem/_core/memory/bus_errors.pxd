# The C part of bus_guard.py: the memory of the table of guarded mappings, and the SIGBUS handler. bus_guard.py reads and writes places.
from libc.stddef cimport size_t

cdef extern from *:
    """
    #ifndef _GNU_SOURCE
    #define _GNU_SOURCE
    #endif
    #include <errno.h>
    #include <pthread.h>
    #include <signal.h>
    #include <stdint.h>
    #include <stdlib.h>
    #include <string.h>
    #include <sys/mman.h>
    #include <unistd.h>
    #ifndef MAP_ANONYMOUS
    #define MAP_ANONYMOUS MAP_ANON
    #endif
    #ifndef MAP_NORESERVE
    #define MAP_NORESERVE 0
    #endif
    #define MS_PLACES 512
    #define MS_PLACE_LENGTH 32
    /* Blocks are added and never freed, so that the handler follows them without a lock. */
    struct ms_places { _Alignas(8) unsigned char of[MS_PLACES * MS_PLACE_LENGTH]; struct ms_places *next; };
    static struct ms_places ms_first;
    typedef int (*ms_is_free_type)(unsigned char *, long long);
    typedef void (*ms_publish_type)(unsigned char *, long long, long long, long long);
    typedef long long (*ms_cover_type)(unsigned char *, long long, long long);
    static ms_is_free_type ms_is_free;
    static ms_publish_type ms_publish;
    static ms_cover_type ms_cover;
    static pthread_mutex_t ms_adding = PTHREAD_MUTEX_INITIALIZER;
    static struct sigaction ms_before;
    static int ms_is_set;
    static uintptr_t ms_page;

    static void ms_on_bus(int number, siginfo_t *info, void *context) {
        int error = errno;
        uintptr_t at = (uintptr_t)info->si_addr;
        if (info->si_code == BUS_ADRERR) {
            long long end = 0;
            for (struct ms_places *places = &ms_first; places; places = __atomic_load_n(&places->next, __ATOMIC_ACQUIRE)) {
                long long found = ms_cover(places->of, MS_PLACES, (long long)at);
                if (found && (!end || found < end)) end = found;
            }
            at &= ~(ms_page - 1);
            /* From here to the end of the mapping: what the file lost, it lost up to its end. */
            if (end && mmap((void *)at, (uintptr_t)end - at, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) != MAP_FAILED) {
                errno = error;
                return;
            }
        }
        errno = error;
        if (ms_before.sa_flags & SA_SIGINFO) ms_before.sa_sigaction(number, info, context);
        else if (ms_before.sa_handler != SIG_DFL && ms_before.sa_handler != SIG_IGN) ms_before.sa_handler(number);
        else {
            /* As without this handler: the access is tried once more and ends the process; a signal that was sent is sent again. */
            sigaction(number, &ms_before, 0);
            if (info->si_code <= 0) raise(number);
        }
    }

    /* A new place in the table; NULL without memory for it, or where the handler cannot be set. */
    static unsigned char *ms_guard(uintptr_t begin, size_t length) {
        unsigned char *found = 0;
        pthread_mutex_lock(&ms_adding);
        if (!ms_is_set) {
            struct sigaction action;
            memset(&action, 0, sizeof action);
            action.sa_sigaction = ms_on_bus;
            action.sa_flags = SA_SIGINFO | SA_ONSTACK;
            sigemptyset(&action.sa_mask);
            ms_page = (uintptr_t)sysconf(_SC_PAGESIZE);
            ms_is_set = sigaction(SIGBUS, 0, &ms_before) == 0 && sigaction(SIGBUS, &action, 0) == 0;
        }
        for (struct ms_places *places = &ms_first; ms_is_set && places && !found;) {
            for (int i = 0; i < MS_PLACES && !found; i++)
                if (ms_is_free(places->of, i * MS_PLACE_LENGTH)) found = places->of + i * MS_PLACE_LENGTH;
            if (!found && !places->next) {
                struct ms_places *more = calloc(1, sizeof *more);
                __atomic_store_n(&places->next, more, __ATOMIC_RELEASE);
            }
            places = places->next;
        }
        if (found)
            ms_publish(found, 0, (long long)begin, (long long)((begin + length + ms_page - 1) & ~(ms_page - 1)));
        pthread_mutex_unlock(&ms_adding);
        return found;
    }
    static void ms_use(ms_is_free_type is_free, ms_publish_type publish, ms_cover_type cover) {
        pthread_mutex_lock(&ms_adding);
        if (!ms_is_set) ms_is_free = is_free, ms_publish = publish, ms_cover = cover;
        pthread_mutex_unlock(&ms_adding);
    }
    """
    void ms_use(bint (*is_free)(unsigned char *, long long) noexcept nogil,
                void (*publish)(unsigned char *, long long, long long, long long) noexcept nogil,
                long long (*cover)(unsigned char *, long long, long long) noexcept nogil)
    unsigned char *ms_guard(size_t begin, size_t length)

# The C part of bus_guard.py: a table of guarded mappings, and the SIGBUS handler that reads it.
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
    /* A place is free while end is 0. Blocks are added and never freed, so that the handler follows them without a lock. */
    struct ms_place { uintptr_t begin, end; int cut; };
    struct ms_places { struct ms_place of[MS_PLACES]; struct ms_places *next; };
    static struct ms_places ms_first;
    static pthread_mutex_t ms_adding = PTHREAD_MUTEX_INITIALIZER;
    static struct sigaction ms_before;
    static int ms_is_set;
    static uintptr_t ms_page;

    static void ms_on_bus(int number, siginfo_t *info, void *context) {
        int error = errno;
        uintptr_t at = (uintptr_t)info->si_addr;
        if (info->si_code == BUS_ADRERR)
            for (struct ms_places *places = &ms_first; places; places = __atomic_load_n(&places->next, __ATOMIC_ACQUIRE))
                for (int i = 0; i < MS_PLACES; i++) {
                    struct ms_place *place = &places->of[i];
                    uintptr_t end = __atomic_load_n(&place->end, __ATOMIC_ACQUIRE);
                    if (!end || at < place->begin || at >= end) continue;
                    at &= ~(ms_page - 1);
                    __atomic_store_n(&place->cut, 1, __ATOMIC_RELEASE);
                    /* From here to the end of the mapping: what the file lost, it lost up to its end. */
                    if (mmap((void *)at, end - at, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) == MAP_FAILED) break;
                    errno = error;
                    return;
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
    static void *ms_guard(uintptr_t begin, size_t length) {
        struct ms_place *found = 0;
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
                if (!places->of[i].end) found = &places->of[i];
            if (!found && !places->next) {
                struct ms_places *more = calloc(1, sizeof *more);
                __atomic_store_n(&places->next, more, __ATOMIC_RELEASE);
            }
            places = places->next;
        }
        if (found) {
            found->begin = begin;
            found->cut = 0;
            __atomic_store_n(&found->end, (begin + length + ms_page - 1) & ~(ms_page - 1), __ATOMIC_RELEASE);
        }
        pthread_mutex_unlock(&ms_adding);
        return found;
    }
    static void ms_unguard(void *place) { __atomic_store_n(&((struct ms_place *)place)->end, 0, __ATOMIC_RELEASE); }
    static int ms_was_cut(void *place) { return __atomic_load_n(&((struct ms_place *)place)->cut, __ATOMIC_ACQUIRE); }
    """
    void *ms_guard(size_t begin, size_t length)
    void ms_unguard(void *place)
    int ms_was_cut(void *place)

/* Puts an inaccessible page before and after each shared mapping of a file: an access outside a log crashes the process, and
 * AddressSanitizer reports its origin. tools/sanitize.py preloads this library after libasan.
 *
 * A sanitizer knows malloc's allocations but not mapped files: the memory after one is usually another mapping. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/mman.h>

#define PAGE 4096UL
#define MOST 16384 /* guarded mappings at one time; further ones have no guards */

typedef void *mmap_type(void *, size_t, int, int, int, off_t);
typedef int munmap_type(void *, size_t);
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char *guarded[MOST];
static size_t count;

static size_t in_pages(size_t length) { return (length + PAGE - 1) & ~(PAGE - 1); }

static mmap_type *next_mmap(void) {
    static mmap_type *next;
    if (!next) next = (mmap_type *)dlsym(RTLD_NEXT, "mmap");
    return next;
}

static munmap_type *next_munmap(void) {
    static munmap_type *next;
    if (!next) next = (munmap_type *)dlsym(RTLD_NEXT, "munmap");
    return next;
}

/* A child forked while another thread holds the lock would wait for it forever. */
static void hold(void) { pthread_mutex_lock(&lock); }
static void release(void) { pthread_mutex_unlock(&lock); }
__attribute__((constructor)) static void prepare(void) { pthread_atfork(hold, release, release); }

static int enter(char *at) {
    int entered = 0;
    pthread_mutex_lock(&lock);
    if (count < MOST) {
        guarded[count++] = at;
        entered = 1;
    }
    pthread_mutex_unlock(&lock);
    return entered;
}

static int leave(char *at) {
    int left = 0;
    pthread_mutex_lock(&lock);
    for (size_t i = count; i-- > 0 && !left;)
        if (guarded[i] == at) {
            guarded[i] = guarded[--count];
            left = 1;
        }
    pthread_mutex_unlock(&lock);
    return left;
}

void *mmap(void *address, size_t length, int protection, int flags, int descriptor, off_t offset) {
    if (address || descriptor < 0 || !length || !(flags & MAP_SHARED) || (flags & MAP_FIXED))
        return next_mmap()(address, length, protection, flags, descriptor, offset);
    size_t whole = in_pages(length) + 2 * PAGE;
    char *place = next_mmap()(NULL, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (place == MAP_FAILED) return MAP_FAILED;
    char *at = next_mmap()(place + PAGE, length, protection, flags | MAP_FIXED, descriptor, offset);
    if (at == MAP_FAILED) {
        int error = errno;
        next_munmap()(place, whole);
        errno = error;
        return MAP_FAILED;
    }
    if (!enter(at)) {
        next_munmap()(place, PAGE);
        next_munmap()(place + whole - PAGE, PAGE);
    }
    return at;
}

void *mmap64(void *, size_t, int, int, int, off_t) __attribute__((alias("mmap")));

int munmap(void *address, size_t length) {
    char *at = address;
    if (leave(at)) {
        next_munmap()(at - PAGE, PAGE);
        next_munmap()(at + in_pages(length), PAGE);
    }
    return next_munmap()(address, length);
}

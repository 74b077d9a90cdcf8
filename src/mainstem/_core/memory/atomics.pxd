# The primitives under all compiled code: memory as a base pointer and a byte offset.
#
# Each name gives the memory ordering:
#   ld32 ld64        load-acquire          st32 st64        store-release
#   get8 .. get64    plain load            put8 .. put64    plain store
#   mark32 mark64    a relaxed store: without ordering, but atomic, since another thread may load the word meanwhile
#   cas32 cas64      compare-and-set (acquire-release); returns whether it was set
#   fadd64           fetch-and-add (acquire-release); returns the old value
#   add_to_counter counter_value           fadd64 and ld64 of the counter with an id: its cell has COUNTER_VALUE_LENGTH bytes
#   fence_release / fence_acquire          standalone fences
#   zero_past_caches                       zero_out for memory that is not used again soon
#   touch                                  a load whose value is not used, to map the page
#   populate                               maps whole pages for writing; false if the kernel cannot
#   allocate_pages                         the same; returns 0, or errno if there is no block for a page
#   prefetch prefetch_write                a hint that the line is needed soon; any address is allowed
# The plain forms use memcpy, so they may be unaligned (the receiver id of a status message is).
#   wrap_i32 align_frame     arithmetic with the same result in compiled and uncompiled code
#   shift_left difference    defined for all numbers, although C leaves a negative shift and an overflow undefined
# plain.py has the same names for code that runs uncompiled.
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t

cdef extern from *:
    """
    #include <errno.h>
    #include <stdint.h>
    #include <string.h>
    #include <sys/mman.h>
    #ifdef __SSE2__
    #include <emmintrin.h>
    #endif
    #ifndef MAINSTEM_ATOMICS
    #define MAINSTEM_ATOMICS
    #define MS_INLINE static inline __attribute__((unused))
    MS_INLINE int32_t ld32(const uint8_t *b, int64_t o) { return __atomic_load_n((const int32_t *)(b + o), __ATOMIC_ACQUIRE); }
    MS_INLINE int64_t ld64(const uint8_t *b, int64_t o) { return __atomic_load_n((const int64_t *)(b + o), __ATOMIC_ACQUIRE); }
    MS_INLINE void st32(uint8_t *b, int64_t o, int32_t v) { __atomic_store_n((int32_t *)(b + o), v, __ATOMIC_RELEASE); }
    MS_INLINE void st64(uint8_t *b, int64_t o, int64_t v) { __atomic_store_n((int64_t *)(b + o), v, __ATOMIC_RELEASE); }
    MS_INLINE void mark32(uint8_t *b, int64_t o, int32_t v) { __atomic_store_n((int32_t *)(b + o), v, __ATOMIC_RELAXED); }
    MS_INLINE void mark64(uint8_t *b, int64_t o, int64_t v) { __atomic_store_n((int64_t *)(b + o), v, __ATOMIC_RELAXED); }
    MS_INLINE uint8_t get8(const uint8_t *b, int64_t o) { return b[o]; }
    MS_INLINE uint16_t get16(const uint8_t *b, int64_t o) { uint16_t v; memcpy(&v, b + o, 2); return v; }
    MS_INLINE int32_t get32(const uint8_t *b, int64_t o) { int32_t v; memcpy(&v, b + o, 4); return v; }
    MS_INLINE int64_t get64(const uint8_t *b, int64_t o) { int64_t v; memcpy(&v, b + o, 8); return v; }
    MS_INLINE void put8(uint8_t *b, int64_t o, uint8_t v) { b[o] = v; }
    MS_INLINE void put16(uint8_t *b, int64_t o, uint16_t v) { memcpy(b + o, &v, 2); }
    MS_INLINE void put32(uint8_t *b, int64_t o, int32_t v) { memcpy(b + o, &v, 4); }
    MS_INLINE void put64(uint8_t *b, int64_t o, int64_t v) { memcpy(b + o, &v, 8); }
    MS_INLINE int64_t fadd64(uint8_t *b, int64_t o, int64_t v) { return __atomic_fetch_add((int64_t *)(b + o), v, __ATOMIC_ACQ_REL); }
    MS_INLINE void add_to_counter(uint8_t *cells, int64_t id, int64_t n) { fadd64(cells, 128 * id, n); }
    MS_INLINE int64_t counter_value(const uint8_t *cells, int64_t id) { return ld64(cells, 128 * id); }
    MS_INLINE int cas32(uint8_t *b, int64_t o, int32_t e, int32_t v) {
        return __atomic_compare_exchange_n((int32_t *)(b + o), &e, v, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE); }
    MS_INLINE int cas64(uint8_t *b, int64_t o, int64_t e, int64_t v) {
        return __atomic_compare_exchange_n((int64_t *)(b + o), &e, v, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE); }
    MS_INLINE void fence_release(void) { __atomic_thread_fence(__ATOMIC_RELEASE); }
    MS_INLINE void fence_acquire(void) { __atomic_thread_fence(__ATOMIC_ACQUIRE); }
    typedef struct { uint64_t a, b; } ms_pair;
    /* Short messages are most messages: 16 to 64 bytes as pairs from both ends, which may overlap, without a call. */
    MS_INLINE void copy_bytes(uint8_t *d, int64_t o, const uint8_t *s, int64_t so, int64_t n) {
        uint8_t *to = d + o; const uint8_t *from = s + so; ms_pair head, tail, second, last;
        if (n < 16 || n > 64) { if (n) memcpy(to, from, (size_t)n); return; } /* no bytes may have no address */
        memcpy(&head, from, 16); memcpy(&last, from + n - 16, 16);
        if (n > 32) {
            memcpy(&second, from + 16, 16); memcpy(&tail, from + n - 32, 16);
            memcpy(to + 16, &second, 16); memcpy(to + n - 32, &tail, 16);
        }
        memcpy(to, &head, 16); memcpy(to + n - 16, &last, 16);
    }
    MS_INLINE void zero_out(uint8_t *b, int64_t o, int64_t n) { memset(b + o, 0, (size_t)n); }
    /* Whole lines go to memory without being read first; ordered before the next store, as others are not. */
    MS_INLINE void zero_past_caches(uint8_t *b, int64_t o, int64_t n) {
    #ifdef __SSE2__
        uint8_t *at = b + o, *end = at + n;
        int64_t head = -(intptr_t)at & 63;
        if (n < 128 + head) { memset(at, 0, (size_t)n); return; }
        memset(at, 0, (size_t)head);
        for (at += head; end - at >= 64; at += 64)
            for (int i = 0; i < 64; i += 16) _mm_stream_si128((__m128i *)(at + i), _mm_setzero_si128());
        _mm_sfence();
        memset(at, 0, (size_t)(end - at));
    #else
        memset(b + o, 0, (size_t)n);
    #endif
    }
    MS_INLINE void prefetch(const uint8_t *b, int64_t o) { __builtin_prefetch(b + o, 0, 3); }
    MS_INLINE void prefetch_write(const uint8_t *b, int64_t o) { __builtin_prefetch(b + o, 1, 3); }
    /* Its value is not used, so it may race. */
    MS_INLINE __attribute__((no_sanitize("thread"))) void touch(const uint8_t *b, int64_t o) { (void)*(const volatile uint8_t *)(b + o); }
    #ifndef MADV_POPULATE_WRITE
    #define MADV_POPULATE_WRITE 23
    #endif
    MS_INLINE int populate(uint8_t *b, int64_t o, int64_t n) { return madvise(b + o, (size_t)n, MADV_POPULATE_WRITE) == 0; }
    MS_INLINE int allocate_pages(uint8_t *b, int64_t o, int64_t n) { return madvise(b + o, (size_t)n, MADV_POPULATE_WRITE) == 0 ? 0 : errno; }
    MS_INLINE int32_t wrap_i32(int64_t v) { return (int32_t)(uint32_t)v; }
    MS_INLINE int64_t shift_left(int64_t v, int n) { return (int64_t)((uint64_t)v << n); }
    MS_INLINE int64_t difference(int64_t a, int64_t b) { return (int64_t)((uint64_t)a - (uint64_t)b); }
    MS_INLINE int64_t align_frame(int64_t n) { return (n + 31) & ~(int64_t)31; }
    #endif
    """
    int32_t ld32(const uint8_t *b, int64_t o) noexcept nogil
    int64_t ld64(const uint8_t *b, int64_t o) noexcept nogil
    void st32(uint8_t *b, int64_t o, int32_t v) noexcept nogil
    void st64(uint8_t *b, int64_t o, int64_t v) noexcept nogil
    void mark32(uint8_t *b, int64_t o, int32_t v) noexcept nogil
    void mark64(uint8_t *b, int64_t o, int64_t v) noexcept nogil
    uint8_t get8(const uint8_t *b, int64_t o) noexcept nogil
    uint16_t get16(const uint8_t *b, int64_t o) noexcept nogil
    int32_t get32(const uint8_t *b, int64_t o) noexcept nogil
    int64_t get64(const uint8_t *b, int64_t o) noexcept nogil
    void put8(uint8_t *b, int64_t o, uint8_t v) noexcept nogil
    void put16(uint8_t *b, int64_t o, uint16_t v) noexcept nogil
    void put32(uint8_t *b, int64_t o, int32_t v) noexcept nogil
    void put64(uint8_t *b, int64_t o, int64_t v) noexcept nogil
    int64_t fadd64(uint8_t *b, int64_t o, int64_t v) noexcept nogil
    void add_to_counter(uint8_t *cells, int64_t id, int64_t n) noexcept nogil
    int64_t counter_value(const uint8_t *cells, int64_t id) noexcept nogil
    bint cas32(uint8_t *b, int64_t o, int32_t e, int32_t v) noexcept nogil
    bint cas64(uint8_t *b, int64_t o, int64_t e, int64_t v) noexcept nogil
    void fence_release() noexcept nogil
    void fence_acquire() noexcept nogil
    void copy_bytes(uint8_t *d, int64_t o, const uint8_t *s, int64_t so, int64_t n) noexcept nogil
    void zero_out(uint8_t *b, int64_t o, int64_t n) noexcept nogil
    void zero_past_caches(uint8_t *b, int64_t o, int64_t n) noexcept nogil
    void prefetch(const uint8_t *b, int64_t o) noexcept nogil
    void prefetch_write(const uint8_t *b, int64_t o) noexcept nogil
    void touch(const uint8_t *b, int64_t o) noexcept nogil
    bint populate(uint8_t *b, int64_t o, int64_t n) noexcept nogil
    int allocate_pages(uint8_t *b, int64_t o, int64_t n) noexcept nogil
    int32_t wrap_i32(int64_t v) noexcept nogil
    int64_t shift_left(int64_t v, int n) noexcept nogil
    int64_t difference(int64_t a, int64_t b) noexcept nogil
    int64_t align_frame(int64_t n) noexcept nogil

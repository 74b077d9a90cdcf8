# CRCs by carry-less multiplication, if the processor supports it: reduces a long run to sixteen bytes that have the same CRC.
#
# Four registers of 128 bits walk the run side by side. Each step multiplies a register by the power of x that moves it over the
# next 64 bytes, modulo the polynomial, and adds those bytes. `powers` has x^(512+32), x^(512-32), x^(128+32) and x^(128-32), each
# reflected in 33 bits.
from libc.stdint cimport int64_t, uint8_t, uint32_t

cdef extern from *:
    """
    #ifndef MAINSTEM_FOLDING
    #define MAINSTEM_FOLDING
    #include <stdint.h>
    #if defined(__x86_64__) && defined(__GNUC__)
    #include <cpuid.h>
    #include <emmintrin.h>
    #include <wmmintrin.h>
    static inline __attribute__((unused)) int can_fold(void) {
        unsigned a, b, c = 0, d;
        return __get_cpuid(1, &a, &b, &c, &d) && (c >> 1 & 1); }
    #define MS_FOLD(r, by, p) _mm_xor_si128(_mm_loadu_si128((const __m128i *)(p)), \\
        _mm_xor_si128(_mm_clmulepi64_si128(r, by, 0x00), _mm_clmulepi64_si128(r, by, 0x11)))
    static inline __attribute__((unused, target("pclmul"))) void fold(
            const unsigned long long *powers, const uint8_t *b, int64_t o, int64_t n, uint32_t value, uint8_t *to) {
        const uint8_t *p = b + o;
        const __m128i far = _mm_loadu_si128((const __m128i *)powers), near = _mm_loadu_si128((const __m128i *)(powers + 2));
        __m128i r[4];
        for (int i = 0; i < 4; i++) r[i] = _mm_loadu_si128((const __m128i *)(p + 16 * i));
        r[0] = _mm_xor_si128(r[0], _mm_cvtsi32_si128((int)value));
        for (p += 64, n -= 64; n >= 64; p += 64, n -= 64) {
            __builtin_prefetch(p + 2048, 0, 3);
            r[0] = MS_FOLD(r[0], far, p); r[1] = MS_FOLD(r[1], far, p + 16);
            r[2] = MS_FOLD(r[2], far, p + 32); r[3] = MS_FOLD(r[3], far, p + 48);
        }
        for (int i = 1; i < 4; i++) r[i] = MS_FOLD(r[i - 1], near, r + i);
        for (; n >= 16; p += 16, n -= 16) r[3] = MS_FOLD(r[3], near, p);
        _mm_storeu_si128((__m128i *)to, r[3]);
    }
    /* A run that goes on: `state` has the four registers after what came before, and zeros before its first byte. */
    static inline __attribute__((unused, target("pclmul"))) void fold_more(
            const unsigned long long *powers, uint8_t *state, const uint8_t *b, int64_t o, int64_t n, uint32_t value) {
        const uint8_t *p = b + o;
        const __m128i far = _mm_loadu_si128((const __m128i *)powers);
        __m128i r[4], next;
        for (int i = 0; i < 4; i++) r[i] = _mm_loadu_si128((const __m128i *)(state + 16 * i));
        if (value) {
            next = _mm_xor_si128(MS_FOLD(r[0], far, p), _mm_cvtsi32_si128((int)value));
            r[0] = r[1]; r[1] = r[2]; r[2] = r[3]; r[3] = next; p += 16; n -= 16;
        }
        for (; n >= 64; p += 64, n -= 64) {
            __builtin_prefetch(p + 2048, 0, 3);
            r[0] = MS_FOLD(r[0], far, p); r[1] = MS_FOLD(r[1], far, p + 16);
            r[2] = MS_FOLD(r[2], far, p + 32); r[3] = MS_FOLD(r[3], far, p + 48);
        }
        for (; n >= 16; p += 16, n -= 16) {
            next = MS_FOLD(r[0], far, p);
            r[0] = r[1]; r[1] = r[2]; r[2] = r[3]; r[3] = next;
        }
        for (int i = 0; i < 4; i++) _mm_storeu_si128((__m128i *)(state + 16 * i), r[i]);
    }
    static inline __attribute__((unused, target("pclmul"))) void fold_end(
            const unsigned long long *powers, const uint8_t *state, uint8_t *to) {
        const __m128i near = _mm_loadu_si128((const __m128i *)(powers + 2));
        __m128i r = _mm_loadu_si128((const __m128i *)state);
        for (int i = 1; i < 4; i++) r = MS_FOLD(r, near, state + 16 * i);
        _mm_storeu_si128((__m128i *)to, r);
    }
    #else
    static inline __attribute__((unused)) int can_fold(void) { return 0; }
    static inline __attribute__((unused)) void fold_more(
            const unsigned long long *powers, uint8_t *state, const uint8_t *b, int64_t o, int64_t n, uint32_t value) {
        (void)powers; (void)state; (void)b; (void)o; (void)n; (void)value; }
    static inline __attribute__((unused)) void fold_end(const unsigned long long *powers, const uint8_t *state, uint8_t *to) {
        (void)powers; (void)state; (void)to; }
    static inline __attribute__((unused)) void fold(
            const unsigned long long *powers, const uint8_t *b, int64_t o, int64_t n, uint32_t value, uint8_t *to) {
        (void)powers; (void)b; (void)o; (void)n; (void)value; (void)to; }
    #endif
    #endif
    """
    bint can_fold() noexcept nogil
    void fold_more(const unsigned long long *powers, uint8_t *state, const uint8_t *b, int64_t o, int64_t n, uint32_t value) noexcept nogil
    void fold_end(const unsigned long long *powers, const uint8_t *state, uint8_t *to) noexcept nogil
    void fold(const unsigned long long *powers, const uint8_t *b, int64_t o, int64_t n, uint32_t value, uint8_t *to) noexcept nogil

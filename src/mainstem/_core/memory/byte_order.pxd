# Unsigned numbers in files and packets: be16 and be32 are big-endian, le32 is little-endian. plain.py has the same names.
from libc.stdint cimport int64_t, uint8_t, uint32_t

cdef extern from *:
    """
    #ifndef MAINSTEM_BYTE_ORDER
    #define MAINSTEM_BYTE_ORDER
    static inline __attribute__((unused)) uint32_t be16(const uint8_t *b, int64_t o) { return (uint32_t)b[o] << 8 | b[o + 1]; }
    static inline __attribute__((unused)) uint32_t be32(const uint8_t *b, int64_t o) { return be16(b, o) << 16 | be16(b, o + 2); }
    static inline __attribute__((unused)) uint32_t le32(const uint8_t *b, int64_t o) {
        return (uint32_t)b[o] | (uint32_t)b[o + 1] << 8 | (uint32_t)b[o + 2] << 16 | (uint32_t)b[o + 3] << 24; }
    #endif
    """
    uint32_t be16(const uint8_t *b, int64_t o) noexcept nogil
    uint32_t be32(const uint8_t *b, int64_t o) noexcept nogil
    uint32_t le32(const uint8_t *b, int64_t o) noexcept nogil

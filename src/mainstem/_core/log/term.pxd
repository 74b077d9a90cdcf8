from libc.stdint cimport int32_t, int64_t, uint8_t

from mainstem._core.memory.atomics cimport *
from mainstem._core.memory.buffer cimport AtomicBuffer
from mainstem._core.layout cimport *

cdef enum:
    MAX_RUNS = 64
    NO_TIMESTAMP = -1


cdef class RunBatch:
    cdef int64_t offset[MAX_RUNS]
    cdef int32_t length[MAX_RUNS]
    cdef int32_t segment[MAX_RUNS]
    cdef int64_t advance[MAX_RUNS]
    cdef int32_t count
    cdef int64_t padding
    cdef bint blocked


cdef int32_t wrap32(int64_t value) noexcept nogil
cdef int64_t aligned(int64_t length) noexcept nogil
cdef int32_t scan_datagram(RunBatch batch, uint8_t *base, int64_t at, int64_t end, int32_t most) noexcept nogil
cdef int32_t scan_runs(RunBatch batch, uint8_t *base, int64_t term, int64_t offset, int64_t term_length, int64_t window,
                       int32_t mtu, int32_t max_runs, int32_t max_segments) noexcept nogil
cdef int64_t first_gap(uint8_t *base, int64_t term, int64_t offset, int64_t limit) noexcept nogil
cdef int64_t gap_end(uint8_t *base, int64_t term, int64_t offset, int64_t limit) noexcept nogil
cdef bint insert_frames(uint8_t *base, int64_t at, const uint8_t *source, int64_t start, int64_t length) noexcept nogil
cdef bint fill_with_padding(uint8_t *base, int64_t meta, int64_t term, int64_t offset, int64_t length, int32_t term_id) noexcept nogil
cdef void write_padding(uint8_t *base, int64_t meta, int64_t term, int64_t offset, int64_t length, int32_t term_id) noexcept nogil
cdef void stamp_frames(uint8_t *base, int64_t at, int64_t length, int64_t offset, int64_t moment) noexcept nogil
cdef void clean_bytes(uint8_t *base, int64_t at, int64_t length, bint is_far) noexcept nogil
cdef int64_t clean_to(uint8_t *base, int64_t term_length, int64_t clean, int64_t target) noexcept nogil
cdef int64_t tail_position(uint8_t *base, int64_t meta, int64_t term_length, int32_t initial_term_id) noexcept nogil
cdef bint rotate(uint8_t *base, int64_t meta, int32_t term_count, int32_t term_id) noexcept nogil
cdef int32_t bits_of(int64_t term_length) noexcept nogil

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from mainstem._core.memory.atomics cimport *
from mainstem._core.memory.buffer cimport AtomicBuffer
from mainstem._core.layout cimport *


cdef class LossGenerator:
    cdef readonly int64_t dropped_data
    cdef readonly int64_t dropped_control
    cdef int32_t mask
    cdef readonly LossGenerator then

    cdef bint drops(self, const uint8_t *base, int64_t at, int64_t length) noexcept nogil
    cdef bint decide(self, const uint8_t *base, int64_t at, int64_t length) noexcept nogil


cdef class RandomLoss(LossGenerator):
    cdef readonly double rate
    cdef uint64_t state


cdef class GapLoss(LossGenerator):
    cdef int32_t term_id
    cdef int64_t first
    cdef int64_t radix
    cdef int64_t gap_length
    cdef int32_t total
    cdef int32_t streams
    cdef AtomicBuffer memory
    cdef uint8_t *base

    cdef int64_t row(self, int32_t session_id, int32_t stream_id) noexcept nogil

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from mainstem._core.memory.atomics cimport *
from mainstem._core.memory.byte_order cimport *
from mainstem._core.capture.layout cimport *
from mainstem._core.log.columns cimport Region
from mainstem._core.layout cimport *


cdef class RecordWalk:
    cdef readonly bint blocks
    cdef readonly bint swapped
    cdef readonly int64_t offset
    cdef readonly int64_t data
    cdef readonly int64_t captured
    cdef readonly int64_t original
    cdef readonly int64_t time_ns
    cdef readonly bint timed
    cdef readonly int32_t link
    cdef readonly int64_t needed
    cdef readonly int64_t snaplen
    cdef readonly int32_t interfaces
    cdef int64_t tick_ns
    cdef int32_t links[RECORD_MAX_INTERFACES]
    cdef int32_t resolutions[RECORD_MAX_INTERFACES]
    cdef int64_t offsets_s[RECORD_MAX_INTERFACES]
    cdef int64_t snaplens[RECORD_MAX_INTERFACES]

    cdef int64_t u32(self, uint8_t *base, int64_t o) noexcept nogil
    cdef int32_t u16(self, uint8_t *base, int64_t o) noexcept nogil
    cdef int32_t step(self, uint8_t *base, int64_t offset, int64_t limit) noexcept nogil
    cdef int32_t step_record(self, uint8_t *base, int64_t o, int64_t limit) noexcept nogil
    cdef int32_t step_block(self, uint8_t *base, int64_t o, int64_t limit) noexcept nogil
    cdef int32_t enhanced(self, uint8_t *base, int64_t o, int64_t length, int32_t kind) noexcept nogil
    cdef int32_t simple(self, uint8_t *base, int64_t o, int64_t length) noexcept nogil
    cdef int32_t interface(self, uint8_t *base, int64_t o, int64_t length) noexcept nogil
    cdef void stamp(self, int32_t number, int64_t high, int64_t low) noexcept nogil
    cdef int64_t chain(self, uint8_t *base, int64_t offset, int64_t limit, int32_t count) noexcept nogil

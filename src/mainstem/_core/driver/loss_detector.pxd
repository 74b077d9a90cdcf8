from libc.stdint cimport int32_t, int64_t

from mainstem._core.driver.delay cimport DelayGenerator

cdef enum:
    MAX_GAPS = 64


cdef class LossDetector:
    cdef readonly DelayGenerator delay
    cdef readonly int64_t deadline_ns
    cdef int64_t counted_to
    cdef int32_t count
    cdef int32_t before
    cdef int32_t cursor
    cdef int64_t position[MAX_GAPS]
    cdef int64_t length[MAX_GAPS]
    cdef int64_t timer[MAX_GAPS]
    cdef int64_t old_position[MAX_GAPS]
    cdef int64_t old_length[MAX_GAPS]
    cdef int64_t old_timer[MAX_GAPS]

    cdef void begin(self) noexcept nogil
    cdef int64_t found(self, int64_t position, int64_t length, int64_t now_ns) noexcept nogil
    cdef void finish(self) noexcept nogil
    cdef int32_t next_due(self, int32_t start, int64_t now_ns) noexcept nogil

from libc.stdint cimport int64_t, uint64_t


cdef class DelayGenerator:
    cdef int64_t first(self) noexcept nogil
    cdef int64_t retry(self) noexcept nogil


cdef class StaticDelay(DelayGenerator):
    cdef int64_t delay_ns
    cdef int64_t again_ns


cdef class BackoffDelay(DelayGenerator):
    cdef uint64_t state
    cdef double low
    cdef double width
    cdef double factor
    cdef double unit_ns

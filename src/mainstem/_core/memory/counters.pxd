from libc.stdint cimport int32_t, int64_t, uint8_t

from mainstem._core.memory.atomics cimport *
from mainstem._core.memory.buffer cimport AtomicBuffer
from mainstem._core.layout cimport *


cdef class CounterCell:
    cdef readonly AtomicBuffer buffer
    cdef uint8_t *base
    cdef readonly int64_t offset
    cdef readonly int32_t counter_id

    cdef int check_open(self) except -1


cdef class CountersReader:
    cdef readonly AtomicBuffer metadata
    cdef readonly AtomicBuffer values
    cdef uint8_t *meta_base
    cdef uint8_t *value_base
    cdef readonly int32_t capacity

    cdef int check_id(self, int64_t counter_id) except -1
    cdef int32_t next_allocated(self, int64_t start) noexcept nogil


cdef class CountersManager(CountersReader):
    cdef readonly int64_t reuse_delay_ms
    cdef int32_t high_water_mark
    cdef object freed

    cdef int32_t take_id(self, int64_t now_ms) except -1

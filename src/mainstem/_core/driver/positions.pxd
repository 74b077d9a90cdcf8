from libc.stdint cimport int32_t, int64_t, uint8_t

from mainstem._core.memory.atomics cimport *
from mainstem._core.memory.buffer cimport AtomicBuffer
from mainstem._core.layout cimport *


cdef class PositionSet:
    cdef AtomicBuffer counters
    cdef uint8_t *base
    cdef AtomicBuffer slots
    cdef uint8_t *slot_base
    cdef int32_t room
    cdef volatile int32_t count
    cdef list kept

    cdef int64_t lowest(self, int64_t otherwise) noexcept nogil
    cdef int64_t highest(self, int64_t otherwise) noexcept nogil

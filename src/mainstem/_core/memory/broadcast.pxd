from libc.stdint cimport int32_t, int64_t, uint8_t

from mainstem._core.memory.atomics cimport *
from mainstem._core.memory.buffer cimport AtomicBuffer
from mainstem._core.layout cimport *


cdef int64_t capacity_of(AtomicBuffer buffer) except -1


cdef class BroadcastTransmitter:
    cdef readonly AtomicBuffer buffer
    cdef uint8_t *base
    cdef readonly int64_t capacity
    cdef readonly int64_t max_message_length


cdef class BroadcastReceiver:
    cdef readonly AtomicBuffer buffer
    cdef uint8_t *base
    cdef readonly int64_t capacity
    cdef readonly int64_t lapped_count
    cdef int64_t cursor
    cdef int64_t next_record
    cdef int64_t record_offset

    cdef bint receive_next(self) noexcept nogil
    cdef bint validate(self) noexcept nogil

from libc.stdint cimport int32_t, int64_t, uint8_t

from mainstem._core.memory.atomics cimport *
from mainstem._core.memory.buffer cimport AtomicBuffer
from mainstem._core.layout cimport *


cdef class ManyToOneRingBuffer:
    cdef readonly AtomicBuffer buffer
    cdef uint8_t *base
    cdef readonly int64_t capacity
    cdef readonly int64_t max_message_length

    cdef int check_open(self) except -1
    cdef int check_message(self, int64_t type_id, int64_t length) except -1
    cdef int64_t check_claim(self, int64_t payload_offset) except -1
    cdef int64_t claim_record(self, int64_t length) noexcept nogil
    cdef bint unblock_record(self) noexcept nogil

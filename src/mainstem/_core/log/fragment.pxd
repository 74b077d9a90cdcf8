from libc.stdint cimport int32_t, int64_t, uint8_t

from mainstem._core.memory.atomics cimport *
from mainstem._core.memory.buffer cimport AtomicBuffer
from mainstem._core.layout cimport *


cdef class Header:
    cdef AtomicBuffer log
    cdef uint8_t *base
    cdef int64_t p
    cdef int64_t end_position
    cdef readonly int32_t initial_term_id
    cdef readonly int position_bits

    cdef int check(self) except -1


cdef class Fragment(Header):
    cdef int64_t start
    cdef int64_t length

    cdef bytes to_bytes(self)

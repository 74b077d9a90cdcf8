from cpython.buffer cimport Py_buffer
from libc.stdint cimport int32_t, int64_t, uint8_t

from mainstem._core.memory.atomics cimport *


cdef class AtomicBuffer:
    cdef Py_buffer raw
    cdef bint held
    cdef readonly object owner
    cdef uint8_t *base
    cdef readonly int64_t capacity

    cdef int check(self, int64_t offset, int64_t length) except -1

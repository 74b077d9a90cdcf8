from cpython.buffer cimport Py_buffer
from libc.stdint cimport int32_t, int64_t, uint8_t

from mainstem._core.memory.atomics cimport *


cdef class Messages:
    cdef readonly int64_t count
    cdef readonly int64_t largest
    # What the last load() found: where each message lies and how long it is.
    cdef int64_t loaded
    cdef const uint8_t *source[256]
    cdef int64_t length[256]

    cdef void load(self, int64_t first) noexcept


cdef class MessageList(Messages):
    cdef list items


cdef class MessageColumns(Messages):
    cdef Py_buffer data_view
    cdef Py_buffer offsets_view
    cdef bint data_held
    cdef bint offsets_held
    cdef bint wide
    cdef int64_t first
    cdef uint8_t *data
    cdef uint8_t *offsets

    cdef int64_t offset(self, int64_t i) noexcept
    cdef bint measure(self) noexcept

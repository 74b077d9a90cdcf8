from cpython.buffer cimport Py_buffer
from libc.stdint cimport int32_t, int64_t, uint8_t

from mainstem._core.atomics cimport *


cdef class Messages:
    cdef readonly int64_t count
    cdef readonly int64_t largest

    cdef int64_t size(self, int64_t i) noexcept
    cdef void copy(self, int64_t i, int64_t start, int64_t length, uint8_t *base, int64_t p) noexcept


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

# Written from batch.py by tools/write_core_stubs.py: edit that file, then run the tool.
from cpython.buffer cimport Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from mainstem._core.memory.atomics cimport *


cdef class Messages:
    cdef readonly long long count
    cdef readonly long long largest
    cdef long long loaded
    cdef const unsigned char *source[256]
    cdef long long length[256]

    cdef void load(self, long long first) noexcept


cdef class MessageList(Messages):
    cdef list items

    cdef void load(self, long long first) noexcept


cdef class MessageColumns(Messages):
    cdef Py_buffer data_view
    cdef Py_buffer offsets_view
    cdef bint data_held
    cdef bint offsets_held
    cdef bint wide
    cdef long long first
    cdef unsigned char *data
    cdef unsigned char *offsets

    cdef bint measure(self) noexcept
    cdef long long offset(self, long long i) noexcept
    cdef void load(self, long long first) noexcept

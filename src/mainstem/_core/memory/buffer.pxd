# Written from buffer.py by tools/write_core_stubs.py: edit that file, then run the tool.
from cpython.buffer cimport Py_buffer, PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from mainstem._core.memory.atomics cimport *


cdef class AtomicBuffer:
    cdef Py_buffer raw
    cdef bint held
    cdef readonly object owner
    cdef unsigned char *base
    cdef readonly long long capacity

    cdef int check(self, long long offset, long long length) except -1
    cdef int check_alignment(self) except -1

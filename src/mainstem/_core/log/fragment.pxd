# Written from fragment.py by tools/write_core_stubs.py: edit that file, then run the tool.
from cpython.buffer cimport Py_buffer, PyBUF_ND, PyBUF_SIMPLE, PyBUF_STRIDES, PyBUF_WRITABLE, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from mainstem._core.layout cimport *
from mainstem._core.memory.atomics cimport *
from mainstem._core.memory.buffer cimport AtomicBuffer


cdef class Header:
    cdef AtomicBuffer log
    cdef unsigned char *base
    cdef long long p
    cdef long long end_position
    cdef readonly int initial_term_id
    cdef readonly int position_bits

    cdef int check(self) except -1


cdef class Fragment(Header):
    cdef long long start
    cdef long long length


cdef class Message:
    cdef readonly bytes payload
    cdef readonly long long position
    cdef readonly int session_id
    cdef readonly int stream_id
    cdef readonly long long reserved_value
    cdef readonly object image


cdef bytes payload_bytes(Fragment fragment)

# Written from columns.py by tools/write_core_stubs.py: edit that file, then run the tool.
from cpython.buffer cimport Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize, PyByteArray_Resize
from mainstem._core.layout cimport *
from mainstem._core.memory.atomics cimport *
from mainstem._core.memory.buffer cimport AtomicBuffer


cdef class Region:
    cdef Py_buffer raw
    cdef bint held
    cdef object owner
    cdef unsigned char *base
    cdef long long capacity

    cdef int check(self, long long offset, long long limit) except -1


cdef class FrameWalk:
    cdef readonly long long offset
    cdef readonly long long boundary
    cdef readonly long long frames
    cdef readonly long long messages
    cdef readonly long long others
    cdef readonly long long last
    cdef readonly int stopped
    cdef public long long term_mask

    cdef void walk(self, unsigned char *base, long long offset, long long limit, long long rows) noexcept nogil


cdef class Fragments:
    cdef bytearray data
    cdef unsigned char *data_base
    cdef long long data_capacity
    cdef bytearray head
    cdef unsigned char *head_base
    cdef readonly long long length
    cdef readonly long long expected
    cdef readonly long long dropped

    cdef int reserve(self, long long need) except -1


cdef class Columns:
    cdef readonly int column_bits
    cdef readonly long long rows
    cdef readonly long long payload_length
    cdef readonly int stopped
    cdef public long long term_mask
    cdef long long row_capacity
    cdef long long payload_capacity
    cdef list owners
    cdef unsigned char *column[12]
    cdef long long at[513]
    cdef int lengths[513]
    cdef int payloads[513]
    cdef int flags[513]
    cdef int found_count
    cdef long long found_payload
    cdef int found_flags

    cdef int start(self) except -1
    cdef int resize(self, int index, long long size) except -1
    cdef int reserve_rows(self, long long need) except -1
    cdef int reserve_payload(self, long long need) except -1
    cdef long long add(self, unsigned char *base, long long offset, long long limit, long long position, long long max_rows, bint padding, Fragments fragments) except -1
    cdef long long scan_chunk(self, unsigned char *base, long long offset, long long limit, int rows, bint padding) noexcept nogil
    cdef void fill(self, unsigned char *base, int first, int n, long long zero_position) noexcept nogil
    cdef void fill_messages(self, unsigned char *base, long long *at, int *lengths, int *payloads, int n, long long zero_position) noexcept nogil
    cdef int join_chunk(self, unsigned char *base, long long zero_position, Fragments fragments) except -1
    cdef int join_one(self, unsigned char *base, int i, long long zero_position, Fragments fragments) except -1
    cdef int put_joined(self, int flags, long long end_position, Fragments fragments) except -1


cdef void gather16(unsigned char *column, long long row, unsigned char *base, long long *at, int n, int field) noexcept nogil
cdef void gather32(unsigned char *column, long long row, unsigned char *base, long long *at, int n, int field) noexcept nogil
cdef void gather64(unsigned char *column, long long row, unsigned char *base, long long *at, int n, int field) noexcept nogil

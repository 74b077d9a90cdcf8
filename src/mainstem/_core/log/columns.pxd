from cpython.buffer cimport Py_buffer
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t

from mainstem._core.memory.atomics cimport *
from mainstem._core.memory.buffer cimport AtomicBuffer
from mainstem._core.layout cimport *


cdef class Region:
    cdef Py_buffer raw
    cdef bint held
    cdef object owner
    cdef uint8_t *base
    cdef int64_t capacity

    cdef int check(self, int64_t offset, int64_t limit) except -1


cdef class FrameWalk:
    cdef readonly int64_t offset
    cdef readonly int64_t boundary
    cdef readonly int64_t frames
    cdef readonly int64_t messages
    cdef readonly int64_t others
    cdef readonly int64_t last
    cdef readonly int stopped
    cdef public int64_t term_mask

    cdef void walk(self, uint8_t *base, int64_t offset, int64_t limit, int64_t rows) noexcept nogil


cdef class Fragments:
    cdef bytearray data
    cdef uint8_t *data_base
    cdef int64_t data_capacity
    cdef bytearray head
    cdef uint8_t *head_base
    cdef readonly int64_t length
    cdef readonly int64_t expected
    cdef readonly int64_t dropped

    cdef int reserve(self, int64_t need) except -1


cdef class Columns:
    cdef readonly int wanted
    cdef readonly int64_t rows
    cdef readonly int64_t payload_length
    cdef readonly int stopped
    cdef public int64_t term_mask
    cdef int64_t row_capacity
    cdef int64_t payload_capacity
    cdef list owners
    cdef uint8_t *column[12]
    cdef int64_t at[512]
    cdef int found
    cdef int64_t found_payload
    cdef int found_flags

    cdef int start(self) except -1
    cdef int resize(self, int index, int64_t size) except -1
    cdef int reserve_rows(self, int64_t need) except -1
    cdef int reserve_payload(self, int64_t need) except -1
    cdef int64_t scan_chunk(self, uint8_t *base, int64_t offset, int64_t limit, int rows, bint padding) noexcept nogil
    cdef void fill(self, uint8_t *base, int first, int n, int64_t zero_position) noexcept nogil
    cdef void fill_messages(self, uint8_t *base, int first, int n, int64_t zero_position) noexcept nogil
    cdef int64_t add(
        self, uint8_t *base, int64_t offset, int64_t limit, int64_t position, int64_t max_rows, bint padding,
        Fragments fragments) except -1
    cdef int join_chunk(self, uint8_t *base, int64_t zero_position, Fragments fragments) except -1
    cdef int join_one(self, uint8_t *base, int64_t at, int64_t zero_position, Fragments fragments) except -1
    cdef int put_joined(self, int flags, int64_t end_position, Fragments fragments) except -1


cdef void gather16(uint8_t *column, int64_t row, uint8_t *base, int64_t *at, int n, int field) noexcept nogil
cdef void gather32(uint8_t *column, int64_t row, uint8_t *base, int64_t *at, int n, int field) noexcept nogil
cdef void gather64(uint8_t *column, int64_t row, uint8_t *base, int64_t *at, int n, int field) noexcept nogil

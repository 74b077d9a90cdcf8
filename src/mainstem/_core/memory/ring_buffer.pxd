# Written from ring_buffer.py by tools/write_core_stubs.py: edit that file, then run the tool.
from mainstem._core.layout cimport *
from mainstem._core.memory.atomics cimport *
from mainstem._core.memory.buffer cimport AtomicBuffer


cdef class ManyToOneRingBuffer:
    cdef readonly AtomicBuffer buffer
    cdef unsigned char *base
    cdef readonly long long capacity
    cdef readonly long long max_message_length

    cdef int check_open(self) except -1
    cdef int check_message(self, long long type_id, long long length) except -1
    cdef int check_place(self, long long position) except -1
    cdef long long claim_record(self, long long length) noexcept nogil
    cdef long long check_claim(self, long long payload_offset) except -1
    cdef bint unblock_record(self) noexcept nogil

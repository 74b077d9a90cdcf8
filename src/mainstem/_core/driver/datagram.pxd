# Written from datagram.py by tools/write_core_stubs.py: edit that file, then run the tool.
from mainstem._core.driver.loss_generator cimport LossGenerator
from mainstem._core.layout cimport *
from mainstem._core.memory.atomics cimport *
from mainstem._core.memory.buffer cimport AtomicBuffer


cdef enum:
    ADDRESS_ROOM = 32
    MAX_SLOTS = 64


cdef class Address:
    cdef readonly AtomicBuffer memory
    cdef unsigned char *base
    cdef readonly int length


cdef class Transport:
    cdef readonly int fd
    cdef readonly LossGenerator outgoing
    cdef readonly LossGenerator incoming
    cdef readonly int max_segments
    cdef readonly long long error_count
    cdef readonly int last_error
    cdef readonly bint closed
    cdef AtomicBuffer memory
    cdef unsigned char *base
    cdef long long stride
    cdef int slots
    cdef int slot_size[MAX_SLOTS]
    cdef int slot_segment[MAX_SLOTS]
    cdef AtomicBuffer source_memory
    cdef unsigned char *sources
    cdef int source_length[MAX_SLOTS]
    cdef long long slot_ns[MAX_SLOTS]
    cdef int received
    cdef int slot
    cdef int slot_offset
    cdef long long at
    cdef int length
    cdef long long source
    cdef long long one_offset[1]
    cdef int one_length[1]
    cdef int one_segment[1]

    cdef int fill(self) noexcept nogil
    cdef int put_runs(self, Address to, const unsigned char *base, long long *offset, int *length, int *segment, int count) noexcept nogil
    cdef long long epoch_ns(self, long long now_ns) noexcept nogil
    cdef long long arrival_ns(self, long long now_ns) noexcept nogil
    cdef int receive(self) noexcept nogil
    cdef bint next_datagram(self) noexcept nogil
    cdef long long source_key(self) noexcept nogil
    cdef bint from_same_source(self, Address address) noexcept nogil
    cdef bint put_one(self, Address to, const unsigned char *base, long long offset, int length, int segment) noexcept nogil
    cdef int send_runs(self, Address to, const unsigned char *base, long long *offset, int *length, int *segment, int count) noexcept nogil
    cdef bint send_one(self, Address to, const unsigned char *base, long long offset, int length) noexcept nogil


cdef class MemoryTransport(Transport):
    cdef readonly object inbox
    cdef readonly object sent
    cdef public object send_limit
    cdef public long long epoch_offset_ns

    cdef int take_from_inbox(self) except -1
    cdef int put_in_outbox(self, Address to, const unsigned char *base, long long *offset, int *length, int *segment, int count) except -1
    cdef long long epoch_ns(self, long long now_ns) noexcept nogil
    cdef int fill(self) noexcept nogil
    cdef int put_runs(self, Address to, const unsigned char *base, long long *offset, int *length, int *segment, int count) noexcept nogil

from libc.stdint cimport int32_t, int64_t, uint8_t

from mainstem._core.memory.atomics cimport *
from mainstem._core.memory.buffer cimport AtomicBuffer
from mainstem._core.layout cimport *
from mainstem._core.driver.loss_generator cimport LossGenerator

cdef enum:
    ADDRESS_ROOM = 32
    MAX_SLOTS = 64


cdef class Address:
    cdef readonly AtomicBuffer memory
    cdef uint8_t *base
    cdef readonly int32_t length


cdef class Transport:
    cdef readonly LossGenerator outgoing
    cdef readonly LossGenerator incoming
    cdef readonly int32_t max_segments
    cdef readonly int64_t error_count
    cdef readonly int32_t last_error
    cdef readonly bint closed
    cdef AtomicBuffer memory
    cdef uint8_t *base
    cdef int64_t stride
    cdef int32_t slots
    cdef int32_t slot_size[MAX_SLOTS]
    cdef int32_t slot_segment[MAX_SLOTS]
    cdef AtomicBuffer source_memory
    cdef uint8_t *sources
    cdef int32_t source_length[MAX_SLOTS]
    cdef int64_t slot_ns[MAX_SLOTS]
    cdef int32_t received
    cdef int32_t slot
    cdef int32_t taken
    cdef int64_t at
    cdef int32_t length
    cdef int64_t source
    cdef int64_t one_offset[1]
    cdef int32_t one_length[1]
    cdef int32_t one_segment[1]

    cdef int32_t fill(self) noexcept nogil
    cdef int32_t put_runs(self, Address to, const uint8_t *base, int64_t *offset, int32_t *length, int32_t *segment, int32_t count) noexcept nogil
    cdef int64_t epoch_ns(self, int64_t now_ns) noexcept nogil
    cdef int64_t arrival_ns(self, int64_t now_ns) noexcept nogil
    cdef int32_t receive(self) noexcept nogil
    cdef bint next_datagram(self) noexcept nogil
    cdef bint from_same_source(self, Address address) noexcept nogil
    cdef int32_t send_runs(self, Address to, const uint8_t *base, int64_t *offset, int32_t *length, int32_t *segment, int32_t count) noexcept nogil
    cdef bint send_one(self, Address to, const uint8_t *base, int64_t offset, int32_t length) noexcept nogil
    cdef bint put_one(self, Address to, const uint8_t *base, int64_t offset, int32_t length, int32_t segment) noexcept nogil


cdef class MemoryTransport(Transport):
    cdef readonly object inbox
    cdef readonly object sent
    cdef public object send_limit
    cdef public int64_t epoch_offset_ns

    cdef int32_t take_from_inbox(self) except -1
    cdef int32_t put_in_outbox(self, Address to, const uint8_t *base, int64_t *offset, int32_t *length, int32_t *segment, int32_t count) except -1

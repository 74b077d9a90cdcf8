from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from mainstem._core.memory.atomics cimport *
from mainstem._core.memory.byte_order cimport *
from mainstem._core.capture.layout cimport *
from mainstem._core.log.columns cimport Region
from mainstem._core.layout cimport *


cdef class Packet:
    cdef readonly int32_t kind
    cdef readonly int32_t protocol
    cdef readonly int64_t payload
    cdef readonly int64_t available
    cdef readonly int64_t length
    cdef readonly int32_t source_port
    cdef readonly int32_t destination_port
    cdef readonly int64_t sequence
    cdef readonly int64_t acknowledged
    cdef readonly int32_t tcp_flags
    cdef readonly int64_t fragment_offset
    cdef readonly bint more_fragments
    cdef readonly int64_t fragment_id
    cdef readonly int32_t bucket
    cdef int64_t address
    cdef int32_t address_size

    cdef int32_t parse(self, uint8_t *base, int64_t o, int64_t captured, int32_t link) noexcept nogil
    cdef int32_t ethernet(self, uint8_t *base, int64_t o, int64_t end) noexcept nogil
    cdef int32_t by_ethertype(self, uint8_t *base, int64_t o, int64_t end, int32_t kind) noexcept nogil
    cdef int32_t ip(self, uint8_t *base, int64_t o, int64_t end) noexcept nogil
    cdef int32_t ipv4(self, uint8_t *base, int64_t o, int64_t end) noexcept nogil
    cdef int32_t ipv6(self, uint8_t *base, int64_t o, int64_t end) noexcept nogil
    cdef int32_t fragment(self, uint8_t *base, int64_t o, int64_t end, int64_t length, int32_t protocol) noexcept nogil
    cdef int32_t transport(self, uint8_t *base, int64_t o, int64_t end, int64_t length, int32_t protocol) noexcept nogil
    cdef int32_t udp(self, uint8_t *base, int64_t o, int64_t end, int64_t length) noexcept nogil
    cdef int32_t tcp(self, uint8_t *base, int64_t o, int64_t end, int64_t length) noexcept nogil
    cdef uint64_t address_hash(self, uint8_t *base, int64_t o) noexcept nogil
    cdef void put_address(self, uint8_t *base, int32_t which, uint8_t *column, int64_t at) noexcept nogil

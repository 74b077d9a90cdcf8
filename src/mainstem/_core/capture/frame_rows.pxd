from libc.stdint cimport int32_t, int64_t, uint8_t

from mainstem._core.memory.atomics cimport *
from mainstem._core.capture.layout cimport *
from mainstem._core.layout cimport *
from mainstem._core.capture.packets cimport Packet


cdef class FrameRows:
    cdef readonly int64_t rows
    cdef readonly int64_t capacity
    cdef readonly int64_t text_length
    cdef readonly int64_t payload_length
    cdef int64_t text_capacity
    cdef int64_t payload_capacity
    cdef int64_t wanted
    cdef list owners
    cdef list bitmaps
    cdef uint8_t *column[ROW_COLUMNS]
    cdef uint8_t *valid[ROW_COLUMNS]
    cdef uint8_t *text
    cdef uint8_t *payload
    cdef bytearray text_owner
    cdef bytearray payload_owner
    cdef int32_t width[ROW_COLUMNS]
    cdef int64_t packet
    cdef int64_t time_ns
    cdef bint timed
    cdef int64_t wire_length
    cdef int32_t transport
    cdef int32_t source_port
    cdef int32_t destination_port
    cdef int32_t frame_index
    cdef bint addressed
    cdef uint8_t *addresses
    cdef bytearray addresses_owner

    cdef int start(self) except -1
    cdef bint has_room(self, int64_t rows, int64_t text, int64_t payload) noexcept nogil
    cdef void new_packet(self, int64_t number, int64_t time_ns, bint timed, int64_t wire_length) noexcept nogil
    cdef void set_flow(self, uint8_t *base, Packet packet) noexcept nogil
    cdef void new_row(self, int32_t protocol, int32_t kind) noexcept nogil
    cdef void put(self, int32_t index, int64_t value) noexcept nogil
    cdef void put_text(self, uint8_t *base, int64_t o, int64_t n) noexcept nogil
    cdef void put_payload(self, uint8_t *base, int64_t o, int64_t n) noexcept nogil
    cdef void close_row(self) noexcept nogil

# Written from frame_rows.py by tools/write_core_stubs.py: edit that file, then run the tool.
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_Resize
from mainstem._core.capture.layout cimport *
from mainstem._core.capture.packets cimport Packet
from mainstem._core.layout cimport *
from mainstem._core.memory.atomics cimport *


cdef class FrameRows:
    cdef readonly long long rows
    cdef readonly long long capacity
    cdef readonly long long text_length
    cdef readonly long long payload_length
    cdef long long text_capacity
    cdef long long payload_capacity
    cdef long long column_bits
    cdef list owners
    cdef list bitmaps
    cdef unsigned char *column[ROW_COLUMNS]
    cdef unsigned char *valid[ROW_COLUMNS]
    cdef unsigned char *text
    cdef unsigned char *payload
    cdef bytearray text_owner
    cdef bytearray payload_owner
    cdef int width[ROW_COLUMNS]
    cdef long long packet
    cdef long long time_ns
    cdef bint timed
    cdef long long wire_length
    cdef int transport
    cdef int source_port
    cdef int destination_port
    cdef public int frame_index
    cdef bint addressed
    cdef unsigned char *addresses
    cdef bytearray addresses_owner

    cdef int start(self) except -1
    cdef bint has_room(self, long long rows, long long text, long long payload) noexcept nogil
    cdef void new_packet(self, long long number, long long time_ns, bint timed, long long wire_length) noexcept nogil
    cdef void set_flow(self, unsigned char *base, Packet packet) noexcept nogil
    cdef void new_row(self, int protocol, int kind) noexcept nogil
    cdef void put(self, int index, long long value) noexcept nogil
    cdef void put_text(self, unsigned char *base, long long o, long long n) noexcept nogil
    cdef void put_payload(self, unsigned char *base, long long o, long long n) noexcept nogil
    cdef void close_row(self) noexcept nogil

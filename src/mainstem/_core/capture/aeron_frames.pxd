from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from mainstem._core.memory.atomics cimport *
from mainstem._core.capture.layout cimport *
from mainstem._core.log.columns cimport Region
from mainstem._core.capture.frame_rows cimport FrameRows
from mainstem._core.layout cimport *
from mainstem._core.capture.packets cimport Packet
from mainstem._core.capture.records cimport RecordWalk


cdef class CaptureDecoder:
    cdef readonly RecordWalk walk
    cdef readonly Packet packet
    cdef readonly FrameRows rows
    cdef readonly int64_t number
    cdef readonly int64_t offset
    cdef public bint plain
    cdef public bint guess
    cdef uint64_t tcp_buckets
    cdef uint64_t fragment_buckets
    cdef uint8_t udp_ports[65536]
    cdef uint8_t tcp_ports[65536]

    cdef int32_t loop(self, uint8_t *base, int64_t offset, int64_t limit) noexcept nogil
    cdef int32_t take(self, uint8_t *base) noexcept nogil
    cdef int32_t take_udp(self, uint8_t *base) noexcept nogil
    cdef void problem(self, int32_t kind, int32_t reason) noexcept nogil
    cdef bint plausible(self, uint8_t *base, int64_t o, int64_t available, int64_t length) noexcept nogil
    cdef void decode(self, uint8_t *base, int64_t o, int64_t available, int64_t length) noexcept nogil
    cdef void emit(self, uint8_t *base, int64_t o, int64_t available, int32_t kind, int64_t datagram) noexcept nogil
    cdef void emit_data(self, uint8_t *base, int64_t o, int64_t available, int32_t kind) noexcept nogil
    cdef void emit_control(self, uint8_t *base, int64_t o, int64_t available, int32_t kind) noexcept nogil
    cdef void emit_error(self, uint8_t *base, int64_t o, int64_t available) noexcept nogil
    cdef void emit_names(self, uint8_t *base, int64_t o, int64_t available) noexcept nogil


cdef int32_t least(int32_t kind) noexcept nogil
cdef int32_t examine(uint8_t *base, int64_t o, int64_t available, int64_t length) noexcept nogil
cdef int64_t step_of(uint8_t *base, int64_t o, int32_t kind, int64_t left) noexcept nogil
cdef bint strict_data(uint8_t *base, int64_t o, int64_t first) noexcept nogil
cdef bint strict_control(uint8_t *base, int64_t o, int64_t available, int64_t length, int32_t kind) noexcept nogil
cdef int64_t entry_length(uint8_t *base, int64_t o, int64_t left) noexcept nogil

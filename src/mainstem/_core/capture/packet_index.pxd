from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from mainstem._core.memory.atomics cimport *
from mainstem._core.capture.layout cimport *
from mainstem._core.log.columns cimport Region
from mainstem._core.capture.packets cimport Packet
from mainstem._core.capture.records cimport RecordWalk


cdef class PacketIndex:
    cdef readonly RecordWalk walk
    cdef Packet packet
    cdef readonly int64_t offset
    cdef readonly int64_t packets
    cdef readonly int64_t first_ns
    cdef readonly int64_t last_ns
    cdef readonly uint64_t tcp
    cdef readonly uint64_t fragments
    cdef readonly int32_t unknown_link
    cdef readonly int32_t stopped

    cdef int32_t loop(self, uint8_t *base, int64_t offset, int64_t limit) noexcept nogil
    cdef void note(self, uint8_t *base) noexcept nogil

# Written from packet_index.py by tools/write_core_stubs.py: edit that file, then run the tool.
from mainstem._core.capture.layout cimport *
from mainstem._core.capture.packets cimport Packet
from mainstem._core.capture.records cimport RecordWalk
from mainstem._core.log.columns cimport Region
from mainstem._core.memory.atomics cimport *


cdef class PacketIndex:
    cdef readonly RecordWalk walk
    cdef Packet packet
    cdef readonly long long offset
    cdef readonly long long packets
    cdef readonly long long first_ns
    cdef readonly long long last_ns
    cdef readonly unsigned long long tcp
    cdef readonly unsigned long long fragments
    cdef readonly int unknown_link
    cdef readonly int stopped

    cdef int loop(self, unsigned char *base, long long offset, long long limit) noexcept nogil
    cdef void note(self, unsigned char *base) noexcept nogil

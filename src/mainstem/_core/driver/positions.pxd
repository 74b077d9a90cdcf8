# Written from positions.py by tools/write_core_stubs.py: edit that file, then run the tool.
from mainstem._core.layout cimport *
from mainstem._core.memory.atomics cimport *
from mainstem._core.memory.buffer cimport AtomicBuffer


cdef class PositionSet:
    cdef AtomicBuffer counters
    cdef unsigned char *base
    cdef AtomicBuffer slots
    cdef unsigned char *slot_base
    cdef int room
    cdef volatile int count
    cdef list outgrown

    cdef long long lowest(self, long long otherwise) noexcept nogil
    cdef long long highest(self, long long otherwise) noexcept nogil

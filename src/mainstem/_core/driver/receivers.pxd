# Written from receivers.py by tools/write_core_stubs.py: edit that file, then run the tool.
from mainstem._core.memory.buffer cimport AtomicBuffer


cdef enum:
    MAX_RECEIVERS = 4096


cdef class ReceiverTable:
    cdef readonly int count
    cdef long long room
    cdef AtomicBuffer memory
    cdef long long *ids
    cdef long long *heard_ns
    cdef long long *edges
    cdef long long *counts
    cdef long long *sources

    cdef int find(self, long long receiver_id) noexcept nogil
    cdef bint knows_source(self, long long source) noexcept nogil
    cdef void refresh(self, int row, long long edge, long long source, long long now_ns) noexcept nogil
    cdef long long lowest_edge(self, long long otherwise) noexcept nogil

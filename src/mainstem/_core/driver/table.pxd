# Written from table.py by tools/write_core_stubs.py: edit that file, then run the tool.
from mainstem._core.memory.atomics cimport *
from mainstem._core.memory.buffer cimport AtomicBuffer


cdef class PathTable:
    cdef AtomicBuffer memory
    cdef AtomicBuffer entry_memory
    cdef unsigned char *base
    cdef void **entries
    cdef int room
    cdef readonly int count
    cdef dict paths
    cdef long long last_key
    cdef int last_index

    cdef long long slot_of(self, long long key) noexcept nogil
    cdef int find(self, int session_id, int stream_id) noexcept nogil

from libc.stdint cimport int32_t, int64_t, uint8_t

from mainstem._core.memory.atomics cimport *
from mainstem._core.memory.buffer cimport AtomicBuffer


cdef class PathTable:
    cdef AtomicBuffer memory
    cdef AtomicBuffer entry_memory
    cdef uint8_t *base
    cdef void **entries
    cdef int32_t room
    cdef readonly int32_t count
    cdef dict paths
    cdef int64_t last_key
    cdef int32_t last_index

    cdef int32_t find(self, int32_t session_id, int32_t stream_id) noexcept nogil
    cdef int64_t slot_of(self, int64_t key) noexcept nogil

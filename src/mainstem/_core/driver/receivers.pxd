from libc.stdint cimport int32_t, int64_t

cdef enum:
    MAX_RECEIVERS = 256


cdef class ReceiverTable:
    cdef readonly int32_t count
    cdef int64_t ids[MAX_RECEIVERS]
    cdef int64_t heard_ns[MAX_RECEIVERS]
    cdef int64_t edges[MAX_RECEIVERS]
    cdef bint counts[MAX_RECEIVERS]

    cdef int32_t find(self, int64_t receiver_id) noexcept nogil
    cdef void hear(self, int32_t row, int64_t edge, int64_t now_ns) noexcept nogil
    cdef int64_t lowest_edge(self, int64_t otherwise) noexcept nogil

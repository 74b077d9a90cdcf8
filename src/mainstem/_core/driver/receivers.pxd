# Written from receivers.py by tools/write_core_stubs.py: edit that file, then run the tool.


cdef enum:
    MAX_RECEIVERS = 256


cdef class ReceiverTable:
    cdef readonly int count
    cdef long long ids[MAX_RECEIVERS]
    cdef long long heard_ns[MAX_RECEIVERS]
    cdef long long edges[MAX_RECEIVERS]
    cdef bint counts[MAX_RECEIVERS]
    cdef long long sources[MAX_RECEIVERS]

    cdef int find(self, long long receiver_id) noexcept nogil
    cdef bint knows_source(self, long long source) noexcept nogil
    cdef void refresh(self, int row, long long edge, long long source, long long now_ns) noexcept nogil
    cdef long long lowest_edge(self, long long otherwise) noexcept nogil

from libc.stdint cimport int32_t, int64_t

cdef enum:
    MAX_ACTIONS = 256


cdef class RetransmitHandler:
    cdef readonly int64_t deadline_ns
    cdef readonly int64_t overflows
    cdef bint group
    cdef int32_t max_actions
    cdef int64_t term_length
    cdef int64_t most
    cdef int64_t reach
    cdef int64_t delay_ns
    cdef int64_t linger_ns
    cdef int32_t count
    cdef int64_t position[MAX_ACTIONS]
    cdef int64_t length[MAX_ACTIONS]
    cdef int64_t timer[MAX_ACTIONS]
    cdef bint delayed[MAX_ACTIONS]
    cdef bint due[MAX_ACTIONS]

    cdef bint in_reach(self, int64_t position, int64_t sender_position) noexcept nogil
    cdef int64_t ask(self, int64_t position, int64_t length, int64_t sender_position, int64_t now_ns) noexcept nogil
    cdef void expire(self, int64_t sender_position, int64_t now_ns) noexcept nogil
    cdef int32_t next_due(self, int32_t start) noexcept nogil
    cdef void drop(self, int32_t index) noexcept nogil
    cdef void set_deadline(self) noexcept nogil

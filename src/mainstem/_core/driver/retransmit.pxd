# Written from retransmit.py by tools/write_core_stubs.py: edit that file, then run the tool.
from mainstem._core.layout cimport *


cdef enum:
    MAX_ACTIONS = 256


cdef class RetransmitHandler:
    cdef readonly long long deadline_ns
    cdef readonly long long overflows
    cdef bint group
    cdef int max_actions
    cdef long long term_length
    cdef long long most
    cdef long long reach
    cdef long long delay_ns
    cdef long long linger_ns
    cdef long long rate
    cdef long long most_saved
    cdef long long allowance
    cdef long long strangers_allowance
    cdef long long allowed_ns
    cdef long long allowed_position
    cdef int count
    cdef long long position[MAX_ACTIONS]
    cdef long long length[MAX_ACTIONS]
    cdef long long timer[MAX_ACTIONS]
    cdef bint delayed[MAX_ACTIONS]
    cdef bint due[MAX_ACTIONS]

    cdef bint in_reach(self, long long position, long long sender_position) noexcept nogil
    cdef long long ask(self, long long position, long long length, long long sender_position, long long now_ns, bint of_receiver) noexcept nogil
    cdef void allow_more(self, long long sender_position, long long now_ns) noexcept nogil
    cdef void drop(self, int index) noexcept nogil
    cdef void expire(self, long long sender_position, long long now_ns) noexcept nogil
    cdef int next_due(self, int start) noexcept nogil
    cdef void set_deadline(self) noexcept nogil

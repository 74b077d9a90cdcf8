# Written from loss_generator.py by tools/write_core_stubs.py: edit that file, then run the tool.
from mainstem._core.layout cimport *
from mainstem._core.memory.atomics cimport *
from mainstem._core.memory.buffer cimport AtomicBuffer


cdef class LossGenerator:
    cdef readonly long long dropped_data
    cdef readonly long long dropped_control
    cdef int mask
    cdef readonly LossGenerator then

    cdef bint drops(self, const unsigned char *base, long long at, long long length) noexcept nogil
    cdef bint decide(self, const unsigned char *base, long long at, long long length) noexcept nogil


cdef class RandomLoss(LossGenerator):
    cdef readonly double rate
    cdef unsigned long long state

    cdef bint decide(self, const unsigned char *base, long long at, long long length) noexcept nogil


cdef class GapLoss(LossGenerator):
    cdef int term_id
    cdef long long first
    cdef long long radix
    cdef long long gap_length
    cdef int total
    cdef int streams
    cdef AtomicBuffer memory
    cdef unsigned char *base

    cdef long long row(self, int session_id, int stream_id) noexcept nogil
    cdef bint decide(self, const unsigned char *base, long long at, long long length) noexcept nogil

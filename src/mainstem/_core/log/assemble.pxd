from libc.stdint cimport int32_t, int64_t, uint8_t

from mainstem._core.memory.atomics cimport *
from mainstem._core.memory.buffer cimport AtomicBuffer
from mainstem._core.log.fragment cimport Fragment
from mainstem._core.layout cimport *


cdef class MessageBuilder:
    cdef AtomicBuffer data
    cdef readonly int64_t length
    cdef int64_t expected_offset
    cdef int32_t expected_term_id
    cdef Fragment message

    cdef int reserve(self, int64_t capacity) except -1
    cdef bint add(self, Fragment fragment) except -1
    cdef int take_back(self, Fragment fragment) except -1


cdef class FragmentAssembler:
    cdef readonly object handler
    cdef dict builders

    cdef MessageBuilder builder_of(self, Fragment fragment)
    cdef object deliver(self, Fragment fragment)
    cdef object control(self, Fragment fragment)

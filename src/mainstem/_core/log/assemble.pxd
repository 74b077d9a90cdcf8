# Written from assemble.py by tools/write_core_stubs.py: edit that file, then run the tool.
from mainstem._core.layout cimport *
from mainstem._core.log.fragment cimport Fragment
from mainstem._core.memory.atomics cimport *
from mainstem._core.memory.buffer cimport AtomicBuffer


cdef class MessageBuilder:
    cdef AtomicBuffer data
    cdef readonly long long length
    cdef long long expected_offset
    cdef int expected_term_id
    cdef Fragment message

    cdef int reserve(self, long long capacity) except -1
    cdef bint add(self, Fragment fragment) except -1
    cdef int take_back(self, Fragment fragment) except -1


cdef class FragmentAssembler:
    cdef readonly object handler
    cdef dict builders


cdef MessageBuilder builder_of(FragmentAssembler assembler, Fragment fragment)
cdef object assemble(FragmentAssembler assembler, Fragment fragment)
cdef object assemble_controlled(FragmentAssembler assembler, Fragment fragment)

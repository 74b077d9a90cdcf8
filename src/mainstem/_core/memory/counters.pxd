# Written from counters.py by tools/write_core_stubs.py: edit that file, then run the tool.
from mainstem._core.layout cimport *
from mainstem._core.memory.atomics cimport *
from mainstem._core.memory.buffer cimport AtomicBuffer


cdef class CounterCell:
    cdef readonly AtomicBuffer buffer
    cdef unsigned char *base
    cdef readonly long long offset
    cdef readonly int counter_id

    cdef int check_open(self) except -1


cdef class CountersReader:
    cdef readonly AtomicBuffer metadata
    cdef readonly AtomicBuffer values
    cdef unsigned char *meta_base
    cdef unsigned char *value_base
    cdef readonly int capacity

    cdef int check_id(self, long long counter_id) except -1
    cdef int next_allocated(self, long long start) noexcept nogil


cdef class CountersManager(CountersReader):
    cdef readonly long long reuse_delay_ms
    cdef int high_water_mark
    cdef object freed

    cdef int take_id(self, long long now_ms) except -1

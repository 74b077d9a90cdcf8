# Written from backing.py by tools/write_core_stubs.py: edit that file, then run the tool.
from mainstem._core.layout cimport *
from mainstem._core.memory.atomics cimport *
from mainstem._core.memory.buffer cimport AtomicBuffer


cdef class Backing:
    cdef AtomicBuffer log
    cdef unsigned char *base
    cdef long long length
    cdef long long first
    cdef readonly long long margin
    cdef readonly long long ahead
    cdef readonly long long position
    cdef readonly bint is_held
    cdef bint is_refilling
    cdef long long retry_ns
    cdef long long missed

    cdef bint take(self, long long goal, long long now_ns) noexcept nogil
    cdef long long limit(self, long long goal, long long produced, long long now_ns) noexcept nogil
    cdef bint admits(self, long long end) noexcept nogil
    cdef bint follow(self, long long goal, long long now_ns) noexcept nogil
    cdef long long window(self, long long position, long long length) noexcept nogil

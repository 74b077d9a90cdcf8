# Written from delay.py by tools/write_core_stubs.py: edit that file, then run the tool.
from libc.math cimport log


cdef class DelayGenerator:
    cdef long long first(self) noexcept nogil
    cdef long long retry(self) noexcept nogil


cdef class StaticDelay(DelayGenerator):
    cdef long long delay_ns
    cdef long long again_ns

    cdef long long first(self) noexcept nogil
    cdef long long retry(self) noexcept nogil


cdef class BackoffDelay(DelayGenerator):
    cdef unsigned long long state
    cdef double low
    cdef double width
    cdef double factor
    cdef double unit_ns

    cdef long long first(self) noexcept nogil

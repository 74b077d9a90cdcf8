# Written from loss_detector.py by tools/write_core_stubs.py: edit that file, then run the tool.
from mainstem._core.driver.delay cimport DelayGenerator
from mainstem._core.layout cimport *


cdef enum:
    MAX_GAPS = 64


cdef class LossDetector:
    cdef readonly DelayGenerator delay
    cdef readonly long long deadline_ns
    cdef long long counted_to
    cdef int count
    cdef int before
    cdef int cursor
    cdef long long position[MAX_GAPS]
    cdef long long length[MAX_GAPS]
    cdef long long timer[MAX_GAPS]
    cdef long long old_position[MAX_GAPS]
    cdef long long old_length[MAX_GAPS]
    cdef long long old_timer[MAX_GAPS]

    cdef void begin(self) noexcept nogil
    cdef long long found(self, long long position, long long length, long long now_ns) noexcept nogil
    cdef void finish(self) noexcept nogil
    cdef int next_due(self, int start, long long now_ns) noexcept nogil

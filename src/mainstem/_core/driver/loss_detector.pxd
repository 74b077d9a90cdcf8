# Written from loss_detector.py by tools/write_core_stubs.py: edit that file, then run the tool.
from mainstem._core.driver.delay cimport DelayGenerator
from mainstem._core.layout cimport *


cdef enum:
    MAX_GAPS = 64


cdef class LossDetector:
    cdef readonly DelayGenerator delay
    cdef readonly bint group
    cdef readonly long long deadline_ns
    cdef readonly long long response_ns
    cdef readonly long long deviation_ns
    cdef readonly long long request_length
    cdef long long counted_to
    cdef long long requests
    cdef int count
    cdef int before
    cdef int cursor
    cdef long long reached
    cdef int doubts
    cdef long long doubt_ns
    cdef long long responded_order
    cdef long long responded_to
    cdef long long position[MAX_GAPS]
    cdef long long length[MAX_GAPS]
    cdef bint continues[MAX_GAPS]
    cdef long long timer[MAX_GAPS]
    cdef long long asked[MAX_GAPS]
    cdef long long first_asked[MAX_GAPS]
    cdef int times[MAX_GAPS]
    cdef int copies[MAX_GAPS]
    cdef long long order[MAX_GAPS]
    cdef long long old_position[MAX_GAPS]
    cdef long long old_length[MAX_GAPS]
    cdef long long old_timer[MAX_GAPS]
    cdef long long old_asked[MAX_GAPS]
    cdef long long old_first_asked[MAX_GAPS]
    cdef int old_times[MAX_GAPS]
    cdef int old_copies[MAX_GAPS]
    cdef long long old_order[MAX_GAPS]

    cdef void begin(self) noexcept nogil
    cdef long long found(self, long long position, long long length, long long now_ns) noexcept nogil
    cdef void add(self, long long position, long long end, bint first, long long now_ns) noexcept nogil
    cdef void keep(self, long long position, long long end, bint first) noexcept nogil
    cdef void pass_to(self, long long position, long long now_ns) noexcept nogil
    cdef void on_response(self, int j, long long end, long long now_ns) noexcept nogil
    cdef void measure(self, long long took) noexcept nogil
    cdef void finish(self, long long now_ns) noexcept nogil
    cdef void forget(self, long long now_ns) noexcept nogil
    cdef void set_deadline(self) noexcept nogil
    cdef int next_due(self, int start, long long now_ns) noexcept nogil
    cdef void request(self, int i, long long now_ns) noexcept nogil
    cdef long long patience(self, int times) noexcept nogil

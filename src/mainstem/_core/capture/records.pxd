# Written from records.py by tools/write_core_stubs.py: edit that file, then run the tool.
from mainstem._core.capture.layout cimport *
from mainstem._core.layout cimport *
from mainstem._core.log.columns cimport Region
from mainstem._core.memory.atomics cimport *
from mainstem._core.memory.buffer cimport AtomicBuffer
from mainstem._core.memory.byte_order cimport *


cdef class RecordWalk:
    cdef readonly bint blocks
    cdef readonly bint swapped
    cdef readonly long long offset
    cdef readonly long long data
    cdef readonly long long captured
    cdef readonly long long original
    cdef readonly long long time_ns
    cdef readonly bint timed
    cdef readonly int link
    cdef readonly long long needed
    cdef readonly long long snaplen
    cdef readonly int interfaces
    cdef long long tick_ns
    cdef int links[RECORD_MAX_INTERFACES]
    cdef int resolutions[RECORD_MAX_INTERFACES]
    cdef long long offsets_s[RECORD_MAX_INTERFACES]
    cdef long long snaplens[RECORD_MAX_INTERFACES]

    cdef long long u32(self, unsigned char *base, long long o) noexcept nogil
    cdef int u16(self, unsigned char *base, long long o) noexcept nogil
    cdef int step(self, unsigned char *base, long long offset, long long limit) noexcept nogil
    cdef int step_record(self, unsigned char *base, long long o, long long limit) noexcept nogil
    cdef int step_block(self, unsigned char *base, long long o, long long limit) noexcept nogil
    cdef int enhanced(self, unsigned char *base, long long o, long long length, int kind) noexcept nogil
    cdef int simple(self, unsigned char *base, long long o, long long length) noexcept nogil
    cdef int interface(self, unsigned char *base, long long o, long long length) noexcept nogil
    cdef void stamp(self, int number, long long high, long long low) noexcept nogil
    cdef long long chain(self, unsigned char *base, long long offset, long long limit, int count) noexcept nogil

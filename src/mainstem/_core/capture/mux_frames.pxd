# Written from mux_frames.py by tools/write_core_stubs.py: edit that file, then run the tool.
from cpython.bytearray cimport PyByteArray_AS_STRING
from mainstem._core.capture.frame_rows cimport FrameRows
from mainstem._core.capture.layout cimport *
from mainstem._core.log.columns cimport Region
from mainstem._core.memory.atomics cimport *
from mainstem._core.memory.byte_order cimport *


cdef class MuxParser:
    cdef readonly FrameRows rows
    cdef readonly bint jmux
    cdef readonly long long position
    cdef readonly int reason
    cdef public long long connection
    cdef public int from_client
    cdef bytearray head_owner
    cdef unsigned char *head
    cdef int have
    cdef int need
    cdef long long start
    cdef long long body_length
    cdef long long body_left
    cdef bint pending
    cdef bint greeted
    cdef bint keep
    cdef bint hold
    cdef bytearray body
    cdef int kind
    cdef int type
    cdef long long stream
    cdef bint has_stream
    cdef long long credit
    cdef bint has_credit
    cdef int cookie

    cdef long long gather(self, unsigned char *base, long long o, long long limit) noexcept nogil
    cdef int measure(self) noexcept nogil
    cdef int understand(self) noexcept nogil
    cdef long long number(self, int at, int width) noexcept nogil
    cdef int understand_bymux(self) noexcept nogil
    cdef int understand_jmux(self) noexcept nogil
    cdef int jmux_session(self, int first) noexcept nogil
    cdef int emit(self) except -1

from libc.stdint cimport int32_t, int64_t, uint8_t

from mainstem._core.memory.atomics cimport *
from mainstem._core.memory.byte_order cimport *
from mainstem._core.capture.layout cimport *
from mainstem._core.log.columns cimport Region
from mainstem._core.capture.frame_rows cimport FrameRows


cdef class MuxParser:
    cdef readonly FrameRows rows
    cdef readonly bint jmux
    cdef readonly int64_t position
    cdef readonly int32_t reason
    cdef public int64_t connection
    cdef public int32_t from_client
    cdef bytearray head_owner
    cdef uint8_t *head
    cdef int32_t have
    cdef int32_t need
    cdef int64_t start
    cdef int64_t body_length
    cdef int64_t body_left
    cdef bint pending
    cdef bint greeted
    cdef bint keep
    cdef bint hold
    cdef bytearray body
    cdef int32_t kind
    cdef int32_t type
    cdef int64_t stream
    cdef bint has_stream
    cdef int64_t credit
    cdef bint has_credit
    cdef int32_t cookie

    cdef int32_t measure(self) noexcept nogil
    cdef int32_t understand(self) noexcept nogil
    cdef int32_t understand_bymux(self) noexcept nogil
    cdef int32_t understand_jmux(self) noexcept nogil
    cdef int32_t jmux_session(self, int32_t first) noexcept nogil
    cdef int64_t number(self, int32_t at, int32_t width) noexcept nogil
    cdef int64_t gather(self, uint8_t *base, int64_t o, int64_t limit) noexcept nogil
    cdef int emit(self) except -1

from libc.stdint cimport int32_t, int64_t, uint8_t

from mainstem._core.memory.atomics cimport *
from mainstem._core.memory.buffer cimport AtomicBuffer
from mainstem._core.driver.datagram cimport ADDRESS_ROOM, Transport


cdef enum:
    # An ERR frame with its text is the longest frame that Python has to see whole.
    WHOLE_FRAME = 1088


cdef class EventBuffer:
    cdef AtomicBuffer memory
    cdef uint8_t *base
    cdef int64_t used
    cdef int64_t room
    cdef readonly int32_t count
    cdef readonly int64_t lost

    cdef bint put(self, int32_t kind, int32_t endpoint, int32_t path, int64_t now_ns, int64_t value) noexcept nogil
    cdef bint put_frame(self, int32_t kind, int32_t endpoint, int32_t path, int64_t now_ns, Transport transport, int32_t index, int32_t most) noexcept nogil

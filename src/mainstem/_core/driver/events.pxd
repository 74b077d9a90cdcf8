# Written from events.py by tools/write_core_stubs.py: edit that file, then run the tool.
from mainstem._core.driver.datagram cimport ADDRESS_ROOM
from mainstem._core.driver.datagram cimport Transport
from mainstem._core.memory.atomics cimport *
from mainstem._core.memory.buffer cimport AtomicBuffer


cdef enum:
    WHOLE_FRAME = 1088


cdef class EventBuffer:
    cdef AtomicBuffer memory
    cdef unsigned char *base
    cdef long long used
    cdef long long room
    cdef readonly int count
    cdef readonly long long lost

    cdef bint put(self, int kind, int endpoint, int path, long long now_ns, long long value) noexcept nogil
    cdef bint put_frame(self, int kind, int endpoint, int path, long long now_ns, Transport transport, int index, int most) noexcept nogil

# Written from broadcast.py by tools/write_core_stubs.py: edit that file, then run the tool.
from mainstem._core.layout cimport *
from mainstem._core.memory.atomics cimport *
from mainstem._core.memory.buffer cimport AtomicBuffer


cdef class BroadcastTransmitter:
    cdef readonly AtomicBuffer buffer
    cdef unsigned char *base
    cdef readonly long long capacity
    cdef readonly long long max_message_length


cdef class BroadcastReceiver:
    cdef readonly AtomicBuffer buffer
    cdef unsigned char *base
    cdef readonly long long capacity
    cdef long long cursor
    cdef long long next_record
    cdef long long record_offset

    cdef bint validate(self) noexcept nogil
    cdef bint receive_next(self) noexcept nogil


cdef long long capacity_of(AtomicBuffer buffer) except -1

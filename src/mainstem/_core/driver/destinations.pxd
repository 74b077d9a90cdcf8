# Written from destinations.py by tools/write_core_stubs.py: edit that file, then run the tool.
from mainstem._core.driver.datagram cimport Address, Transport
from mainstem._core.memory.buffer cimport AtomicBuffer


cdef class DestinationList:
    cdef list addresses
    cdef readonly int count
    cdef long long room
    cdef AtomicBuffer memory
    cdef void **entries
    cdef long long *heard_ns
    cdef long long *receiver

    cdef bint refresh(self, Transport transport, long long receiver_id, long long now_ns) noexcept nogil

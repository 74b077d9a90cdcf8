# Written from destinations.py by tools/write_core_stubs.py: edit that file, then run the tool.
from mainstem._core.driver.datagram cimport Address, Transport


cdef enum:
    MAX_DESTINATIONS = 256


cdef class DestinationList:
    cdef list addresses
    cdef readonly int count
    cdef void *entries[MAX_DESTINATIONS]
    cdef long long heard_ns[MAX_DESTINATIONS]
    cdef long long receiver[MAX_DESTINATIONS]

    cdef bint refresh(self, Transport transport, long long receiver_id, long long now_ns) noexcept nogil

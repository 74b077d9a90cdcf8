from libc.stdint cimport int32_t, int64_t

from mainstem._core.driver.datagram cimport Address, Transport

cdef enum:
    MAX_DESTINATIONS = 256


cdef class DestinationList:
    cdef list kept
    cdef readonly int32_t count
    cdef void *entries[MAX_DESTINATIONS]
    cdef int64_t heard_ns[MAX_DESTINATIONS]
    cdef int64_t receiver[MAX_DESTINATIONS]

    cdef bint refresh(self, Transport transport, int64_t receiver_id, int64_t now_ns) noexcept nogil

from libc.stdint cimport int32_t, int64_t, uint8_t

from mainstem._core.driver.datagram cimport ADDRESS_ROOM, Address, Transport


cdef class TappedTransport(Transport):
    cdef readonly Transport inner
    cdef object watcher

    cdef void follow(self) noexcept nogil
    cdef int tell_in(self) except -1
    cdef int tell_out(self, Address to, const uint8_t *base, int64_t offset, int32_t length) except -1

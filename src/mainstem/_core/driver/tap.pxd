# Written from tap.py by tools/write_core_stubs.py: edit that file, then run the tool.
from mainstem._core.driver.datagram cimport ADDRESS_ROOM
from mainstem._core.driver.datagram cimport Address, Transport


cdef class TappedTransport(Transport):
    cdef readonly Transport inner
    cdef object watcher

    cdef void follow(self) noexcept nogil
    cdef long long epoch_ns(self, long long now_ns) noexcept nogil
    cdef long long arrival_ns(self, long long now_ns) noexcept nogil
    cdef int receive(self) noexcept nogil
    cdef bint next_datagram(self) noexcept nogil
    cdef int send_runs(self, Address to, const unsigned char *base, long long *offset, int *length, int *segment, int count) noexcept nogil
    cdef bint send_one(self, Address to, const unsigned char *base, long long offset, int length) noexcept nogil
    cdef int tell_in(self) except -1
    cdef int tell_out(self, Address to, const unsigned char *base, long long offset, int length) except -1

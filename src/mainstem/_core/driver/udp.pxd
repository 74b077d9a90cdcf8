# Written from udp.py by tools/write_core_stubs.py: edit that file, then run the tool.
from mainstem._core.driver.datagram cimport ADDRESS_ROOM, MAX_SLOTS
from mainstem._core.driver.datagram cimport Address, Transport
from mainstem._core.driver.loss_generator cimport LossGenerator
from mainstem._core.driver.sockets cimport *


cdef class UdpTransport(Transport):
    cdef readonly bint coalesces
    cdef readonly bint timestamps
    cdef ms_mmsghdr outgoing_messages[MAX_SLOTS]
    cdef iovec outgoing_parts[MAX_SLOTS]
    cdef unsigned char outgoing_control[MAX_SLOTS][CONTROL_ROOM]
    cdef ms_mmsghdr incoming_messages[MAX_SLOTS]
    cdef iovec incoming_parts[MAX_SLOTS]
    cdef unsigned char incoming_control[MAX_SLOTS][CONTROL_ROOM]

    cdef int fill(self) noexcept nogil
    cdef long long epoch_ns(self, long long now_ns) noexcept nogil
    cdef void prepare(self, int i, Address to, const unsigned char *base, long long offset, int length, int segment) noexcept nogil
    cdef int push(self, int count) noexcept nogil
    cdef bint put_apart(self, Address to, const unsigned char *base, long long offset, int length, int segment) noexcept nogil
    cdef int put_runs(self, Address to, const unsigned char *base, long long *offset, int *length, int *segment, int count) noexcept nogil

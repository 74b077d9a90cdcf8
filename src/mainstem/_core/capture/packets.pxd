# Written from packets.py by tools/write_core_stubs.py: edit that file, then run the tool.
from mainstem._core.capture.layout cimport *
from mainstem._core.layout cimport *
from mainstem._core.log.columns cimport Region
from mainstem._core.memory.atomics cimport *
from mainstem._core.memory.byte_order cimport *


cdef class Packet:
    cdef readonly int kind
    cdef readonly int protocol
    cdef readonly long long payload
    cdef readonly long long available
    cdef readonly long long length
    cdef readonly int source_port
    cdef readonly int destination_port
    cdef readonly long long sequence
    cdef readonly long long acknowledged
    cdef readonly int tcp_flags
    cdef readonly long long fragment_offset
    cdef readonly bint more_fragments
    cdef readonly long long fragment_id
    cdef readonly int bucket
    cdef long long address
    cdef readonly int address_size
    cdef int depth

    cdef int parse(self, unsigned char *base, long long o, long long captured, int link) noexcept nogil
    cdef int ethernet(self, unsigned char *base, long long o, long long end) noexcept nogil
    cdef int by_ethertype(self, unsigned char *base, long long o, long long end, int kind) noexcept nogil
    cdef int mpls(self, unsigned char *base, long long o, long long end) noexcept nogil
    cdef int pppoe(self, unsigned char *base, long long o, long long end) noexcept nogil
    cdef int ppp(self, unsigned char *base, long long o, long long end) noexcept nogil
    cdef int gre(self, unsigned char *base, long long o, long long end) noexcept nogil
    cdef int ip(self, unsigned char *base, long long o, long long end) noexcept nogil
    cdef int ipv4(self, unsigned char *base, long long o, long long end) noexcept nogil
    cdef int ipv6(self, unsigned char *base, long long o, long long end) noexcept nogil
    cdef int fragment(self, unsigned char *base, long long o, long long end, long long length, int protocol) noexcept nogil
    cdef int transport(self, unsigned char *base, long long o, long long end, long long length, int protocol) noexcept nogil
    cdef int udp(self, unsigned char *base, long long o, long long end, long long length) noexcept nogil
    cdef int vxlan(self, unsigned char *base, long long o, long long end) noexcept nogil
    cdef int geneve(self, unsigned char *base, long long o, long long end) noexcept nogil
    cdef int tcp(self, unsigned char *base, long long o, long long end, long long length) noexcept nogil
    cdef unsigned long long address_hash(self, unsigned char *base, long long o) noexcept nogil
    cdef void put_address(self, unsigned char *base, int which, unsigned char *column, long long at) noexcept nogil

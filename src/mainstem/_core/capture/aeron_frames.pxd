# Written from aeron_frames.py by tools/write_core_stubs.py: edit that file, then run the tool.
from mainstem._core.capture.frame_rows cimport FrameRows
from mainstem._core.capture.layout cimport *
from mainstem._core.capture.packets cimport Packet
from mainstem._core.capture.records cimport RecordWalk
from mainstem._core.layout cimport *
from mainstem._core.log.columns cimport Region
from mainstem._core.memory.atomics cimport *


cdef class CaptureDecoder:
    cdef readonly RecordWalk walk
    cdef readonly Packet packet
    cdef readonly FrameRows rows
    cdef readonly long long number
    cdef readonly long long offset
    cdef public bint plain
    cdef public bint guess
    cdef unsigned long long tcp_buckets
    cdef unsigned long long fragment_buckets
    cdef public bint follow_fragments
    cdef bint follow_tcp
    cdef unsigned char udp_ports[65536]
    cdef unsigned char tcp_ports[65536]
    cdef long long passed[8]
    cdef long long passed_last[8]

    cdef void count(self, int reason) noexcept nogil
    cdef int loop(self, unsigned char *base, long long offset, long long limit) noexcept nogil
    cdef int take(self, unsigned char *base) noexcept nogil
    cdef int take_udp(self, unsigned char *base) noexcept nogil
    cdef void problem(self, int kind, int reason) noexcept nogil
    cdef void decode(self, unsigned char *base, long long o, long long available, long long length) noexcept nogil
    cdef bint plausible(self, unsigned char *base, long long o, long long available, long long length) noexcept nogil
    cdef void emit(self, unsigned char *base, long long o, long long available, int kind, long long datagram) noexcept nogil
    cdef void emit_data(self, unsigned char *base, long long o, long long available, int kind) noexcept nogil
    cdef void emit_control(self, unsigned char *base, long long o, long long available, int kind) noexcept nogil
    cdef void emit_error(self, unsigned char *base, long long o, long long available) noexcept nogil
    cdef void emit_names(self, unsigned char *base, long long o, long long available) noexcept nogil


cdef int least(int kind) noexcept nogil
cdef int examine(unsigned char *base, long long o, long long available, long long length) noexcept nogil
cdef long long step_of(unsigned char *base, long long o, int kind, long long left) noexcept nogil
cdef bint strict_data(unsigned char *base, long long o, long long first) noexcept nogil
cdef bint strict_control(unsigned char *base, long long o, long long available, long long length, int kind) noexcept nogil
cdef long long entry_length(unsigned char *base, long long o, long long left) noexcept nogil

# Written from read.py by tools/write_core_stubs.py: edit that file, then run the tool.
from mainstem._core.layout cimport *
from mainstem._core.log.assemble cimport FragmentAssembler, MessageBuilder, assemble, assemble_controlled
from mainstem._core.log.fragment cimport Fragment, Message, payload_bytes
from mainstem._core.memory.atomics cimport *
from mainstem._core.memory.buffer cimport AtomicBuffer
from mainstem._core.memory.waiting cimport nap, watch


cdef class ImageReader:
    cdef readonly AtomicBuffer log
    cdef AtomicBuffer positions
    cdef unsigned char *base
    cdef unsigned char *position_base
    cdef long long position_offset
    cdef long long meta
    cdef readonly long long term_length
    cdef readonly int position_bits
    cdef readonly int initial_term_id
    cdef readonly int session_id
    cdef readonly int stream_id
    cdef readonly int mtu
    cdef readonly long long correlation_id
    cdef readonly long long join_position
    cdef readonly bint is_closed
    cdef long long final_position
    cdef bint ended
    cdef bint withdrawn
    cdef bint busy
    cdef int waiters
    cdef Fragment fragment
    cdef MessageBuilder builder

    cdef long long place(self, long long position) noexcept
    cdef bint has_data(self) noexcept
    cdef bint enter(self) except -1
    cdef int check_position(self) except -1
    cdef void leave(self, long long passed) noexcept
    cdef long long deliver(self, object handler, long long limit, long long limit_position, bint whole) except -1
    cdef long long hand_over_whole(self, object handler, Fragment fragment) except -1
    cdef long long control(self, object handler, long long limit) except -1
    cdef long long block(self, object handler, long long limit) except -1
    cdef int gather(self, list out, long long limit, bint metadata) except -1
    cdef Message with_metadata(self, Fragment message, long long end_position)


cdef class SubscriptionReader:
    cdef readonly tuple images
    cdef long long next_image

    cdef long long start(self) noexcept
    cdef long long poll_all(self, object handler, long long limit, bint whole) except -1
    cdef list gather_all(self, long long limit, bint metadata)

# Written from append.py by tools/write_core_stubs.py: edit that file, then run the tool.
from cpython.buffer cimport Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from mainstem._core.layout cimport *
from mainstem._core.log.batch cimport MessageColumns, MessageList, Messages
from mainstem._core.memory.atomics cimport *
from mainstem._core.memory.buffer cimport AtomicBuffer


cdef class BufferClaim:
    cdef AtomicBuffer log
    cdef object payload
    cdef long long p
    cdef readonly long long position
    cdef long long length
    cdef readonly bint is_open

    cdef int _check_open(self) except -1
    cdef int _finish(self, int kind) except -1


cdef class Appender:
    cdef AtomicBuffer log
    cdef AtomicBuffer limits
    cdef unsigned char *base
    cdef unsigned char *limit_base
    cdef long long limit_offset
    cdef long long meta
    cdef readonly long long term_length
    cdef readonly long long max_possible_position
    cdef readonly long long max_payload_length
    cdef readonly long long max_message_length
    cdef readonly int initial_term_id
    cdef readonly int session_id
    cdef readonly int stream_id
    cdef readonly bint is_closed
    cdef int bits
    cdef readonly long long mtu
    cdef long long room
    cdef long long taken_count
    cdef long long taken_offset

    cdef long long framed(self, long long length) noexcept
    cdef long long place(self, long long position) noexcept
    cdef long long refusal(self, long long position, long long length) noexcept
    cdef long long next_offset(self, long long length) noexcept
    cdef long long take(self, long long framed) noexcept
    cdef long long rotate(self, long long count) noexcept
    cdef long long claim(self, long long framed, long long length) noexcept
    cdef long long meet_term_end(self) noexcept
    cdef void put_header(self, long long p, long long length, int flags, int kind, long long begin, long long reserved) noexcept
    cdef void put_pad(self, long long begin, long long length) noexcept
    cdef void put_message(self, long long begin, const unsigned char *source, long long length, long long reserved) noexcept
    cdef void expect_next(self, long long p, long long framed) noexcept
    cdef int put_supplied(self, long long begin, const unsigned char *source, long long length, object supplier) except -1
    cdef long long put_run(self, long long begin, Messages messages, long long k, long long end) noexcept
    cdef int check_length(self, long long length) except -1
    cdef long long append(self, const unsigned char *source, long long length, object reserved) except? -99
    cdef object append_batch(self, Messages messages)
    cdef long long claim_length(self, Messages messages, long long k, long long left) noexcept
    cdef long long fill(self, Messages messages, long long k, long long claimed) noexcept


cdef class ConcurrentAppender(Appender):
    cdef long long next_offset(self, long long length) noexcept
    cdef long long take(self, long long framed) noexcept
    cdef long long rotate(self, long long count) noexcept


cdef class ExclusiveAppender(Appender):
    cdef long long term_count
    cdef long long term_offset

    cdef long long next_offset(self, long long length) noexcept
    cdef long long take(self, long long framed) noexcept
    cdef void publish_tail(self, long long offset) noexcept
    cdef long long rotate(self, long long count) noexcept
    cdef long long append_block(self, const unsigned char *source, long long length) except? -99
    cdef int check_block(self, const unsigned char *source, long long length) except -1
    cdef int check_block_header(self, const unsigned char *source, long long offset) except -1


cdef long long framed_length(long long length, long long longest) noexcept nogil

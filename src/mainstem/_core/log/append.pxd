from libc.stdint cimport int32_t, int64_t, uint8_t

from mainstem._core.memory.atomics cimport *
from mainstem._core.log.batch cimport MessageColumns, MessageList, Messages
from mainstem._core.memory.buffer cimport AtomicBuffer
from mainstem._core.layout cimport *


cdef class BufferClaim:
    cdef AtomicBuffer log
    cdef object payload
    cdef int64_t p
    cdef readonly int64_t position
    cdef int64_t length
    cdef readonly bint is_open

    cdef int check_open(self) except -1
    cdef int finish(self, int32_t kind) except -1


cdef class Appender:
    cdef AtomicBuffer log
    cdef AtomicBuffer limits
    cdef uint8_t *base
    cdef uint8_t *limit_base
    cdef int64_t limit_offset
    cdef int64_t meta
    cdef readonly int64_t term_length
    cdef readonly int64_t max_possible_position
    cdef readonly int64_t max_payload_length
    cdef readonly int64_t max_message_length
    cdef readonly int32_t initial_term_id
    cdef readonly int32_t session_id
    cdef readonly int32_t stream_id
    cdef readonly bint is_closed
    cdef int bits
    cdef readonly int64_t mtu
    # What the last look() and take() found, for the code that called them.
    cdef int64_t room
    cdef int64_t taken_count
    cdef int64_t taken_offset

    cdef int64_t framed(self, int64_t length) noexcept
    cdef int64_t refusal(self, int64_t position, int64_t length) noexcept
    cdef int64_t look(self, int64_t length) noexcept
    cdef int64_t take(self, int64_t framed) noexcept
    cdef int64_t rotate(self, int64_t count) noexcept
    cdef int64_t claim(self, int64_t framed, int64_t length) noexcept
    cdef int64_t meet_term_end(self) noexcept
    cdef void put_header(self, int64_t p, int64_t length, int32_t flags, int32_t kind, int64_t begin, int64_t reserved) noexcept
    cdef void put_message(self, int64_t begin, const uint8_t *source, int64_t length, int64_t reserved) noexcept
    cdef void expect_next(self, int64_t p, int64_t framed) noexcept
    cdef void put_pad(self, int64_t begin, int64_t length) noexcept
    cdef int64_t put_run(self, int64_t begin, Messages messages, int64_t k, int64_t end) noexcept
    cdef int64_t place(self, int64_t position) noexcept
    cdef int64_t append(self, const uint8_t *source, int64_t length, object reserved) except? -99
    cdef int put_supplied(self, int64_t begin, const uint8_t *source, int64_t length, object supplier) except -1
    cdef int check_length(self, int64_t length) except -1
    cdef object append_batch(self, Messages messages)
    cdef int64_t wanted(self, Messages messages, int64_t k, int64_t left) noexcept
    cdef int64_t fill(self, Messages messages, int64_t k, int64_t claimed) noexcept


cdef class ConcurrentAppender(Appender):
    pass


cdef class ExclusiveAppender(Appender):
    cdef int64_t term_count
    cdef int64_t term_offset

    cdef void publish_tail(self, int64_t offset) noexcept
    cdef int64_t append_block(self, const uint8_t *source, int64_t length) except? -99
    cdef int check_block(self, const uint8_t *source, int64_t length) except -1
    cdef int check_block_header(self, const uint8_t *source, int64_t offset) except -1


cdef int64_t framed_length(int64_t length, int64_t longest) noexcept nogil

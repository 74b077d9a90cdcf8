from libc.stdint cimport int64_t, uint8_t, uint64_t


cdef class RunReader:
    cdef readonly int64_t position
    cdef readonly int64_t count
    cdef readonly int64_t size
    cdef readonly int64_t channel
    cdef readonly int64_t number
    cdef int64_t at

    cdef int64_t integer(self, bytes data, int64_t end)
    cpdef object whole(self, bytes data, int64_t limit)
    cpdef list gather(self, list items, int64_t start, int64_t count, int64_t limit)
    cpdef object read(self, bytes data, int64_t position, bytes prefix, int64_t number, int64_t count, int64_t limit)


cdef class MessageWriter:
    cdef public object wake
    cdef public int64_t allowance
    cdef readonly int64_t stream_id
    cdef readonly int64_t used
    cdef public bytes opening
    cdef public int64_t stream_room
    cdef public int64_t datagram_room
    cdef public int64_t max_datagram
    cdef bytearray buffer
    cdef list pieces
    cdef list singles
    cdef list datagrams

    cdef void integer(self, uint64_t value)
    cdef void seal(self)
    cdef void write(self, int64_t stream_id, bytes prefix, int64_t number, bytes payload)


cdef class Ledger:
    cdef readonly int64_t first
    cdef readonly int64_t next
    cdef readonly int64_t count
    cdef readonly int64_t size
    cdef public int64_t max_messages
    cdef public int64_t max_bytes
    cdef readonly int64_t stream_id
    cdef readonly bint is_open
    cdef int64_t largest
    cdef bytes prefix
    cdef MessageWriter writer
    cdef list sizes
    cdef dict entries

    cpdef bint put(self, message)


cdef class QuickSender:
    cdef Ledger ledger
    cdef MessageWriter writer
    cdef object core
    cdef object sender
    cdef object open_state
    cdef object declare
    cdef bint unreliable
    cdef int64_t bound
    cdef bytearray head
    cdef int64_t used

    cdef void integer(self, uint64_t value)
    cdef bytes frame(self, int64_t number, bytes payload)
    cpdef bint put(self, message)
    cdef bint put_single(self, bytes message) except -1
    cdef bint put_datagram(self, bytes message) except -1

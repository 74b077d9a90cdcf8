# Written from run_writer.py by tools/write_core_stubs.py: edit that file, then run the tool.
from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.string cimport memcmp, memcpy


cdef class RunReader:
    cdef readonly long long position
    cdef readonly long long count
    cdef readonly long long size
    cdef readonly long long channel
    cdef readonly long long number
    cdef long long at

    cdef long long integer(self, bytes data, long long end)
    cpdef bytes whole(self, bytes data, long long limit)
    cpdef list[bytes] gather(self, list[bytes] items, long long start, long long count, long long limit)
    cpdef list[bytes] read(self, bytes data, long long position, bytes prefix, long long number, long long count, long long limit)


cdef class MessageWriter:
    cdef public object wake
    cdef public long long allowance
    cdef readonly long long stream_id
    cdef readonly long long used
    cdef public bytes opening
    cdef public long long stream_room
    cdef public long long datagram_room
    cdef public long long max_datagram
    cdef bytearray buffer
    cdef list pieces
    cdef list singles
    cdef list datagrams

    cdef void integer(self, unsigned long long value)
    cdef void seal(self)
    cdef void write(self, long long stream_id, bytes prefix, long long number, bytes payload)


cdef class Ledger:
    cdef readonly long long first
    cdef readonly long long next
    cdef readonly long long count
    cdef readonly long long size
    cdef public long long max_messages
    cdef public long long max_bytes
    cdef readonly long long stream_id
    cdef readonly bint is_open
    cdef long long largest
    cdef bytes prefix
    cdef MessageWriter writer
    cdef list sizes
    cdef dict entries

    cpdef bint put(self, object message)


cdef class QuickSender:
    cdef Ledger ledger
    cdef MessageWriter writer
    cdef object core
    cdef object sender
    cdef object open_state
    cdef object declare
    cdef bint unreliable
    cdef long long bound
    cdef bytearray head
    cdef long long used

    cdef void integer(self, unsigned long long value)
    cdef bytes frame(self, long long number, bytes payload)
    cpdef bint put(self, object message)
    cdef bint put_single(self, bytes message) except -1
    cdef bint put_datagram(self, bytes message) except -1

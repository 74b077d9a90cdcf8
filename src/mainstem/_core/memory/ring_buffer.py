"""The many-to-one ring buffer: commands from every client to the driver (docs/protocols/aeron.md, 3).

Theory of operation. The memory is a data region, whose length is a power of two, and a trailer of 768 bytes. The
trailer's words are 64 bits wide, each on its own cache line. Tail and head count bytes since the buffer was created: they
only rise, and masked with ``capacity - 1`` they are offsets. The bytes between head and tail are claimed; the rest of the
data region is zero.

Who writes what:

- tail: any producer, in any process, by compare-and-set. It is the only word that producers contend for.
- head cache: any producer. It is a copy of the head, so that producers leave the consumer's cache line alone. It may
  lag. Since the head only rises, a stale copy understates the free space, and a producer reads the head itself before it
  gives up.
- a record (length, type, payload): the producer that claimed it, until its length is positive; after that the consumer.
- head: the consumer, which is one thread of one process.
- correlation id: any process, by fetch-and-add. Consumer heartbeat: the consumer.

The length word of a record is its state, which cycles: 0 (free, or just claimed), negative (claimed, being written),
positive (readable), 0 again (consumed and zeroed). A record never crosses the end of the region: if it would, its producer
also claims the bytes up to the end and fills them with a padding record, which consumers skip.

Memory ordering:

- The negative length is stored before anything else of the record (release fence). So a length of 0 means that no byte of
  the record has been written, which ``unblock`` relies on.
- Type and payload are plain stores, in any order. The positive length is stored last, with release; the consumer loads
  lengths with acquire. The record behind a positive length is complete.
- The consumer zeroes what it read with plain stores and then stores the head with release. Before it claims, a producer
  loads the head, or its copy, which another producer stored with release after loading the head with acquire. So it finds
  zeroes.

A producer that dies between claim and commit would block every later record. ``unblock`` turns its record into padding. If
the negative length was stored, it says how long the claim is; otherwise the dead claim ends where the next record begins, or
at the end of the region. The scan for that is repeated backwards, because a living producer may have stored a length behind
the scan meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import cython

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Buffer

if not cython.compiled:
    from mainstem._core.layout import *
    from mainstem._core.memory.buffer import AtomicBuffer
    from mainstem._core.memory.plain import *

INSUFFICIENT_CAPACITY = -1
UNLIMITED = 0x7FFFFFFF


@cython.cclass
class ManyToOneRingBuffer:
    """Records of many producers for one consumer, in memory that several processes map (docs/protocols/aeron.md, 3).

    The capacity is the buffer's length minus 768 bytes and must be a power of two. Payloads are at most an eighth of it
    (``max_message_length``). Wrong arguments raise ValueError; use after the buffer was closed raises IndexError.
    """

    buffer: readonly[AtomicBuffer]
    base: cython.p_uchar
    capacity: readonly[cython.longlong]
    max_message_length: readonly[cython.longlong]

    def __init__(self, buffer: AtomicBuffer) -> None:
        capacity: cython.longlong = buffer.capacity - RING_TRAILER_LENGTH
        if capacity < 8 * RECORD_HEADER_LENGTH or capacity & (capacity - 1):
            raise ValueError(f"ring buffer capacity {capacity} is not a power of two of at least 64 bytes")
        buffer.check_alignment()
        self.buffer = buffer
        self.base = buffer.base
        self.capacity = capacity
        self.max_message_length = capacity // 8

    @cython.exceptval(-1)
    def check_open(self) -> cython.int:
        if self.buffer.capacity == 0:
            raise IndexError("the memory of this ring buffer has been closed")
        return 0

    @cython.exceptval(-1)
    def check_message(self, type_id: cython.longlong, length: cython.longlong) -> cython.int:
        self.check_open()
        if type_id < 1:
            raise ValueError(f"record type {type_id} is not positive")
        if length < 0 or length > self.max_message_length:
            raise ValueError(f"record of {length} bytes exceeds the maximum of {self.max_message_length}")
        return 0

    @cython.exceptval(-1)
    def check_place(self, position: cython.longlong) -> cython.int:
        """Raise ValueError for a head or a tail between two records: another process has corrupted the trailer."""
        if position & (RECORD_ALIGNMENT - 1):
            raise ValueError(f"no record of the ring buffer begins at position {position}")
        return 0

    # ---- producers -------------------------------------------------------------------------------------------------

    def claim_record(self, length: cython.longlong) -> cython.longlong:
        """Return the offset of a claimed record whose length is still zero, or INSUFFICIENT_CAPACITY."""
        base = self.base
        capacity: cython.longlong = self.capacity
        mask: cython.longlong = capacity - 1
        required: cython.longlong = (length + RECORD_HEADER_LENGTH + RECORD_ALIGNMENT - 1) & ~(RECORD_ALIGNMENT - 1)
        head: cython.longlong = ld64(base, capacity + RING_HEAD_CACHE_OFFSET)
        tail: cython.longlong
        index: cython.longlong
        padding: cython.longlong
        # This ends: it repeats only if another producer advanced the tail, and the ring is finite.
        while True:
            tail = ld64(base, capacity + RING_TAIL_OFFSET)
            if required > capacity - (tail - head):
                head = ld64(base, capacity + RING_HEAD_OFFSET)
                if required > capacity - (tail - head):
                    return -1
                # Racing producers may overwrite a newer head with an older one. That is harmless: it understates the free space.
                st64(base, capacity + RING_HEAD_CACHE_OFFSET, head)
            padding = 0
            index = tail & mask
            if required > capacity - index:
                # The record must not cross the end, so it goes to the front, which must have enough free bytes.
                if required > (head & mask):
                    head = ld64(base, capacity + RING_HEAD_OFFSET)
                    if required > (head & mask):
                        return -1
                    st64(base, capacity + RING_HEAD_CACHE_OFFSET, head)
                padding = capacity - index
            if cas64(base, capacity + RING_TAIL_OFFSET, tail, tail + required + padding):
                break
        if padding:
            # The padding is this producer's own record at the old tail, with the same states as any other.
            mark32(base, index, cython.cast(cython.int, -padding))
            fence_release()
            put32(base, index + RECORD_TYPE_OFFSET, RECORD_TYPE_PADDING)
            st32(base, index, cython.cast(cython.int, padding))
            index = 0
        return index

    def try_claim(self, type_id: cython.int, length: cython.longlong) -> int:
        """Claim a record of ``length`` payload bytes, to fill through ``buffer`` and then commit or abort.

        Returns the payload's offset, or INSUFFICIENT_CAPACITY (-1). An open claim blocks every later record.
        """
        self.check_message(type_id, length)
        self.check_place(ld64(self.base, self.capacity + RING_TAIL_OFFSET))
        index: cython.longlong = self.claim_record(length)
        if index < 0:
            return INSUFFICIENT_CAPACITY
        mark32(self.base, index, cython.cast(cython.int, -(length + RECORD_HEADER_LENGTH)))
        # The negative length must become visible before the rest of the record: unblocking relies on it.
        fence_release()
        put32(self.base, index + RECORD_TYPE_OFFSET, type_id)
        return index + RECORD_HEADER_LENGTH

    @cython.exceptval(-1)
    def check_claim(self, payload_offset: cython.longlong) -> cython.longlong:
        """Return the offset of the record that an open claim belongs to."""
        self.check_open()
        index: cython.longlong = payload_offset - RECORD_HEADER_LENGTH
        if index < 0 or index >= self.capacity or index & (RECORD_ALIGNMENT - 1) or get32(self.base, index) >= 0:
            raise ValueError(f"offset {payload_offset} is not that of a claim that is still open")
        return index

    def commit(self, payload_offset: cython.longlong) -> None:
        """Make the claimed record readable."""
        index: cython.longlong = self.check_claim(payload_offset)
        st32(self.base, index, -get32(self.base, index))

    def abort(self, payload_offset: cython.longlong) -> None:
        """Turn the claimed record into padding, which readers skip."""
        index: cython.longlong = self.check_claim(payload_offset)
        put32(self.base, index + RECORD_TYPE_OFFSET, RECORD_TYPE_PADDING)
        st32(self.base, index, -get32(self.base, index))

    def write(self, type_id: cython.int, payload: Buffer) -> bool:
        """Write one record; return False if the ring is full. ``type_id`` is positive. Any process and thread may call it."""
        offset: cython.longlong = self.try_claim(type_id, len(payload))
        if offset < 0:
            return False
        self.buffer.put_bytes(offset, payload)
        self.commit(offset)
        return True

    def next_correlation_id(self) -> int:
        """Return a number that no other caller in any process gets."""
        self.check_open()
        return fadd64(self.base, self.capacity + RING_CORRELATION_OFFSET, 1)

    # ---- the consumer ----------------------------------------------------------------------------------------------

    def read(self, handler: Callable[[int, bytes], object], limit: cython.int = UNLIMITED) -> int:
        """Pass up to ``limit`` records to ``handler(type_id, payload)`` and return how many. Only for the consumer.

        One call stops at the end of the ring. If the handler raises, its record counts as read. A record with an impossible length
        raises ValueError and is not passed to the handler.
        """
        self.check_open()
        base = self.base
        # A plain load: this thread is the head's only writer.
        head: cython.longlong = get64(base, self.capacity + RING_HEAD_OFFSET)
        self.check_place(head)
        start: cython.longlong = head & (self.capacity - 1)
        contiguous: cython.longlong = self.capacity - start
        consumed: cython.longlong = 0
        count: cython.int = 0
        length: cython.longlong
        type_id: cython.int
        offset: cython.longlong
        try:
            while consumed < contiguous and count < limit:
                offset = start + consumed
                length = ld32(base, offset)
                if length <= 0:
                    # Free, or claimed and not committed. Records keep their order, so committed ones behind it must wait.
                    break
                if length < RECORD_HEADER_LENGTH or consumed + length > contiguous:
                    raise ValueError(f"record of {length} bytes at offset {offset} does not fit in the ring buffer")
                consumed += (length + RECORD_ALIGNMENT - 1) & ~(RECORD_ALIGNMENT - 1)
                type_id = get32(base, offset + RECORD_TYPE_OFFSET)
                if type_id == RECORD_TYPE_PADDING:
                    continue
                count += 1
                handler(type_id, self.buffer.get_bytes(offset + RECORD_HEADER_LENGTH, length - RECORD_HEADER_LENGTH))
        finally:
            # Do this even if a handler raised: its record counts as read. Zero first, then store the head, which frees the bytes.
            if consumed > 0 and self.buffer.capacity:
                zero_out(base, start, consumed)
                st64(base, self.capacity + RING_HEAD_OFFSET, head + consumed)
        return count

    def unblock_record(self) -> cython.bint:
        """Make the dead record at the head readable as padding; return False if there is none, or its end is unknown."""
        base = self.base
        head: cython.longlong = ld64(base, self.capacity + RING_HEAD_OFFSET)
        tail: cython.longlong = ld64(base, self.capacity + RING_TAIL_OFFSET)
        if head == tail:
            return False
        mask: cython.longlong = self.capacity - 1
        index: cython.longlong = head & mask
        length: cython.int = ld32(base, index)
        if length < 0:
            put32(base, index + RECORD_TYPE_OFFSET, RECORD_TYPE_PADDING)
            st32(base, index, -length)
            return True
        if length > 0:
            return False
        end: cython.longlong = index + (tail - head)
        wrapped: cython.bint = end >= self.capacity
        if wrapped:
            end = self.capacity
        scan: cython.longlong = index + RECORD_ALIGNMENT
        while scan < end and ld32(base, scan) == 0:
            scan += RECORD_ALIGNMENT
        # The claim's end is unknown if no record follows, unless the tail passed the end of the ring, which no record crosses.
        if scan >= end and not wrapped:
            return False
        # A living producer may have written behind the scan. Only if all bytes are still zero was nothing of the claim written.
        back: cython.longlong = scan - RECORD_ALIGNMENT
        while back >= index:
            if ld32(base, back) != 0:
                return False
            back -= RECORD_ALIGNMENT
        put32(base, index + RECORD_TYPE_OFFSET, RECORD_TYPE_PADDING)
        st32(base, index, cython.cast(cython.int, scan - index))
        return True

    def unblock(self) -> bool:
        """Turn the record of a dead producer at the head into padding; return whether there was one. Only for the consumer.

        Call it only if the head has not moved for longer than a living producer takes (the client liveness timeout). Raises
        ValueError if the claim or the head is impossible.
        """
        self.check_open()
        head: cython.longlong = self.consumer_position
        self.check_place(head)
        index: cython.longlong = head & (self.capacity - 1)
        length: cython.longlong = ld32(self.base, index)
        # Padding with such a length would never be read, since ``read`` rejects it.
        if length < 0 and (length > -RECORD_HEADER_LENGTH or -length > self.capacity - index):
            raise ValueError(f"a claim of {-length} bytes at offset {index} does not fit in the ring buffer")
        return bool(self.unblock_record())

    @property
    def consumer_heartbeat_ms(self) -> int:
        """The consumer's last heartbeat in epoch milliseconds; 0 before the first, -1 after a shutdown."""
        self.check_open()
        return ld64(self.base, self.capacity + RING_CONSUMER_HEARTBEAT_OFFSET)

    @consumer_heartbeat_ms.setter
    def consumer_heartbeat_ms(self, value: cython.longlong) -> None:
        self.check_open()
        st64(self.base, self.capacity + RING_CONSUMER_HEARTBEAT_OFFSET, value)

    @property
    def producer_position(self) -> int:
        """The total number of bytes claimed."""
        self.check_open()
        return ld64(self.base, self.capacity + RING_TAIL_OFFSET)

    @property
    def consumer_position(self) -> int:
        """The total number of bytes consumed."""
        self.check_open()
        return ld64(self.base, self.capacity + RING_HEAD_OFFSET)

    @property
    def size(self) -> int:
        """The number of bytes claimed and not consumed. The head is read first, so that the size is never negative."""
        head: cython.longlong = self.consumer_position
        return self.producer_position - head

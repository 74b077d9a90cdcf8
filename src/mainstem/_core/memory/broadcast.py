"""The broadcast buffer: responses and errors from the driver to every client (docs/protocols/aeron.md, 4).

Theory of operation. One transmitter writes records into a ring, over the oldest ones. It waits for no receiver, and does not
even know them. A receiver therefore copies a record first and checks afterward whether the transmitter had begun to
overwrite it. It is a sequence lock whose sequence is a position in the stream.

The memory is a data region, whose length is a power of two, and a trailer of 128 bytes with three positions (bytes
since the buffer was created, masked for an offset): ``tail intent``, how far the transmitter is about to write;
``tail``, how far it has written; ``latest``, where the last whole record begins. ``latest <= tail <= tail intent`` at
all times, and the three only rise.

Who writes what: the transmitter, one thread of the driver, writes all of the memory. Receivers write nothing; each
keeps its cursor in its own memory. So no receiver can block another one, or the driver, and any number of them may come and
go unannounced.

Memory ordering:

- The transmitter stores the intent, then executes a release fence, then stores the record with plain stores, then
  ``latest`` and ``tail``, both with release. No byte of a record is visible before the intent that covers it, and all of them
  are visible once the tail covers it.
- A receiver loads the tail with acquire, copies the record with plain loads, executes an acquire fence, then loads the
  intent. If ``cursor + capacity > intent``, no byte of the copy was overwritten before. The receiver discards a copy that
  fails this check: its length may come from one record and its type from another, so the length is bounded before the copy
  and trusted only after the check.

A record never crosses the end of the region; a padding record fills the rest, and the next record starts at offset 0.

If the transmitter overruns a receiver, before it reads the record or during the copy, ``receive`` returns OVERRUN. Responses
are then lost, and a client must treat that as fatal: it cannot know whether one of them was for it.
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

OVERRUN = -1


@cython.exceptval(-1)
def capacity_of(buffer: AtomicBuffer) -> cython.longlong:
    """Return the number of bytes before the trailer, a power of two."""
    capacity: cython.longlong = buffer.capacity - BROADCAST_TRAILER_LENGTH
    if capacity < 8 * RECORD_HEADER_LENGTH or capacity & (capacity - 1):
        raise ValueError(f"broadcast capacity {capacity} is not a power of two of at least 64 bytes")
    buffer.check_alignment()
    return capacity


@cython.cclass
class BroadcastTransmitter:
    """The only sender of the to-clients buffer (docs/protocols/aeron.md, 4); it waits for no receiver.

    The capacity is the buffer's length minus 128 bytes and must be a power of two; payloads are at most an eighth of it.
    """

    buffer: readonly[AtomicBuffer]
    base: cython.p_uchar
    capacity: readonly[cython.longlong]
    max_message_length: readonly[cython.longlong]

    def __init__(self, buffer: AtomicBuffer) -> None:
        self.capacity = capacity_of(buffer)
        self.buffer = buffer
        self.base = buffer.base
        self.max_message_length = self.capacity // 8

    def transmit(self, type_id: cython.int, payload: Buffer) -> None:
        """Write one record over the oldest ones. ``type_id`` is positive. Raises ValueError if the payload is too long."""
        if self.buffer.capacity == 0:
            raise IndexError("the memory of this broadcast buffer has been closed")
        length: cython.longlong = len(payload)
        if type_id < 1:
            raise ValueError(f"record type {type_id} is not positive")
        if length > self.max_message_length:
            raise ValueError(f"record of {length} bytes exceeds the maximum of {self.max_message_length}")
        base = self.base
        capacity: cython.longlong = self.capacity
        required: cython.longlong = (length + RECORD_HEADER_LENGTH + RECORD_ALIGNMENT - 1) & ~(RECORD_ALIGNMENT - 1)
        # A plain load: this thread is the tail's only writer.
        position: cython.longlong = get64(base, capacity + BROADCAST_TAIL_OFFSET)
        index: cython.longlong = position & (capacity - 1)
        to_end: cython.longlong = capacity - index
        # Store the intent first: a receiver that is still reading the bytes to overwrite then sees that it was overrun.
        if required > to_end:
            st64(base, capacity + BROADCAST_TAIL_INTENT_OFFSET, position + to_end + required)
            fence_release()
            put32(base, index, cython.cast(cython.int, to_end))
            put32(base, index + RECORD_TYPE_OFFSET, RECORD_TYPE_PADDING)
            position += to_end
            index = 0
        else:
            st64(base, capacity + BROADCAST_TAIL_INTENT_OFFSET, position + required)
            fence_release()
        put32(base, index, cython.cast(cython.int, length + RECORD_HEADER_LENGTH))
        put32(base, index + RECORD_TYPE_OFFSET, type_id)
        self.buffer.put_bytes(index + RECORD_HEADER_LENGTH, payload)
        st64(base, capacity + BROADCAST_LATEST_OFFSET, position)
        st64(base, capacity + BROADCAST_TAIL_OFFSET, position + required)


@cython.cclass
class BroadcastReceiver:
    """One of many receivers; it starts at the record that was the latest when it attached."""

    buffer: readonly[AtomicBuffer]
    base: cython.p_uchar
    capacity: readonly[cython.longlong]
    cursor: cython.longlong
    next_record: cython.longlong
    record_offset: cython.longlong

    def __init__(self, buffer: AtomicBuffer) -> None:
        self.capacity = capacity_of(buffer)
        self.buffer = buffer
        self.base = buffer.base
        self.cursor = self.next_record = ld64(self.base, self.capacity + BROADCAST_LATEST_OFFSET)
        self.record_offset = self.cursor & (self.capacity - 1)

    def validate(self) -> cython.bint:
        """Whether the transmitter has not yet begun to overwrite the record at the cursor."""
        fence_acquire()
        return self.cursor + self.capacity > ld64(self.base, self.capacity + BROADCAST_TAIL_INTENT_OFFSET)

    def receive_next(self) -> cython.bint:
        """Move to the next record; return False if there is none."""
        base = self.base
        capacity: cython.longlong = self.capacity
        mask: cython.longlong = capacity - 1
        if ld64(base, capacity + BROADCAST_TAIL_OFFSET) <= self.next_record:
            return False
        self.cursor = self.next_record
        # The next record was overwritten: leave the cursor there, so that ``receive`` detects the overrun.
        if not self.validate():
            return True
        offset: cython.longlong = self.cursor & mask
        length: cython.longlong = get32(base, offset)
        self.next_record = self.cursor + ((length + RECORD_ALIGNMENT - 1) & ~(RECORD_ALIGNMENT - 1))
        self.record_offset = offset
        if get32(base, offset + RECORD_TYPE_OFFSET) == RECORD_TYPE_PADDING:
            # If the record was overwritten meanwhile, these bytes may look like padding of any length. Following such a length
            # could move the cursor so far ahead that every later check would pass. So leave the cursor there, and let ``receive``
            # detect the overrun.
            if not self.validate():
                return True
            # One store of the tail covers both padding and record, so the record behind the padding is complete too.
            self.cursor = self.next_record
            offset = 0
            length = get32(base, 0)
            self.next_record += (length + RECORD_ALIGNMENT - 1) & ~(RECORD_ALIGNMENT - 1)
        self.record_offset = offset
        return True

    def receive(self, handler: Callable[[int, bytes], object], limit: cython.int = 1) -> int:
        """Pass up to ``limit`` records to ``handler(type_id, payload)`` and return how many.

        OVERRUN (-1) means that the transmitter was a whole buffer ahead before or while a record was read: responses are lost,
        and a client must treat that as fatal. The receiver itself can continue with the latest record. If the handler raises,
        its record counts as received.
        """
        if self.buffer.capacity == 0:
            raise IndexError("the memory of this broadcast buffer has been closed")
        count: cython.int = 0
        length: cython.longlong
        type_id: cython.int
        while count < limit and self.receive_next():
            length = get32(self.base, self.record_offset)
            type_id = get32(self.base, self.record_offset + RECORD_TYPE_OFFSET)
            payload = None
            if length >= RECORD_HEADER_LENGTH and self.record_offset + length <= self.capacity:
                payload = self.buffer.get_bytes(
                    self.record_offset + RECORD_HEADER_LENGTH, length - RECORD_HEADER_LENGTH
                )
            # Trust the copy only after checking: the transmitter may have overwritten the record meanwhile.
            if payload is None or not self.validate():
                self.cursor = self.next_record = ld64(self.base, self.capacity + BROADCAST_LATEST_OFFSET)
                return OVERRUN
            count += 1
            handler(type_id, payload)
        return count

"""The broadcast buffer through which the driver speaks to every client at once (behaviour, section 4)."""

import cython

if not cython.compiled:
    from mainstem._core.layout import *
    from mainstem._core.memory.buffer import AtomicBuffer
    from mainstem._core.memory.plain import *

OVERRUN = -1


def capacity_of(buffer):
    """The bytes before the trailer; a power of two."""
    capacity: cython.longlong = buffer.capacity - BROADCAST_TRAILER_LENGTH
    if capacity < 8 * RECORD_HEADER_LENGTH or capacity & (capacity - 1):
        raise ValueError(f"broadcast capacity {capacity} is not a power of two of at least 64 bytes")
    return capacity


@cython.cclass
class BroadcastTransmitter:
    """The single sender, which waits for nobody."""

    def __init__(self, buffer: AtomicBuffer):
        self.capacity = capacity_of(buffer)
        self.buffer = buffer
        self.base = buffer.base
        self.max_message_length = self.capacity // 8

    def transmit(self, type_id: cython.int, payload):
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
        position: cython.longlong = get64(base, capacity + BROADCAST_TAIL_OFFSET)
        index: cython.longlong = position & (capacity - 1)
        to_end: cython.longlong = capacity - index
        # The intent goes first: a receiver that still reads what is about to be overwritten sees that it was overrun.
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
    """One receiver among many; it starts at the latest record that was there when it attached."""

    def __init__(self, buffer: AtomicBuffer):
        self.capacity = capacity_of(buffer)
        self.buffer = buffer
        self.base = buffer.base
        self.lapped_count = 0
        self.cursor = self.next_record = ld64(self.base, self.capacity + BROADCAST_LATEST_OFFSET)
        self.record_offset = self.cursor & (self.capacity - 1)

    def validate(self):
        """Whether the record at the cursor has not been touched by the transmitter so far."""
        fence_acquire()
        return self.cursor + self.capacity > ld64(self.base, self.capacity + BROADCAST_TAIL_INTENT_OFFSET)

    def receive_next(self):
        """Moves to the next record; false when there is none."""
        base = self.base
        capacity: cython.longlong = self.capacity
        mask: cython.longlong = capacity - 1
        if ld64(base, capacity + BROADCAST_TAIL_OFFSET) <= self.next_record:
            return False
        self.cursor = self.next_record
        if not self.validate():
            self.lapped_count += 1
            self.cursor = ld64(base, capacity + BROADCAST_LATEST_OFFSET)
        offset: cython.longlong = self.cursor & mask
        length: cython.longlong = get32(base, offset)
        self.next_record = self.cursor + ((length + RECORD_ALIGNMENT - 1) & ~(RECORD_ALIGNMENT - 1))
        if get32(base, offset + RECORD_TYPE_OFFSET) == RECORD_TYPE_PADDING:
            self.cursor = self.next_record
            offset = 0
            length = get32(base, 0)
            self.next_record += (length + RECORD_ALIGNMENT - 1) & ~(RECORD_ALIGNMENT - 1)
        self.record_offset = offset
        return True

    def receive(self, handler, limit: cython.int = 1):
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
            # Copied first, believed afterwards: the transmitter may have overwritten it meanwhile.
            if payload is None or not self.validate():
                self.cursor = self.next_record = ld64(self.base, self.capacity + BROADCAST_LATEST_OFFSET)
                return OVERRUN
            count += 1
            handler(type_id, payload)
        return count

"""The destinations of a channel with many of them, and when each was last heard from (docs/protocols/aeron.md, 19.3)."""

from __future__ import annotations

import cython

if not cython.compiled:
    from mainstem._core.memory.plain import readonly

from mainstem._core.driver.datagram import Address, Transport
from mainstem._core.memory.buffer import AtomicBuffer

FIRST_DESTINATIONS = 16
ROW_LENGTH = 24


@cython.cclass
class DestinationList:
    """The destinations of a channel with many of them, and when each was last heard from.

    See docs/protocols/aeron.md, 19.3. ``entries`` are borrowed references to ``addresses``.
    """

    addresses: list
    count: readonly[cython.int]
    room: cython.longlong
    memory: AtomicBuffer
    entries: cython.pp_void
    heard_ns: cython.p_longlong
    receiver: cython.p_longlong

    def __init__(self) -> None:
        self.addresses = []
        self.count = 0
        self._resize(FIRST_DESTINATIONS)

    def _resize(self, room: cython.longlong) -> None:
        i: cython.int
        rows: list = [(self.heard_ns[i], self.receiver[i]) for i in range(self.count)]
        memory: AtomicBuffer = AtomicBuffer(bytearray(ROW_LENGTH * room))
        if cython.compiled:
            self.entries = cython.cast(cython.pp_void, memory.base)
            self.heard_ns = cython.cast(cython.p_longlong, memory.base + 8 * room)
            self.receiver = cython.cast(cython.p_longlong, memory.base + 16 * room)
        else:
            self.entries, self.heard_ns, self.receiver = [None] * room, [0] * room, [0] * room
        self.memory = memory
        self.room = room
        for i in range(self.count):
            self.entries[i] = cython.cast(cython.p_void, self.addresses[i]) if cython.compiled else self.addresses[i]
            self.heard_ns[i], self.receiver[i] = rows[i]

    def __len__(self) -> int:
        return self.count

    def add(self, address: Address, receiver_id: cython.longlong, now_ns: cython.longlong) -> None:
        """Append a destination."""
        n: cython.int = self.count
        if n == self.room:
            self._resize(2 * self.room)
        self.addresses.append(address)
        self.entries[n] = cython.cast(cython.p_void, address) if cython.compiled else address
        self.heard_ns[n] = now_ns
        self.receiver[n] = receiver_id
        self.count = n + 1

    def remove(self, index: cython.int) -> None:
        i: cython.int
        if not 0 <= index < self.count:
            raise IndexError(f"destination {index} is not one of {self.count}")
        for i in range(index, self.count - 1):
            self.entries[i] = self.entries[i + 1]
            self.heard_ns[i] = self.heard_ns[i + 1]
            self.receiver[i] = self.receiver[i + 1]
        self.count -= 1
        del self.addresses[index]

    def touch(self, index: cython.int, receiver_id: cython.longlong, now_ns: cython.longlong) -> None:
        """Note that the destination was heard from: remember the receiver and the time."""
        if not 0 <= index < self.count:
            raise IndexError(f"destination {index} is not one of {self.count}")
        self.receiver[index] = receiver_id
        self.heard_ns[index] = now_ns

    def rows(self) -> list[tuple[bytes, int, int]]:
        """Return (packed address, receiver id, last heard from) for each."""
        return [(bytes(self.addresses[i]), self.receiver[i], self.heard_ns[i]) for i in range(self.count)]

    def refresh(self, transport: Transport, receiver_id: cython.longlong, now_ns: cython.longlong) -> cython.bint:
        """Note the current datagram's time if its source and receiver are a known destination; return whether they are."""
        i: cython.int
        for i in range(self.count):
            if self.receiver[i] == receiver_id and transport.from_same_source(cython.cast(Address, self.entries[i])):
                self.heard_ns[i] = now_ns
                return True
        return False

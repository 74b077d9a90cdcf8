"""Where the datagrams of a channel with many destinations go, and when each was last heard of (docs/protocols/aeron.md, 19.3)."""

from __future__ import annotations

import cython

if not cython.compiled:
    from mainstem._core.memory.plain import readonly

    # Destinations of one channel: the spec designs for fewer than 100 receivers.
    MAX_DESTINATIONS = 256

from mainstem._core.driver.datagram import Address, Transport


@cython.cclass
class DestinationList:
    """Where the datagrams of a channel with many destinations go, and when each was last heard of.

    See docs/protocols/aeron.md, 19.3.
    """

    addresses: list
    count: readonly[cython.int]
    entries: cython.p_void[MAX_DESTINATIONS]
    heard_ns: cython.longlong[MAX_DESTINATIONS]
    receiver: cython.longlong[MAX_DESTINATIONS]

    def __init__(self) -> None:
        if not cython.compiled:
            self.entries = [None] * MAX_DESTINATIONS
            self.heard_ns = [0] * MAX_DESTINATIONS
            self.receiver = [0] * MAX_DESTINATIONS
        self.addresses = []
        self.count = 0

    def __len__(self) -> int:
        return self.count

    def add(self, address: Address, receiver_id: cython.longlong, now_ns: cython.longlong) -> None:
        """One more. Raises OverflowError above 256."""
        n: cython.int = self.count
        if n == MAX_DESTINATIONS:
            raise OverflowError(f"a channel has {MAX_DESTINATIONS} destinations at most")
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
        """Heard of: remembers the receiver and the time."""
        if not 0 <= index < self.count:
            raise IndexError(f"destination {index} is not one of {self.count}")
        self.receiver[index] = receiver_id
        self.heard_ns[index] = now_ns

    def rows(self) -> list[tuple[bytes, int, int]]:
        """(packed address, receiver id, last heard of) of each."""
        return [(bytes(self.addresses[i]), self.receiver[i], self.heard_ns[i]) for i in range(self.count)]

    def refresh(self, transport: Transport, receiver_id: cython.longlong, now_ns: cython.longlong) -> cython.bint:
        """Whether the datagram at hand comes from a destination, and a receiver, that is known already."""
        i: cython.int
        for i in range(self.count):
            if self.receiver[i] == receiver_id and transport.from_same_source(cython.cast(Address, self.entries[i])):
                self.heard_ns[i] = now_ns
                return True
        return False

"""Datagrams in batches: the base of all transports, and a transport that works in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import cython

if TYPE_CHECKING:
    from typing_extensions import Buffer

if not cython.compiled:
    from mainstem._core.layout import *
    from mainstem._core.memory.plain import *

    # Room for one packed socket address: sockaddr_in6 has 28 bytes.
    ADDRESS_ROOM = 32
    # The maximum number of datagrams, or coalesced runs of them, that one receive takes.
    MAX_SLOTS = 64

from collections import deque

from mainstem._core.driver.loss_generator import LossGenerator
from mainstem._core.memory.buffer import AtomicBuffer

# A UDP payload has at most 65,507 bytes; the excess keeps the slots from mapping to the same cache sets.
SLOT_STRIDE = 66_048


@cython.cclass
class Address:
    """A packed socket address, as ``sockaddr_in`` or ``sockaddr_in6``; empty if there is none."""

    memory: readonly[AtomicBuffer]
    base: cython.p_uchar
    length: readonly[cython.int]

    def __init__(self, packed: Buffer = b"") -> None:
        self.memory = AtomicBuffer(bytearray(ADDRESS_ROOM))
        self.base = self.memory.base
        self.length = 0
        self.put(packed)

    def put(self, packed: Buffer) -> None:
        """Become another address. Raises ValueError above 32 bytes."""
        if len(packed) > ADDRESS_ROOM:
            raise ValueError(f"a socket address has {ADDRESS_ROOM} bytes at most, not {len(packed)}")
        self.memory.zero(0, ADDRESS_ROOM)
        self.memory.put_bytes(0, packed)
        self.length = len(packed)

    def __bytes__(self) -> bytes:
        return self.memory.get_bytes(0, self.length)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Address) and bytes(self) == bytes(other)

    def __hash__(self) -> int:
        return hash(bytes(self))


@cython.cclass
class Transport:
    """A sender and receiver of datagrams in batches; the compiled cycles call it without the GIL.

    ``incoming`` and ``outgoing`` drop datagrams on purpose when they are received or sent. ``max_segments`` is how many equal
    datagrams one run may hold (1 if the kernel has no segmentation offload). ``last_error`` is the errno of the last failed call.
    ``fd`` is the socket's file descriptor, -1 if there is none.
    """

    fd: readonly[cython.int]
    outgoing: readonly[LossGenerator | None]
    incoming: readonly[LossGenerator | None]
    max_segments: readonly[cython.int]
    error_count: readonly[cython.longlong]
    last_error: readonly[cython.int]
    closed: readonly[cython.bint]
    memory: AtomicBuffer
    base: cython.p_uchar
    stride: cython.longlong
    slots: cython.int
    slot_size: cython.int[MAX_SLOTS]
    slot_segment: cython.int[MAX_SLOTS]
    source_memory: AtomicBuffer
    sources: cython.p_uchar
    source_length: cython.int[MAX_SLOTS]
    slot_ns: cython.longlong[MAX_SLOTS]
    received: cython.int
    slot: cython.int
    slot_offset: cython.int
    at: cython.longlong
    length: cython.int
    source: cython.longlong
    one_offset: cython.longlong[1]
    one_length: cython.int[1]
    one_segment: cython.int[1]

    def __init__(
        self,
        slots: cython.int = MAX_SLOTS,
        incoming: LossGenerator | None = None,
        outgoing: LossGenerator | None = None,
    ) -> None:
        if not 0 < slots <= MAX_SLOTS:
            raise ValueError(f"slots: {slots} is not one of 1 to {MAX_SLOTS}")
        if not cython.compiled:
            set_arrays(self)
        self.fd = -1
        self.incoming = incoming
        self.outgoing = outgoing
        self.max_segments = 1
        self.error_count = 0
        self.last_error = 0
        self.closed = False
        self.stride = SLOT_STRIDE
        self.slots = slots
        # Its untouched pages cost nothing.
        self.memory = AtomicBuffer(bytearray(slots * SLOT_STRIDE))
        self.base = self.memory.base
        self.source_memory = AtomicBuffer(bytearray(slots * ADDRESS_ROOM))
        self.sources = self.source_memory.base
        self.received = 0
        self.slot = 0
        self.slot_offset = 0
        self.at = 0
        self.length = 0
        self.source = 0

    def close(self) -> None:
        """Close the transport: nothing is sent or received from now on."""
        self.closed = True

    @property
    def dropped_data(self) -> int:
        """Datagrams of data dropped on purpose, in both directions."""
        return self._dropped(True)

    @property
    def dropped_control(self) -> int:
        """Datagrams of control frames dropped on purpose, in both directions."""
        return self._dropped(False)

    @property
    def arrived_ns(self) -> int:
        """When the kernel received the first datagram of the last batch, in epoch nanoseconds; 0 if it does not report that."""
        return self.slot_ns[0]

    def _dropped(self, data) -> int:
        total = 0
        for generator in (self.incoming, self.outgoing):
            while generator is not None:
                total += generator.dropped_data if data else generator.dropped_control
                generator = generator.then
        return total

    def fill(self) -> cython.int:
        """Fill the slots from the network; return how many were filled."""
        return 0

    def put_runs(
        self,
        to: Address,
        base: cython.p_const_uchar,
        offset: cython.p_longlong,
        length: cython.p_int,
        segment: cython.p_int,
        count: cython.int,
    ) -> cython.int:
        """Send runs; return how many, counted from the first, were accepted whole."""
        return 0

    def epoch_ns(self, now_ns: cython.longlong) -> cython.longlong:
        """Return the time of day for timestamps in messages."""
        return now_ns

    def arrival_ns(self, now_ns: cython.longlong) -> cython.longlong:
        """Return when the current datagram reached this host, as exactly as the transport reports it."""
        if self.slot_ns[self.source // ADDRESS_ROOM] != 0:
            return self.slot_ns[self.source // ADDRESS_ROOM]
        return self.epoch_ns(now_ns)

    def receive(self) -> cython.int:
        """Receive a batch, for ``next_datagram`` to iterate over."""
        self.received = 0 if self.closed else self.fill()
        self.slot = 0
        self.slot_offset = 0
        return self.received

    def next_datagram(self) -> cython.bint:
        """Move to the next datagram of the batch: ``at`` and ``length`` in ``base``, its sender at ``source``."""
        size: cython.int
        while self.slot < self.received:
            if self.slot_offset >= self.slot_size[self.slot] and self.slot_offset > 0:
                self.slot += 1
                self.slot_offset = 0
                continue
            size = self.slot_size[self.slot] - self.slot_offset
            if size == 0:
                # An empty datagram is legal UDP.
                self.slot += 1
                continue
            if 0 < self.slot_segment[self.slot] < size:
                size = self.slot_segment[self.slot]
            self.at = self.slot * self.stride + self.slot_offset
            self.length = size
            self.source = self.slot * ADDRESS_ROOM
            self.slot_offset += size
            if self.incoming is not None and self.incoming.drops(self.base, self.at, size):
                continue
            return True
        return False

    def source_key(self) -> cython.longlong:
        """Return a 64-bit key of the current datagram's source address and port: equal sources have equal keys."""
        i: cython.int
        key: cython.longlong = 0
        for i in range(0, ADDRESS_ROOM, 8):
            key ^= get64(self.sources, self.source + i)
        return key

    def from_same_source(self, address: Address) -> cython.bint:
        """Whether the current datagram came from ``address``."""
        i: cython.int
        if self.source_length[self.source // ADDRESS_ROOM] != address.length:
            return False
        for i in range(0, ADDRESS_ROOM, 8):
            if get64(self.sources, self.source + i) != get64(address.base, i):
                return False
        return True

    def put_one(
        self, to: Address, base: cython.p_const_uchar, offset: cython.longlong, length: cython.int, segment: cython.int
    ) -> cython.bint:
        self.one_offset[0] = offset
        self.one_length[0] = length
        self.one_segment[0] = segment
        return self.put_runs(to, base, self.one_offset, self.one_length, self.one_segment, 1) == 1

    def send_runs(
        self,
        to: Address,
        base: cython.p_const_uchar,
        offset: cython.p_longlong,
        length: cython.p_int,
        segment: cython.p_int,
        count: cython.int,
    ) -> cython.int:
        """Send runs of datagrams to ``to`` (None: to the socket's connected address); return how many left whole."""
        i: cython.int
        at: cython.int
        start: cython.int
        size: cython.int
        if self.closed:
            return 0
        if self.outgoing is None:
            return self.put_runs(to, base, offset, length, segment, count)
        for i in range(count):
            at = 0
            start = 0
            while at < length[i]:
                size = segment[i] if segment[i] < length[i] - at else length[i] - at
                if self.outgoing.drops(base, offset[i] + at, size):
                    if at > start and not self.put_one(to, base, offset[i] + start, at - start, segment[i]):
                        return i
                    start = at + size
                at += size
            if at > start and not self.put_one(to, base, offset[i] + start, at - start, segment[i]):
                return i
        return count

    def send_one(
        self, to: Address, base: cython.p_const_uchar, offset: cython.longlong, length: cython.int
    ) -> cython.bint:
        """Send one datagram; return whether it left."""
        if self.closed:
            return False
        if self.outgoing is not None and self.outgoing.drops(base, offset, length):
            return True
        return self.put_one(to, base, offset, length, length)

    def send(self, datagram: Buffer, to: Address | None = None) -> bool:
        """Send one datagram to ``to``, or to the socket's connected address; return False if the network did not take it."""
        buffer: AtomicBuffer = AtomicBuffer(bytearray(datagram))
        return bool(self.send_one(to, buffer.base, 0, cython.cast(cython.int, buffer.capacity)))

    def read(self) -> list[tuple[bytes, bytes]]:
        """Receive one batch of the datagrams that have arrived: (datagram, packed source address)."""
        result = []
        self.receive()
        while self.next_datagram():
            result.append(
                (
                    self.memory.get_bytes(self.at, self.length),
                    self.source_memory.get_bytes(self.source, self.source_length[self.source // ADDRESS_ROOM]),
                )
            )
        return result


@cython.cclass
class MemoryTransport(Transport):
    """A transport without a network. Its owner moves datagrams from one transport's ``sent`` to another's ``deliver``.

    ``send_limit`` is None, or how many more runs are accepted, to simulate a full socket buffer in tests. ``epoch_offset_ns`` is
    how far the time of day is ahead of ``now_ns``, for timestamps in messages.
    """

    inbox: readonly[deque[tuple[bytes, bytes]]]
    sent: readonly[deque[tuple[bytes | None, bytes]]]
    send_limit: public[int | None]
    epoch_offset_ns: public[cython.longlong]

    def __init__(
        self,
        slots: cython.int = 16,
        incoming: LossGenerator | None = None,
        outgoing: LossGenerator | None = None,
        max_segments: cython.int = 64,
    ) -> None:
        Transport.__init__(self, slots, incoming, outgoing)
        self.max_segments = max_segments
        self.inbox = deque()
        self.sent = deque()
        self.send_limit = None
        self.epoch_offset_ns = 0

    def deliver(self, datagram: Buffer, source: Buffer) -> None:
        """Queue a datagram for the next receive. Raises ValueError if it is too long for UDP."""
        if len(datagram) >= SLOT_STRIDE:
            raise ValueError(f"a datagram of {len(datagram)} bytes does not fit a UDP payload")
        self.inbox.append((bytes(datagram), bytes(source)))

    def take(self) -> list[tuple[bytes | None, bytes]]:
        """Return what was sent since the last call: (packed destination or None for the connected address, datagram)."""
        datagrams = list(self.sent)
        self.sent.clear()
        return datagrams

    @cython.exceptval(-1)
    def take_from_inbox(self) -> cython.int:
        n: cython.int = 0
        while self.inbox and n < self.slots:
            datagram, source = self.inbox.popleft()
            self.memory.put_bytes(n * self.stride, datagram)
            self.slot_size[n] = len(datagram)
            self.slot_segment[n] = 0
            self.source_memory.zero(n * ADDRESS_ROOM, ADDRESS_ROOM)
            self.source_memory.put_bytes(n * ADDRESS_ROOM, source)
            self.source_length[n] = len(source)
            n += 1
        return n

    @cython.exceptval(-1)
    def put_in_outbox(
        self,
        to: Address,
        base: cython.p_const_uchar,
        offset: cython.p_longlong,
        length: cython.p_int,
        segment: cython.p_int,
        count: cython.int,
    ) -> cython.int:
        i: cython.int
        at: cython.longlong
        size: cython.longlong
        destination = None if to is None else bytes(to)
        for i in range(count):
            if self.send_limit is not None:
                if self.send_limit <= 0:
                    return i
                self.send_limit -= 1
            at = 0
            while at < length[i]:
                size = segment[i] if segment[i] < length[i] - at else length[i] - at
                if cython.compiled:
                    datagram = base[offset[i] + at : offset[i] + at + size]
                else:
                    datagram = bytes(base.u8[offset[i] + at : offset[i] + at + size])
                self.sent.append((destination, datagram))
                at += size
        return count

    def epoch_ns(self, now_ns: cython.longlong) -> cython.longlong:
        return now_ns + self.epoch_offset_ns

    def fill(self) -> cython.int:
        with cython.gil:
            return self.take_from_inbox()

    def put_runs(
        self,
        to: Address,
        base: cython.p_const_uchar,
        offset: cython.p_longlong,
        length: cython.p_int,
        segment: cython.p_int,
        count: cython.int,
    ) -> cython.int:
        with cython.gil:
            return self.put_in_outbox(to, base, offset, length, segment, count)

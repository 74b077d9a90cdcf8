"""Exceptional events on their way from a compiled cycle to the Python code that decides about them."""

from __future__ import annotations

import cython

if not cython.compiled:
    from mainstem._core.driver.datagram import ADDRESS_ROOM
    from mainstem._core.memory.plain import *

    # The longest frame that Python must see whole is an ERR frame with its text.
    WHOLE_FRAME = 1088

from mainstem._core.driver.datagram import Transport
from mainstem._core.memory.buffer import AtomicBuffer

# An event: its own length, kind, endpoint, path, time, a value, transport index, source length, source, then the frame.
HEADER = cython.declare(cython.longlong, 48 + 32)
# Room for about 500 NAKs. Events that do not fit are counted as lost, as if the network had dropped them: the sender of each
# of these frames repeats it until it has an effect.
ROOM = 65_536


@cython.cclass
class EventBuffer:
    """Events that a compiled cycle could not decide itself, for Python to drain afterward in the same thread.

    ``lost`` counts events that did not fit; the frame's sender sends it again.
    """

    memory: AtomicBuffer
    base: cython.p_uchar
    used: cython.longlong
    room: cython.longlong
    count: readonly[cython.int]
    lost: readonly[cython.longlong]

    def __init__(self) -> None:
        self.room = ROOM
        self.memory = AtomicBuffer(bytearray(ROOM))
        self.base = self.memory.base
        self.used = 0
        self.count = 0
        self.lost = 0

    def put(
        self, kind: cython.int, endpoint: cython.int, path: cython.int, now_ns: cython.longlong, value: cython.longlong
    ) -> cython.bint:
        """Store an event that needs no frame; return False if the buffer is full."""
        at: cython.longlong = self.used
        if at + HEADER > self.room:
            self.lost += 1
            return False
        put32(self.base, at, 0)
        put32(self.base, at + 4, kind)
        put32(self.base, at + 8, endpoint)
        put32(self.base, at + 12, path)
        put64(self.base, at + 16, now_ns)
        put64(self.base, at + 24, value)
        put32(self.base, at + 32, -1)
        put32(self.base, at + 36, 0)
        self.used = at + HEADER
        self.count += 1
        return True

    def put_frame(
        self,
        kind: cython.int,
        endpoint: cython.int,
        path: cython.int,
        now_ns: cython.longlong,
        transport: Transport,
        index: cython.int,
        max_length: cython.int,
    ) -> cython.bint:
        """Store the first ``max_length`` bytes of a transport's current datagram, with its source."""
        at: cython.longlong = self.used
        length: cython.int = transport.length
        if length > max_length:
            length = max_length
        if at + HEADER + length + 8 > self.room or not self.put(kind, endpoint, path, now_ns, 0):
            self.lost += 1
            return False
        put32(self.base, at, length)
        put32(self.base, at + 32, index)
        put32(self.base, at + 36, transport.source_length[transport.source // ADDRESS_ROOM])
        copy_bytes(self.base, at + 48, transport.sources, transport.source, ADDRESS_ROOM)
        copy_bytes(self.base, at + HEADER, transport.base, transport.at, length)
        self.used = at + HEADER + ((length + 7) & ~7)
        return True

    def take(self) -> list[tuple[int, int, int, int, int, int, bytes, bytes]]:
        """Remove and return all events, oldest first.

        Each is (kind, endpoint, path, now_ns, value, transport index, packed source, frame).
        """
        result = []
        at: cython.longlong = 0
        length: cython.int
        while at < self.used:
            length = get32(self.base, at)
            result.append(
                (
                    get32(self.base, at + 4),
                    get32(self.base, at + 8),
                    get32(self.base, at + 12),
                    get64(self.base, at + 16),
                    get64(self.base, at + 24),
                    get32(self.base, at + 32),
                    self.memory.get_bytes(at + 48, get32(self.base, at + 36)),
                    self.memory.get_bytes(at + HEADER, length),
                )
            )
            at += HEADER + ((length + 7) & ~7)
        self.used = 0
        self.count = 0
        return result

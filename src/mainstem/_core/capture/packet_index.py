"""The one pass over a capture before it is read in parallel: summarizes each range of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import cython

if TYPE_CHECKING:
    from typing_extensions import Buffer

if not cython.compiled:
    from mainstem._core.capture.layout import *
    from mainstem._core.capture.packets import Packet
    from mainstem._core.capture.records import RecordWalk
    from mainstem._core.log.columns import Region
    from mainstem._core.memory.plain import *

NO_TIME = cython.declare(cython.longlong, -1)


# One bit per bucket of flows. Not the complement of 0, which is negative in uncompiled code.
EVERY_BUCKET = cython.declare(cython.ulonglong, 0xFFFF_FFFF_FFFF_FFFF)


@cython.cclass
class PacketIndex:
    """A summary of a range of records.

    ``packets`` is their number, ``first_ns`` to ``last_ns`` their times (-1: none). ``tcp`` and ``fragments`` have a bit for each
    bucket that occurs. ``unknown_link`` is an unknown link type (-1: all are known). The run ended at ``offset``; ``stopped``
    says why.
    """

    walk: readonly[RecordWalk]
    packet: Packet
    offset: readonly[cython.longlong]
    packets: readonly[cython.longlong]
    first_ns: readonly[cython.longlong]
    last_ns: readonly[cython.longlong]
    tcp: readonly[cython.ulonglong]
    fragments: readonly[cython.ulonglong]
    unknown_link: readonly[cython.int]
    stopped: readonly[cython.int]

    def __init__(self, walk: RecordWalk) -> None:
        if walk is None:
            raise TypeError("an index needs a walk")
        self.walk = walk
        self.packet = Packet()
        self.reset()

    def reset(self) -> None:
        self.offset = 0
        self.packets = 0
        self.first_ns = self.last_ns = NO_TIME
        self.tcp = self.fragments = 0
        self.unknown_link = -1
        self.stopped = RECORD_MORE

    def run(self, source: Buffer, offset: cython.longlong, limit: cython.longlong) -> int:
        """Walk whole records in ``[offset, limit)``; return RECORD_MORE or RECORD_CORRUPT. Raises IndexError."""
        region: Region = Region(source)
        if offset < 0 or limit > region.capacity or offset > limit:
            raise IndexError(f"records [{offset}, {limit}) lie outside {region.capacity} bytes")
        self.reset()
        self.offset = offset
        base = region.base
        while True:
            with cython.nogil:
                self.stopped = self.loop(base, self.offset, limit)
            if self.stopped >= 0:
                return self.stopped

    def loop(self, base: cython.p_uchar, offset: cython.longlong, limit: cython.longlong) -> cython.int:
        """Walk up to 16384 records; return -1 if there may be more."""
        o: cython.longlong = offset
        _n: cython.int = 0
        outcome: cython.int = 0
        for _n in range(16384):
            outcome = self.walk.step(base, o, limit)
            if outcome == RECORD_MORE or outcome == RECORD_CORRUPT:
                return outcome
            if outcome == RECORD_PACKET:
                self.note(base)
            o = self.walk.offset
            self.offset = o
        return -1

    def note(self, base: cython.p_uchar) -> cython.void:
        kind: cython.int = 0
        self.packets += 1
        if self.walk.timed:
            if self.first_ns < 0 or self.walk.time_ns < self.first_ns:
                self.first_ns = self.walk.time_ns
            self.last_ns = max(self.last_ns, self.walk.time_ns)
        kind = self.packet.parse(base, self.walk.data, self.walk.captured, self.walk.link)
        if kind == PACKET_TCP:
            self.tcp |= cython.cast(cython.ulonglong, 1) << self.packet.bucket
        elif kind == PACKET_FRAGMENT:
            if self.packet.protocol == 6:
                # The connection of a TCP fragment is known only once the packet is whole, so it counts for all buckets.
                self.tcp = EVERY_BUCKET
            else:
                self.fragments |= cython.cast(cython.ulonglong, 1) << self.packet.bucket
        elif kind == PACKET_UNKNOWN_LINK:
            self.unknown_link = self.walk.link

"""Steps through a capture file in memory, record by record: pcap of both byte orders and resolutions, and pcapng."""

from __future__ import annotations

from typing import TYPE_CHECKING

import cython

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from mainstem._core.memory.buffer import AtomicBuffer

if not cython.compiled:
    from mainstem._core.capture.layout import *
    from mainstem._core.layout import *
    from mainstem._core.log.columns import Region
    from mainstem._core.memory.plain import *

BLOCK_SECTION = cython.declare(cython.longlong, 0x0A0D0D0A)
BLOCK_INTERFACE = cython.declare(cython.longlong, 1)
BLOCK_PACKET = cython.declare(cython.longlong, 2)
BLOCK_SIMPLE = cython.declare(cython.longlong, 3)
BLOCK_ENHANCED = cython.declare(cython.longlong, 6)
ORDER_MAGIC = cython.declare(cython.longlong, 0x1A2B3C4D)
OPTION_RESOLUTION = cython.declare(cython.int, 9)
OPTION_OFFSET = cython.declare(cython.int, 14)
MICROSECONDS = cython.declare(cython.int, 6)
SECOND_NS = cython.declare(cython.longlong, 1000000000)
# The first second, in 2262, whose nanoseconds do not fit in 64 bits.
END_OF_TIME_S = cython.declare(cython.longlong, 9223372036)
# Each block states its length twice, so this many valid ones in a row are no coincidence.
RESYNC_BLOCKS = cython.declare(cython.int, 64)
# A longer packet is accepted only if the file's own limit allows it.
ORDINARY_PACKET = cython.declare(cython.longlong, 262144)


@cython.cclass
class RecordWalk:
    """A walk through the records of pcap, or the blocks of pcapng (``blocks``), in memory.

    After a step that found a packet: ``data`` is where it starts, ``captured`` and ``original`` its length in the file and
    on the wire, ``time_ns`` its time since 1970 (``timed`` is false if it has none), ``link`` its link type. ``offset`` is
    where the next record starts. After RECORD_MORE, ``needed`` is the minimum length of the record in bytes.
    """

    blocks: readonly[cython.bint]
    swapped: readonly[cython.bint]
    offset: readonly[cython.longlong]
    data: readonly[cython.longlong]
    captured: readonly[cython.longlong]
    original: readonly[cython.longlong]
    time_ns: readonly[cython.longlong]
    timed: readonly[cython.bint]
    link: readonly[cython.int]
    needed: readonly[cython.longlong]
    snaplen: readonly[cython.longlong]
    interfaces: readonly[cython.int]
    tick_ns: cython.longlong
    links: cython.int[RECORD_MAX_INTERFACES]
    resolutions: cython.int[RECORD_MAX_INTERFACES]
    offsets_s: cython.longlong[RECORD_MAX_INTERFACES]
    snaplens: cython.longlong[RECORD_MAX_INTERFACES]

    def __init__(self, blocks: cython.bint = True) -> None:
        self.blocks = blocks
        self.swapped = False
        self.offset = 0
        self.data = 0
        self.captured = 0
        self.original = 0
        self.time_ns = 0
        self.timed = False
        self.link = -1
        self.needed = 0
        self.snaplen = 0
        self.interfaces = 0
        self.tick_ns = 1000
        if not cython.compiled:
            set_arrays(self)

    def set_records(
        self, swapped: cython.bint, nanoseconds: cython.bint, link: cython.int, snaplen: cython.longlong
    ) -> None:
        """Read pcap from here on, as its header specifies."""
        self.blocks = False
        self.swapped = swapped
        self.tick_ns = 1 if nanoseconds else 1000
        self.link = link
        self.snaplen = snaplen
        self.timed = True

    def set_section(self, swapped: cython.bint) -> None:
        """Read a section of pcapng from here on, without interfaces so far."""
        self.blocks = True
        self.swapped = swapped
        self.interfaces = 0

    def add_interface(
        self, link: cython.int, resolution: cython.int, offset_s: cython.longlong, snaplen: cython.longlong
    ) -> None:
        """Add the next interface of the section. ``resolution`` is the byte of if_tsresol."""
        assert 0 <= resolution <= 255, f"if_tsresol is one byte, not {resolution}"
        if self.interfaces < RECORD_MAX_INTERFACES:
            self.links[self.interfaces] = link
            self.resolutions[self.interfaces] = resolution
            self.offsets_s[self.interfaces] = offset_s
            self.snaplens[self.interfaces] = snaplen
            self.interfaces += 1

    def interface_at(self, number: cython.int) -> tuple[int, int, int, int]:
        """Return (link, resolution, offset_s, snaplen). Raises IndexError."""
        if not 0 <= number < self.interfaces:
            raise IndexError(f"interface {number} of {self.interfaces}")
        return (self.links[number], self.resolutions[number], self.offsets_s[number], self.snaplens[number])

    def next(self, source: Buffer | AtomicBuffer, offset: cython.longlong, limit: cython.longlong) -> int:
        """Make one step at ``offset``; return ``layout.RECORD_...``. Raises IndexError if the range is outside the memory."""
        region: Region = Region(source)
        region.check(0, limit)
        if offset < 0 or offset > limit:
            raise IndexError(f"no record at {offset} in {limit} bytes")
        return self.step(region.base, offset, limit)

    def resync(
        self,
        source: Buffer | AtomicBuffer,
        offset: cython.longlong,
        stop: cython.longlong,
        limit: cython.longlong,
        count: cython.int,
    ) -> int:
        """Return the first offset in ``[offset, stop)`` where ``count`` packets could follow one another before ``limit``, or -1.

        Takes time proportional to ``stop - offset``, for any bytes. Raises IndexError if the range is outside the memory.
        """
        assert count > 0, f"any place begins {count} packets"
        region: Region = Region(source)
        region.check(0, limit)
        if offset < 0 or stop > limit:
            raise IndexError(f"places [{offset}, {stop}) lie outside {limit} bytes")
        o: cython.longlong = offset
        base = region.base
        with cython.nogil:
            while o < stop:
                if self.chain(base, o, limit, count) > o:
                    break
                o += 1
        return o if o < stop else -1

    def u32(self, base: cython.p_uchar, o: cython.longlong) -> cython.longlong:
        if self.swapped:
            return be32(base, o)
        return le32(base, o)

    def u16(self, base: cython.p_uchar, o: cython.longlong) -> cython.int:
        if self.swapped:
            return be16(base, o)
        return get16(base, o)

    def step(self, base: cython.p_uchar, offset: cython.longlong, limit: cython.longlong) -> cython.int:
        """Read one record or block at ``offset`` into the fields."""
        if self.blocks:
            return self.step_block(base, offset, limit)
        return self.step_record(base, offset, limit)

    def step_record(self, base: cython.p_uchar, o: cython.longlong, limit: cython.longlong) -> cython.int:
        seconds: cython.longlong = 0
        part: cython.longlong = 0
        if limit - o < 16:
            self.needed = 16
            return RECORD_MORE
        seconds = self.u32(base, o)
        part = self.u32(base, o + 4)
        self.captured = self.u32(base, o + 8)
        self.original = self.u32(base, o + 12)
        if self.captured > RECORD_MAX_PACKET:
            return RECORD_CORRUPT
        # The fraction is more than a second: the time is unknown, but the packet may still be whole.
        self.timed = part * self.tick_ns < SECOND_NS
        if not self.timed and self.captured > self.original:
            return RECORD_CORRUPT
        if self.captured > ORDINARY_PACKET and self.captured > self.snaplen:
            return RECORD_CORRUPT
        if limit - o < 16 + self.captured:
            self.needed = 16 + self.captured
            return RECORD_MORE
        self.time_ns = seconds * SECOND_NS + part * self.tick_ns if self.timed else 0
        self.data = o + 16
        self.offset = o + 16 + self.captured
        return RECORD_PACKET

    def step_block(self, base: cython.p_uchar, o: cython.longlong, limit: cython.longlong) -> cython.int:
        kind: cython.longlong = 0
        length: cython.longlong = 0
        swapped: cython.bint = self.swapped
        if limit - o < 12:
            self.needed = 12
            return RECORD_MORE
        kind = self.u32(base, o)
        if kind == BLOCK_SECTION:
            # The section states its own byte order, which is needed to read its length.
            if be32(base, o + 8) == ORDER_MAGIC:
                self.swapped = True
            elif le32(base, o + 8) == ORDER_MAGIC:
                self.swapped = False
            else:
                return RECORD_CORRUPT
        length = self.u32(base, o + 4)
        if length < 12 or length & 3 or length > RECORD_MAX_BLOCK:
            self.swapped = swapped
            return RECORD_CORRUPT
        if limit - o < length:
            self.swapped = swapped
            self.needed = length
            return RECORD_MORE
        if self.u32(base, o + length - 4) != length:
            self.swapped = swapped
            return RECORD_CORRUPT
        if kind == BLOCK_SECTION:
            self.interfaces = 0
        self.offset = o + length
        if kind == BLOCK_ENHANCED or kind == BLOCK_PACKET:
            return self.enhanced(base, o, length, 0 if kind == BLOCK_ENHANCED else 1)
        if kind == BLOCK_SIMPLE:
            return self.simple(base, o, length)
        if kind == BLOCK_INTERFACE:
            return self.interface(base, o, length)
        return RECORD_OTHER

    def enhanced(
        self, base: cython.p_uchar, o: cython.longlong, length: cython.longlong, kind: cython.int
    ) -> cython.int:
        """Read an Enhanced Packet Block or (kind 1) its predecessor, the Packet Block, which has a shorter interface number."""
        number: cython.int = 0
        if length < 32:
            return RECORD_CORRUPT
        number = cython.cast(cython.int, self.u16(base, o + 8) if kind else min(self.u32(base, o + 8), 65535))
        self.captured = self.u32(base, o + 20)
        self.original = self.u32(base, o + 24)
        if self.captured > length - 32 or number >= self.interfaces:
            return RECORD_CORRUPT
        self.data = o + 28
        self.link = self.links[number]
        self.stamp(number, self.u32(base, o + 12), self.u32(base, o + 16))
        return RECORD_PACKET

    def simple(self, base: cython.p_uchar, o: cython.longlong, length: cython.longlong) -> cython.int:
        if length < 16 or self.interfaces == 0:
            return RECORD_CORRUPT
        self.original = self.u32(base, o + 8)
        self.captured = min(self.original, length - 16)
        if self.snaplens[0]:
            self.captured = min(self.captured, self.snaplens[0])
        self.data = o + 12
        self.link = self.links[0]
        self.timed = False
        self.time_ns = 0
        return RECORD_PACKET

    def interface(self, base: cython.p_uchar, o: cython.longlong, length: cython.longlong) -> cython.int:
        at: cython.longlong = o + 16
        end: cython.longlong = o + length - 4
        code: cython.int = 0
        size: cython.int = 0
        resolution: cython.int = MICROSECONDS
        offset_s: cython.longlong = 0
        if length < 20:
            return RECORD_CORRUPT
        while end - at >= 4:
            code = self.u16(base, at)
            size = self.u16(base, at + 2)
            if code == 0 or size > end - at - 4:
                break
            if code == OPTION_RESOLUTION and size == 1:
                resolution = get8(base, at + 4)
            elif code == OPTION_OFFSET and size == 8:
                # Seconds before or after 1970: time_ns cannot hold more of them than fit in a signed 32-bit number.
                offset_s = wrap_i32(self.u32(base, at + 8) if self.swapped else self.u32(base, at + 4))
            at += 4 + ((size + 3) & ~3)
        assert 0 <= resolution <= 255, f"if_tsresol is one byte, not {resolution}"
        if self.interfaces < RECORD_MAX_INTERFACES:
            self.links[self.interfaces] = self.u16(base, o + 8)
            self.resolutions[self.interfaces] = resolution
            self.offsets_s[self.interfaces] = offset_s
            self.snaplens[self.interfaces] = self.u32(base, o + 12)
            self.interfaces += 1
        return RECORD_OTHER

    def stamp(self, number: cython.int, high: cython.longlong, low: cython.longlong) -> cython.void:
        """Compute nanoseconds from an interface's ticks. A time beyond the year 2262 counts as none."""
        resolution: cython.int = self.resolutions[number]
        power: cython.int = resolution & 0x7F
        seconds: cython.longlong = 0
        part: cython.longlong = 0
        unit: cython.longlong = 1
        ticks: cython.longlong = 0
        _i: cython.int = 0
        self.timed = False
        self.time_ns = 0
        if high >= 0x7FFFFFFF or power > (62 if resolution & 0x80 else 18):
            return
        ticks = (high << 32) | low
        if resolution & 0x80:
            seconds = ticks >> power
            part = ticks - (seconds << power)
            if power > 30:
                part = ((part >> (power - 30)) * SECOND_NS) >> 30
            else:
                part = (part * SECOND_NS) >> power
        else:
            for _i in range(power):
                unit *= 10
            seconds = ticks // unit
            part = ticks - seconds * unit
            part = part * (SECOND_NS // unit) if power <= 9 else part // (unit // SECOND_NS)
        seconds += self.offsets_s[number]
        if 0 <= seconds < END_OF_TIME_S:
            self.time_ns = seconds * SECOND_NS + part
            self.timed = True

    def chain(
        self, base: cython.p_uchar, offset: cython.longlong, limit: cython.longlong, count: cython.int
    ) -> cython.longlong:
        """Return the end of ``count`` packets that could follow one another at ``offset`` (or end with the memory); else -1.

        Stricter than reading: captured no longer than on the wire, possible times, within a day of one another. RESYNC_BLOCKS
        whole blocks in a row are accepted too, even with few packets among them, so each offset takes a bounded number of
        steps.
        """
        o: cython.longlong = offset
        n: cython.int = 0
        steps: cython.int = 0
        outcome: cython.int = 0
        first_ns: cython.longlong = 0
        interfaces: cython.int = self.interfaces
        swapped: cython.bint = self.swapped
        while n < count and steps < RESYNC_BLOCKS and o < limit:
            outcome = self.step(base, o, limit)
            if outcome == RECORD_PACKET:
                if n == 0:
                    first_ns = self.time_ns
                if self.captured > self.original or self.captured < 14 or not (self.timed or self.blocks):
                    break
                if self.time_ns - first_ns > 86400 * SECOND_NS or first_ns - self.time_ns > 86400 * SECOND_NS:
                    break
                n += 1
            elif outcome != RECORD_OTHER:
                break
            steps += 1
            o = self.offset
        self.interfaces = interfaces
        self.swapped = swapped
        if n == count or steps == RESYNC_BLOCKS or (n > 0 and o == limit):
            return o
        return -1

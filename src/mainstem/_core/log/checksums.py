"""CRC-32 and CRC-32C of runs of frames, and the CRCs that Aeron Archive stores in the session id of recorded frames.

If the processor supports carry-less multiplication, a run is folded into sixteen bytes that have its checksum
(``folding.pxd``). Tables handle those bytes, short runs, and runs on other processors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import cython

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from mainstem._core.memory.buffer import AtomicBuffer

from mainstem._core.log.columns import FrameWalk, Region

if cython.compiled:
    from cython.cimports.mainstem._core.log.folding import can_fold, fold, fold_end, fold_more
else:
    from zlib import crc32

    from mainstem._core.layout import *
    from mainstem._core.memory.plain import *

# Polynomials, lowest bit first.
CRC32 = 0xEDB88320
CRC32C = 0x82F63B78


def end_of_same(
    source: Buffer | AtomicBuffer,
    offset: cython.longlong,
    limit: cython.longlong,
    field: cython.int,
    ids: bytes,
    padding: cython.bint,
) -> int:
    """Return where the first of the whole frames in ``[offset, limit)`` starts whose header has other ids at ``field``.

    ``ids`` are the expected 4 or 8 bytes of the header. Without ``padding``, padding frames may have any ids. Returns ``limit``
    if all frames match. Raises IndexError if the range is outside the memory.
    """
    region: Region = Region(source)
    region.check(offset, limit)
    base = region.base
    length: cython.longlong = 0
    expected: cython.longlong = int.from_bytes(ids, "little", signed=True)
    is_long: cython.bint = len(ids) == 8
    found: cython.longlong = 0
    while limit - offset >= DATA_HEADER_LENGTH:
        length = ld32(base, offset)
        if length < DATA_HEADER_LENGTH:
            break
        if padding or get16(base, offset + FRAME_TYPE_OFFSET) != TYPE_PAD:
            found = get64(base, offset + field) if is_long else get32(base, offset + field)
            if found != expected:
                return offset
        offset += (length + FRAME_ALIGNMENT - 1) & ~(FRAME_ALIGNMENT - 1)
    return limit


def power_of_x(exponent: cython.int, polynomial: cython.uint) -> cython.ulonglong:
    """Return x to the power ``exponent`` modulo the polynomial, its bits reversed in 33 bits."""
    _i: cython.int = 0
    value: cython.uint = 0x80000000
    for _i in range(exponent):
        value = (value >> 1) ^ (polynomial if value & 1 else 0)
    return cython.cast(cython.ulonglong, value) << 1


@cython.cclass
class FrameChecksum:
    """One of the two checksums. ``offset`` is where the last ``check`` ended."""

    table: cython.uint[2048]
    powers: cython.ulonglong[4]
    folds: cython.bint
    is_crc32: cython.bint
    offset: readonly[cython.longlong]

    def __init__(self, polynomial: cython.uint) -> None:
        i: cython.int = 0
        _bit: cython.int = 0
        value: cython.uint = 0
        if not cython.compiled:
            set_arrays(self)
        self.offset = 0
        self.is_crc32 = polynomial == CRC32
        for i in range(256):
            value = i
            for _bit in range(8):
                value = (value >> 1) ^ (polynomial if value & 1 else 0)
            self.table[i] = value
        for i in range(256, 2048):
            value = self.table[i - 256]
            self.table[i] = (value >> 8) ^ self.table[value & 0xFF]
        if cython.compiled:
            self.folds = can_fold()
            for i in range(4):
                self.powers[i] = power_of_x((544, 480, 160, 96)[i], polynomial)

    def update(
        self, source: Buffer | AtomicBuffer, offset: cython.longlong, limit: cython.longlong, value: cython.uint = 0
    ) -> int:
        """Continue checksum ``value`` with the bytes ``[offset, limit)``; return the result. Raises IndexError like ``compute``."""
        region: Region = Region(source)
        region.check(offset, limit)
        base = region.base
        with cython.nogil:
            value = self.sum(base, offset, limit, value)
        return value

    def compute(self, source: Buffer | AtomicBuffer, offset: cython.longlong, limit: cython.longlong) -> int:
        """Return the checksum of ``[offset, limit)`` as a signed 32-bit int. Raises IndexError if that is outside the memory."""
        value: cython.longlong = self.update(source, offset, limit)
        return value - (1 << 32) if value >= 1 << 31 else value

    def check(self, source: Buffer | AtomicBuffer, offset: cython.longlong, limit: cython.longlong) -> bool:
        """Compare the whole frames of ``[offset, limit)`` with the checksums in their session ids.

        Padding has no checksum. Returns whether all are correct; if not, ``offset`` is where the first incorrect frame starts.
        Raises IndexError if the range is outside the memory.
        """
        region: Region = Region(source)
        region.check(offset, limit)
        is_right: cython.bint = False
        base = region.base
        with cython.nogil:
            is_right = self.check_frames(base, offset, limit)
        return is_right

    def check_frames(self, base: cython.p_uchar, offset: cython.longlong, limit: cython.longlong) -> cython.bint:
        o: cython.longlong = offset
        length: cython.longlong = 0
        end: cython.longlong = 0
        expected: cython.uint = 0
        while limit - o >= DATA_HEADER_LENGTH:
            length = ld32(base, o)
            end = o + ((length + FRAME_ALIGNMENT - 1) & ~(FRAME_ALIGNMENT - 1))
            if length < DATA_HEADER_LENGTH or end > limit:
                break
            if get16(base, o + FRAME_TYPE_OFFSET) != TYPE_PAD:
                expected = le32(base, o + FRAME_SESSION_ID_OFFSET)
                if self.sum(base, o + DATA_HEADER_LENGTH, end, 0) != expected:
                    self.offset = o
                    return False
            o = end
        self.offset = o
        return True

    def sum(
        self, base: cython.p_uchar, offset: cython.longlong, limit: cython.longlong, start: cython.uint
    ) -> cython.uint:
        ones: cython.uint = 0xFFFFFFFF
        value: cython.uint = start ^ ones
        if cython.compiled:
            left = cython.declare(cython.uchar[16])
            end: cython.longlong = limit - ((limit - offset) & 15)
            if self.folds and end - offset >= 64:
                fold(self.powers, base, offset, end - offset, value, left)
                value = self.by_tables(left, 0, 16, 0)
                offset = end
        elif self.is_crc32:
            return crc32(base.u8[offset:limit], start)
        return self.by_tables(base, offset, limit, value) ^ ones

    def by_tables(
        self, base: cython.p_uchar, offset: cython.longlong, limit: cython.longlong, start: cython.uint
    ) -> cython.uint:
        o: cython.longlong = offset
        low: cython.uint = 0
        high: cython.uint = 0
        value: cython.uint = start
        while limit - o >= 8:
            low = value ^ le32(base, o)
            high = le32(base, o + 4)
            value = (
                self.table[1792 + (low & 0xFF)]
                ^ self.table[1536 + (low >> 8 & 0xFF)]
                ^ self.table[1280 + (low >> 16 & 0xFF)]
                ^ self.table[1024 + (low >> 24)]
                ^ self.table[768 + (high & 0xFF)]
                ^ self.table[512 + (high >> 8 & 0xFF)]
                ^ self.table[256 + (high >> 16 & 0xFF)]
                ^ self.table[high >> 24]
            )
            o += 8
        while o < limit:
            value = (value >> 8) ^ self.table[(value ^ get8(base, o)) & 0xFF]
            o += 1
        return value


@cython.cclass
class SummedWalk(FrameWalk):
    """A walk that computes the CRC-32 of the frames it passes, and reads their bytes once.

    ``checksum`` is that of all data frames before ``offset``, or before ``last`` if the walk ended with another frame.
    """

    crc32: FrameChecksum
    state: cython.uchar[64]
    checksum: readonly[cython.uint]

    def __init__(self) -> None:
        FrameWalk.__init__(self)
        self.crc32 = FrameChecksum(CRC32)
        self.checksum = 0

    def take(
        self,
        source: Buffer | AtomicBuffer,
        offset: cython.longlong,
        limit: cython.longlong,
        room: cython.longlong,
        header: bytearray,
        checksum: cython.uint,
    ) -> int:
        """Walk the data frames of ``[offset, limit)``, up to ``room`` bytes of them; return ``stopped``.

        The walk continues ``checksum``. It ends with the first frame that is not data: it copies that frame's header to
        ``header`` as read, sets ``others`` to 1, and ``last`` to the frame's start. It ends with ``WALK_FULL`` before a frame
        that does not fit into ``room``.
        """
        region: Region = Region(source)
        region.check(offset, limit)
        target: Region = Region(header)
        target.check(0, DATA_HEADER_LENGTH)
        self.offset = self.boundary = self.last = offset
        self.frames = self.messages = self.others = 0
        self.checksum = checksum
        base, to = region.base, target.base
        with cython.nogil:
            self.sum_frames(base, offset, limit, room, to)
        return self.stopped

    def sum_frames(
        self,
        base: cython.p_uchar,
        offset: cython.longlong,
        limit: cython.longlong,
        room: cython.longlong,
        to: cython.p_uchar,
    ) -> cython.void:
        o: cython.longlong = offset
        length: cython.longlong = 0
        step: cython.longlong = 0
        kind: cython.int = 0
        ones: cython.uint = 0xFFFFFFFF
        seed: cython.uint = self.checksum ^ ones
        if cython.compiled:
            left = cython.declare(cython.uchar[16])
            zero_out(self.state, 0, 64)
        while True:
            if limit - o < DATA_HEADER_LENGTH:
                self.stopped = WALK_AT_LIMIT if o == limit else WALK_TORN
                break
            length = ld32(base, o)
            if length < DATA_HEADER_LENGTH:
                self.stopped = WALK_AT_END if length <= 0 else WALK_CORRUPT
                break
            step = (length + FRAME_ALIGNMENT - 1) & ~(FRAME_ALIGNMENT - 1)
            if step > limit - o:
                self.stopped = WALK_TORN
                break
            kind = get16(base, o + FRAME_TYPE_OFFSET)
            if kind != TYPE_DATA:
                # A publisher whose claim became padding may still write to the header, so store the fields that were checked.
                copy_bytes(to, 0, base, o, DATA_HEADER_LENGTH)
                put32(to, 0, length)
                put16(to, FRAME_TYPE_OFFSET, kind)
                self.last = o
                if self.boundary == o:
                    self.boundary = o + step
                self.others = 1
                o += step
                self.stopped = WALK_AT_LIMIT if o == limit else WALK_FULL
                break
            if o - offset + step > room:
                self.stopped = WALK_FULL
                break
            if cython.compiled:
                if self.crc32.folds:
                    fold_more(self.crc32.powers, self.state, base, o, step, seed)
                    seed = 0
                else:
                    self.checksum = self.crc32.sum(base, o, o + step, self.checksum)
            else:
                self.checksum = self.crc32.sum(base, o, o + step, self.checksum)
            self.last = o
            o += step
            self.frames += 1
            if get8(base, self.last + FRAME_FLAGS_OFFSET) & FLAG_END:
                self.messages += 1
                self.boundary = o
        if cython.compiled:
            if self.crc32.folds and self.frames:
                fold_end(self.crc32.powers, self.state, left)
                self.checksum = self.crc32.by_tables(left, 0, 16, 0) ^ ones
        self.offset = o

"""The checksums that Aeron Archive stores in the session id of recorded frames: CRC-32 or CRC-32C of what follows the header."""

from __future__ import annotations

from typing import TYPE_CHECKING

import cython

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from mainstem._core.memory.buffer import AtomicBuffer

from mainstem._core.log.columns import Region

if not cython.compiled:
    from mainstem._core.layout import *
    from mainstem._core.memory.plain import *

# Polynomials, lowest bit first.
CRC32 = 0xEDB88320
CRC32C = 0x82F63B78


def end_of_session(
    source: Buffer | AtomicBuffer, offset: cython.longlong, limit: cython.longlong, session_id: cython.longlong
) -> int:
    """Where the first of the whole frames in ``[offset, limit)`` starts that is not padding and has another session id.

    Returns ``limit`` if all have this one. Raises IndexError if the range is outside the memory.
    """
    region: Region = Region(source)
    region.check(offset, limit)
    base = region.base
    length: cython.longlong = 0
    while limit - offset >= DATA_HEADER_LENGTH:
        length = ld32(base, offset)
        if length < DATA_HEADER_LENGTH:
            break
        if get16(base, offset + FRAME_TYPE_OFFSET) != TYPE_PAD:
            if get32(base, offset + FRAME_SESSION_ID_OFFSET) != session_id:
                return offset
        offset += (length + FRAME_ALIGNMENT - 1) & ~(FRAME_ALIGNMENT - 1)
    return limit


def end_of_term(
    source: Buffer | AtomicBuffer,
    offset: cython.longlong,
    limit: cython.longlong,
    stream_id: cython.longlong,
    term_id: cython.longlong,
) -> int:
    """Where the first of the whole frames in ``[offset, limit)`` starts that is of another stream or term.

    Returns ``limit`` if all are of these. Raises IndexError if the range is outside the memory.
    """
    region: Region = Region(source)
    region.check(offset, limit)
    base = region.base
    length: cython.longlong = 0
    while limit - offset >= DATA_HEADER_LENGTH:
        length = ld32(base, offset)
        if length < DATA_HEADER_LENGTH:
            break
        if (
            get32(base, offset + FRAME_STREAM_ID_OFFSET) != stream_id
            or get32(base, offset + FRAME_TERM_ID_OFFSET) != term_id
        ):
            return offset
        offset += (length + FRAME_ALIGNMENT - 1) & ~(FRAME_ALIGNMENT - 1)
    return limit


@cython.cclass
class FrameChecksum:
    """Computes one of the two checksums, eight bytes at a time, by tables of the polynomial.

    ``offset`` is where the last ``check`` ended.
    """

    table: cython.uint[2048]
    offset: readonly[cython.longlong]

    def __init__(self, polynomial: cython.uint) -> None:
        i: cython.int = 0
        _bit: cython.int = 0
        value: cython.uint = 0
        if not cython.compiled:
            self.table = [0] * 2048
        self.offset = 0
        for i in range(256):
            value = i
            for _bit in range(8):
                value = (value >> 1) ^ (polynomial if value & 1 else 0)
            self.table[i] = value
        for i in range(256, 2048):
            value = self.table[i - 256]
            self.table[i] = (value >> 8) ^ self.table[value & 0xFF]

    def compute(self, source: Buffer | AtomicBuffer, offset: cython.longlong, limit: cython.longlong) -> int:
        """The checksum of ``[offset, limit)`` as a signed 32-bit integer. Raises IndexError if that is outside the memory."""
        region: Region = Region(source)
        region.check(offset, limit)
        value: cython.longlong = self.sum(region.base, offset, limit)
        return value - (1 << 32) if value >= 1 << 31 else value

    def check(self, source: Buffer | AtomicBuffer, offset: cython.longlong, limit: cython.longlong) -> bool:
        """Compare the frames of ``[offset, limit)``, which must be whole, with what is in their session ids.

        Padding has no checksum. Returns whether all are right; if not, ``offset`` is where the first that is not starts.
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
                if self.sum(base, o + DATA_HEADER_LENGTH, end) != expected:
                    self.offset = o
                    return False
            o = end
        self.offset = o
        return True

    def sum(self, base: cython.p_uchar, offset: cython.longlong, limit: cython.longlong) -> cython.uint:
        o: cython.longlong = offset
        low: cython.uint = 0
        high: cython.uint = 0
        ones: cython.uint = 0xFFFFFFFF
        value: cython.uint = ones
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
        return value ^ ones

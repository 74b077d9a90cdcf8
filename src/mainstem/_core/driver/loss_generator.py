"""Deliberate loss: generators that decide for each datagram whether a transport drops it."""

from __future__ import annotations

import cython

if not cython.compiled:
    from mainstem._core.layout import *
    from mainstem._core.memory.plain import *

from mainstem._core.memory.buffer import AtomicBuffer

# The number of streams that a GapLoss distinguishes; it lets datagrams of further streams pass.
MAX_STREAMS = cython.declare(cython.int, 64)
EVERY_TYPE = 0xFFFF


@cython.cclass
class LossGenerator:
    """A rule for which datagrams a transport drops on purpose; this base class drops none.

    ``mask`` has a bit for each frame type that may be dropped; a datagram's type is that of its first frame. ``then`` decides
    about the datagrams that this generator lets through. One generator serves one thread.
    """

    dropped_data: readonly[cython.longlong]
    dropped_control: readonly[cython.longlong]
    mask: cython.int
    then: readonly[LossGenerator | None]

    def __init__(self, mask: cython.int = EVERY_TYPE, then: LossGenerator | None = None) -> None:
        self.mask = mask
        self.then = then
        self.dropped_data = 0
        self.dropped_control = 0

    def drops(self, base: cython.p_const_uchar, at: cython.longlong, length: cython.longlong) -> cython.bint:
        kind: cython.int
        if length < 8:
            return False
        kind = get16(base, at + FRAME_TYPE_OFFSET)
        if ((self.mask >> (kind & 15)) & 1) and self.decide(base, at, length):
            if kind == TYPE_DATA or kind == TYPE_PAD:
                self.dropped_data += 1
            else:
                self.dropped_control += 1
            return True
        return self.then is not None and self.then.drops(base, at, length)

    def decide(self, base: cython.p_const_uchar, at: cython.longlong, length: cython.longlong) -> cython.bint:
        return False

    def asks(self, datagram: AtomicBuffer) -> bool:
        return bool(self.drops(datagram.base, 0, datagram.capacity))


@cython.cclass
class RandomLoss(LossGenerator):
    """Loss with probability ``rate``; ``seed`` determines the sequence. Raises ValueError for a rate outside [0, 1]."""

    rate: readonly[cython.double]
    state: cython.ulonglong

    def __init__(
        self,
        rate: cython.double,
        seed: cython.longlong = 1,
        mask: cython.int = EVERY_TYPE,
        then: LossGenerator | None = None,
    ) -> None:
        if not 0 <= rate <= 1:
            raise ValueError(f"rate: {rate} is not between 0 and 1")
        LossGenerator.__init__(self, mask, then)
        self.rate = rate
        # Neighboring seeds must not begin alike, and the state must not be zero.
        self.state = (seed * 0x9E3779B97F4A7C15 + 0x2545F4914F6CDD1D) % 0xFFFFFFFFFFFFFFFF or 1

    def decide(self, base: cython.p_const_uchar, at: cython.longlong, length: cython.longlong) -> cython.bint:
        x: cython.ulonglong = self.state
        x ^= x >> 12
        if cython.compiled:
            x ^= x << 25
        else:
            x ^= (x << 25) & 0xFFFFFFFFFFFFFFFF
        x ^= x >> 27
        self.state = x
        # 31 bits from the middle are uniform enough for a rate.
        return cython.cast(cython.longlong, (x >> 20) & 0x7FFFFFFF) < self.rate * cython.cast(
            cython.double, 2147483648.0
        )


@cython.cclass
class GapLoss(LossGenerator):
    """Loss of data that overlaps [first + i·radix, first + i·radix + gap_length), 0 ≤ i < total, of one term, once per stream.

    ``total=1`` is the fixed loss of the reference's interceptors; a larger value is its multi-gap loss. Raises ValueError for
    regions that overlap one another.
    """

    term_id: cython.int
    first: cython.longlong
    radix: cython.longlong
    gap_length: cython.longlong
    total: cython.int
    streams: cython.int
    memory: AtomicBuffer
    base: cython.p_uchar

    def __init__(
        self,
        term_id: cython.int,
        first: cython.longlong,
        gap_length: cython.longlong,
        radix: cython.longlong = 0,
        total: cython.int = 1,
        mask: cython.int = EVERY_TYPE,
        then: LossGenerator | None = None,
    ) -> None:
        if total < 1 or gap_length < 1 or first < 0 or (total > 1 and radix < gap_length):
            raise ValueError("a gap needs a length of 1 or more, and gaps must not overlap")
        LossGenerator.__init__(self, mask, then)
        self.term_id = term_id
        self.first = first
        self.radix = radix
        self.gap_length = gap_length
        self.total = total
        self.streams = 0
        # One row per stream: session, stream, then how far each gap has been dropped.
        self.memory = AtomicBuffer(bytearray(MAX_STREAMS * 8 * (1 + total)))
        self.base = self.memory.base

    def row(self, session_id: cython.int, stream_id: cython.int) -> cython.longlong:
        width: cython.longlong = 8 * (1 + cython.cast(cython.longlong, self.total))
        i: cython.int
        for i in range(self.streams):
            if get32(self.base, i * width) == session_id and get32(self.base, i * width + 4) == stream_id:
                return i * width
        if self.streams == MAX_STREAMS:
            return -1
        i = self.streams
        self.streams += 1
        put32(self.base, i * width, session_id)
        put32(self.base, i * width + 4, stream_id)
        return i * width

    def decide(self, base: cython.p_const_uchar, at: cython.longlong, length: cython.longlong) -> cython.bint:
        begin: cython.longlong
        end: cython.longlong
        gap: cython.longlong
        row: cython.longlong
        done: cython.longlong
        i: cython.longlong = 0
        if length < DATA_HEADER_LENGTH or get16(base, at + FRAME_TYPE_OFFSET) > TYPE_DATA:
            return False
        if get32(base, at + FRAME_LENGTH_OFFSET) == 0 or get32(base, at + FRAME_TERM_ID_OFFSET) != self.term_id:
            return False
        begin = get32(base, at + FRAME_TERM_OFFSET_OFFSET)
        end = begin + length
        if end <= self.first:
            return False
        if self.radix > 0 and begin > self.first:
            i = (begin - self.first) // self.radix
        row = self.row(get32(base, at + FRAME_SESSION_ID_OFFSET), get32(base, at + FRAME_STREAM_ID_OFFSET))
        while row >= 0 and i < self.total and self.first + i * self.radix < end:
            gap = self.first + i * self.radix
            done = get64(self.base, row + 8 + 8 * i)
            if done < gap:
                done = gap
            if end > done and done < gap + self.gap_length and begin < gap + self.gap_length:
                put64(self.base, row + 8 + 8 * i, end)
                return True
            i += 1
        return False

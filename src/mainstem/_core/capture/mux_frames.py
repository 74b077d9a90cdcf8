"""One side of a TCP connection as bymux packets or Jmux messages: writes a row for each complete one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import cython

if TYPE_CHECKING:
    from typing_extensions import Buffer

if cython.compiled:
    from cython.cimports.cpython.bytearray import PyByteArray_AS_STRING
else:
    from mainstem._core.capture.frame_rows import FrameRows
    from mainstem._core.capture.layout import *
    from mainstem._core.log.columns import Region
    from mainstem._core.memory.plain import *
    from mainstem._core.memory.plain import Memory

REASON_BYMUX = cython.declare(cython.int, 10)
REASON_JMUX = cython.declare(cython.int, 11)
REASON_AMOUNT = cython.declare(cython.int, 12)
# Payload bytes to keep; the rest of a longer packet is only counted.
KEPT = cython.declare(cython.longlong, 16777216)
# The maximum header length: a byte, an id of 8 bytes, an amount of 8 bytes.
HEAD = cython.declare(cython.int, 17)
# Together with the longest header, this length still fits in 63 bits.
LONGEST_BODY = cython.declare(cython.longlong, 9223372036854775790)
# Consecutive packets that make the start of a packet plausible after bytes were lost.
ENOUGH = cython.declare(cython.int, 4)


@cython.cclass
class MuxParser:
    """A parser of one direction of a connection. ``position`` counts its bytes; ``reason`` is nonzero once parsing has failed.

    ``connection`` and ``from_client`` (1, 0, or -1 if unknown) go into each row. ``keep``: also keep payloads and texts.
    """

    rows: readonly[FrameRows]
    jmux: readonly[cython.bint]
    position: readonly[cython.longlong]
    reason: readonly[cython.int]
    connection: public[cython.longlong]
    from_client: public[cython.int]
    head_owner: bytearray
    head: cython.p_uchar
    have: cython.int
    need: cython.int
    start: cython.longlong
    body_length: cython.longlong
    body_left: cython.longlong
    pending: cython.bint
    greeted: cython.bint
    keep: cython.bint
    hold: cython.bint
    body: bytearray
    kind: cython.int
    type: cython.int
    stream: cython.longlong
    has_stream: cython.bint
    credit: cython.longlong
    has_credit: cython.bint
    cookie: cython.int

    def __init__(self, rows: FrameRows, jmux: cython.bint, keep: cython.bint = False) -> None:
        if rows is None:
            raise TypeError("a parser needs rows")
        self.rows = rows
        self.jmux = jmux
        self.keep = keep
        self.connection = 0
        self.from_client = -1
        self.head_owner = bytearray(24)
        self.body = bytearray()
        self.position = 0
        self.kind = self.type = self.cookie = 0
        self.stream = self.credit = self.start = 0
        self.has_stream = self.has_credit = self.hold = False
        if cython.compiled:
            self.head = cython.cast(cython.p_uchar, PyByteArray_AS_STRING(self.head_owner))
        else:
            self.head = Memory(self.head_owner)
        self.restart(0)

    def restart(self, position: cython.longlong) -> None:
        """Restart at a position of the stream where a packet begins; at 0, a Jmux connection begins with its own header."""
        self.position = position
        self.reason = 0
        self.have = 0
        self.need = 1
        self.body_length = self.body_left = 0
        self.pending = False
        self.greeted = not self.jmux or position > 0
        self.body.clear()

    def skip(self, count: cython.longlong) -> bool:
        """Skip lost bytes. Returns True if all were inside one packet's body, so that parsing can continue."""
        if self.pending or self.body_left < count:
            return False
        self.body_left -= count
        self.position += count
        if self.body_left == 0:
            self.pending = True
        return True

    @property
    def waits(self) -> bool:
        """Whether a complete packet waits for a row."""
        return self.pending

    def flush(self) -> None:
        """Write a row that waited for room."""
        if self.pending and self.rows.rows < self.rows.capacity:
            self.emit()

    def feed(self, source: Buffer, offset: cython.longlong, limit: cython.longlong) -> int:
        """Parse bytes. Returns where it stopped: before ``limit`` if the rows are full or ``reason`` is set."""
        region: Region = Region(source)
        if offset < 0 or limit > region.capacity or offset > limit:
            raise IndexError(f"bytes [{offset}, {limit}) lie outside {region.capacity}")
        o: cython.longlong = offset
        n: cython.longlong = 0
        while True:
            if self.pending:
                if self.rows.rows >= self.rows.capacity:
                    return o
                self.emit()
            if o >= limit or self.reason:
                return o
            if self.body_left:
                n = min(self.body_left, limit - o)
                if self.hold and len(self.body) < KEPT:
                    self.body += memoryview(source)[o : o + min(n, KEPT - len(self.body))]
                self.body_left -= n
                self.position += n
                o += n
                self.pending = self.body_left == 0
            else:
                o = self.gather(region.base, o, limit)

    def settles(self, source: Buffer, offset: cython.longlong, limit: cython.longlong) -> bool:
        """Whether these bytes may be the start of packets. Discards a packet that was begun."""
        region: Region = Region(source)
        if offset < 0 or limit > region.capacity or offset > limit:
            raise IndexError(f"bytes [{offset}, {limit}) lie outside {region.capacity}")
        o: cython.longlong = offset
        n: cython.int = 0
        self.restart(1)
        while o < limit:
            o = self.gather(region.base, o, limit)
            if self.reason:
                self.restart(1)
                return False
            if self.pending or self.body_left:
                n += 1
                if self.body_left > limit - o:
                    break
                o += self.body_left
                self.restart(1)
        plausible = n >= ENOUGH or (n > 0 and o == limit and self.have == 0)
        self.restart(1)
        return plausible

    def gather(self, base: cython.p_uchar, o: cython.longlong, limit: cython.longlong) -> cython.longlong:
        """Collect header bytes until the header is complete or known to be impossible."""
        if self.have == 0:
            self.start = self.position
        while o < limit and self.have < self.need:
            put8(self.head, self.have, get8(base, o))
            self.have += 1
            self.position += 1
            o += 1
            if self.have == 1:
                self.need = self.measure()
                if self.need == 0:
                    self.reason = REASON_JMUX if self.jmux else REASON_BYMUX
                    return o
        if self.have == self.need:
            self.reason = self.understand()
            if self.reason == 0:
                self.body_left = self.body_length
                # The text of Shutdown (2), Error (8) and Abort (0x20) is for people, and short.
                self.hold = self.keep or (self.jmux and (self.type == 2 or self.type == 8 or self.type == 0x20))
                self.pending = self.body_length == 0
        return o

    def measure(self) -> cython.int:
        """Return the length of a header, given its first byte; 0 if that byte is invalid."""
        first: cython.int = get8(self.head, 0)
        size: cython.int = 1
        if self.jmux:
            return 4 if self.greeted else 8
        if first >= 0xC0:
            return 0
        if first & 0x10:
            return 1 + (1 << (first & 3)) if first < 0x40 else 1
        size += 1 << ((first >> 2) & 3)
        if first < 0x40:
            size += 1 << (first & 3)
        return size

    def understand(self) -> cython.int:
        self.has_stream = self.has_credit = False
        self.cookie = -1
        self.body_length = 0
        return self.understand_jmux() if self.jmux else self.understand_bymux()

    def number(self, at: cython.int, width: cython.int) -> cython.longlong:
        """Return a big-endian number; one above 2**63 - 1 becomes negative."""
        if width == 1:
            return get8(self.head, at)
        if width == 2:
            return be16(self.head, at)
        if width == 4:
            return be32(self.head, at)
        return shift_left(be32(self.head, at), 32) | be32(self.head, at + 4)

    def understand_bymux(self) -> cython.int:
        first: cython.int = get8(self.head, 0)
        id_width: cython.int = 1 << ((first >> 2) & 3)
        width: cython.int = 1 << (first & 3)
        self.type = first >> 5
        if first & 0x10:
            self.kind = KIND_BYMUX_GLOBAL + self.type
            if self.type == 0:
                self.has_credit = True
                self.credit = self.number(1, width)
            elif self.type == 1:
                self.has_stream = True
                self.stream = self.number(1, width)
            return 0
        self.kind = KIND_BYMUX + self.type
        self.has_stream = True
        self.stream = self.number(1, id_width)
        if self.type == 0:
            self.has_credit = True
            self.credit = self.number(1 + id_width, width)
        elif self.type == 1:
            self.body_length = self.number(1 + id_width, width)
            if self.body_length < 0 or self.body_length > LONGEST_BODY:
                return REASON_AMOUNT
        return 0

    def understand_jmux(self) -> cython.int:
        first: cython.int = get8(self.head, 0)
        if not self.greeted:
            if be32(self.head, 0) != 0x4A6D7578:
                return REASON_JMUX
            self.greeted = True
            self.kind = KIND_JMUX
            self.type = 0x4A
            self.has_credit = True
            self.credit = cython.cast(cython.longlong, be16(self.head, 5)) * 256
            return 0
        if first >= 0x10:
            return self.jmux_session(first)
        if first & 1 or first > 8 or get8(self.head, 1):
            return REASON_JMUX
        self.type = first
        self.kind = KIND_JMUX + 1 + first // 2
        if first == 4 or first == 6:
            self.cookie = be16(self.head, 2)
        else:
            self.body_length = be16(self.head, 2)
        return 0

    def jmux_session(self, first: cython.int) -> cython.int:
        if first & 1 or get8(self.head, 1) > 127:
            return REASON_JMUX
        self.has_stream = True
        self.stream = get8(self.head, 1)
        if first < 0x20:
            self.type = 0x10
            self.kind = KIND_JMUX + 6
            self.has_credit = True
            self.credit = cython.cast(cython.longlong, be16(self.head, 2)) << (first & 0x0E)
        elif first < 0x24:
            self.type = 0x20
            self.kind = KIND_JMUX + 7
            self.body_length = be16(self.head, 2)
        elif first == 0x30 or first == 0x40:
            self.type = first
            self.kind = KIND_JMUX + (8 if first == 0x30 else 9)
            if be16(self.head, 2):
                return REASON_JMUX
        elif 0x80 <= first < 0xA0:
            self.type = 0x80
            self.kind = KIND_JMUX + 10
            self.body_length = be16(self.head, 2)
        else:
            return REASON_JMUX
        return 0

    @cython.exceptval(-1)
    def emit(self) -> cython.int:
        self.rows.new_row(PROTOCOL_JMUX if self.jmux else PROTOCOL_BYMUX, self.kind)
        self.rows.put(ROW_TYPE, self.type)
        self.rows.put(ROW_FLAGS, get8(self.head, 0))
        self.rows.put(ROW_FRAME_LENGTH, self.need + self.body_length)
        self.rows.put(ROW_LENGTH, self.body_length)
        self.rows.put(ROW_CONNECTION, self.connection)
        self.rows.put(ROW_STREAM_OFFSET, self.start)
        if self.from_client >= 0:
            self.rows.put(ROW_FROM_CLIENT, self.from_client)
        if self.has_stream:
            self.rows.put(ROW_MUX_STREAM_ID, self.stream)
        if self.has_credit:
            self.rows.put(ROW_CREDIT, self.credit)
        if self.cookie >= 0:
            self.rows.put(ROW_COOKIE, self.cookie)
        if self.hold:
            self.keep_body()
        self.rows.close_row()
        self.have = 0
        self.need = 1
        self.pending = False
        self.body.clear()
        return 0

    def keep_body(self) -> None:
        size: cython.longlong = len(self.body)
        texts: cython.bint = self.jmux and (self.type == 2 or self.type == 8 or self.type == 0x20)
        self.rows.reserve(size if texts else 0, 0 if texts else size)
        if size == 0:
            # An empty bytearray has no memory of its own, so pass the head's memory instead.
            if texts:
                self.rows.put_text(self.head, 0, 0)
            else:
                self.rows.put_payload(self.head, 0, 0)
            return
        region: Region = Region(self.body)
        if texts:
            self.rows.put_text(region.base, 0, size)
        else:
            self.rows.put_payload(region.base, 0, size)

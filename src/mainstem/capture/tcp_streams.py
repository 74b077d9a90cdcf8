"""Orders one direction of a TCP connection: drops retransmissions and overlaps, reports gaps.

Theory of operation
-------------------

A ``Stream`` turns the segments of one direction, in the order of the capture, into bytes in the order of the stream, and feeds
them to its protocol's parser. Positions count the direction's bytes from 0: the byte after the SYN, or, without a SYN, the
first byte captured. A sequence number has 32 bits; its position is the candidate nearest to the stream's current position.

``position`` is the end of the bytes that were delivered or given up, and never goes back. A segment is compared with it:

* It ends at or before ``position``: it is a retransmission, and dropped.
* It begins at or before ``position`` and ends after it: the overlap is dropped, the rest is delivered. Then waiting segments
  are delivered in turn, as long as they join.
* It begins after ``position``: it is out of order, and waits in ``_waiting``, sorted by position.

A gap means that the bytes from ``position`` to the first waiting segment are not in the capture. It is given up when the other
side has acknowledged the missing bytes and 32 segments have arrived since without them; when more than 4 MiB or 1024 segments
wait; on a reset; and at the end of the capture. The acknowledgment alone is not enough: a capture on several interfaces may
have it before the bytes.

A gap, or a segment captured only in part, loses as little as the parser's state allows. Inside the body of a packet of known
length, the parser skips it and stays in sync. Elsewhere the parser does not know where the next packet begins (``_lost``): bytes
are counted and not decoded until a segment's bytes are whole packets from their first byte, or begin with several of them. A
capture that begins in the middle of a connection is read in the same way.

Every method that writes rows is a generator that yields when the rows are full; the caller takes the batch and resumes it. Rows
are in the order of the packets that completed them, so events of the connection are between its frames.

Invariants: ``position`` never decreases; every segment in ``_waiting`` ends after ``position``; between two calls none begins
at or before it; ``_waiting_bytes`` is the sum of the captured bytes that wait; after a malformed packet nothing is decoded
until packets are recognized again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem._core.capture import layout as layout

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainstem._core.capture.frame_rows import FrameRows
    from mainstem._core.capture.mux_frames import MuxParser

MAX_WAITING_BYTES = 4 << 20  # bytes behind a gap: about a window; if more wait, the missing bytes will not come
MAX_WAITING = 1024  # segments behind a gap
ACKED_PATIENCE = 32  # after this many segments, bytes that the other side has acknowledged are known to be missing here
HALF = 1 << 31
OPEN, CLOSE, RESET, RETRANSMISSION, OVERLAP, OUT_OF_ORDER, GAP = range(layout.KIND_TCP, layout.KIND_TCP + 7)


class Stream:
    """One side's bytes. Positions count them from 0; a generator yields each time the rows are full."""

    def __init__(self, rows: FrameRows, parser: MuxParser) -> None:
        self._rows, self._parser = rows, parser
        self._sequence: int | None = None  # sequence number of position 0, modulo 2**32
        self._waiting: list[tuple[int, int, bytes]] = []  # (position, length on the wire, captured bytes)
        self._waiting_bytes = 0
        self._stalled = 0
        self._acked = 0
        self._lost = True
        self._end: int | None = None
        self.position = 0
        self.ended = False

    def begin(self, sequence: int) -> None:
        """Begin at the side's SYN: the first byte is the one after it."""
        self._sequence = (sequence + 1) & 0xFFFFFFFF
        self._lost = False
        self._parser.restart(0)

    def place(self, sequence: int) -> int:
        """Return the position of a sequence number: the candidate nearest to the stream's current position."""
        if self._sequence is None:
            self._sequence = sequence
        here = (self._sequence + self.position) & 0xFFFFFFFF
        return self.position + ((sequence - here + HALF) & 0xFFFFFFFF) - HALF

    def acknowledged(self, sequence: int) -> None:
        """Note that the other side has received everything before ``sequence``."""
        if self._sequence is not None:
            self._acked = max(self._acked, self.place(sequence))

    def segment(self, sequence: int, data: bytes, length: int, *, last: bool) -> Iterator[None]:
        """Add a segment of ``length`` bytes, of which ``data`` was captured; ``last`` ends the stream."""
        at = self.place(sequence)
        if last:
            self._end = at + length
        if length:
            if at + length <= self.position:
                # A keep-alive probe repeats the byte before the next one.
                if length > 1 or at != self.position - 1:
                    yield from self._event(RETRANSMISSION, at, length)
            elif at > self.position:
                yield from self._event(OUT_OF_ORDER, at, length)
                yield from self._hold(at, length, data)
            else:
                yield from self._take(at, length, data)
                yield from self._release()
        if self._end is not None and self.position >= self._end and not self.ended:
            self.ended = True
            yield from self._event(CLOSE, self.position, 0)

    def finish(self) -> Iterator[None]:
        """End the stream; deliver the segments after gaps."""
        while self._waiting:
            yield from self._give_up()

    def _hold(self, at: int, length: int, data: bytes) -> Iterator[None]:
        index = len(self._waiting)
        while index and self._waiting[index - 1][0] > at:
            index -= 1
        self._waiting.insert(index, (at, length, data))
        self._waiting_bytes += len(data)
        self._stalled += 1
        acked = self._acked >= self._waiting[0][0] and self._stalled >= ACKED_PATIENCE
        if acked or self._waiting_bytes > MAX_WAITING_BYTES or len(self._waiting) > MAX_WAITING:
            yield from self._give_up()

    def _release(self) -> Iterator[None]:
        """Deliver the waiting segments that join ``position``."""
        while self._waiting and self._waiting[0][0] <= self.position:
            at, length, data = self._waiting.pop(0)
            self._waiting_bytes -= len(data)
            if at + length > self.position:
                yield from self._take(at, length, data)
        self._stalled = 0
        assert self._waiting or not self._waiting_bytes, "bytes are counted as waiting, but no segment waits"

    def _give_up(self) -> Iterator[None]:
        """Report the bytes before the first waiting segment as a gap, and continue after it."""
        count = self._waiting[0][0] - self.position
        if count > 0:
            yield from self._gap(count)
        yield from self._release()

    def _gap(self, count: int) -> Iterator[None]:
        yield from self._event(GAP, self.position, count)
        self.position += count
        if self._lost:
            return
        if self._parser.skip(count):
            yield from self._flush()
        else:
            self._lost = True

    def _flush(self) -> Iterator[None]:
        self._parser.flush()
        while self._parser.waits:
            yield
            self._parser.flush()

    def _take(self, at: int, length: int, data: bytes) -> Iterator[None]:
        """Deliver the bytes at ``position``, without those that were delivered before."""
        if at < self.position:
            yield from self._event(OVERLAP, at, self.position - at)
            length -= self.position - at
            data = data[self.position - at :]
        if self._lost:
            self._settle(data)
        if self._lost:
            self.position += length
            return
        yield from self._feed(data)
        self.position += len(data)
        if length > len(data):
            yield from self._gap(length - len(data))

    def _settle(self, data: bytes) -> None:
        """After unknown bytes, resume decoding where packets begin."""
        if self._parser.jmux and data.startswith(b"Jmux\1"):
            self._parser.restart(0)
            self._lost = False
        elif self._parser.settles(data, 0, len(data)):
            # Not at 0, where Jmux has its connection's header: this is not the beginning.
            self._parser.restart(max(self.position, 1))
            self._lost = False

    def _feed(self, data: bytes) -> Iterator[None]:
        at = 0
        while True:
            at = self._parser.feed(data, at, len(data))
            if self._parser.reason:
                self._lost = True
                yield from self._malformed(self.position + at)
                return
            if at >= len(data) and not self._parser.waits:
                return
            yield

    def _malformed(self, position: int) -> Iterator[None]:
        while self._rows.full:
            yield
        values = self._about(position)
        values[layout.ROW_REASON] = self._parser.reason
        self._rows.row(layout.PROTOCOL_PROBLEM, layout.KIND_PROBLEM + layout.PROBLEM_MALFORMED_FRAME, values)

    def _event(self, kind: int, position: int, length: int) -> Iterator[None]:
        while self._rows.full:
            yield
        values = self._about(position)
        values[layout.ROW_LENGTH] = length
        self._rows.row(layout.PROTOCOL_TCP, kind, values)

    def _about(self, position: int) -> dict[int, int]:
        values = {layout.ROW_CONNECTION: self._parser.connection, layout.ROW_STREAM_OFFSET: position}
        if self._parser.from_client >= 0:
            values[layout.ROW_FROM_CLIENT] = self._parser.from_client
        return values

    def reset(self) -> Iterator[None]:
        yield from self.finish()
        yield from self._event(RESET, self.position, 0)

    def opened(self) -> Iterator[None]:
        """Report that the connection begins with this side's SYN."""
        yield from self._event(OPEN, 0, 0)

"""The QUIC streams of a connection that are open in either direction, and how each direction ends.

A reset can overtake the bytes before it, and a stream that is reset before its first frame was read belongs to no channel. So the
side that opened a stream resets it only once its first bytes have been delivered (``Stream.heard``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.aqueduct.events import WatchDelivery
from mainstem.aqueduct.frames import protocol_error
from mainstem.aqueduct.halves import UNIDIRECTIONAL, Role, Stream

if TYPE_CHECKING:
    from mainstem.aqueduct.context import Context
    from mainstem.aqueduct.halves import Half
    from mainstem.aqueduct.output import Output
    from mainstem.aqueduct.receive_buffer import ReceiveBuffer


class Streams:
    def __init__(self, context: Context, output: Output, buffer: ReceiveBuffer) -> None:
        self._context = context
        self._output = output
        self._buffer = buffer
        self.open: dict[int, Stream] = {}

    def add(self, stream_id: int, role: Role) -> Stream:
        """Register a stream that this side opened."""
        stream = self.open[stream_id] = Stream(self._context.limits, stream_id=stream_id, role=role)
        return stream

    def add_new(self, stream_id: int, *, must_begin_with_version: bool) -> Stream:
        """Register a stream that the peer opened. Raises RemoteProtocolError."""
        limits = self._context.limits
        if len(self.open) >= limits.max_open_streams:
            raise protocol_error("stream limit", f"more than {limits.max_open_streams} streams at once")
        stream = self.open[stream_id] = Stream(
            limits,
            stream_id=stream_id,
            role=Role.NEW,
            must_begin_with_version=must_begin_with_version,
            out_done=bool(stream_id & UNIDIRECTIONAL),
            heard=True,
        )
        return stream

    def write_control(self, half: Half, data: bytes, *, fin: bool = False) -> None:
        """Send a frame on a half's control stream; if ``fin``, end this side's direction."""
        stream = half.control
        assert stream is not None
        self._output.write(stream.stream_id, data, fin=fin)
        if self._context.is_observed:
            self._context.sent_frame(data)
        if fin:
            stream.out_done = True
            if stream.in_done:
                self.forget_if_done(stream)

    def reset(self, stream: Stream, code: int) -> None:
        """Reset this side's direction, but never before the peer can determine which channel the stream belongs to."""
        if stream.out_done:
            return
        if stream.heard:
            self._output.reset(stream.stream_id, code)
            stream.out_done = True
            self.forget_if_done(stream)
        elif stream.reset_pending is None:
            stream.reset_pending = code
            self._output.flush()
            self._output.commands.append(WatchDelivery(stream.stream_id))

    def heard(self, stream: Stream) -> None:
        """Note that the peer has seen this stream, and send a reset that was waiting for that."""
        if not stream.heard:
            stream.heard = True
            if stream.reset_pending is not None:
                code, stream.reset_pending = stream.reset_pending, None
                self.reset(stream, code)

    def abandon(self, stream: Stream) -> None:
        """Ignore everything that still arrives on this stream."""
        if stream.blocked_on is not None:
            stream.blocked_on.blocked.pop(stream, None)
        stream.role = Role.ABANDONED
        stream.half = stream.blocked_on = stream.held_frame = None
        stream.clear()
        if stream.accounted:
            self._buffer.account_stream(stream)
        if stream.fin:
            stream.in_done = True
            if stream.out_done:
                self.forget_if_done(stream)

    def forget_if_done(self, stream: Stream) -> None:
        if stream.in_done and stream.out_done:
            self.open.pop(stream.stream_id, None)

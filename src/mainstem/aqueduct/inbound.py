"""Streams and datagrams on their way in: which are processed as they come, and which are held until they may be.

Two gates hold what the peer sends. Early data (0-RTT) could be a replay until the handshake is complete; with
``hold_early`` nothing of it is processed before. And nothing but the connection control stream is processed before both
sides have sent their headers: at a server that is when the application has accepted, at a client when the server's
ConnectionControl has come. What is held counts against ``Limits.max_buffered_bytes`` like everything else that waits.

Opening the last gate processes streams first and datagrams after them, each in the order in which they came. Between
streams nothing is promised anyway: QUIC may deliver them in any order. Within a stream the order is kept, whether it was
held or not, and a reset of a held stream is processed after the first frame of that stream, as the peer relies on the
first frame (a ChannelControl) to count.

Until the server has responded, whatever the client sends begins with a Version frame. A server therefore notes on each
stream and datagram whether it came before the response; a client prefixes the frame in `Output`.

Invariants: a stream is in ``_held_streams`` only while a gate is shut; ``control_id`` never changes once it is set; a
stream that is blocked on a full receiver (``Stream.blocked_on``) is not read until `resume`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.aqueduct import frame_dispatch, lifecycle, receiving
from mainstem.aqueduct.channel_halves import ReceiverHalf
from mainstem.aqueduct.codec import violation
from mainstem.aqueduct.events import HoldStream, PeerHeaders
from mainstem.aqueduct.frames import ConnectionControl, Frame, Message
from mainstem.aqueduct.streams import OPENED_BY_SERVER, Role, Stream

if TYPE_CHECKING:
    from mainstem.aqueduct.connection_state import ConnectionState


class Inbound:
    """What a connection does with the bytes that come. Every method but `clear` may raise RemoteProtocolError."""

    def __init__(self, state: ConnectionState, *, early: bool) -> None:
        self._state = state
        state.resume = self.resume
        # The handshake is not complete, and what comes could be a replay.
        self.is_early = early
        # The client: the server's ConnectionControl came. The server: the application accepted.
        self.is_ready = False
        self.peer_headers_seen = False
        self.control_id: int | None = None
        self._held_streams: dict[Stream, None] = {}
        self._held_datagrams: list[tuple[bytes, bool]] = []

    @property
    def is_gated(self) -> bool:
        """Whether what comes is held."""
        return self.is_early or not self.is_ready

    def clear(self) -> None:
        """The connection ended: forget what was held."""
        self._held_streams.clear()
        self._held_datagrams.clear()

    def receive_stream(self, stream_id: int, data: bytes, fin: bool) -> None:
        """Process the bytes of a stream, or hold them."""
        state = self._state
        stream = state.streams.get(stream_id)
        if stream is None:
            stream = self._new_stream(stream_id)
            if stream is None:
                return
        elif not stream.heard:
            state.heard(stream)
        if stream.in_done:
            return
        if data and stream.last_seen:
            raise frame_dispatch.behind_the_last()
        stream.fin = stream.fin or fin
        if stream.role is Role.ABANDONED:
            if fin:
                stream.in_done = True
                state.forget_if_done(stream)
            return
        if data:
            stream.reader.feed(data)
        if self.is_gated and stream_id != self.control_id:
            self._hold_stream(stream)
        elif stream.blocked_on is None:
            self._read(stream)
        else:
            state.account_stream(stream)

    def _new_stream(self, stream_id: int) -> Stream | None:
        state = self._state
        opened_by_client = not stream_id & OPENED_BY_SERVER
        if opened_by_client == state.is_client:
            # It was opened here and is over: a late frame.
            return None
        if len(state.streams) >= state.limits.max_open_streams:
            raise violation(f"more than {state.limits.max_open_streams} streams at once", "stream limit")
        stream = Stream(stream_id, Role.NEW, opened_here=False, limits=state.limits)
        # Until the server has responded, the client must begin everything with a Version frame.
        stream.must_begin_with_version = not state.is_client and not self.is_ready
        state.streams[stream_id] = stream
        return stream

    def receive_reset(self, stream_id: int, code: int) -> None:
        """The peer reset its direction of a stream."""
        state = self._state
        stream = state.streams.get(stream_id)
        if stream is None:
            stream = self._new_stream(stream_id)
            if stream is None:
                return
        state.heard(stream)
        if stream.in_done:
            return
        if stream in self._held_streams:
            if stream.is_bidirectional:
                # Its first frame, which names its channel, counts as read: the peer relies on that.
                stream.held_reset = code
                return
            del self._held_streams[stream]
        stream.fin = True
        frame_dispatch.reset_arrived(state, stream, code)

    # Reading.

    def _read(self, stream: Stream) -> None:
        """Process the frames that are there, until the stream is held, abandoned or read dry."""
        state = self._state
        reader = stream.reader
        while True:
            if stream.role is Role.MESSAGES and isinstance(stream.half, ReceiverHalf):
                stream.frames += receiving.receive_run(state, stream, stream.half)
            frame = reader.next_frame()
            if frame is None:
                break
            if type(frame) is Message and stream.role is Role.MESSAGES:
                stream.frames += 1
                state.saw_frame(frame)
                if not receiving.receive_message(state, frame, stream=stream):
                    stream.held_frame = frame
                    break
            else:
                self._route(stream, frame)
            lifecycle.settle(state)
            if stream.role is Role.ABANDONED or stream.blocked_on is not None:
                break
        state.account_stream(stream)
        if stream.fin and stream.blocked_on is None and stream.role is not Role.ABANDONED:
            frame_dispatch.end_of_stream(state, stream)

    def _route(self, stream: Stream, frame: Frame) -> None:
        if isinstance(frame, ConnectionControl):
            self._connection_control(stream, frame)
        else:
            frame_dispatch.route_frame(self._state, stream, frame)

    def resume(self, stream: Stream) -> None:
        """A held stream goes on: first with the message that had not fitted."""
        state = self._state
        if stream.role is Role.ABANDONED or stream.in_done or state.is_ended:
            return
        frame, stream.held_frame = stream.held_frame, None
        if isinstance(frame, Message) and not receiving.receive_message(state, frame, stream=stream):
            stream.held_frame = frame
            return
        state.out.command(HoldStream(stream.stream_id, held=False))
        self._read(stream)

    def _connection_control(self, stream: Stream, frame: ConnectionControl) -> None:
        state = self._state
        state.saw_frame(frame)
        frame_dispatch.check_connection_control(state, stream, self.control_id, is_second=self.peer_headers_seen)
        stream.frames += 1
        stream.role = Role.CONNECTION
        self.control_id = stream.stream_id
        self.peer_headers_seen = True
        state.emit(PeerHeaders(frame.headers))
        if state.is_client:
            self.is_ready = True
            state.out.plain.opening = b""
            self.release()

    # What comes before its time.

    def _hold_stream(self, stream: Stream) -> None:
        """Keep a stream for later; at a server, check whether it is the connection control stream.

        What can be wrong with its first frames is found at once: a client that never says hello must not be able to have
        nonsense kept for it.
        """
        state = self._state
        self._held_streams[stream] = None
        if self.is_early or state.is_client or self.peer_headers_seen or stream.held_frame is not None:
            state.account_stream(stream)
            return
        if stream.frames == 0:
            frame = stream.reader.next_frame()
            if frame is None:
                state.account_stream(stream)
                return
            frame_dispatch.route_frame(state, stream, frame)
        if stream.is_bidirectional:
            frame = stream.reader.next_frame()
            if isinstance(frame, ConnectionControl):
                del self._held_streams[stream]
                self._connection_control(stream, frame)
            elif frame is not None:
                frame_dispatch.check_first(stream, type(frame))
                stream.held_frame = frame
        else:
            # A message may be large, and a frame that is kept is not counted: it stays in the reader.
            kind = stream.reader.next_kind()
            if kind is not None:
                frame_dispatch.check_first(stream, kind)
        state.account_stream(stream)

    def receive_datagram(self, data: bytes) -> None:
        """Process a datagram, or check and hold it."""
        state = self._state
        if self.is_gated:
            must_begin_with_version = not state.is_client and not self.is_ready
            frame_dispatch.check_datagram(state, data, must_begin_with_version=must_begin_with_version)
            state.account(len(data))
            self._held_datagrams.append((data, must_begin_with_version))
        else:
            frame_dispatch.read_datagram(state, data, must_begin_with_version=False)

    def release(self) -> None:
        """A gate opened: process what it held, in the order in which it came."""
        state = self._state
        if not self.is_early and not state.is_client and not self.peer_headers_seen:
            for stream in list(self._held_streams):
                self._hold_stream(stream)
        if self.is_gated:
            return
        streams, self._held_streams = list(self._held_streams), {}
        datagrams, self._held_datagrams = self._held_datagrams, []
        for stream in streams:
            frame, stream.held_frame = stream.held_frame, None
            if frame is not None:
                self._route(stream, frame)
                lifecycle.settle(self._state)
            if stream.role is not Role.ABANDONED and stream.blocked_on is None:
                self._read(stream)
            if stream.held_reset is not None and not stream.in_done:
                stream.fin = True
                frame_dispatch.reset_arrived(self._state, stream, stream.held_reset)
                lifecycle.settle(self._state)
        for data, must_begin_with_version in datagrams:
            self._state.account(-len(data))
            frame_dispatch.read_datagram(self._state, data, must_begin_with_version=must_begin_with_version)
            lifecycle.settle(self._state)

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

from mainstem.aqueduct import lifecycle, receive, send
from mainstem.aqueduct.channel_id import describe
from mainstem.aqueduct.codec import Incomplete, violation
from mainstem.aqueduct.events import HoldStream, PeerHeaders
from mainstem.aqueduct.frames import (
    RESET_CANCELLED,
    RESET_LOST,
    AckNackUnreliable,
    AckReliable,
    ChannelControl,
    ClosedChannelLost,
    CloseReceiver,
    ConnectionControl,
    FinishSender,
    Frame,
    Message,
    SentUnreliable,
    Version,
    decode_frame,
)
from mainstem.aqueduct.halves import (
    OPENED_BY_SERVER,
    Half,
    ReceiverHalf,
    Role,
    SenderHalf,
    Stream,
)
from mainstem.aqueduct.state import ReceiverInput, SenderInput

if TYPE_CHECKING:
    from collections.abc import Iterator

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
            raise behind_the_last()
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
        reset_arrived(state, stream, code)

    # Reading.

    def _read(self, stream: Stream) -> None:
        """Process the frames that are there, until the stream is held, abandoned or read dry."""
        state = self._state
        reader = stream.reader
        while True:
            if stream.role is Role.MESSAGES and isinstance(stream.half, ReceiverHalf):
                stream.frames += receive.receive_run(state, stream, stream.half)
            frame = reader.next_frame()
            if frame is None:
                break
            if type(frame) is Message and stream.role is Role.MESSAGES:
                stream.frames += 1
                state.saw_frame(frame)
                if not receive.receive_message(state, frame, stream=stream):
                    stream.held_frame = frame
                    break
            else:
                self._route(stream, frame)
            lifecycle.settle(state)
            if stream.role is Role.ABANDONED or stream.blocked_on is not None:
                break
        state.account_stream(stream)
        if stream.fin and stream.blocked_on is None and stream.role is not Role.ABANDONED:
            end_of_stream(state, stream)

    def _route(self, stream: Stream, frame: Frame) -> None:
        if isinstance(frame, ConnectionControl):
            self._connection_control(stream, frame)
        else:
            route_frame(self._state, stream, frame)

    def resume(self, stream: Stream) -> None:
        """A held stream goes on: first with the message that had not fitted."""
        state = self._state
        if stream.role is Role.ABANDONED or stream.in_done or state.is_ended:
            return
        frame, stream.held_frame = stream.held_frame, None
        if isinstance(frame, Message) and not receive.receive_message(state, frame, stream=stream):
            stream.held_frame = frame
            return
        state.out.command(HoldStream(stream.stream_id, held=False))
        self._read(stream)

    def _connection_control(self, stream: Stream, frame: ConnectionControl) -> None:
        state = self._state
        state.saw_frame(frame)
        check_connection_control(state, stream, self.control_id, is_second=self.peer_headers_seen)
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
            route_frame(state, stream, frame)
        if stream.is_bidirectional:
            frame = stream.reader.next_frame()
            if isinstance(frame, ConnectionControl):
                del self._held_streams[stream]
                self._connection_control(stream, frame)
            elif frame is not None:
                check_first(stream, type(frame))
                stream.held_frame = frame
        else:
            # A message may be large, and a frame that is kept is not counted: it stays in the reader.
            kind = stream.reader.next_kind()
            if kind is not None:
                check_first(stream, kind)
        state.account_stream(stream)

    def receive_datagram(self, data: bytes) -> None:
        """Process a datagram, or check and hold it."""
        state = self._state
        if self.is_gated:
            must_begin_with_version = not state.is_client and not self.is_ready
            check_datagram(state, data, must_begin_with_version=must_begin_with_version)
            state.account(len(data))
            self._held_datagrams.append((data, must_begin_with_version))
        else:
            read_datagram(state, data, must_begin_with_version=False)

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
                reset_arrived(self._state, stream, stream.held_reset)
                lifecycle.settle(self._state)
        for data, must_begin_with_version in datagrams:
            self._state.account(-len(data))
            read_datagram(self._state, data, must_begin_with_version=must_begin_with_version)
            lifecycle.settle(self._state)


def route_frame(state: ConnectionState, stream: Stream, frame: Frame) -> None:
    """Process one frame of a stream. Raises RemoteProtocolError where it may not stand there."""
    state.saw_frame(frame)
    if isinstance(frame, Version):
        if stream.frames:
            raise violation("a Version frame that is not the first in its stream", "version place")
        stream.versioned = True
        stream.frames = 1
        return
    if stream.must_begin_with_version and not stream.versioned:
        raise violation(
            f"a {type(frame).__name__} frame without a Version frame, before the server's answer", "version first"
        )
    stream.frames += 1
    if stream.role is Role.CONTROL:
        _on_control(state, stream, frame)
    elif stream.role is Role.CONNECTION:
        raise violation(f"a {type(frame).__name__} frame on the connection control stream", "frame place")
    elif stream.is_bidirectional:
        _first_on_bidirectional(state, stream, frame)
    else:
        _on_unidirectional(state, stream, frame)


def _first_on_bidirectional(state: ConnectionState, stream: Stream, frame: Frame) -> None:
    check_first(stream, type(frame))
    assert isinstance(frame, ChannelControl)
    stream.role = Role.CONTROL
    if attach_control(state, stream, frame) is None:
        # A ghost receiver's, or one that raced with the channel's end: the peer discards its half.
        state.reset_stream(stream, RESET_LOST)
        state.abandon(stream)


def _on_unidirectional(state: ConnectionState, stream: Stream, frame: Frame) -> None:
    if stream.role is Role.NOTICE:
        raise violation("another frame beside a ClosedChannelLost", "frame place")
    if isinstance(frame, Message):
        stream.role = Role.MESSAGES
        if not receive.receive_message(state, frame, stream=stream):
            stream.held_frame = frame
    elif isinstance(frame, ClosedChannelLost):
        if stream.role is Role.MESSAGES:
            raise violation("a ClosedChannelLost frame behind another frame", "frame place")
        stream.role = Role.NOTICE
        receive.closed_channel_lost(state, frame)
    else:
        raise violation(f"a {type(frame).__name__} frame on a unidirectional stream", "frame place")


def _on_control(state: ConnectionState, stream: Stream, frame: Frame) -> None:
    half = stream.half
    if isinstance(half, ReceiverHalf):
        if isinstance(frame, SentUnreliable):
            receive.declared(state, half, frame.count)
        elif isinstance(frame, FinishSender):
            _note_last(stream)
            receive.finished(state, half, frame.count)
        else:
            raise _misplaced(frame, half)
    elif isinstance(half, SenderHalf):
        if isinstance(frame, AckReliable):
            send.acknowledged_reliable(state, half, frame.counts)
        elif isinstance(frame, AckNackUnreliable):
            send.answered_unreliable(state, half, frame.counts)
        elif isinstance(frame, CloseReceiver):
            _note_last(stream)
            send.closed(state, half, frame.counts)
        else:
            raise _misplaced(frame, half)


def _note_last(stream: Stream) -> None:
    """This frame must be the last of its direction."""
    stream.last_seen = True
    if stream.reader.buffered:
        raise behind_the_last()


def behind_the_last() -> Exception:
    """The error for bytes that come behind FinishSender or CloseReceiver."""
    return violation("bytes behind the last frame of a control stream", "last frame")


def _misplaced(frame: Frame, half: ReceiverHalf | SenderHalf) -> Exception:
    direction = "sender-to-receiver" if isinstance(half, ReceiverHalf) else "receiver-to-sender"
    return violation(
        f"a {type(frame).__name__} frame on the control stream of {describe(half.channel_id)}, {direction}",
        "frame place",
    )


def check_first(stream: Stream, kind: type[Frame]) -> None:
    """Check that a frame may be the first on its stream after Version. Raises RemoteProtocolError."""
    if kind is Version:
        raise violation("a Version frame that is not the first in its stream", "version place")
    if stream.is_bidirectional and kind is not ChannelControl:
        raise violation(f"a bidirectional stream that begins with a {kind.__name__} frame", "frame place")
    if kind is ConnectionControl and not stream.is_bidirectional:
        raise violation("a ConnectionControl frame on a stream of one direction", "connection control place")
    if not stream.is_bidirectional and kind is not Message and kind is not ClosedChannelLost:
        raise violation(f"a {kind.__name__} frame on a unidirectional stream", "frame place")


def check_datagram(state: ConnectionState, data: bytes, *, must_begin_with_version: bool) -> None:
    """Check the frames of a datagram without processing them. Raises RemoteProtocolError."""
    for _ in _messages_of(state, data, must_begin_with_version=must_begin_with_version):
        pass


def read_datagram(state: ConnectionState, data: bytes, *, must_begin_with_version: bool) -> None:
    """Process the frames of a datagram. Raises RemoteProtocolError."""
    for message in _messages_of(state, data, must_begin_with_version=must_begin_with_version):
        state.saw_frame(message)
        receive.receive_message(state, message, stream=None)


def _messages_of(state: ConnectionState, data: bytes, *, must_begin_with_version: bool) -> Iterator[Message]:
    """The messages in a datagram. Raises RemoteProtocolError where another frame, or half of one, is in it."""
    position, end = 0, len(data)
    first = True
    while position < end or first:
        try:
            frame, position = decode_frame(data, position, end, state.limits)
        except Incomplete:
            raise violation("a datagram that ends within a frame", "partial frame") from None
        if isinstance(frame, Version):
            if not first:
                raise violation("a Version frame that is not the first in its datagram", "version place")
        elif first and must_begin_with_version:
            raise violation("a datagram without a Version frame, before the server's answer", "version first")
        elif isinstance(frame, Message):
            yield frame
        else:
            raise violation(f"a {type(frame).__name__} frame in a datagram", "frame place")
        first = False


def end_of_stream(state: ConnectionState, stream: Stream) -> None:
    """A stream ended after whole frames, or not. Raises RemoteProtocolError."""
    if stream.reader.buffered:
        raise violation("a stream that ends within a frame", "partial frame")
    if stream.frames == 0:
        raise violation("a stream that ends without a frame", "empty stream")
    if stream.role is Role.CONNECTION:
        raise violation("the connection control stream was finished", "connection control lasts")
    if stream.role is Role.CONTROL and not stream.last_seen:
        raise violation("a control stream that ends without its last frame", "last frame missing")
    if stream.role is Role.NEW and stream.is_bidirectional:
        raise violation("a bidirectional stream that is for nothing", "frame place")
    stream.in_done = True
    state.forget_if_done(stream)


def reset_arrived(state: ConnectionState, stream: Stream, code: int) -> None:
    """The peer reset its direction of a stream. Raises RemoteProtocolError."""
    stream.in_done = True
    if stream.role is Role.CONNECTION:
        raise violation("the connection control stream was reset", "connection control lasts")
    half = stream.half
    if stream.role is not Role.CONTROL or half is None:
        # A stream of messages, whatever the code; or one whose purpose is not known and now never will be.
        if stream.role is not Role.ABANDONED:
            state.abandon(stream)
        if stream.is_bidirectional:
            state.reset_stream(stream, RESET_LOST)
        state.forget_if_done(stream)
    elif code == RESET_LOST:
        state.reset_stream(stream, RESET_LOST)
        if isinstance(half, SenderHalf):
            if half.ordered_stream is not None:
                state.out.reset(half.ordered_stream, RESET_LOST)
                half.ordered_stream = None
            send.end_sender(state, half, SenderInput.LOSE)
        else:
            receive.end_receiver(state, half, ReceiverInput.LOSE)
    elif code == RESET_CANCELLED and isinstance(half, ReceiverHalf):
        _cancelled(state, half)
    else:
        raise violation(f"the control stream of {describe(half.channel_id)} was reset with code {code}", "reset code")


def _cancelled(state: ConnectionState, receiver: ReceiverHalf) -> None:
    """The sender cancelled: the receiver closes at once and drops what was not received."""
    receive.close_receiver(state, receiver, ReceiverInput.CANCEL)


def check_connection_control(
    state: ConnectionState, stream: Stream, control_id: int | None, *, is_second: bool
) -> None:
    """A ConnectionControl frame came on a stream: may it? Raises RemoteProtocolError."""
    if stream.role is Role.CONNECTION and is_second:
        raise violation("a second ConnectionControl frame", "connection control once")
    if not stream.versioned or stream.frames != 1:
        raise violation(
            "a ConnectionControl frame that does not follow a Version frame at a stream's start",
            "connection control place",
        )
    if state.is_client:
        if stream.stream_id != control_id:
            raise violation(
                "a ConnectionControl frame away from the connection control stream", "connection control place"
            )
    elif not stream.is_bidirectional or stream.opened_here:
        raise violation("a ConnectionControl frame on a stream of one direction", "connection control place")
    if is_second:
        raise violation("a second ConnectionControl frame", "connection control once")


def attach_control(state: ConnectionState, stream: Stream, frame: ChannelControl) -> Half | None:
    """Attach a stream that the peer opened to its half; None where that half is not there, or has one."""
    channel_id = frame.channel_id
    if not state.is_minted_here(channel_id):
        raise violation(f"ChannelControl for {describe(channel_id)}, which its sender minted", "control minter")
    half: Half | None = state.senders.get(channel_id) or state.receivers.get(channel_id)
    if half is None or half.control is not None:
        state.counts.ghosts_refused += 1
        return None
    lifecycle.attach(state, half, stream)
    return half

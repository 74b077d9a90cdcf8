"""Read frames from streams and datagrams, check that each is allowed where it appears, and pass it to whom it concerns.

Holding data. Two gates hold data that the peer sends. Early data (0-RTT) could be a replay until the handshake is complete; with
``early_data``, none of it is processed before that. And only the connection control stream is processed before both sides have
sent their headers. For a server, this gate opens when the application accepts; for a client, when the server's ConnectionControl
arrives. Held data counts against ``Limits.max_buffered_bytes`` like all other buffered data.

When the last gate opens, streams are processed first and datagrams after them, each in order of arrival. There is no ordering
guarantee between streams anyway, because QUIC can deliver them in any order. Within a stream, order is kept whether or not the
stream was held. A reset of a held stream is processed after the stream's first frame, because the peer relies on that frame (a
ChannelControl) to take effect. Until the server has responded, everything the client sends begins with a Version frame. A
server therefore records for each stream and datagram whether it arrived before the response.

Three invariants: a stream is held only while a gate is shut; ``control_id`` never changes once it is set; a stream that is blocked
on a full receiver (``Stream.blocked_on``) is not read until there is room.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mainstem.aqueduct.events import PauseStream, PeerHeaders
from mainstem.aqueduct.frames import (
    CHANNEL_CONTROL,
    CLOSE_RECEIVER,
    CLOSED_CHANNEL_LOST,
    CONNECTION_CONTROL,
    FRAME_TYPES,
    MESSAGE,
    RESET_LOST,
    SENT_UNRELIABLE,
    VERSION_BYTES,
    VERSION_TAG,
    Incomplete,
    as_headers,
    decode_frame,
    encode_headers,
    protocol_error,
)
from mainstem.aqueduct.halves import OPENED_BY_SERVER, UNIDIRECTIONAL, Role
from mainstem.errors import LocalProtocolError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from mainstem.aqueduct.channel_table import ChannelTable
    from mainstem.aqueduct.context import Context
    from mainstem.aqueduct.control import ControlStreams
    from mainstem.aqueduct.frames import Headers
    from mainstem.aqueduct.halves import Stream
    from mainstem.aqueduct.loss import Loss
    from mainstem.aqueduct.output import Output
    from mainstem.aqueduct.receive import Receiving
    from mainstem.aqueduct.receive_buffer import ReceiveBuffer
    from mainstem.aqueduct.streams import Streams


class FrameDispatcher:
    def __init__(
        self,
        context: Context,
        output: Output,
        streams: Streams,
        buffer: ReceiveBuffer,
        channels: ChannelTable,
        receiving: Receiving,
        loss: Loss,
        control: ControlStreams,
        *,
        early_data: bool,
    ) -> None:
        self._context = context
        self._output = output
        self._streams = streams
        self._buffer = buffer
        self._channels = channels
        self._receiving = receiving
        self._loss = loss
        self._control = control
        # The two gates. True while the handshake is incomplete, so that incoming data could be a replay:
        self.is_early = early_data and not context.is_client
        # True once the server's ConnectionControl has arrived (client) or the application has accepted (server).
        self.is_ready = False
        self._peer_headers_seen = False
        self.control_id: int | None = None
        self._held_streams: dict[Stream, None] = {}
        self._held_datagrams: list[tuple[bytes, bool]] = []

    def start(self, headers: Headers) -> None:
        """Open the connection control stream of a client. Raises LocalProtocolError."""
        if not self._context.is_client or self.control_id is not None:
            raise LocalProtocolError("only a client starts a connection, and only once", rule="start")
        data = b"\x01" + encode_headers(headers)
        self.control_id = self._output.open_stream(data, unidirectional=False)
        self._streams.add(self.control_id, Role.CONNECTION)
        self._context.sent_frame(data)

    def accept(self, headers: Mapping[str, bytes | str] | Iterable[tuple[str, bytes | str]] | None) -> None:
        """Respond to the client's headers as a server. `release` must follow. Raises LocalProtocolError."""
        if self._context.is_client or not self._peer_headers_seen or self.is_ready:
            raise LocalProtocolError("a server accepts once, after the client's headers came", rule="accept")
        assert self.control_id is not None
        data = b"\x01" + encode_headers(as_headers(headers))
        self._output.write(self.control_id, VERSION_BYTES + data)
        self._context.sent_frame(data)
        self.is_ready = True

    def handshake_completed(self) -> None:
        """Process held early data. Raises RemoteProtocolError."""
        if self.is_early:
            self.is_early = False
            self.release()

    def settle(self) -> None:
        """Process everything that a step set in motion, one half or stream at a time. Raises RemoteProtocolError."""
        channels, unblocked = self._channels, self._receiving.unblocked
        while True:
            if channels.lost or channels.dropped:
                self._loss.settle()
            elif unblocked:
                self._resume(unblocked.popleft())
            else:
                return

    # Streams.

    def add_stream(self, stream_id: int) -> Stream:
        """Register a stream that the peer opened. Raises RemoteProtocolError."""
        # Until the server has responded, the client must begin everything with a Version frame.
        return self._streams.add_new(
            stream_id, must_begin_with_version=not self._context.is_client and not self.is_ready
        )

    def read(self, stream: Stream) -> None:
        """Process the frames that have arrived, until the stream is held, abandoned or empty."""
        while True:
            if stream.role is Role.MESSAGES and stream.half is not None:
                self._receiving.receive_run(stream, stream.half)  # type: ignore[arg-type]
            if stream.position == len(stream.data) and not stream.pieces:
                break
            frame = stream.next_frame()
            if frame is None:
                break
            if (
                stream.role is Role.CONTROL
                and SENT_UNRELIABLE <= frame[0] <= CLOSE_RECEIVER
                and not self._context.is_observed
            ):
                self._control.process(stream, *frame)
            else:
                self._process(stream, *frame)
            if stream.blocked_on is not None or stream.role is Role.ABANDONED:
                break
        if stream.accounted or stream.position < len(stream.data) or stream.pieces:
            self._buffer.account_stream(stream)
        if stream.fin and stream.blocked_on is None and stream.role is not Role.ABANDONED:
            self._end_of_stream(stream)

    def _resume(self, stream: Stream) -> None:
        """Resume a held stream, starting with the message that did not fit."""
        if stream.role is Role.ABANDONED or stream.in_done:
            return
        frame, stream.held_frame = stream.held_frame, None
        if frame is not None and not self._receiving.receive_message(frame[1], stream):
            stream.held_frame = frame
            return
        self._output.commands.append(PauseStream(stream.stream_id, paused=False))
        self.read(stream)

    def _process(self, stream: Stream, tag: int, value: Any) -> None:
        """Process one frame of a stream. Raises RemoteProtocolError if it is not allowed there."""
        if self._context.is_observed:
            self._context.saw_frame(tag, value)
        role = stream.role
        if tag == VERSION_TAG:
            if stream.frames:
                raise protocol_error("version place", "a Version frame that is not the first in its stream")
            stream.versioned = True
            stream.frames = 1
            return
        if stream.must_begin_with_version and not stream.versioned:
            text = f"a {FRAME_TYPES[tag].name} frame without a Version frame, before the server's response"
            raise protocol_error("version first", text)
        if tag == CONNECTION_CONTROL:
            self._connection_control(stream, value)
            return
        if role is Role.CONTROL:
            self._control.process(stream, tag, value)
            return
        stream.frames += 1
        if role is Role.CONNECTION:
            raise protocol_error("frame place", f"a {FRAME_TYPES[tag].name} frame on the connection control stream")
        if role is Role.NOTICE:
            raise protocol_error("frame place", "another frame beside a ClosedChannelLost")
        if role is Role.MESSAGES and tag != MESSAGE:
            raise protocol_error("frame place", f"a {FRAME_TYPES[tag].name} frame on a stream of messages")
        if role is Role.NEW:
            _check_first(stream, tag)
        if tag == MESSAGE:
            stream.role = Role.MESSAGES
            if not self._receiving.receive_message(value, stream):
                stream.held_frame = tag, value
        elif tag == CHANNEL_CONTROL:
            stream.role = Role.CONTROL
            self._control.attach(stream, value)
        else:
            stream.role = Role.NOTICE
            self._receiving.closed_channel_lost(value)

    def _end_of_stream(self, stream: Stream) -> None:
        """Check that a stream ended where it is allowed to end. Raises RemoteProtocolError."""
        if stream.buffered:
            raise protocol_error("partial frame", "a stream that ends within a frame")
        if stream.frames == 0:
            raise protocol_error("empty stream", "a stream that ends without a frame")
        if stream.role is Role.CONNECTION:
            raise protocol_error("connection control lasts", "the connection control stream was finished")
        if stream.role is Role.CONTROL and not stream.last_seen:
            raise protocol_error("last frame missing", "a control stream that ends without its last frame")
        if stream.role is Role.NEW and stream.is_bidirectional:
            raise protocol_error("frame place", "a bidirectional stream that has no purpose")
        stream.in_done = True
        self._streams.forget_if_done(stream)

    def receive_reset(self, stream_id: int, code: int) -> None:
        """Process the peer's reset of its direction of a stream, or hold it. Raises RemoteProtocolError."""
        stream = self._streams.open.get(stream_id)
        if stream is None:
            if bool(stream_id & OPENED_BY_SERVER) != self._context.is_client:
                return
            stream = self.add_stream(stream_id)
        self._streams.heard(stream)
        if stream.in_done:
            return
        if stream in self._held_streams:
            if stream.is_bidirectional:
                # The first frame names the stream's channel and still has to be processed: the peer relies on that.
                stream.held_reset = code
                return
            del self._held_streams[stream]
        stream.fin = True
        self._reset_arrived(stream, code)

    def _reset_arrived(self, stream: Stream, code: int) -> None:
        """Process a reset that is not, or no longer, held. Raises RemoteProtocolError."""
        stream.in_done = True
        half = stream.half
        if stream.role is Role.CONNECTION:
            raise protocol_error("connection control lasts", "the connection control stream was reset")
        if stream.role is not Role.CONTROL or half is None:
            # This is a stream of messages, for which the code does not matter, or one whose purpose will never be known.
            if stream.role is not Role.ABANDONED:
                self._streams.abandon(stream)
            if stream.is_bidirectional:
                self._streams.reset(stream, RESET_LOST)
            self._streams.forget_if_done(stream)
        else:
            self._control.reset_arrived(stream, half, code)

    # The exchange of headers, and data that arrives before it is complete.

    def _connection_control(self, stream: Stream, headers: Any) -> None:
        """Process a ConnectionControl frame. Raises RemoteProtocolError if it is not allowed there."""
        is_second = self._peer_headers_seen
        stream_id = stream.stream_id
        is_right = (
            stream_id == self.control_id
            if self._context.is_client
            else not stream_id & (UNIDIRECTIONAL | OPENED_BY_SERVER)
        )
        is_first_frame = stream.versioned and stream.frames == 1 and is_right
        if not is_first_frame and not (is_second and stream.role is Role.CONNECTION):
            text = "a ConnectionControl frame that does not follow a Version frame at the start of its bidirectional stream"
            raise protocol_error("connection control place", text)
        if is_second:
            raise protocol_error("connection control once", "a second ConnectionControl frame")
        stream.frames += 1
        stream.role = Role.CONNECTION
        self.control_id = stream.stream_id
        self._peer_headers_seen = True
        self._context.events.append(PeerHeaders(headers))
        if self._context.is_client:
            self.is_ready = True
            self._output.plain.opening = b""
            self.release()

    def hold(self, stream: Stream) -> None:
        """Hold a stream; on a server, check whether it is the connection control stream.

        Errors in its first frames are detected immediately, so that a client that never sends its headers cannot make the server
        keep invalid data.
        """
        self._held_streams[stream] = None
        if not (self.is_early or self._context.is_client or self._peer_headers_seen or stream.held_frame is not None):
            self._check_held(stream)
        self._buffer.account_stream(stream)

    def _check_held(self, stream: Stream) -> None:
        if stream.frames == 0:
            frame = stream.next_frame()
            if frame is None:
                return
            self._process(stream, *frame)
        if stream.is_bidirectional:
            frame = stream.next_frame()
            if frame is not None:
                if frame[0] == CONNECTION_CONTROL:
                    del self._held_streams[stream]
                    self._process(stream, *frame)
                else:
                    _check_first(stream, frame[0])
                    stream.held_frame = frame
        else:
            # A message can be large, and a frame in ``held_frame`` is not counted as buffered, so the message stays in the reader.
            tag = stream.next_tag()
            if tag is not None:
                _check_first(stream, tag)

    def release(self) -> None:
        """Process held data in order of arrival, if both gates are open. Raises RemoteProtocolError."""
        if not self.is_early and not self._context.is_client and not self._peer_headers_seen:
            for stream in list(self._held_streams):
                self.hold(stream)
        if self.is_early or not self.is_ready:
            return
        streams, self._held_streams = list(self._held_streams), {}
        datagrams, self._held_datagrams = self._held_datagrams, []
        for stream in streams:
            frame, stream.held_frame = stream.held_frame, None
            if frame is not None:
                self._process(stream, *frame)
            if stream.role is not Role.ABANDONED and stream.blocked_on is None:
                self.read(stream)
            if stream.held_reset is not None and not stream.in_done:
                stream.fin = True
                self._reset_arrived(stream, stream.held_reset)
            self.settle()
        for data, must_begin_with_version in datagrams:
            self._buffer.account(-len(data))
            self._read_datagram(data, must_begin_with_version=must_begin_with_version)

    # Datagrams.

    def receive_datagram(self, data: bytes) -> None:
        """Process a datagram, or check and hold it. Raises RemoteProtocolError."""
        if self.is_early or not self.is_ready:
            must_begin_with_version = not self._context.is_client and not self.is_ready
            for _ in self._messages_of(data, must_begin_with_version=must_begin_with_version):
                pass
            self._buffer.account(len(data))
            self._held_datagrams.append((data, must_begin_with_version))
        else:
            self._read_datagram(data, must_begin_with_version=False)

    def _read_datagram(self, data: bytes, *, must_begin_with_version: bool) -> None:
        for message in self._messages_of(data, must_begin_with_version=must_begin_with_version):
            if self._context.is_observed:
                self._context.saw_frame(MESSAGE, message)
            self._receiving.receive_message(message, None)

    def _messages_of(self, data: bytes, *, must_begin_with_version: bool) -> Iterator[Any]:
        """Yield the messages in a datagram. Raises RemoteProtocolError if it contains any other frame or a partial one."""
        position, end = 0, len(data)
        first = True
        while position < end or first:
            try:
                (tag, value), position = decode_frame(data, position, end, self._context.limits)
            except Incomplete:
                raise protocol_error("partial frame", "a datagram that ends within a frame") from None
            if tag == VERSION_TAG:
                if not first:
                    raise protocol_error("version place", "a Version frame that is not the first in its datagram")
            elif first and must_begin_with_version:
                text = "a datagram without a Version frame, before the server's response"
                raise protocol_error("version first", text)
            elif tag == MESSAGE:
                yield value
            else:
                raise protocol_error("frame place", f"a {FRAME_TYPES[tag].name} frame in a datagram")
            first = False

    def forget(self) -> None:
        """Forget everything that is held."""
        self._held_streams.clear()
        self._held_datagrams.clear()


def _check_first(stream: Stream, tag: int) -> None:
    """Check that a frame can be the first on its stream after Version. Raises RemoteProtocolError."""
    name = FRAME_TYPES[tag].name
    if tag == VERSION_TAG:
        raise protocol_error("version place", "a Version frame that is not the first in its stream")
    if stream.is_bidirectional:
        if tag != CHANNEL_CONTROL:
            raise protocol_error("frame place", f"a bidirectional stream that begins with a {name} frame")
    elif tag == CONNECTION_CONTROL:
        raise protocol_error("connection control place", "a ConnectionControl frame on a unidirectional stream")
    elif tag not in (MESSAGE, CLOSED_CHANNEL_LOST):
        raise protocol_error("frame place", f"a {name} frame on a unidirectional stream")

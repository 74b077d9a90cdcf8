"""Which frame may stand where, and what it sets in motion. A stream's role follows from its first frames."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.aqueduct import receiving, sending
from mainstem.aqueduct.channel_halves import ReceiverHalf, SenderHalf
from mainstem.aqueduct.channel_id import describe
from mainstem.aqueduct.codec import Incomplete, violation
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
from mainstem.aqueduct.lifecycle import close_receiver, end_receiver, end_sender
from mainstem.aqueduct.state import ReceiverInput, SenderInput
from mainstem.aqueduct.streams import Role, Stream

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainstem.aqueduct.connection_state import ConnectionState


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
    if receiving.attach_control(state, stream, frame) is None:
        # A ghost receiver's, or one that raced with the channel's end: the peer discards its half.
        state.reset_stream(stream, RESET_LOST)
        state.abandon(stream)


def _on_unidirectional(state: ConnectionState, stream: Stream, frame: Frame) -> None:
    if stream.role is Role.NOTICE:
        raise violation("another frame beside a ClosedChannelLost", "frame place")
    if isinstance(frame, Message):
        stream.role = Role.MESSAGES
        if not receiving.receive_message(state, frame, stream=stream):
            stream.held_frame = frame
    elif isinstance(frame, ClosedChannelLost):
        if stream.role is Role.MESSAGES:
            raise violation("a ClosedChannelLost frame behind another frame", "frame place")
        stream.role = Role.NOTICE
        receiving.closed_channel_lost(state, frame)
    else:
        raise violation(f"a {type(frame).__name__} frame on a unidirectional stream", "frame place")


def _on_control(state: ConnectionState, stream: Stream, frame: Frame) -> None:
    half = stream.half
    if isinstance(half, ReceiverHalf):
        if isinstance(frame, SentUnreliable):
            receiving.declared(state, half, frame.count)
        elif isinstance(frame, FinishSender):
            _note_last(stream)
            receiving.finished(state, half, frame.count)
        else:
            raise _misplaced(frame, half)
    elif isinstance(half, SenderHalf):
        if isinstance(frame, AckReliable):
            sending.acknowledged_reliable(state, half, frame.counts)
        elif isinstance(frame, AckNackUnreliable):
            sending.answered_unreliable(state, half, frame.counts)
        elif isinstance(frame, CloseReceiver):
            _note_last(stream)
            sending.closed(state, half, frame.counts)
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
        receiving.receive_message(state, message, stream=None)


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
            end_sender(state, half, SenderInput.LOSE)
        else:
            end_receiver(state, half, ReceiverInput.LOSE)
    elif code == RESET_CANCELLED and isinstance(half, ReceiverHalf):
        _cancelled(state, half)
    else:
        raise violation(f"the control stream of {describe(half.channel_id)} was reset with code {code}", "reset code")


def _cancelled(state: ConnectionState, receiver: ReceiverHalf) -> None:
    """The sender cancelled: the receiver closes at once and drops what was not received."""
    close_receiver(state, receiver, ReceiverInput.CANCEL)


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

"""Streams and datagrams on their way in, and how halves get their control streams and lose them.

Which are processed as they come, and which are held. Two gates hold what the peer sends. Early data (0-RTT) could be a
replay until the handshake is complete; with ``early_data`` nothing of it is processed before. And nothing but the connection
control stream is processed before both sides have sent their headers: at a server that is when the application has accepted,
at a client when the server's ConnectionControl has come. What is held counts against ``Limits.max_buffered_bytes`` like
everything else that waits.

Opening the last gate processes streams first and datagrams after them, each in the order in which they came. Between
streams nothing is promised anyway: QUIC may deliver them in any order. Within a stream the order is kept, whether it was
held or not, and a reset of a held stream is processed after the first frame of that stream, as the peer relies on the
first frame (a ChannelControl) to count. Until the server has responded, whatever the client sends begins with a Version
frame. A server therefore notes on each stream and datagram whether it came before the response.

A channel has a sender on one side and a receiver on the other. The side that minted its id created one half and attached
the other to a message; the peer creates its half when that message arrives, or when a message *on* the channel does:

* A half whose id the peer minted opens a control stream at once; one minted here waits for the peer to open it.
* Finish, cancel and close wait for the control stream. Ceasing by loss does not.
* A message that is acknowledged makes what was attached to it reachable, once its sender is. Until then the links stay
  with the sender (``SenderHalf.acked``).
* A message that is given up loses what was attached to it, and what was attached to the messages sent on that, and so on.
* A half that ceased before it was reachable is kept by the link to it, and by nothing else. When the link is lost, the
  peer is notified by a ClosedChannelLost on a stream of its own, because the control stream is gone.

Cascades run as work lists, not as recursion. Whatever loses or drops a half appends it to ``lost`` or ``dropped``, and
`settle` empties the lists, one half at a time; what is acknowledged is reachable before anything is lost. A chain of 10,000
channels or a tree of 100,000 takes linear time and constant stack. Every public step of the engine ends in `settle`.

Loss and drops differ in what the peer receives. A lost half never was: its control stream is reset with "lost". A half that
the application dropped, or never took out of its message, ends as if its handle had been dropped: a sender is cancelled, a
receiver closed.

Invariants: a stream is in ``held_streams`` only while a gate is shut; ``control_id`` never changes once it is set; a stream
that is blocked on a full receiver (``Stream.blocked_on``) is not read until `resume`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mainstem.aqueduct import receive, send
from mainstem.aqueduct.events import PauseStream, PeerHeaders
from mainstem.aqueduct.frames import (
    ACK_NACK_UNRELIABLE,
    ACK_RELIABLE,
    CHANNEL_CONTROL,
    CLOSE_RECEIVER,
    CLOSED_CHANNEL_LOST,
    CONNECTION_CONTROL,
    FINISH_SENDER,
    FRAME_NAMES,
    MESSAGE,
    RESET_CANCELLED,
    RESET_LOST,
    SENT_UNRELIABLE,
    VERSION_TAG,
    Incomplete,
    decode_frame,
    describe,
    encode_uint,
    protocol_error,
)
from mainstem.aqueduct.halves import OPENED_BY_SERVER, Half, ReceiverHalf, Role, SenderHalf, Stream
from mainstem.aqueduct.state import ReceiverInput, ReceiverState, SenderInput, SenderState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainstem.aqueduct.connection_state import ConnectionState
    from mainstem.errors import RemoteProtocolError


def receive_stream(state: ConnectionState, stream_id: int, data: bytes, fin: bool) -> None:
    """Process the bytes of a stream, or hold them. Raises RemoteProtocolError."""
    stream = state.streams.get(stream_id) or _new_stream(state, stream_id)
    if stream is None:
        return
    if not stream.heard:
        state.heard(stream)
    if stream.in_done:
        return
    if data and stream.last_seen:
        raise _after_last()
    stream.fin = stream.fin or fin
    if stream.role is Role.ABANDONED:
        if fin:
            stream.in_done = True
            state.forget_if_done(stream)
        return
    if data:
        stream.feed(data)
    if (state.is_early or not state.is_ready) and stream_id != state.control_id:
        _hold_stream(state, stream)
    elif stream.blocked_on is None:
        _read(state, stream)
    else:
        state.account_stream(stream)


def _new_stream(state: ConnectionState, stream_id: int) -> Stream | None:
    """A stream that is not known: the peer's new one, or None if it was opened here and is over."""
    if bool(stream_id & OPENED_BY_SERVER) != state.is_client:
        return None
    if len(state.streams) >= state.limits.max_open_streams:
        raise protocol_error("stream limit", f"more than {state.limits.max_open_streams} streams at once")
    stream = state.streams[stream_id] = Stream(stream_id, Role.NEW, opened_here=False, limits=state.limits)
    # Until the server has responded, the client must begin everything with a Version frame.
    stream.must_begin_with_version = not state.is_client and not state.is_ready
    return stream


def receive_reset(state: ConnectionState, stream_id: int, code: int) -> None:
    """The peer reset its direction of a stream. Raises RemoteProtocolError."""
    stream = state.streams.get(stream_id) or _new_stream(state, stream_id)
    if stream is None:
        return
    state.heard(stream)
    if stream.in_done:
        return
    if stream in state.held_streams:
        if stream.is_bidirectional:
            # Its first frame, which names its channel, counts as read: the peer relies on that.
            stream.held_reset = code
            return
        del state.held_streams[stream]
    stream.fin = True
    _reset_arrived(state, stream, code)


def stream_stopped(state: ConnectionState, stream_id: int) -> None:
    """The peer reads no more of a stream, and the QUIC connection has reset it. Raises RemoteProtocolError."""
    stream = state.streams.get(stream_id)
    if stream is not None and stream.role is Role.CONNECTION:
        raise protocol_error("connection control lasts", "the peer stopped reading the connection control stream")
    state.forget_writes(stream_id)
    for sender in state.senders.values():
        if sender.ordered_stream == stream_id:
            sender.ordered_stream = None
            sender.ledger.close()
            break
    if stream is not None:
        stream.out_done = True
        state.forget_if_done(stream)


# Reading.


def _read(state: ConnectionState, stream: Stream) -> None:
    """Process the frames that are there, until the stream is held, abandoned or read dry."""
    while True:
        if stream.role is Role.MESSAGES and stream.half is not None:
            assert isinstance(stream.half, ReceiverHalf)
            stream.frames += receive.receive_run(state, stream, stream.half)
        frame = stream.next_frame()
        if frame is None:
            break
        _process(state, stream, *frame)
        if stream.blocked_on is not None or stream.role is Role.ABANDONED:
            break
    if stream.accounted or stream.position < len(stream.data) or stream.pieces:
        state.account_stream(stream)
    if stream.fin and stream.blocked_on is None and stream.role is not Role.ABANDONED:
        _end_of_stream(state, stream)


def resume(state: ConnectionState, stream: Stream) -> None:
    """A held stream goes on: first with the message that had not fitted."""
    if stream.role is Role.ABANDONED or stream.in_done or state.is_ended:
        return
    frame, stream.held_frame = stream.held_frame, None
    if frame is not None and not receive.receive_message(state, frame[1], stream=stream):
        stream.held_frame = frame
        return
    state.commands.append(PauseStream(stream.stream_id, paused=False))
    _read(state, stream)


def _process(state: ConnectionState, stream: Stream, tag: int, value: Any) -> None:
    """Process one frame of a stream. Raises RemoteProtocolError if it may not stand there."""
    if state.is_observed:
        state.saw_frame(tag, value)
    role = stream.role
    if tag == VERSION_TAG:
        if stream.frames:
            raise protocol_error("version place", "a Version frame that is not the first in its stream")
        stream.versioned = True
        stream.frames = 1
        return
    if stream.must_begin_with_version and not stream.versioned:
        text = f"a {FRAME_NAMES[tag]} frame without a Version frame, before the server's response"
        raise protocol_error("version first", text)
    if tag == CONNECTION_CONTROL:
        _connection_control(state, stream, value)
        return
    stream.frames += 1
    if role is Role.CONTROL:
        _on_control(state, stream, tag, value)
    elif role is Role.CONNECTION:
        raise protocol_error("frame place", f"a {FRAME_NAMES[tag]} frame on the connection control stream")
    elif stream.is_bidirectional:
        _check_first(stream, tag)
        stream.role = Role.CONTROL
        _attach_control(state, stream, value)
    elif role is Role.NOTICE:
        raise protocol_error("frame place", "another frame beside a ClosedChannelLost")
    elif tag == MESSAGE:
        stream.role = Role.MESSAGES
        if not receive.receive_message(state, value, stream=stream):
            stream.held_frame = tag, value
    elif role is Role.MESSAGES:
        raise protocol_error("frame place", f"a {FRAME_NAMES[tag]} frame on a stream of messages")
    else:
        _check_first(stream, tag)
        stream.role = Role.NOTICE
        receive.closed_channel_lost(state, value)


def _on_control(state: ConnectionState, stream: Stream, tag: int, value: Any) -> None:
    half = stream.half
    if isinstance(half, SenderHalf):
        if tag == ACK_RELIABLE:
            send.acknowledged_reliable(state, half, value)
        elif tag == ACK_NACK_UNRELIABLE:
            send.resolved_unreliable(state, half, value)
        elif tag == CLOSE_RECEIVER:
            _note_last(stream)
            send.receiver_closed(state, half, value)
        else:
            raise _misplaced(tag, half, "receiver-to-sender")
    elif half is not None:
        if tag == SENT_UNRELIABLE:
            receive.declared(state, half, value)
        elif tag == FINISH_SENDER:
            _note_last(stream)
            receive.finished(state, half, value)
        else:
            raise _misplaced(tag, half, "sender-to-receiver")


def _note_last(stream: Stream) -> None:
    """This frame must be the last of its direction."""
    stream.last_seen = True
    if stream.buffered:
        raise _after_last()


def _after_last() -> RemoteProtocolError:
    return protocol_error("last frame", "bytes after the last frame of a control stream")


def _misplaced(tag: int, half: Half, direction: str) -> RemoteProtocolError:
    text = f"a {FRAME_NAMES[tag]} frame on the control stream of {describe(half.channel_id)}, {direction}"
    return protocol_error("frame place", text)


def _check_first(stream: Stream, tag: int) -> None:
    """Check that a frame may be the first on its stream after Version. Raises RemoteProtocolError."""
    name = FRAME_NAMES[tag]
    if tag == VERSION_TAG:
        raise protocol_error("version place", "a Version frame that is not the first in its stream")
    if stream.is_bidirectional:
        if tag != CHANNEL_CONTROL:
            raise protocol_error("frame place", f"a bidirectional stream that begins with a {name} frame")
    elif tag == CONNECTION_CONTROL:
        raise protocol_error("connection control place", "a ConnectionControl frame on a unidirectional stream")
    elif tag not in (MESSAGE, CLOSED_CHANNEL_LOST):
        raise protocol_error("frame place", f"a {name} frame on a unidirectional stream")


def _end_of_stream(state: ConnectionState, stream: Stream) -> None:
    """A stream ended after whole frames, or not. Raises RemoteProtocolError."""
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
    state.forget_if_done(stream)


def _reset_arrived(state: ConnectionState, stream: Stream, code: int) -> None:
    """The peer reset its direction of a stream. Raises RemoteProtocolError."""
    stream.in_done = True
    half = stream.half
    if stream.role is Role.CONNECTION:
        raise protocol_error("connection control lasts", "the connection control stream was reset")
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
            send.sender_lost(state, half)
        else:
            receive.end_receiver(state, half, ReceiverInput.LOSE)
    elif code == RESET_CANCELLED and isinstance(half, ReceiverHalf):
        # The receiver closes at once and drops what was not received.
        receive.close_receiver(state, half, ReceiverInput.CANCEL)
    else:
        text = f"the control stream of {describe(half.channel_id)} was reset with code {code}"
        raise protocol_error("reset code", text)


# The greeting, and what comes before its time.


def _connection_control(state: ConnectionState, stream: Stream, headers: Any) -> None:
    """Process a ConnectionControl frame. Raises RemoteProtocolError if it may not stand there."""
    is_second = state.peer_headers_seen
    if is_second and stream.role is Role.CONNECTION:
        raise protocol_error("connection control once", "a second ConnectionControl frame")
    is_right = stream.stream_id == state.control_id if state.is_client else stream.is_bidirectional
    if not stream.versioned or stream.frames != 1 or not is_right or (stream.opened_here and not state.is_client):
        text = "a ConnectionControl frame that does not follow a Version frame at the start of its bidirectional stream"
        raise protocol_error("connection control place", text)
    if is_second:
        raise protocol_error("connection control once", "a second ConnectionControl frame")
    stream.frames += 1
    stream.role = Role.CONNECTION
    state.control_id = stream.stream_id
    state.peer_headers_seen = True
    state.events.append(PeerHeaders(headers))
    if state.is_client:
        state.is_ready = True
        state.plain.opening = b""
        release(state)


def _hold_stream(state: ConnectionState, stream: Stream) -> None:
    """Keep a stream for later; at a server, check whether it is the connection control stream.

    What can be wrong with its first frames is found at once: a client that never sends its headers must not be able to have
    nonsense kept for it.
    """
    state.held_streams[stream] = None
    if not (state.is_early or state.is_client or state.peer_headers_seen or stream.held_frame is not None):
        _check_held(state, stream)
    state.account_stream(stream)


def _check_held(state: ConnectionState, stream: Stream) -> None:
    if stream.frames == 0:
        frame = stream.next_frame()
        if frame is None:
            return
        _process(state, stream, *frame)
    if stream.is_bidirectional:
        frame = stream.next_frame()
        if frame is not None:
            if frame[0] == CONNECTION_CONTROL:
                del state.held_streams[stream]
                _process(state, stream, *frame)
            else:
                _check_first(stream, frame[0])
                stream.held_frame = frame
    else:
        # A message may be large, and a frame that is kept is not counted: it stays in the reader.
        tag = stream.next_tag()
        if tag is not None:
            _check_first(stream, tag)


def release(state: ConnectionState) -> None:
    """A gate opened: process what it held, in the order in which it came. Raises RemoteProtocolError."""
    if not state.is_early and not state.is_client and not state.peer_headers_seen:
        for stream in list(state.held_streams):
            _hold_stream(state, stream)
    if state.is_early or not state.is_ready:
        return
    streams, state.held_streams = list(state.held_streams), {}
    datagrams, state.held_datagrams = state.held_datagrams, []
    for stream in streams:
        frame, stream.held_frame = stream.held_frame, None
        if frame is not None:
            _process(state, stream, *frame)
        if stream.role is not Role.ABANDONED and stream.blocked_on is None:
            _read(state, stream)
        if stream.held_reset is not None and not stream.in_done:
            stream.fin = True
            _reset_arrived(state, stream, stream.held_reset)
        settle(state)
    for data, must_begin_with_version in datagrams:
        state.account(-len(data))
        _read_datagram(state, data, must_begin_with_version=must_begin_with_version)


def receive_datagram(state: ConnectionState, data: bytes) -> None:
    """Process a datagram, or check and hold it. Raises RemoteProtocolError."""
    if state.is_early or not state.is_ready:
        must_begin_with_version = not state.is_client and not state.is_ready
        for _ in _messages_of(state, data, must_begin_with_version=must_begin_with_version):
            pass
        state.account(len(data))
        state.held_datagrams.append((data, must_begin_with_version))
    else:
        _read_datagram(state, data, must_begin_with_version=False)


def _read_datagram(state: ConnectionState, data: bytes, *, must_begin_with_version: bool) -> None:
    for message in _messages_of(state, data, must_begin_with_version=must_begin_with_version):
        if state.is_observed:
            state.saw_frame(MESSAGE, message)
        receive.receive_message(state, message, stream=None)


def _messages_of(state: ConnectionState, data: bytes, *, must_begin_with_version: bool) -> Iterator[Any]:
    """The messages in a datagram. Raises RemoteProtocolError if another frame, or part of one, is in it."""
    position, end = 0, len(data)
    first = True
    while position < end or first:
        try:
            (tag, value), position = decode_frame(data, position, end, state.limits)
        except Incomplete:
            raise protocol_error("partial frame", "a datagram that ends within a frame") from None
        if tag == VERSION_TAG:
            if not first:
                raise protocol_error("version place", "a Version frame that is not the first in its datagram")
        elif first and must_begin_with_version:
            raise protocol_error("version first", "a datagram without a Version frame, before the server's response")
        elif tag == MESSAGE:
            yield value
        else:
            raise protocol_error("frame place", f"a {FRAME_NAMES[tag]} frame in a datagram")
        first = False


# Control streams.


def _attach_control(state: ConnectionState, stream: Stream, channel_id: int) -> None:
    """Attach a stream that the peer opened to its half; reset it if that half does not exist, or has one."""
    if not state.is_minted_here(channel_id):
        text = f"ChannelControl for {describe(channel_id)}, which its sender minted"
        raise protocol_error("control minter", text)
    half: Half | None = state.senders.get(channel_id) or state.receivers.get(channel_id)
    if half is not None and half.control is None:
        _attach(state, half, stream)
    else:
        # A ghost receiver's, or one that raced with the channel's end: the peer discards its half.
        state.counts.ghosts_refused += 1
        state.reset_stream(stream, RESET_LOST)
        state.abandon(stream)


def open_control_streams(state: ConnectionState) -> None:
    """Open the control streams that wait, as far as the transport has credit."""
    while state.awaiting_control and state.bidi_room > 0:
        half = state.awaiting_control.popleft()
        stream_id = state.open_stream(unidirectional=False)
        stream = Stream(stream_id, Role.CONTROL, opened_here=True, limits=state.limits)
        state.streams[stream_id] = stream
        data = b"\x02" + encode_uint(half.channel_id)
        state.write(stream_id, data)
        if state.is_observed:
            state.sent_frame(data)
        if half.state.is_final:
            # It was lost before its control stream could be opened: its minter still has to be notified.
            state.reset_stream(stream, RESET_LOST)
            state.abandon(stream)
        else:
            _attach(state, half, stream)


def _attach(state: ConnectionState, half: Half, stream: Stream) -> None:
    """Give a half its control stream, and do what waited for it."""
    half.control = stream
    stream.half = half
    if isinstance(half, SenderHalf):
        if half.state is SenderState.CANCEL_PENDING:
            send.reset_cancelled(state, half)
        else:
            send.declare(state, half)
            send.try_finish(state, half)
    elif half.state is ReceiverState.CLOSE_PENDING:
        receive.close_receiver(state, half, ReceiverInput.ATTACHED)
    elif half.is_accounted_for:
        receive.complete(state, half)
    else:
        receive.schedule_ack(state, half)


# Loss and drops.


def settle(state: ConnectionState) -> None:
    """Complete everything that one step set in motion, one half at a time."""
    while True:
        if state.lost:
            _lose(state, state.lost.pop())
        elif state.dropped:
            half, as_lost = state.dropped.pop()
            if half.state.is_final:
                if isinstance(half, ReceiverHalf):
                    state.drained.pop(half.channel_id, None)
                    receive.drop_queue(state, half, as_lost=as_lost)
            elif as_lost:
                _lose(state, half)
            elif isinstance(half, SenderHalf):
                send.cancel(state, half)
            else:
                receive.close_by_application(state, half)
        elif state.unblocked:
            resume(state, state.unblocked.popleft())
        else:
            return


def _lose(state: ConnectionState, half: Half) -> None:
    """A half is lost, with its creating message or by the peer's notice. The other side is notified."""
    if half.state.is_final:
        # Its control stream is gone.
        ends = (SenderState.LOST, SenderState.DISCONNECTED, ReceiverState.LOST, ReceiverState.DISCONNECTED)
        if half.state not in ends and not half.reachable:
            _notify_lost(state, half)
        if isinstance(half, SenderHalf):
            send.lose_messages(state, half, half.acked)
            half.acked = []
        return
    if half.control is not None:
        if half.is_sender and half.control.out_done:
            # It has finished: its direction cannot be reset any more.
            _notify_lost(state, half)
        state.reset_stream(half.control, RESET_LOST)
    if isinstance(half, SenderHalf):
        send.sender_lost(state, half)
    else:
        receive.end_receiver(state, half, ReceiverInput.LOSE)


def _notify_lost(state: ConnectionState, half: Half) -> None:
    state.notices.append(b"\x09" + encode_uint(half.channel_id))
    send_notices(state)


def send_notices(state: ConnectionState) -> None:
    """Send the ClosedChannelLost frames that wait for a stream."""
    while state.notices and state.plain.stream_room > 0:
        data = state.notices.popleft()
        state.write(state.open_stream(unidirectional=True), data, fin=True)
        state.sent_frame(data)


def disconnect(state: ConnectionState) -> frozenset[object]:
    """Every half ends with the connection. Only channels that had finished before can still be read to their end.

    Returns the tags of the messages that were never sent.
    """
    unread: list[Any] = []
    unsent = {item.tag for sender in state.senders.values() for item in sender.pending if item.tag is not None}
    ended_senders = []
    for sender in list(state.senders.values()):
        ended_senders.append((sender, sender.unacknowledged, sender.progress))
        state.progress += sender.progress
        state.move_sender(sender, SenderInput.DISCONNECT)
        sender.take_outstanding()
    ended_receivers = list(state.receivers.values())
    for receiver in ended_receivers:
        state.move_receiver(receiver, ReceiverInput.DISCONNECT)
        receiver.blocked.clear()
        unread += receiver.take_queue()
    for receiver in [receiver for receiver in state.drained.values() if not receiver.handed_over]:
        del state.drained[receiver.channel_id]
        unread += receiver.take_queue()
    while unread:
        # What is attached to these can be received no more, nor what is attached to that.
        for half in unread.pop().attachments:
            if isinstance(half, ReceiverHalf) and state.drained.pop(half.channel_id, None) is not None:
                unread += half.take_queue()
    state.disconnect()
    for sender, unacknowledged, progress in ended_senders:
        send.report_end(state, sender, unacknowledged, progress)
    for receiver in ended_receivers:
        state.receiver_ended(receiver)
    return frozenset(unsent)

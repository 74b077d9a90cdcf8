"""An Aqueduct connection without IO: streams, datagrams and resets go in, commands and events come out.

The verbs tell their kind: ``receive_*`` is what the QUIC connection reports, ``data_to_send`` what it is asked to do,
``next_event`` what the application learns; everything else is what the application asks for. Time is an argument. A
rule that the peer broke ends the connection with a `ConnectionEnded` event and a close command; it is never raised
here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.aqueduct import acknowledgements, frame_dispatch, lifecycle, receiving, sending
from mainstem.aqueduct.channel_halves import Delivery, ReceiverHalf, SenderHalf
from mainstem.aqueduct.channel_id import ENTRYPOINT
from mainstem.aqueduct.codec import EXPLICIT_CLOSE, as_headers, violation
from mainstem.aqueduct.connection_state import ConnectionState, Counts, Timing
from mainstem.aqueduct.events import (
    Attach,
    Attachment,
    CloseConnection,
    Command,
    ConnectionEnded,
    Event,
    HoldStream,
    Incoming,
    Mode,
    PeerHeaders,
    ReceiverEnded,
    SenderEnded,
)
from mainstem.aqueduct.frames import VERSION_BYTES, ConnectionControl, Frame, Message
from mainstem.aqueduct.limits import DEFAULT_LIMITS, Limits
from mainstem.aqueduct.state import ReceiverInput, ReceiverState, SenderInput, SenderState
from mainstem.aqueduct.streams import OPENED_BY_SERVER, UNIDIRECTIONAL, Role, Stream
from mainstem.errors import ClosedError, LocalProtocolError, RemoteProtocolError
from mainstem.instruments import NULL_INSTRUMENT, Instrument

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from mainstem._core.aqueduct.run_writer import Ledger, QuickSender

    PlainSender = Ledger | QuickSender

DEFAULT_TIMING = Timing()


class AqueductConnection:
    """One side of a connection, as a state machine.

    ``headers`` are the client's connection headers (a server gives its own to `accept`). ``peer`` names the other side
    in errors. A server that may receive 0-RTT data is made with ``early_data=True`` and processes nothing before
    `handshake_completed` says that it cannot be a replay.
    """

    def __init__(
        self,
        *,
        is_client: bool,
        headers: Mapping[str, bytes | str] | Iterable[tuple[str, bytes | str]] | None = None,
        limits: Limits = DEFAULT_LIMITS,
        timing: Timing = DEFAULT_TIMING,
        instrument: Instrument = NULL_INSTRUMENT,
        peer: str = "",
        early_data: bool = False,
    ) -> None:
        self._state = ConnectionState(
            is_client=is_client, limits=limits, timing=timing, instrument=instrument, peer=peer
        )
        self._state.resume = self._resume
        self._headers = as_headers(headers)
        self._control_id: int | None = None
        self._early = early_data and not is_client
        # The client: the server's ConnectionControl came. The server: the application answered the client's.
        self._ready = False
        self._peer_headers_seen = False
        self._held_streams: dict[Stream, None] = {}
        self._held_datagrams: list[tuple[bytes, bool]] = []
        self._ended = False
        if is_client:
            # Whatever the client sends before the server has answered begins with a Version frame.
            self._state.out.plain.opening = VERSION_BYTES
            lifecycle.create_sender(self._state, ENTRYPOINT, minted_here=True, reachable=True)

    # The beginning.

    def start(self, now_ns: int) -> None:
        """Client: open the connection control stream. Messages may follow at once."""
        state = self._state
        state.now_ns = now_ns
        if not state.is_client or self._control_id is not None:
            raise LocalProtocolError("only a client starts a connection, and once", rule="start")
        self._control_id = state.out.open(unidirectional=False)
        stream = Stream(self._control_id, Role.CONNECTION, opened_here=True, limits=state.limits)
        state.streams[self._control_id] = stream
        data = ConnectionControl(self._headers).encode()
        state.out.write(self._control_id, data)
        state.sent_frame(data)

    def accept(
        self, headers: Mapping[str, bytes | str] | Iterable[tuple[str, bytes | str]] | None, now_ns: int
    ) -> None:
        """Server: answer the client's headers. What has arrived meanwhile is processed now."""
        state = self._state
        state.now_ns = now_ns
        if state.is_client or not self._peer_headers_seen or self._ready:
            raise LocalProtocolError("a server accepts once, after the client's headers came", rule="accept")
        assert self._control_id is not None
        data = ConnectionControl(as_headers(headers)).encode()
        state.out.write(self._control_id, VERSION_BYTES + data)
        state.sent_frame(data)
        self._ready = True
        lifecycle.create_receiver(state, ENTRYPOINT, minted_here=False, taken=True)
        self._guard(self._release)

    def handshake_completed(self, now_ns: int) -> None:
        """The TLS handshake is over, or the early data cannot be a replay: what was held is processed now."""
        self._state.now_ns = now_ns
        if self._early:
            self._early = False
            self._guard(self._release)

    # What the QUIC connection reports.

    def receive_stream(self, stream_id: int, data: bytes, fin: bool, now_ns: int) -> None:
        """Bytes of a stream, in order; ``fin`` where they are its last."""
        state = self._state
        state.now_ns = now_ns
        if self._ended:
            return
        stream = state.streams.get(stream_id)
        if stream is None:
            if fin and stream_id & UNIDIRECTIONAL and self._take_run([data], 0, False):
                # Most often one message without attachments, and all there is on the stream.
                return
        elif not fin and stream.is_read and stream.reader.awaits_more_than(len(data)):
            # The middle of a large message.
            stream.reader.feed(data)
            self._guard(lambda: state.account_stream(stream))
            return
        try:
            self._receive_stream(stream_id, data, fin)
            lifecycle.settle(state)
        except RemoteProtocolError as error:
            self._fail(error)

    def receive_reset(self, stream_id: int, code: int, now_ns: int) -> None:
        """The peer reset its direction of a stream."""
        self._state.now_ns = now_ns
        if not self._ended:
            self._guard(lambda: self._receive_reset(stream_id, code))

    def receive_stop_sending(self, stream_id: int, now_ns: int) -> None:
        """The peer reads no more of a stream; the QUIC connection has reset it."""
        self._state.now_ns = now_ns
        lifecycle.stream_stopped(self._state, stream_id)

    def receive_datagram(self, data: bytes, now_ns: int) -> None:
        """One datagram."""
        self._state.now_ns = now_ns
        if self._ended:
            return
        if self._is_gated:
            self._guard(lambda: self._hold_datagram(data))
        else:
            self._guard(lambda: frame_dispatch.read_datagram(self._state, data, must_begin_with_version=False))

    def receive_stream_ends(self, stream_ids: Sequence[int], pieces: list[bytes], now_ns: int) -> None:
        """The last bytes of several streams of one direction. For most they are the first as well."""
        state = self._state
        state.now_ns = now_ns
        index = 0
        are_new = state.streams.keys().isdisjoint(stream_ids)
        while index < len(pieces) and not self._ended:
            taken = self._take_run(pieces, index, False) if are_new else 0
            if not taken:
                self.receive_stream(stream_ids[index], pieces[index], True, now_ns)
                taken = 1
            index += taken

    def receive_datagrams(self, datagrams: list[bytes], now_ns: int) -> None:
        """Several datagrams, in the order in which they came."""
        self._state.now_ns = now_ns
        index = 0
        while index < len(datagrams) and not self._ended:
            taken = self._take_run(datagrams, index, True)
            if not taken:
                self.receive_datagram(datagrams[index], now_ns)
                taken = 1
            index += taken

    def _take_run(self, items: list[bytes], start: int, unreliable: bool) -> int:
        """Process the plain messages from ``items[start]`` on, which travelled alone, as far as that can be done at once;
        returns how many they were. The next has to go the careful way."""
        if self._is_gated:
            return 0
        try:
            return receiving.receive_alone(self._state, items, start, unreliable=unreliable)
        except RemoteProtocolError as error:
            self._fail(error)
            return len(items)

    def stream_delivered(self, stream_id: int, now_ns: int) -> None:
        """All that was written to the stream has reached the peer (the answer to `WatchDelivery`)."""
        self._state.now_ns = now_ns
        stream = self._state.streams.get(stream_id)
        if stream is not None:
            self._state.heard(stream)

    def transport_state(
        self,
        *,
        bidi_streams: int | None = None,
        uni_streams: int | None = None,
        datagrams: int | None = None,
        max_datagram: int | None = None,
        rtt_ns: int | None = None,
    ) -> None:
        """What the QUIC connection has room for: streams that may be opened, datagrams that may be queued, the largest
        datagram in bytes (0 where the peer takes none), and its estimate of the round trip. None leaves a value
        alone."""
        self._state.out.note_room(bidi_streams, uni_streams, datagrams, max_datagram)
        if rtt_ns is not None:
            self._state.rtt_ns = rtt_ns

    def connection_lost(self, error: Exception | None, now_ns: int) -> None:
        """The QUIC connection is gone; ``error`` is None after an orderly close by the peer."""
        self._state.now_ns = now_ns
        self._end(error)

    # What the QUIC connection is asked to do.

    def data_to_send(self, now_ns: int) -> list[Command]:
        """The commands that are due, in the order in which they must be carried out."""
        state = self._state
        state.now_ns = now_ns
        if not self._ended:
            if state.awaiting_control:
                lifecycle.open_control_streams(state)
            if state.notices:
                lifecycle.send_notices(state)
            if state.waiting:
                sending.pump(state)
                lifecycle.settle(state)
        return state.out.take()

    def next_event(self) -> Event | None:
        """The next thing that the application should know."""
        return self._state.events.popleft() if self._state.events else None

    def next_timeout_ns(self) -> int | None:
        """When `handle_timeout` is due."""
        state = self._state
        due = state.ack_due_ns
        if state.declare_due_ns is not None and (due is None or state.declare_due_ns < due):
            due = state.declare_due_ns
        if state.nack_heap and (due is None or state.nack_heap[0][0] < due):
            due = state.nack_heap[0][0]
        return due

    def handle_timeout(self, now_ns: int) -> None:
        """Do what is due."""
        state = self._state
        state.now_ns = now_ns
        if self._ended:
            return
        if state.declare_due_ns is not None and state.declare_due_ns <= now_ns:
            acknowledgements.declare_due(state)
        if state.ack_due_ns is not None and state.ack_due_ns <= now_ns:
            acknowledgements.acks_due(state)
        receiving.nacks_due(state)
        lifecycle.settle(state)

    # What the application asks for.

    def send(
        self,
        channel_id: int,
        payload: bytes,
        now_ns: int,
        *,
        mode: Mode = Mode.ORDERED,
        attach: Sequence[tuple[Attach, bool]] = (),
        tag: object = None,
    ) -> tuple[int, ...]:
        """Send one message.

        ``attach`` makes new channels: for each, which half goes with the message, and whether it is a oneshot; their
        ids are returned in that order. With a ``tag``, an `Acknowledged` or a `Lost` event tells later what became of
        the message. Raises LocalProtocolError, BackPressured (a `Writable` event will follow) and ClosedError.
        """
        state = self._state
        state.now_ns = now_ns
        self._check_open()
        ids = sending.send(state, sending.require_sender(state, channel_id), payload, mode=mode, attach=attach, tag=tag)
        lifecycle.settle(state)
        return ids

    def has_room(self, channel_id: int) -> bool:
        """Another reliable message may be sent; where not, a `Writable` event will follow."""
        sender = self._state.senders.get(channel_id)
        if sender is None:
            return False
        if not sender.has_room:
            sender.wants_room = True
            return False
        return True

    def set_bounds(self, channel_id: int, *, messages: int | None = None, size: int | None = None) -> None:
        """Bound a sender's queued and unacknowledged messages, and their bytes."""
        sender = sending.require_sender(self._state, channel_id)
        if messages is not None:
            sender.ledger.max_messages = max(1, messages)
        if size is not None:
            sender.ledger.max_bytes = max(1, size)

    def finish(self, channel_id: int, now_ns: int) -> None:
        """End a channel gracefully: everything sent is still delivered, nothing more can be sent."""
        state = self._state
        state.now_ns = now_ns
        sender = state.senders.get(channel_id)
        if sender is not None and not self._ended:
            state.move_sender(sender, SenderInput.FINISH)
            lifecycle.try_finish(state, sender)

    def cancel(self, channel_id: int, now_ns: int) -> None:
        """Abandon a channel as soon as may be: what is on its way or unread at the peer is dropped.

        Without effect once the channel has finished: there is nothing left to abandon.
        """
        state = self._state
        state.now_ns = now_ns
        sender = state.senders.get(channel_id)
        if sender is not None and not self._ended:
            lifecycle.cancel(state, sender)
            lifecycle.settle(state)

    def close_receiver(self, channel_id: int, now_ns: int) -> None:
        """Close a receiver: no more of its messages are wanted, and those unread are dropped."""
        state = self._state
        state.now_ns = now_ns
        receiver = state.receivers.get(channel_id)
        if receiver is not None:
            lifecycle.close_by_application(state, receiver)
        else:
            drained = state.drained.pop(channel_id, None)
            if drained is not None:
                lifecycle.drop_queue(state, drained, as_lost=False)
        lifecycle.settle(state)

    def receive(self, channel_id: int, now_ns: int) -> Incoming | None:
        """The oldest unread message of a receiver; None where there is none now.

        The halves attached to it belong to the application from here on.
        """
        state = self._state
        state.now_ns = now_ns
        receiver = state.receivers.get(channel_id) or state.drained.get(channel_id)
        if receiver is None or not receiver.queue or not receiver.taken:
            return None
        delivery = receiving.take(state, receiver)
        if state.unblocked:
            self._guard(lambda: lifecycle.settle(state))
        if isinstance(delivery, bytes):
            return Incoming(channel_id, delivery, ())
        attachments: tuple[Attachment, ...] = ()
        if delivery.halves:
            attachments = tuple(
                Attachment(half.channel_id, isinstance(half, SenderHalf), half.state) for half in delivery.halves
            )
        return Incoming(channel_id, delivery.message.payload, attachments)

    def receive_run(self, channel_id: int, now_ns: int) -> deque[bytes] | None:
        """The payloads of the oldest unread messages, as long as they carry no attachments and came on streams.

        None where there is none now, or where `receive` has to be asked.
        """
        state = self._state
        state.now_ns = now_ns
        receiver = state.receivers.get(channel_id) or state.drained.get(channel_id)
        if receiver is None or not receiver.queue or not receiver.taken:
            return None
        run = receiving.take_run(state, receiver)
        if state.unblocked:
            self._guard(lambda: lifecycle.settle(state))
        return run

    def receive_next(self, channel_id: int, now_ns: int) -> deque[bytes] | Incoming | None:
        """What `receive_run` or else `receive` gives; where that is nothing, the application waits for it (`want`)."""
        state = self._state
        receiver = state.receivers.get(channel_id) or state.drained.get(channel_id)
        if receiver is None or not receiver.queue:
            receiving.want(state, channel_id)
            return None
        return self.receive_run(channel_id, now_ns) or self.receive(channel_id, now_ns)

    def want(self, channel_id: int) -> None:
        """The application waits for a message of this receiver, which has none."""
        receiving.want(self._state, channel_id)

    def plain_sender(self, channel_id: int, mode: Mode) -> PlainSender | None:
        """The short way for a live sender's plain messages: its ``put`` takes them while nothing is in the way."""
        sender = self._state.senders.get(channel_id)
        if sender is None:
            return None
        return sender.ledger if mode is Mode.ORDERED else sending.quick_sender(self._state, sender, mode)

    def call_on_output(self, wake: Callable[[], None]) -> None:
        """``wake`` is called when the short way has put something where there was nothing to send."""
        self._state.out.plain.wake = wake

    def drop(self, attachment: Attachment, now_ns: int) -> None:
        """Give up a half that came with a message: a sender is cancelled, a receiver closed."""
        if attachment.is_sender:
            self.cancel(attachment.channel_id, now_ns)
        else:
            self.close_receiver(attachment.channel_id, now_ns)

    def close(self, now_ns: int, *, reason: str = "") -> None:
        """Close the connection, with all its channels."""
        self._state.now_ns = now_ns
        if not self._ended:
            self._state.out.command(CloseConnection(EXPLICIT_CLOSE, reason))
            self._end(None)

    # What can be asked about it.

    @property
    def is_ready(self) -> bool:
        """Both sides' headers have been exchanged."""
        return self._ready

    @property
    def is_ended(self) -> bool:
        return self._ended

    @property
    def has_output(self) -> bool:
        """`data_to_send` has something, or may have."""
        state = self._state
        return state.out.is_pending or bool(state.waiting or state.awaiting_control or state.notices)

    @property
    def counts(self) -> Counts:
        return self._state.counts

    @property
    def live_halves(self) -> int:
        """Halves that exist here, those included that wait to be read or taken."""
        return len(self._state.senders) + len(self._state.receivers) + len(self._state.drained)

    @property
    def open_streams(self) -> int:
        """QUIC streams that this side still has a record of."""
        return len(self._state.streams)

    @property
    def buffered_bytes(self) -> int:
        """Bytes that wait here to be read."""
        return self._state.buffered

    def sender_state(self, channel_id: int) -> SenderState | None:
        """The state of a live sender."""
        sender = self._state.senders.get(channel_id)
        return None if sender is None else sender.state

    def receiver_state(self, channel_id: int) -> ReceiverState | None:
        """The state of a live receiver, or of one with something left to read."""
        receiver = self._state.receivers.get(channel_id) or self._state.drained.get(channel_id)
        return None if receiver is None else receiver.state

    # Inside.

    def _check_open(self) -> None:
        if self._ended:
            raise ClosedError("the connection is closed")

    @property
    def _is_gated(self) -> bool:
        return self._early or not self._ready

    def _guard(self, step: Callable[[], None]) -> None:
        """Run a step of the protocol and what it sets in motion; a rule that the peer broke ends the connection."""
        try:
            step()
            lifecycle.settle(self._state)
        except RemoteProtocolError as error:
            self._fail(error)

    def _fail(self, error: RemoteProtocolError) -> None:
        error.peer = self._state.peer
        if not self._ended:
            self._state.out.clear()
            self._state.out.command(CloseConnection(error.code or 1, str(error)))
            self._end(error)

    def _end(self, error: Exception | None) -> None:
        """Every half ends with the connection. Only channels that had finished before can still be read to their
        end."""
        if self._ended:
            return
        self._ended = True
        unread: list[Delivery] = []
        state = self._state
        for sender in list(state.senders.values()):
            state.move_sender(sender, SenderInput.DISCONNECT)
            sender.take_outstanding()
            state.emit(SenderEnded(sender.channel_id, sender.state))
        for receiver in list(state.receivers.values()):
            state.move_receiver(receiver, ReceiverInput.DISCONNECT)
            receiver.blocked.clear()
            unread += receiver.take_queue()
            state.emit(ReceiverEnded(receiver.channel_id, receiver.state))
        for receiver in [receiver for receiver in state.drained.values() if not receiver.taken]:
            del state.drained[receiver.channel_id]
            unread += receiver.take_queue()
        while unread:
            # Nobody can take any more what is attached to these, nor what is attached to that.
            for half in unread.pop().halves:
                if isinstance(half, ReceiverHalf) and state.drained.pop(half.channel_id, None) is not None:
                    unread += half.take_queue()
        state.disconnect()
        self._held_streams.clear()
        self._held_datagrams.clear()
        state.emit(ConnectionEnded(error))

    def _receive_stream(self, stream_id: int, data: bytes, fin: bool) -> None:
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
        if self._is_gated and stream_id != self._control_id:
            self._hold_stream(stream)
        elif stream.blocked_on is None:
            self._read(stream)
        else:
            state.account_stream(stream)

    def _new_stream(self, stream_id: int) -> Stream | None:
        state = self._state
        opened_by_client = not stream_id & OPENED_BY_SERVER
        if opened_by_client == state.is_client:
            # It was opened here and is over: a late word on it.
            return None
        if len(state.streams) >= state.limits.max_streams:
            raise violation(f"more than {state.limits.max_streams} streams at once", "stream limit")
        stream = Stream(stream_id, Role.NEW, opened_here=False, limits=state.limits)
        # Until the server has answered, the client must begin everything with a Version frame.
        stream.must_begin_with_version = not state.is_client and not self._ready
        state.streams[stream_id] = stream
        return stream

    def _receive_reset(self, stream_id: int, code: int) -> None:
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
                # Its first frame, which tells whose it is, counts as read: the peer relies on that.
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

    def _resume(self, stream: Stream) -> None:
        """A held stream goes on: first with the message that had not fitted."""
        state = self._state
        if stream.role is Role.ABANDONED or stream.in_done or self._ended:
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
        frame_dispatch.check_connection_control(state, stream, self._control_id, is_second=self._peer_headers_seen)
        stream.frames += 1
        stream.role = Role.CONNECTION
        self._control_id = stream.stream_id
        self._peer_headers_seen = True
        state.emit(PeerHeaders(frame.headers))
        if state.is_client:
            self._ready = True
            state.out.plain.opening = b""
            self._release()

    # What comes before its time.

    def _hold_stream(self, stream: Stream) -> None:
        """Keep a stream for later; at a server, look whether it is the connection control stream."""
        state = self._state
        self._held_streams[stream] = None
        if self._early or state.is_client or self._peer_headers_seen or stream.held_frame is not None:
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
            else:
                stream.held_frame = frame
        state.account_stream(stream)

    def _hold_datagram(self, data: bytes) -> None:
        self._state.account(len(data))
        self._held_datagrams.append((data, not self._state.is_client and not self._ready))

    def _release(self) -> None:
        """A gate opened: process what it held, in the order in which it came."""
        if not self._early and not self._state.is_client and not self._peer_headers_seen:
            for stream in list(self._held_streams):
                self._hold_stream(stream)
        if self._is_gated:
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

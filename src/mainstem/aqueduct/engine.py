"""An Aqueduct connection without I/O: streams, datagrams and resets go in, commands and events come out.

Methods are named by who calls them. ``receive_*`` is what the QUIC connection reports; ``data_to_send`` returns what it is asked to
do; ``next_event`` returns what the application is to be notified of; everything else is called by the application. Time is
an argument, in nanoseconds of any monotonic clock. Nothing here knows a socket, a clock, a thread or a QUIC library.

One thread calls everything. A call changes the state and appends to two queues, the commands and the events; it never
calls the transport or the application back (but for `call_on_output`, which only schedules). So a caller may take its
time, may drain the queues as often as it likes, and may call again from an event.

How the parts share the work:

* `AqueductEngine` is what a QUIC connection and the application call.
* `streams` decides what may be processed now and what is held, reads frames from streams, and decides which may stand where.
* `send` and `receive` have everything about one half: its messages, what is reported about them, its end.
* `lifecycle` gives halves their control streams, and runs loss and reachability as work lists.
* `ConnectionState` is what they share; `halves` is what is known of one half and of one stream.

Three paths lead in. Most messages without attachments travel alone, on a stream or in a datagram of their own, and come in
batches: ``_take_run`` has `receive.receive_alone` process as many as it can at once. The middle of a large message only
feeds a reader. Everything else goes through `Inbound`. The first two decide nothing that the third would decide otherwise;
they return where they cannot be sure.

Invariants. A rule that the peer broke ends the connection with a `ConnectionEnded` event and a close command; it is never
raised here: ``_guard`` wraps every step that may meet one. After `ConnectionEnded` every half has reported its end, no
command follows but the close, and only channels that had finished before can still be read. Work lists are empty between
two calls: each step that fills them ends with `lifecycle.settle`.

What may be reordered: messages of one sender in mode ORDERED never; all else (channels, modes, a channel and the message
that it came attached to) may arrive in any order, and QUIC may let a reset overtake the bytes before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.aqueduct import lifecycle, receive, send
from mainstem.aqueduct.channel_id import ENTRYPOINT, describe
from mainstem.aqueduct.codec import EXPLICIT_CLOSE, as_headers
from mainstem.aqueduct.connection_state import ConnectionState, Counts, Timing
from mainstem.aqueduct.events import Attach, CloseConnection, Command, Event, Mode
from mainstem.aqueduct.frames import VERSION_BYTES, ConnectionControl
from mainstem.aqueduct.halves import UNIDIRECTIONAL, Half, Incoming, Pending, ReceiverHalf, Role, SenderHalf, Stream
from mainstem.aqueduct.limits import DEFAULT_LIMITS, Limits
from mainstem.aqueduct.state import ReceiverState, SenderInput, SenderState
from mainstem.aqueduct.streams import Inbound
from mainstem.errors import ConnectionLost, LocalProtocolError, RemoteProtocolError
from mainstem.instruments import NULL_INSTRUMENT, Instrument

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from mainstem._core.aqueduct.run_writer import Ledger, QuickSender

    PlainSender = Ledger | QuickSender

DEFAULT_TIMING = Timing()


class AqueductEngine:
    """One side of a connection, as a state machine (docs/protocols/aqueduct.md).

    Args:
        is_client: Which side this is.
        headers: A client's connection headers. A server passes its own to `accept`.
        limits: The bounds of the connection.
        timing: The protocol's delays.
        instrument: What observes frames and state changes.
        peer: The other side's name, in errors.
        early_data: A server's: hold what comes until `handshake_completed`, as it could be a replay.

    Raises:
        LocalProtocolError: A header cannot be sent.

    Example:
        >>> client = AqueductEngine(is_client=True)
        >>> client.start(now_ns=0)
        >>> commands = client.data_to_send(now_ns=0)  # for the client's QUIC connection
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
        state = self._state = ConnectionState(
            is_client=is_client, limits=limits, timing=timing, instrument=instrument, peer=peer
        )
        self._inbound = Inbound(state, early=early_data and not is_client)
        self._headers = as_headers(headers)
        if is_client:
            # Everything that the client sends before the server has responded begins with a Version frame.
            self._state.out.plain.opening = VERSION_BYTES
            self.entrypoint: Half = send.create_sender(state, ENTRYPOINT, minted_here=True, reachable=True)
        else:
            self.entrypoint = ReceiverHalf(ENTRYPOINT, minted_here=False, reachable=True, handed_over=True)
            state.receivers[ENTRYPOINT] = self.entrypoint

    # Opening.

    def start(self, now_ns: int) -> None:
        """Client: open the connection control stream. Messages may follow at once. Raises LocalProtocolError."""
        state = self._state
        state.now_ns = now_ns
        if not state.is_client or self._inbound.control_id is not None:
            raise LocalProtocolError("only a client starts a connection, and once", rule="start")
        control_id = self._inbound.control_id = state.out.open(unidirectional=False)
        state.streams[control_id] = Stream(control_id, Role.CONNECTION, opened_here=True, limits=state.limits)
        data = ConnectionControl(self._headers).encode()
        state.out.write(control_id, data)
        state.sent_frame(data)

    def accept(
        self, headers: Mapping[str, bytes | str] | Iterable[tuple[str, bytes | str]] | None, now_ns: int
    ) -> None:
        """Server: respond to the client's headers. What has arrived meanwhile is processed now. Raises LocalProtocolError."""
        state = self._state
        state.now_ns = now_ns
        if state.is_client or not self._inbound.peer_headers_seen or self._inbound.is_ready:
            raise LocalProtocolError("a server accepts once, after the client's headers came", rule="accept")
        assert self._inbound.control_id is not None
        data = ConnectionControl(as_headers(headers)).encode()
        state.out.write(self._inbound.control_id, VERSION_BYTES + data)
        state.sent_frame(data)
        self._inbound.is_ready = True
        state.counts.halves_created += 1
        state.awaiting_control.append(self.entrypoint)
        self._guard(self._inbound.release)

    # What the application calls. Where something is to be sent afterwards, `call_on_output` has it called back.

    def send(
        self,
        channel_id: int,
        payload: bytes,
        *,
        mode: Mode = Mode.ORDERED,
        attach: Sequence[tuple[Attach, bool]] = (),
        tag: object = None,
    ) -> tuple[int, ...]:
        """Send one message; return the ids of the new channels, in the order of ``attach``.

        ``attach`` has which half of each new channel goes with the message, and whether it is a oneshot. With a ``tag``, an
        `Acknowledged` or a `Lost` event reports later what became of the message.

        Raises LocalProtocolError, BackPressured (a `Writable` event will follow) or ConnectionLost.
        """
        if self._state.is_ended:
            raise ConnectionLost("the connection has ended")
        sender = self._state.senders.get(channel_id)
        if sender is None:
            raise LocalProtocolError(f"{describe(channel_id)} has no sender here", rule="no such sender")
        return tuple(half.channel_id for half in self.send_on(sender, payload, mode, attach, tag))

    def send_on(
        self, sender: SenderHalf, payload: bytes, mode: Mode, attach: Sequence[tuple[Attach, bool]], tag: object
    ) -> tuple[Half, ...]:
        """Send one message, as `send` does; return the halves of the new channels that stay here."""
        state = self._state
        send.check(state, sender, payload, mode, len(attach))
        halves = tuple([self._make_half(kind, oneshot) for kind, oneshot in attach]) if attach else ()
        send.send(state, sender, Pending(payload, mode, halves, tag))
        lifecycle.settle(state)
        state.wake()
        return halves

    def has_room(self, channel_id: int) -> bool:
        """Whether another reliable message may be sent; where not, a `Writable` event will follow."""
        sender = self._state.senders.get(channel_id)
        if sender is None:
            return False
        if not sender.has_room:
            sender.wants_room = True
            return False
        return True

    def finish(self, channel_id: int) -> None:
        """End a channel gracefully: everything sent is still delivered, nothing more can be sent."""
        state = self._state
        sender = state.senders.get(channel_id)
        if sender is not None and not state.is_ended:
            state.move_sender(sender, SenderInput.FINISH)
            send.try_finish(state, sender)
            state.wake()

    def cancel(self, channel_id: int) -> None:
        """Abandon a channel as soon as possible: what is on its way, or unread at the peer, is dropped.

        Without effect once the channel has finished: there is nothing left to abandon.
        """
        state = self._state
        sender = state.senders.get(channel_id)
        if sender is not None and not state.is_ended:
            send.cancel(state, sender)
            lifecycle.settle(state)
            state.wake()

    def close_receiver(self, channel_id: int) -> None:
        """Close a receiver: its unread messages are dropped, and its sender is notified."""
        state = self._state
        receiver = state.receivers.get(channel_id)
        if receiver is not None:
            receive.close_by_application(state, receiver)
        else:
            drained = state.drained.pop(channel_id, None)
            if drained is not None:
                receive.drop_queue(state, drained, as_lost=False)
        lifecycle.settle(state)
        state.wake()

    def drop(self, half: Half) -> None:
        """Give up a half that came with a message: a sender is cancelled, a receiver closed."""
        if isinstance(half, SenderHalf):
            self.cancel(half.channel_id)
        else:
            self.close_receiver(half.channel_id)

    def receive(self, channel_id: int) -> Incoming | None:
        """Take the oldest unread message of a receiver. The halves attached to it belong to the application then."""
        state = self._state
        receiver = state.receivers.get(channel_id) or state.drained.get(channel_id)
        if receiver is None or not receiver.queue or not receiver.handed_over:
            return None
        message = receive.take(state, receiver)
        self._taken()
        if isinstance(message, bytes):
            return Incoming(channel_id, message, ())
        return Incoming(channel_id, message.message.payload, message.halves)

    def receive_next(self, channel_id: int) -> deque[bytes] | Incoming | None:
        """Take the oldest unread messages as far as they carry no attachments, or else one that does.

        Return None if there are none. The application then counts as waiting, and the connection may buffer half as much again.
        """
        state = self._state
        receiver = state.receivers.get(channel_id) or state.drained.get(channel_id)
        if receiver is None or not receiver.queue:
            receive.want(state, channel_id)
            return None
        if not receiver.handed_over:
            return None
        run = receive.take_run(state, receiver)
        if run is None:
            return self.receive(channel_id)
        self._taken()
        return run

    def _taken(self) -> None:
        """Messages were taken: streams that waited for room go on."""
        state = self._state
        if state.unblocked:
            self._guard(lambda: lifecycle.settle(state))
        if state.out.is_pending:
            state.wake()

    def plain_sender(self, channel_id: int, mode: Mode) -> PlainSender | None:
        """The compiled short cut for a sender's plain messages: ``put`` returns False where `send` must be used."""
        sender = self._state.senders.get(channel_id)
        if sender is None:
            return None
        return sender.ledger if mode is Mode.ORDERED else send.quick_sender(self._state, sender, mode)

    def call_on_output(self, wake: Callable[[], None]) -> None:
        """Have a function called when the application's calls may have left something to send. It must not call the engine."""
        self._state.wake = self._state.out.plain.wake = wake

    def close(self, *, reason: str = "") -> None:
        """Close the connection, with all its channels. May be called again."""
        if not self._state.is_ended:
            self._state.out.command(CloseConnection(EXPLICIT_CLOSE, reason))
            self._end(None)

    def _make_half(self, kind: Attach, oneshot: bool) -> Half:
        """The half of a new channel that stays here."""
        state = self._state
        outgoing = kind is Attach.RECEIVER
        channel_id = state.minter.mint(outgoing=outgoing, oneshot=oneshot)
        if outgoing:
            return send.create_sender(state, channel_id, minted_here=True, reachable=False)
        return receive.create_receiver(state, channel_id, minted_here=True, handed_over=True)

    # State.

    @property
    def is_ready(self) -> bool:
        """Whether both sides' headers have been exchanged."""
        return self._inbound.is_ready

    @property
    def is_ended(self) -> bool:
        """Whether the connection is over."""
        return self._state.is_ended

    @property
    def has_output(self) -> bool:
        """Whether `data_to_send` has something, or may have."""
        state = self._state
        return state.out.is_pending or bool(state.waiting or state.awaiting_control or state.notices)

    @property
    def counts(self) -> Counts:
        """What the connection has counted."""
        return self._state.counts

    @property
    def live_halves(self) -> int:
        """Halves that exist here, including those that wait to be read."""
        return len(self._state.senders) + len(self._state.receivers) + len(self._state.drained)

    @property
    def unacknowledged(self) -> tuple[int, int]:
        """Reliable messages of all senders that were sent and not acknowledged, and their bytes."""
        counts = [sender.unacknowledged for sender in list(self._state.senders.values())]
        return sum(messages for messages, _ in counts), sum(size for _, size in counts)

    @property
    def open_streams(self) -> int:
        """QUIC streams that this side still has a record of."""
        return len(self._state.streams)

    @property
    def buffered_bytes(self) -> int:
        """Bytes that wait here to be read."""
        return self._state.buffered

    def sender_state(self, channel_id: int) -> SenderState | None:
        """The state of a sender."""
        sender = self._state.senders.get(channel_id)
        return None if sender is None else sender.state

    def receiver_state(self, channel_id: int) -> ReceiverState | None:
        """The state of a receiver."""
        receiver = self._state.receivers.get(channel_id) or self._state.drained.get(channel_id)
        return None if receiver is None else receiver.state

    # What the QUIC connection reports.

    def receive_stream(self, stream_id: int, data: bytes, fin: bool, now_ns: int) -> None:
        """Bytes of a stream came."""
        state = self._state
        state.now_ns = now_ns
        if self._state.is_ended:
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
            self._inbound.receive_stream(stream_id, data, fin)
            lifecycle.settle(state)
        except RemoteProtocolError as error:
            self._fail(error)

    def receive_reset(self, stream_id: int, code: int, now_ns: int) -> None:
        """The peer reset its direction of a stream."""
        self._state.now_ns = now_ns
        if not self._state.is_ended:
            self._guard(lambda: self._inbound.receive_reset(stream_id, code))

    def receive_stop_sending(self, stream_id: int, now_ns: int) -> None:
        """The peer reads no more of a stream; the QUIC connection has reset it."""
        self._state.now_ns = now_ns
        lifecycle.stream_stopped(self._state, stream_id)

    def receive_datagram(self, data: bytes, now_ns: int) -> None:
        """A datagram came."""
        self._state.now_ns = now_ns
        if not self._state.is_ended:
            self._guard(lambda: self._inbound.receive_datagram(data))

    def receive_stream_ends(self, stream_ids: Sequence[int], pieces: list[bytes], now_ns: int) -> None:
        """The last bytes of several streams of one direction came. For most they are the first as well."""
        state = self._state
        state.now_ns = now_ns
        index = 0
        are_new = state.streams.keys().isdisjoint(stream_ids)
        while index < len(pieces) and not self._state.is_ended:
            count = self._take_run(pieces, index, False) if are_new else 0
            if not count:
                self.receive_stream(stream_ids[index], pieces[index], True, now_ns)
                count = 1
            index += count

    def receive_datagrams(self, datagrams: list[bytes], now_ns: int) -> None:
        """Several datagrams came."""
        self._state.now_ns = now_ns
        index = 0
        while index < len(datagrams) and not self._state.is_ended:
            count = self._take_run(datagrams, index, True)
            if not count:
                self.receive_datagram(datagrams[index], now_ns)
                count = 1
            index += count

    def _take_run(self, items: list[bytes], start: int, unreliable: bool) -> int:
        """Process the plain messages from ``items[start]`` on, which travelled alone, as far as that can be done at once.

        Returns how many they were; the next has to be processed by itself.
        """
        if self._inbound.is_gated:
            return 0
        try:
            count = receive.receive_alone(self._state, items, start, unreliable=unreliable)
            lifecycle.settle(self._state)
            return count
        except RemoteProtocolError as error:
            self._fail(error)
            return len(items)

    def stream_delivered(self, stream_id: int, now_ns: int) -> None:
        """All that was written to a stream has reached the peer; the response to a `WatchDelivery` command."""
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
        """Note what the QUIC connection has room for. None leaves a value as it was."""
        self._state.out.note_room(bidi_streams, uni_streams, datagrams, max_datagram)
        if rtt_ns is not None:
            self._state.rtt_ns = rtt_ns

    def connection_lost(self, error: Exception | None, now_ns: int) -> None:
        """The QUIC connection is gone."""
        self._state.now_ns = now_ns
        self._end(error)

    # What the QUIC connection is asked to do.

    def data_to_send(self, now_ns: int) -> list[Command]:
        """Take the commands that are due."""
        state = self._state
        state.now_ns = now_ns
        if not self._state.is_ended:
            if state.awaiting_control:
                lifecycle.open_control_streams(state)
            if state.notices:
                lifecycle.send_notices(state)
            if state.waiting:
                send.pump(state)
                lifecycle.settle(state)
        return state.out.take()

    def next_event(self) -> Event | None:
        """Take the next event."""
        return self._state.events.popleft() if self._state.events else None

    def next_timeout_ns(self) -> int | None:
        """When `handle_timeout` is due."""
        state = self._state
        if state.ack_due_ns is None and state.ack_list:
            state.ack_due_ns = state.now_ns + state.timing.ack_delay_ns
        if state.declare_due_ns is None and state.declare_list:
            timing = state.timing
            delay = min(timing.declare_delay_ns, max(state.rtt_ns // 2, timing.declare_floor_ns))
            state.declare_due_ns = state.now_ns + delay
        due = state.ack_due_ns
        if state.declare_due_ns is not None and (due is None or state.declare_due_ns < due):
            due = state.declare_due_ns
        if state.nack_heap and (due is None or state.nack_heap[0][0] < due):
            due = state.nack_heap[0][0]
        return due

    def handle_timeout(self, now_ns: int) -> None:
        """Send the acknowledgements, the declarations and the given-up messages that are due."""
        state = self._state
        state.now_ns = now_ns
        if self._state.is_ended:
            return
        if state.declare_due_ns is not None and state.declare_due_ns <= now_ns:
            send.declare_due(state)
        if state.ack_due_ns is not None and state.ack_due_ns <= now_ns:
            receive.acks_due(state)
        receive.nacks_due(state)
        lifecycle.settle(state)

    def handshake_completed(self, now_ns: int) -> None:
        """The TLS handshake is complete, so that nothing can be a replay: what was held is processed now."""
        self._state.now_ns = now_ns
        if self._inbound.is_early:
            self._inbound.is_early = False
            self._guard(self._inbound.release)

    # Internals.

    def _guard(self, step: Callable[[], None]) -> None:
        """Run a step of the protocol and what it sets in motion; a rule that the peer broke ends the connection."""
        try:
            step()
            lifecycle.settle(self._state)
        except RemoteProtocolError as error:
            self._fail(error)

    def _fail(self, error: RemoteProtocolError) -> None:
        error.peer = self._state.peer
        if not self._state.is_ended:
            self._state.out.clear()
            self._state.out.command(CloseConnection(error.code or 1, str(error)))
            self._end(error)

    def _end(self, error: Exception | None) -> None:
        lifecycle.end_connection(self._state, error)
        self._inbound.clear()

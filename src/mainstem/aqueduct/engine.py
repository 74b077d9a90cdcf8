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
from mainstem.aqueduct.channel_id import ENTRYPOINT
from mainstem.aqueduct.codec import EXPLICIT_CLOSE, as_headers
from mainstem.aqueduct.connection_state import ConnectionState, Counts, Timing
from mainstem.aqueduct.events import Attach, Attachment, CloseConnection, Command, Event, Incoming, Mode
from mainstem.aqueduct.frames import VERSION_BYTES, ConnectionControl
from mainstem.aqueduct.halves import UNIDIRECTIONAL, Half, Pending, ReceiverHalf, Role, SenderHalf, Stream
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
            send.create_sender(self._state, ENTRYPOINT, minted_here=True, reachable=True)

    # Opening.

    def start(self, now_ns: int) -> None:
        """Client: open the connection control stream. Messages may follow at once.

        Args:
            now_ns: The time, in nanoseconds.

        Raises:
            LocalProtocolError: This is a server, or was started.

        Example:
            >>> client.start(now_ns)
        """
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
        """Server: respond to the client's headers. What has arrived meanwhile is processed now.

        Args:
            headers: The server's connection headers.
            now_ns: The time, in nanoseconds.

        Raises:
            LocalProtocolError: This is a client, has accepted before, or a `PeerHeaders` event has not come.

        Example:
            >>> server.accept({"server": "gauge 1"}, now_ns)
        """
        state = self._state
        state.now_ns = now_ns
        if state.is_client or not self._inbound.peer_headers_seen or self._inbound.is_ready:
            raise LocalProtocolError("a server accepts once, after the client's headers came", rule="accept")
        assert self._inbound.control_id is not None
        data = ConnectionControl(as_headers(headers)).encode()
        state.out.write(self._inbound.control_id, VERSION_BYTES + data)
        state.sent_frame(data)
        self._inbound.is_ready = True
        receive.create_receiver(state, ENTRYPOINT, minted_here=False, handed_over=True)
        self._guard(self._inbound.release)

    # What the application calls.

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

        Args:
            channel_id: A channel whose sender is here.
            payload: The message.
            now_ns: The time, in nanoseconds.
            mode: How it travels.
            attach: For each new channel: which half goes with the message, and whether it is a oneshot.
            tag: With it, an `Acknowledged` or a `Lost` event reports later what became of the message.

        Returns:
            The ids of the new channels, in the order of ``attach``.

        Raises:
            LocalProtocolError: The channel or a limit forbids it.
            BackPressured: There is no room; a `Writable` event will follow.
            ConnectionLost: The connection has ended.

        Example:
            >>> client.send(0, b"tide", now_ns)
            ()
        """
        state = self._state
        state.now_ns = now_ns
        self._check_open()
        sender = send.require_sender(state, channel_id)
        send.check(state, sender, payload, mode, len(attach))
        ids, links = _make_attachments(state, attach)
        send.send(state, sender, Pending(payload, mode, ids, links, tag))
        lifecycle.settle(state)
        return ids

    def has_room(self, channel_id: int) -> bool:
        """Whether another reliable message may be sent; where not, a `Writable` event will follow.

        Args:
            channel_id: A channel whose sender is here.

        Returns:
            Whether there is room; False also where there is no such sender.

        Example:
            >>> client.has_room(0)
            True
        """
        sender = self._state.senders.get(channel_id)
        if sender is None:
            return False
        if not sender.has_room:
            sender.wants_room = True
            return False
        return True

    def set_bounds(self, channel_id: int, *, messages: int | None = None, size: int | None = None) -> None:
        """Bound what a sender may have queued and unacknowledged. None leaves a bound as it was.

        Args:
            channel_id: A channel whose sender is here.
            messages: Messages, at least one.
            size: Bytes, at least one.

        Raises:
            LocalProtocolError: There is no such sender.

        Example:
            >>> client.set_bounds(0, messages=100)
        """
        sender = send.require_sender(self._state, channel_id)
        if messages is not None:
            sender.ledger.max_messages = max(1, messages)
        if size is not None:
            sender.ledger.max_bytes = max(1, size)

    def finish(self, channel_id: int, now_ns: int) -> None:
        """End a channel gracefully: everything sent is still delivered, nothing more can be sent.

        Args:
            channel_id: A channel; without effect where its sender is not here.
            now_ns: The time, in nanoseconds.

        Example:
            >>> client.finish(0, now_ns)
        """
        state = self._state
        state.now_ns = now_ns
        sender = state.senders.get(channel_id)
        if sender is not None and not self._state.is_ended:
            state.move_sender(sender, SenderInput.FINISH)
            send.try_finish(state, sender)

    def cancel(self, channel_id: int, now_ns: int) -> None:
        """Abandon a channel as soon as possible: what is on its way, or unread at the peer, is dropped.

        Without effect once the channel has finished: there is nothing left to abandon.

        Args:
            channel_id: A channel; without effect where its sender is not here.
            now_ns: The time, in nanoseconds.

        Example:
            >>> client.cancel(0, now_ns)
        """
        state = self._state
        state.now_ns = now_ns
        sender = state.senders.get(channel_id)
        if sender is not None and not self._state.is_ended:
            send.cancel(state, sender)
            lifecycle.settle(state)

    def close_receiver(self, channel_id: int, now_ns: int) -> None:
        """Close a receiver: its unread messages are dropped, and its sender is notified.

        Args:
            channel_id: A channel; without effect where its receiver is not here.
            now_ns: The time, in nanoseconds.

        Example:
            >>> server.close_receiver(0, now_ns)
        """
        state = self._state
        state.now_ns = now_ns
        receiver = state.receivers.get(channel_id)
        if receiver is not None:
            receive.close_by_application(state, receiver)
        else:
            drained = state.drained.pop(channel_id, None)
            if drained is not None:
                receive.drop_queue(state, drained, as_lost=False)
        lifecycle.settle(state)

    def receive(self, channel_id: int, now_ns: int) -> Incoming | None:
        """Take the oldest unread message of a receiver. The halves attached to it belong to the application then.

        Args:
            channel_id: A channel whose receiver is here.
            now_ns: The time, in nanoseconds.

        Returns:
            The message; None where there is none now.

        Example:
            >>> message = server.receive(0, now_ns)
        """
        state = self._state
        receiver = self._readable(channel_id, now_ns)
        if receiver is None:
            return None
        delivery = receive.take(state, receiver)
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
        """Take the oldest unread messages, as far as they carry no attachments.

        Args:
            channel_id: A channel whose receiver is here.
            now_ns: The time, in nanoseconds.

        Returns:
            Their payloads; None where there is none now, or where the next has to be taken by `receive`.

        Example:
            >>> payloads = server.receive_run(0, now_ns)
        """
        state = self._state
        receiver = self._readable(channel_id, now_ns)
        if receiver is None:
            return None
        run = receive.take_run(state, receiver)
        if state.unblocked:
            self._guard(lambda: lifecycle.settle(state))
        return run

    def receive_next(self, channel_id: int, now_ns: int) -> deque[bytes] | Incoming | None:
        """Take what `receive_run` or else `receive` returns; where that is nothing, the application waits (`want`).

        Args:
            channel_id: A channel whose receiver is here.
            now_ns: The time, in nanoseconds.

        Returns:
            Payloads, or one message with attachments; None where there is none now.

        Example:
            >>> messages = server.receive_next(0, now_ns)
        """
        state = self._state
        receiver = state.receivers.get(channel_id) or state.drained.get(channel_id)
        if receiver is None or not receiver.queue:
            receive.want(state, channel_id)
            return None
        return self.receive_run(channel_id, now_ns) or self.receive(channel_id, now_ns)

    def has_unread(self, channel_id: int) -> bool:
        """Say whether a message waits to be received.

        Args:
            channel_id: A channel.

        Returns:
            Whether there is one.

        Example:
            >>> server.has_unread(0)
            False
        """
        receiver = self._state.receivers.get(channel_id) or self._state.drained.get(channel_id)
        return receiver is not None and bool(receiver.queue)

    def want(self, channel_id: int) -> None:
        """Note that the application waits for a message of this receiver, which has none.

        Reading of the connection, which may have stopped for what other channels do not read, then goes on for longer.

        Args:
            channel_id: A channel whose receiver is here.

        Example:
            >>> server.want(0)
        """
        receive.want(self._state, channel_id)

    def plain_sender(self, channel_id: int, mode: Mode) -> PlainSender | None:
        """Get the compiled short cut for a sender's plain messages.

        Args:
            channel_id: A channel whose sender is here.
            mode: How the messages travel.

        Returns:
            What takes messages with ``put``, which returns False where `send` must be used; None where there is none.

        Example:
            >>> fast = client.plain_sender(0, Mode.ORDERED)
        """
        sender = self._state.senders.get(channel_id)
        if sender is None:
            return None
        return sender.ledger if mode is Mode.ORDERED else send.quick_sender(self._state, sender, mode)

    def call_on_output(self, wake: Callable[[], None]) -> None:
        """Have a function called when the short cut of `plain_sender` has put something where nothing was to be sent.

        Args:
            wake: Called without arguments; it must not call the connection.

        Example:
            >>> client.call_on_output(lambda: loop.call_soon(flush))
        """
        self._state.out.plain.wake = wake

    def drop(self, attachment: Attachment, now_ns: int) -> None:
        """Give up a half that came with a message: a sender is cancelled, a receiver closed.

        Args:
            attachment: What came.
            now_ns: The time, in nanoseconds.

        Example:
            >>> server.drop(message.attachments[0], now_ns)
        """
        if attachment.is_sender:
            self.cancel(attachment.channel_id, now_ns)
        else:
            self.close_receiver(attachment.channel_id, now_ns)

    def close(self, now_ns: int, *, reason: str = "") -> None:
        """Close the connection, with all its channels. May be called again.

        Args:
            now_ns: The time, in nanoseconds.
            reason: A text for the peer.

        Example:
            >>> client.close(now_ns, reason="done")
        """
        self._state.now_ns = now_ns
        if not self._state.is_ended:
            self._state.out.command(CloseConnection(EXPLICIT_CLOSE, reason))
            self._end(None)

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
        """The state of a sender.

        Args:
            channel_id: A channel.

        Returns:
            The state; None where there is no such sender, or it has ended.

        Example:
            >>> client.sender_state(0)
            <SenderState.OPEN: 1>
        """
        sender = self._state.senders.get(channel_id)
        return None if sender is None else sender.state

    def receiver_state(self, channel_id: int) -> ReceiverState | None:
        """The state of a receiver.

        Args:
            channel_id: A channel.

        Returns:
            The state; None where there is no such receiver, or it has ended and was read to its end.

        Example:
            >>> server.receiver_state(0)
            <ReceiverState.OPEN: 1>
        """
        receiver = self._state.receivers.get(channel_id) or self._state.drained.get(channel_id)
        return None if receiver is None else receiver.state

    # What the QUIC connection reports.

    def receive_stream(self, stream_id: int, data: bytes, fin: bool, now_ns: int) -> None:
        """Bytes of a stream came.

        Args:
            stream_id: QUIC's stream id.
            data: The bytes, in order and without gaps.
            fin: Whether they are the stream's last.
            now_ns: The time, in nanoseconds.

        Example:
            >>> server.receive_stream(0, data, fin=False, now_ns=now_ns)
        """
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
        """The peer reset its direction of a stream.

        Args:
            stream_id: QUIC's stream id.
            code: The application's error code.
            now_ns: The time, in nanoseconds.

        Example:
            >>> server.receive_reset(4, 1, now_ns)
        """
        self._state.now_ns = now_ns
        if not self._state.is_ended:
            self._guard(lambda: self._inbound.receive_reset(stream_id, code))

    def receive_stop_sending(self, stream_id: int, now_ns: int) -> None:
        """The peer reads no more of a stream; the QUIC connection has reset it.

        Args:
            stream_id: QUIC's stream id.
            now_ns: The time, in nanoseconds.

        Example:
            >>> client.receive_stop_sending(2, now_ns)
        """
        self._state.now_ns = now_ns
        lifecycle.stream_stopped(self._state, stream_id)

    def receive_datagram(self, data: bytes, now_ns: int) -> None:
        """A datagram came.

        Args:
            data: Its payload.
            now_ns: The time, in nanoseconds.

        Example:
            >>> server.receive_datagram(data, now_ns)
        """
        self._state.now_ns = now_ns
        if not self._state.is_ended:
            self._guard(lambda: self._inbound.receive_datagram(data))

    def receive_stream_ends(self, stream_ids: Sequence[int], pieces: list[bytes], now_ns: int) -> None:
        """The last bytes of several streams of one direction came. For most they are the first as well.

        Args:
            stream_ids: QUIC's stream ids, in the order in which the bytes came.
            pieces: The bytes of each.
            now_ns: The time, in nanoseconds.

        Example:
            >>> server.receive_stream_ends([2, 6], [first, second], now_ns)
        """
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
        """Several datagrams came.

        Args:
            datagrams: Their payloads, in the order in which they came.
            now_ns: The time, in nanoseconds.

        Example:
            >>> server.receive_datagrams([first, second], now_ns)
        """
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
        """All that was written to a stream has reached the peer; the response to a `WatchDelivery` command.

        Args:
            stream_id: QUIC's stream id.
            now_ns: The time, in nanoseconds.

        Example:
            >>> client.stream_delivered(4, now_ns)
        """
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
        """Note what the QUIC connection has room for. None leaves a value as it was.

        Args:
            bidi_streams: Streams of two directions that may be opened.
            uni_streams: Streams of one direction that may be opened.
            datagrams: Datagrams that may be queued.
            max_datagram: The largest datagram, in bytes; 0 where the peer takes none.
            rtt_ns: The estimate of the round trip, in nanoseconds.

        Example:
            >>> client.transport_state(uni_streams=100, datagrams=16, max_datagram=1170)
        """
        self._state.out.note_room(bidi_streams, uni_streams, datagrams, max_datagram)
        if rtt_ns is not None:
            self._state.rtt_ns = rtt_ns

    def connection_lost(self, error: Exception | None, now_ns: int) -> None:
        """The QUIC connection is gone.

        Args:
            error: Why; None after an orderly close by the peer.
            now_ns: The time, in nanoseconds.

        Example:
            >>> client.connection_lost(ConnectionLost("idle timeout"), now_ns)
        """
        self._state.now_ns = now_ns
        self._end(error)

    # What the QUIC connection is asked to do.

    def data_to_send(self, now_ns: int) -> list[Command]:
        """Take the commands that are due.

        Args:
            now_ns: The time, in nanoseconds.

        Returns:
            The commands, in the order in which they must be carried out.

        Example:
            >>> for command in client.data_to_send(now_ns):
            ...     carry_out(command)
        """
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
        """Take the next event.

        Returns:
            The oldest event that was not taken; None where there is none.

        Example:
            >>> while (event := client.next_event()) is not None:
            ...     process(event)
        """
        return self._state.events.popleft() if self._state.events else None

    def next_timeout_ns(self) -> int | None:
        """When `handle_timeout` is due.

        Returns:
            A time, in nanoseconds; None where no timer runs.

        Example:
            >>> due_ns = client.next_timeout_ns()
        """
        state = self._state
        due = state.ack_due_ns
        if state.declare_due_ns is not None and (due is None or state.declare_due_ns < due):
            due = state.declare_due_ns
        if state.nack_heap and (due is None or state.nack_heap[0][0] < due):
            due = state.nack_heap[0][0]
        return due

    def handle_timeout(self, now_ns: int) -> None:
        """Send the acknowledgements, the declarations and the given-up messages that are due.

        Args:
            now_ns: The time, in nanoseconds.

        Example:
            >>> client.handle_timeout(now_ns)
        """
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
        """The TLS handshake is complete, so that nothing can be a replay: what was held is processed now.

        Args:
            now_ns: The time, in nanoseconds.

        Example:
            >>> server.handshake_completed(now_ns)
        """
        self._state.now_ns = now_ns
        if self._inbound.is_early:
            self._inbound.is_early = False
            self._guard(self._inbound.release)

    # Internals.

    def _readable(self, channel_id: int, now_ns: int) -> ReceiverHalf | None:
        """The receiver of that id, where the application may have it and it has something to read."""
        state = self._state
        state.now_ns = now_ns
        receiver = state.receivers.get(channel_id) or state.drained.get(channel_id)
        return receiver if receiver is not None and receiver.queue and receiver.handed_over else None

    def _check_open(self) -> None:
        if self._state.is_ended:
            raise ConnectionLost("the connection has ended")

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


def _make_attachments(
    state: ConnectionState, attach: Sequence[tuple[Attach, bool]]
) -> tuple[tuple[int, ...], tuple[Half, ...]]:
    if not attach:
        return (), ()
    ids = []
    links: list[Half] = []
    for kind, oneshot in attach:
        outgoing = kind is Attach.RECEIVER
        channel_id = state.minter.mint(outgoing=outgoing, oneshot=oneshot)
        ids.append(channel_id)
        if outgoing:
            links.append(send.create_sender(state, channel_id, minted_here=True, reachable=False))
        else:
            links.append(receive.create_receiver(state, channel_id, minted_here=True, handed_over=True))
    return tuple(ids), tuple(links)

"""An Aqueduct connection without I/O: streams, datagrams and resets go in, commands and events come out.

Methods are named by who calls them. ``receive_*`` is what the QUIC connection reports; ``data_to_send`` returns what it is asked to
do; ``next_event`` returns what the application is to be notified of; everything else is called by the application. Time is
an argument, in nanoseconds of any monotonic clock. Nothing here knows a socket, a clock, a thread or a QUIC library.

One thread calls everything. A call changes the state and appends to two queues, the commands and the events; it never
calls the transport or the application back (but for `call_on_output`, which only schedules). So a caller may take its
time, may drain the queues as often as it likes, and may call again from an event.

How the parts share the work:

* `TransportSide`, the base class, is what a QUIC connection calls; the class here is what the application calls.
* `Inbound` decides what may be processed now and what is held, and reads frames from streams.
* `frame_dispatch` decides which frame may stand where, and calls the part that it concerns.
* `receiving` and `sending` move messages; `acknowledgements` reports on them, with the timers.
* `lifecycle` creates and ends the two halves of each channel, and runs loss and reachability as work lists.
* `ConnectionState` is what they share; `channel_halves` is what is known of one half.

Invariants. A rule that the peer broke ends the connection with a `ConnectionEnded` event and a close command; it is never
raised here: ``_guard`` wraps every step that may meet one. After `ConnectionEnded` every half has reported its end, no
command follows but the close, and only channels that had finished before can still be read. Work lists are empty between
two calls: each step that fills them ends with `lifecycle.settle`.

What may be reordered: messages of one sender in mode ORDERED never; all else (channels, modes, a channel and the message
that it came attached to) may arrive in any order, and QUIC may let a reset overtake the bytes before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.aqueduct import lifecycle, receiving, sending
from mainstem.aqueduct.channel_halves import ReceiverHalf, SenderHalf
from mainstem.aqueduct.channel_id import ENTRYPOINT
from mainstem.aqueduct.codec import EXPLICIT_CLOSE, as_headers
from mainstem.aqueduct.connection_state import ConnectionState, Counts, Timing
from mainstem.aqueduct.events import (
    Attach,
    Attachment,
    CloseConnection,
    Incoming,
    Mode,
)
from mainstem.aqueduct.frames import VERSION_BYTES, ConnectionControl
from mainstem.aqueduct.limits import DEFAULT_LIMITS, Limits
from mainstem.aqueduct.state import ReceiverState, SenderInput, SenderState
from mainstem.aqueduct.streams import Role, Stream
from mainstem.aqueduct.transport_side import TransportSide
from mainstem.errors import ConnectionLost, LocalProtocolError
from mainstem.instruments import NULL_INSTRUMENT, Instrument

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from mainstem._core.aqueduct.run_writer import Ledger, QuickSender

    PlainSender = Ledger | QuickSender

DEFAULT_TIMING = Timing()


class AqueductConnection(TransportSide):
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
        >>> client = AqueductConnection(is_client=True)
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
        super().__init__(
            ConnectionState(is_client=is_client, limits=limits, timing=timing, instrument=instrument, peer=peer),
            early_data=early_data,
        )
        self._headers = as_headers(headers)
        if is_client:
            # Everything that the client sends before the server has responded begins with a Version frame.
            self._state.out.plain.opening = VERSION_BYTES
            lifecycle.create_sender(self._state, ENTRYPOINT, minted_here=True, reachable=True)

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
        lifecycle.create_receiver(state, ENTRYPOINT, minted_here=False, handed_over=True)
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
        ids = sending.send(state, sending.require_sender(state, channel_id), payload, mode=mode, attach=attach, tag=tag)
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
        sender = sending.require_sender(self._state, channel_id)
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
            lifecycle.try_finish(state, sender)

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
            lifecycle.cancel(state, sender)
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
            lifecycle.close_by_application(state, receiver)
        else:
            drained = state.drained.pop(channel_id, None)
            if drained is not None:
                lifecycle.drop_queue(state, drained, as_lost=False)
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
        run = receiving.take_run(state, receiver)
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
            receiving.want(state, channel_id)
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
        receiving.want(self._state, channel_id)

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
        return sender.ledger if mode is Mode.ORDERED else sending.quick_sender(self._state, sender, mode)

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

"""An Aqueduct connection without I/O: streams, datagrams and resets go in, commands and events come out.

Methods are named by who calls them. ``receive_*`` is what the QUIC connection reports; ``data_to_send`` returns what it is asked to
do; ``next_event`` returns what the application is to be notified of; everything else is called by the application. Time is
an argument, in nanoseconds of any monotonic clock. Nothing here knows a socket, a clock, a thread or a QUIC library.

One thread calls everything. A call changes the state and appends to two queues, the commands and the events. Halves that have
an ``owner`` report to it directly; otherwise the application is never called back, but for `call_on_output`, which only
schedules. So a caller may take its time, may drain the queues as often as it likes, and may call again from an event.

The engine is one class in five files, each of which adds to the one before:

* `connection_state` is what the others share: halves, filters, memory, streams on their way out.
* `send` and `receive` have everything about one half: its messages, what is reported about them, its end.
* `streams` decides what may be processed now and what is held, reads frames from streams, decides which may stand where, gives
  halves their control streams, and runs loss as work lists.
* `engine` is what is left of what a QUIC connection and the application call.

`halves` is what is known of one half and of one stream.

Three paths lead in. Most messages without attachments travel alone, on a stream or in a datagram of their own, and come in
batches: `receive_alone` processes as many as it can at once. The middle of a large message only feeds a reader. Everything else
goes through the frames of its stream. The first two decide nothing that the third would decide otherwise; they return if they
cannot be sure.

Invariants. A rule that the peer broke ends the connection with a `ConnectionEnded` event and a close command; it is never
raised here. After `ConnectionEnded` every half has reported its end, no command follows but the close, and only channels that
had finished before can still be read. Work lists are empty between two calls: each step that fills them ends with `settle`.

Messages of one sender in mode ORDERED are never reordered. All else (channels, modes, a channel and the message that it came
attached to) may arrive in any order, and QUIC may let a reset overtake the bytes before it.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from mainstem.aqueduct.events import CloseConnection, Command, Event
from mainstem.aqueduct.frames import EXPLICIT_CLOSE, VERSION_BYTES, as_headers, encode_headers
from mainstem.aqueduct.halves import Half, Incoming, ReceiverHalf, Role, UnreliableRun
from mainstem.aqueduct.limits import QUEUED_MESSAGE_OVERHEAD
from mainstem.aqueduct.streams import Streams
from mainstem.errors import LocalProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from mainstem.aqueduct.state import ReceiverState, SenderState


class AqueductEngine(Streams):
    """One side of a connection, as a state machine (docs/protocols/aqueduct.md).

    Args:
        is_client: Which side this is.
        headers: A client's connection headers. A server passes its own to `accept`.
        limits: The limits of the connection.
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

    # Opening.

    def start(self, now_ns: int) -> None:
        """Client: open the connection control stream. Messages may follow at once. Raises LocalProtocolError."""
        self.now_ns = now_ns
        if not self.is_client or self.control_id is not None:
            raise LocalProtocolError("only a client starts a connection, and only once", rule="start")
        stream_id = self.control_id = self.open_stream(unidirectional=False)
        self.make_stream(stream_id, Role.CONNECTION, opened_here=True)
        data = b"\x01" + encode_headers(self._headers)
        self.write(stream_id, data)
        self.sent_frame(data)

    def accept(
        self, headers: Mapping[str, bytes | str] | Iterable[tuple[str, bytes | str]] | None, now_ns: int
    ) -> None:
        """Server: respond to the client's headers. What has arrived meanwhile is processed now. Raises LocalProtocolError."""
        self.now_ns = now_ns
        if self.is_client or not self.peer_headers_seen or self.is_ready:
            raise LocalProtocolError("a server accepts once, after the client's headers came", rule="accept")
        assert self.control_id is not None
        data = b"\x01" + encode_headers(as_headers(headers))
        self.write(self.control_id, VERSION_BYTES + data)
        self.sent_frame(data)
        self.is_ready = True
        self.counts.halves_created += 1
        self.awaiting_control.append(self.entrypoint)
        self.step(self.release)

    # What the application calls; also `send`, `send_on`, `finish`, `has_room` and `plain_sender`.

    def cancel(self, channel_id: int) -> None:
        """Abandon a channel as soon as possible: what is on its way, or unread at the peer, is dropped.

        Has no effect once the channel has finished.
        """
        sender = self.senders.get(channel_id)
        if sender is not None and not self.is_ended:
            self.cancel_sender(sender)
            self.settle()
            self.wake()

    def close_receiver(self, channel_id: int) -> None:
        """Close a receiver: its unread messages are dropped, and its sender is notified."""
        receiver = self.receivers.get(channel_id)
        if receiver is not None:
            self.close_by_application(receiver)
        else:
            drained = self.drained.pop(channel_id, None)
            if drained is not None:
                self.drop_queue(drained, as_lost=False)
        self.settle()
        self.wake()

    def drop(self, half: Half) -> None:
        """Give up a half that came with a message: a sender is cancelled, a receiver closed."""
        if half.is_sender:
            self.cancel(half.channel_id)
        else:
            self.close_receiver(half.channel_id)

    def receive(self, channel_id: int) -> Incoming | None:
        """Take the oldest unread message of a receiver. The halves attached to it belong to the application then."""
        receiver = self.receivers.get(channel_id) or self.drained.get(channel_id)
        if receiver is None or not receiver.queue or not receiver.handed_over:
            return None
        head = receiver.queue[0]
        if isinstance(head, deque):
            if isinstance(head, UnreliableRun):
                head.numbers.popleft()
            message = Incoming(channel_id, head.popleft())
        else:
            message = head
        if not isinstance(head, deque) or not head:
            receiver.queue.popleft()
        self._taken(receiver, 1, len(message.payload))
        return message

    def receive_next(self, channel_id: int) -> deque[bytes] | Incoming | None:
        """Like `receive_from`, but by channel."""
        receiver = self.receivers.get(channel_id) or self.drained.get(channel_id)
        return None if receiver is None else self.receive_from(receiver)

    def receive_from(self, receiver: ReceiverHalf) -> deque[bytes] | Incoming | None:
        """Take the oldest unread messages as far as they carry no attachments, or else one that does.

        Return None if there are none. The application then counts as waiting: unread messages of other channels must not
        stop it, so the connection may buffer half as much again.
        """
        if not receiver.queue:
            if not receiver.state.is_final:
                self.awaited[receiver] = None
                if self.paused:
                    self.resume_reading()
            return None
        if not receiver.handed_over:
            return None
        head = receiver.queue.popleft()
        if isinstance(head, Incoming):
            self._taken(receiver, 1, len(head.payload))
        else:
            self._taken(receiver, len(head), sum(map(len, head)))
        return head

    def _taken(self, receiver: ReceiverHalf, count: int, size: int) -> None:
        """Messages of ``size`` bytes were taken: streams that waited for room resume."""
        size += count * QUEUED_MESSAGE_OVERHEAD
        receiver.queued -= count
        receiver.queued_bytes -= size
        self.awaited.pop(receiver, None)
        self.account(-size)
        if receiver.state.is_final:
            if not receiver.queue:
                self.drained.pop(receiver.channel_id, None)
        elif receiver.blocked and receiver.queued * 2 <= self.limits.receive_messages and not self.is_full(receiver):
            self.unblock(receiver)
            self.step(self.settle)
        if self.commands or self._writes:
            self.wake()

    def call_on_output(self, wake: Callable[[], None]) -> None:
        """Have a function called when the application's calls may have left something to send. It must not call the engine."""
        self.wake = self.plain.wake = wake

    def acknowledge_taken(self) -> None:
        """Have everything acknowledged that the application has taken: done before `close`, which overtakes what waits."""
        if not self.is_ended:
            # Of channels that came in this very turn.
            self.open_control_streams()
            self.flush_taken()
            self.wake()

    def close(self, *, reason: str = "") -> None:
        """Close the connection, with all its channels. May be called again."""
        if not self.is_ended:
            self.commands.append(CloseConnection(EXPLICIT_CLOSE, reason))
            self.end(None)

    # State.

    @property
    def live_halves(self) -> int:
        """Halves that exist here, including those that wait to be read."""
        return len(self.senders) + len(self.receivers) + len(self.drained)

    @property
    def unacknowledged(self) -> tuple[int, int]:
        """Reliable messages of all senders that were sent and not acknowledged, and their bytes."""
        counts = [sender.unacknowledged for sender in list(self.senders.values())]
        return sum(messages for messages, _ in counts), sum(size for _, size in counts)

    @property
    def open_streams(self) -> int:
        """QUIC streams that this side still has a record of."""
        return len(self.streams)

    def sender_state(self, channel_id: int) -> SenderState | None:
        """The state of a sender."""
        sender = self.senders.get(channel_id)
        return None if sender is None else sender.state

    def receiver_state(self, channel_id: int) -> ReceiverState | None:
        """The state of a receiver."""
        receiver = self.receivers.get(channel_id) or self.drained.get(channel_id)
        return None if receiver is None else receiver.state

    # What the QUIC connection reports; also `receive_stream` and `transport_state`.

    def receive_reset(self, stream_id: int, code: int, now_ns: int) -> None:
        """The peer reset its direction of a stream."""
        self.now_ns = now_ns
        if not self.is_ended:
            self.step(self.reset_came, stream_id, code)

    def receive_stop_sending(self, stream_id: int, now_ns: int) -> None:
        """The peer reads no more of a stream; the QUIC connection has reset it."""
        self.now_ns = now_ns
        if not self.is_ended:
            self.step(self.stream_stopped, stream_id)

    def receive_datagram(self, data: bytes, now_ns: int) -> None:
        """A datagram came."""
        self.now_ns = now_ns
        if not self.is_ended:
            self.step(self.take_datagram, data)

    def receive_stream_ends(self, stream_ids: Sequence[int], pieces: list[bytes], now_ns: int) -> None:
        """The last bytes of several unidirectional streams came. For most they are the first as well."""
        self.now_ns = now_ns
        index = 0
        are_new = self.streams.keys().isdisjoint(stream_ids)
        while index < len(pieces) and not self.is_ended:
            count = self.receive_run_alone(pieces, index, False) if are_new else 0
            if not count:
                self.receive_stream(stream_ids[index], pieces[index], True, now_ns)
            index += count or 1

    def receive_datagrams(self, datagrams: list[bytes], now_ns: int) -> None:
        """Several datagrams came."""
        self.now_ns = now_ns
        index = 0
        while index < len(datagrams) and not self.is_ended:
            count = self.receive_run_alone(datagrams, index, True)
            if not count:
                self.receive_datagram(datagrams[index], now_ns)
            index += count or 1

    def stream_delivered(self, stream_id: int, now_ns: int) -> None:
        """All that was written to a stream has reached the peer; the response to a `WatchDelivery` command."""
        self.now_ns = now_ns
        stream = self.streams.get(stream_id)
        if stream is not None:
            self.heard(stream)

    def connection_lost(self, error: Exception | None, now_ns: int) -> None:
        """The QUIC connection is gone."""
        self.now_ns = now_ns
        self.end(error)

    def handshake_completed(self, now_ns: int) -> None:
        """The TLS handshake is complete, so that nothing can be a replay: what was held is processed now."""
        self.now_ns = now_ns
        if self.is_early:
            self.is_early = False
            self.step(self.release)

    # What the QUIC connection is asked to do.

    def data_to_send(self, now_ns: int) -> list[Command]:
        """Take the commands that are due."""
        self.now_ns = now_ns
        if not self.is_ended:
            if self.awaiting_control:
                self.open_control_streams()
            if self.notices:
                self.send_notices()
            if self.waiting:
                self.pump()
                self.settle()
        self._flush()
        if self.plain.has_alone:
            self._gather_alone()
        self.plain.renew()
        commands, self.commands = self.commands, []
        self._first_new.update(self._next_id)
        return commands

    def next_event(self) -> Event | None:
        """Take the next event."""
        return self.events.popleft() if self.events else None

    def next_timeout_ns(self) -> int | None:
        """When `handle_timeout` is due."""
        timing = self.timing
        if self.ack_due_ns is None and self.ack_list:
            self.ack_due_ns = self.now_ns + timing.ack_delay_ns
        if self.declare_due_ns is None and self.declare_list:
            delay = min(timing.declare_delay_ns, max(self.rtt_ns // 2, timing.declare_floor_ns))
            self.declare_due_ns = self.now_ns + delay
        due = self.ack_due_ns
        if self.declare_due_ns is not None and (due is None or self.declare_due_ns < due):
            due = self.declare_due_ns
        if self.nack_heap and (due is None or self.nack_heap[0][0] < due):
            due = self.nack_heap[0][0]
        return due

    def handle_timeout(self, now_ns: int) -> None:
        """Send the acknowledgments, the declarations and the given-up messages that are due."""
        self.now_ns = now_ns
        if self.is_ended:
            return
        if self.declare_due_ns is not None and self.declare_due_ns <= now_ns:
            self.declare_due()
        if self.ack_due_ns is not None and self.ack_due_ns <= now_ns:
            self.acks_due()
        if self.nack_heap:
            self.nacks_due()
        self.settle()

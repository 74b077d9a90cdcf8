"""An Aqueduct connection without I/O: streams, datagrams and resets go in, commands and events come out.

Methods are named by their caller. The QUIC connection reports through ``receive_*``; ``data_to_send`` returns the commands for
it; ``next_event`` returns notifications for the application; everything else is called by the application. Time is an argument,
in nanoseconds of any monotonic clock. The engine uses no socket, clock, thread or QUIC library.

One thread makes all calls. A call changes the state and appends to two queues, the commands and the events. Halves that have an
``owner`` report to it directly; otherwise the only callback to the application is the function passed to `call_on_output`, which
only schedules work. So a caller can take its time, drain the queues as often as it likes, and call the engine while handling an
event.

The engine is one class in five files, each of which adds to the one before:

* `connection_state` holds what the others share: halves, filters, memory, outgoing streams.
* `send` and `receive` handle a single half: its messages, the reports about them, its end.
* `streams` decides which data is processed now and which is held, reads frames from streams, checks that each frame is allowed
  where it appears, attaches halves to their control streams, and processes loss through work lists.
* `engine` has the remaining methods for the QUIC connection and the application.

`halves` has the data of one half and of one stream.

Received data takes one of three paths. Most messages without attachments travel alone, on a stream or in a datagram of their own,
and arrive in batches: `receive_alone` processes as many as it can at once. The middle of a large message is only fed to a reader.
Everything else is processed frame by frame. The first two paths make the same decisions as the third; they return if they
cannot be sure.

Invariants. If the peer breaks a rule, the connection ends with a `ConnectionEnded` event and a close command; the engine does not
raise the error. After `ConnectionEnded` every half has reported its end, no command follows except the close, and only channels
that had finished before can still be read to their end. Work lists are empty between calls: each step that fills them ends with
`settle`.

Messages of one sender in mode ORDERED are never reordered. There is no ordering between channels, between modes, or between a
channel and the message that it came attached to, and QUIC can let a reset overtake the bytes before it.
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


class AqueductEngine(Streams):
    """One side of a connection, as a state machine (docs/protocols/aqueduct.md).

    ``headers`` are a client's; a server passes its own to `accept`. ``peer`` names the peer in error messages. With
    ``early_data``, a server holds all data until `handshake_completed`, because it could be a replay.

    Example:
        >>> client = AqueductEngine(is_client=True)
        >>> client.start(now_ns=0)
        >>> commands = client.data_to_send(now_ns=0)  # for the client's QUIC connection
    """

    # Opening.

    def start(self, now_ns: int) -> None:
        """Open the connection control stream of a client. Messages can follow immediately. Raises LocalProtocolError."""
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
        """Respond to the client's headers as a server, and process everything held until now. Raises LocalProtocolError."""
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

    # Methods that the application calls. It also calls `send`, `send_on` and `finish`.

    def cancel(self, channel_id: int) -> None:
        """Abandon a channel as soon as possible: messages that are in flight, or unread at the peer, are dropped.

        Has no effect once the channel has finished.
        """
        sender = self.senders.get(channel_id)
        if sender is not None and not self.is_ended:
            self.cancel_sender(sender)
            self.settle()
            self.wake()

    def close_receiver(self, channel_id: int) -> None:
        """Close a receiver, dropping its unread messages and notifying its sender."""
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
        """Give up a half that came attached to a message: cancel a sender, close a receiver."""
        if half.is_sender:
            self.cancel(half.channel_id)
        else:
            self.close_receiver(half.channel_id)

    def receive(self, channel_id: int) -> Incoming | None:
        """Take the oldest unread message of a receiver, or return None. The application then owns the halves attached to it."""
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

    def receive_from(self, receiver: ReceiverHalf) -> deque[bytes] | Incoming | None:
        """Take the oldest unread messages up to the first that has attachments, or that one alone if it is the oldest.

        Returns None if there are none. The application then counts as waiting. Unread messages of other channels must not block it,
        so the connection can buffer half as much again.
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
        """Account for ``count`` messages of ``size`` bytes that were taken, and resume streams that were waiting for room."""
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
        """Set the function to call when the application's calls may have left something to send. It must not call the engine."""
        self.wake = self.plain.wake = wake

    def acknowledge_taken(self) -> None:
        """Acknowledge everything the application has taken. Call this before `close`, which overtakes pending acknowledgments."""
        if not self.is_ended:
            # Channels that arrived in this turn do not have a control stream yet.
            self.open_control_streams()
            self.flush_taken()
            self.wake()

    def close(self, *, reason: str = "") -> None:
        """Close the connection and all its channels. Calling it again has no effect."""
        if not self.is_ended:
            self.commands.append(CloseConnection(EXPLICIT_CLOSE, reason))
            self.end(None)

    # State.

    @property
    def live_halves(self) -> int:
        return len(self.senders) + len(self.receivers) + len(self.drained)

    @property
    def unacknowledged(self) -> tuple[int, int]:
        """The number of reliable messages of all senders that are not acknowledged, and their bytes."""
        counts = [sender.unacknowledged for sender in list(self.senders.values())]
        return sum(messages for messages, _ in counts), sum(size for _, size in counts)

    # Methods that the QUIC connection calls. It also calls `receive_stream` and `transport_state`.

    def receive_reset(self, stream_id: int, code: int, now_ns: int) -> None:
        """Process the peer's reset of its direction of a stream."""
        self.now_ns = now_ns
        if not self.is_ended:
            self.step(self.reset_came, stream_id, code)

    def receive_stop_sending(self, stream_id: int, now_ns: int) -> None:
        """Note that the peer stopped reading a stream, which the QUIC connection has reset."""
        self.now_ns = now_ns
        if not self.is_ended:
            self.step(self.stream_stopped, stream_id)

    def receive_datagram(self, data: bytes, now_ns: int) -> None:
        self.now_ns = now_ns
        if not self.is_ended:
            self.step(self.take_datagram, data)

    def receive_stream_ends(self, stream_ids: Sequence[int], pieces: list[bytes], now_ns: int) -> None:
        """Process the last bytes of several unidirectional streams. For most of these streams they are also the first bytes."""
        self.now_ns = now_ns
        index = 0
        are_new = self.streams.keys().isdisjoint(stream_ids)
        while index < len(pieces) and not self.is_ended:
            count = self.receive_run_alone(pieces, index, False) if are_new else 0
            if not count:
                self.receive_stream(stream_ids[index], pieces[index], True, now_ns)
            index += count or 1

    def receive_datagrams(self, datagrams: list[bytes], now_ns: int) -> None:
        self.now_ns = now_ns
        index = 0
        while index < len(datagrams) and not self.is_ended:
            count = self.receive_run_alone(datagrams, index, True)
            if not count:
                self.receive_datagram(datagrams[index], now_ns)
            index += count or 1

    def stream_delivered(self, stream_id: int, now_ns: int) -> None:
        """Note that everything written to a stream has reached the peer; the response to a `WatchDelivery` command."""
        self.now_ns = now_ns
        stream = self.streams.get(stream_id)
        if stream is not None:
            self.heard(stream)

    def connection_lost(self, error: Exception | None, now_ns: int) -> None:
        self.now_ns = now_ns
        self.end(error)

    def handshake_completed(self, now_ns: int) -> None:
        """Process held early data: the TLS handshake is complete, so nothing can be a replay any longer."""
        self.now_ns = now_ns
        if self.is_early:
            self.is_early = False
            self.step(self.release)

    # Output for the QUIC connection and the application, and timers.

    def data_to_send(self, now_ns: int) -> list[Command]:
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
        """Remove and return the next event; None if there is none."""
        return self.events.popleft() if self.events else None

    def next_timeout_ns(self) -> int | None:
        """Return the time at which `handle_timeout` is due; None if no timer is set."""
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
        """Send the acknowledgments, declarations and nacks that are due."""
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

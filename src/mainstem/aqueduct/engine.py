"""An Aqueduct connection without I/O: streams, datagrams and resets go in, commands and events come out.

Methods are named by their caller. The QUIC connection reports through ``receive_*``; ``data_to_send`` returns the commands for
it; ``next_event`` returns notifications for the application; everything else is called by the application. Time is an argument,
in nanoseconds of any monotonic clock. The engine uses no socket, clock, thread or QUIC library.

One thread makes all calls. A call changes the state and appends to two queues, the commands and the events. Halves that have an
``owner`` report to it directly; otherwise the only callback to the application is the function passed to `call_on_output`, which
only schedules work. So a caller can take its time, drain the queues as often as it likes, and call the engine while handling an
event.

The engine is one class in four files, each of which adds to the one before:

* `connection_state` holds what the others share: halves, filters, memory, outgoing streams.
* `send` and `receive` handle a single half: its messages, the reports about them, its end.
* `engine` decides which data is processed now and which is held, reads frames from streams, checks that each frame is allowed
  where it appears, attaches halves to their control streams, and processes loss through work lists.

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

Holding data. Two gates hold data that the peer sends. Early data (0-RTT) could be a replay until the handshake is complete; with
``early_data``, none of it is processed before that. And only the connection control stream is processed before both sides have
sent their headers. For a server, this gate opens when the application accepts; for a client, when the server's ConnectionControl
arrives. Held data counts against ``Limits.max_buffered_bytes`` like all other buffered data.

When the last gate opens, streams are processed first and datagrams after them, each in order of arrival. There is no ordering
guarantee between streams anyway, because QUIC can deliver them in any order. Within a stream, order is kept whether or not the
stream was held. A reset of a held stream is processed after the stream's first frame, because the peer relies on that frame (a
ChannelControl) to take effect. Until the server has responded, everything the client sends begins with a Version frame. A
server therefore records for each stream and datagram whether it arrived before the response.

A channel has a sender on one side and a receiver on the other. The side that minted its id created one half and attached
the other to a message; the peer creates its half when that message arrives, or when a message *on* the channel does:

* A half whose id the peer minted opens a control stream immediately; one minted here waits for the peer to open it.
* Finish, cancel and close wait for the control stream. Loss does not.
* Acknowledging a message makes its attachments reachable, once its sender is reachable. Until then the links stay
  with the sender (``SenderHalf.acked``).
* Giving up a message loses its attachments, then the attachments of the messages sent on those, and so on.
* A half that ended before it was reachable is kept only by the link to it. When the link is lost, the engine notifies the
  peer with a ClosedChannelLost on a stream of its own, because the control stream is gone.

Cascades run as work lists, not as recursion. Code that loses or drops a half appends it to ``lost`` or ``dropped``, and
`settle` empties the lists, one half at a time. Acknowledged halves become reachable before anything is lost. A chain of 10,000
channels or a tree of 100,000 takes linear time and constant stack.

Loss and drops differ in what the peer receives. A lost half is treated as if it had never existed: its control stream is reset
with "lost". A half that the application dropped, or never took out of its message, ends as if its handle had been dropped: a
sender is cancelled, a receiver closed.

Streams have three invariants: one is in ``held_streams`` only while a gate is shut; ``control_id`` never changes once it is set;
one that is blocked on a full receiver (``Stream.blocked_on``) is not read until `resume`.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from mainstem._core.aqueduct.run_writer import integer_frame
from mainstem.aqueduct.events import CloseConnection, Command, ConnectionEnded, Event, PauseStream, PeerHeaders
from mainstem.aqueduct.frames import (
    ACK_NACK_UNRELIABLE,
    ACK_RELIABLE,
    CHANNEL_CONTROL,
    CLOSE_RECEIVER,
    CLOSED_CHANNEL_LOST,
    CONNECTION_CONTROL,
    EXPLICIT_CLOSE,
    FINISH_SENDER,
    FRAME_TYPES,
    MESSAGE,
    RESET_CANCELLED,
    RESET_LOST,
    SENT_UNRELIABLE,
    VERSION_BYTES,
    VERSION_TAG,
    Incomplete,
    as_headers,
    decode_frame,
    describe,
    encode_headers,
    protocol_error,
)
from mainstem.aqueduct.halves import (
    OPENED_BY_SERVER,
    UNIDIRECTIONAL,
    Half,
    Incoming,
    ReceiverHalf,
    Role,
    SenderHalf,
    Stream,
    UnreliableRun,
)
from mainstem.aqueduct.limits import QUEUED_MESSAGE_OVERHEAD
from mainstem.aqueduct.receive import Receiving
from mainstem.aqueduct.state import ReceiverInput, ReceiverState, SenderInput, SenderState
from mainstem.errors import LocalProtocolError, RemoteProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence


class AqueductEngine(Receiving):
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
        data = b"\x01" + encode_headers(self._headers)
        self.control_id = self.open_stream(data, unidirectional=False)
        self.make_stream(self.control_id, Role.CONNECTION)
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

    # Methods that the QUIC connection calls. It also calls `transport_state`.

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

    # Steps.

    def step(self, step: Callable[..., Any], *arguments: Any) -> Any:
        """Run a protocol step and everything it sets in motion; if the peer broke a rule, end the connection."""
        try:
            result = step(*arguments)
            if self.lost or self.dropped or self.unblocked:
                self.settle()
            return result
        except RemoteProtocolError as error:
            self.fail(error)
            return None

    def fail(self, error: RemoteProtocolError) -> None:
        error.peer = self.peer
        if not self.is_ended:
            self.drop_output()
            self.commands.append(CloseConnection(error.code or 1, str(error)))
            self.end(error)

    def end(self, error: Exception | None) -> None:
        """End every half because the connection ended. Only channels that had already finished can still be read to their end."""
        if self.is_ended:
            return
        self.is_ended = True
        unread: list[Any] = []
        unsent = {item.tag for sender in self.senders.values() for item in sender.pending if item.tag is not None}
        ended_senders = []
        for sender in list(self.senders.values()):
            ended_senders.append((sender, sender.unacknowledged, sender.progress))
            self.progress += sender.progress
            self.move(sender, SenderInput.DISCONNECT)
            sender.take_outstanding()
        ended_receivers = list(self.receivers.values())
        for receiver in ended_receivers:
            self.move(receiver, ReceiverInput.DISCONNECT)
            receiver.blocked.clear()
            unread += receiver.take_queue()
        for receiver in [receiver for receiver in self.drained.values() if not receiver.handed_over]:
            del self.drained[receiver.channel_id]
            unread += receiver.take_queue()
        while unread:
            # The attachments of these messages can no longer be received, nor can the attachments of messages on those channels.
            for half in unread.pop().attachments:
                if isinstance(half, ReceiverHalf) and self.drained.pop(half.channel_id, None) is not None:
                    unread += half.take_queue()
        self.forget()
        for sender, unacknowledged, progress in ended_senders:
            self.report_end(sender, unacknowledged, progress)
        for receiver in ended_receivers:
            self.report_receiver_end(receiver)
        self.events.append(ConnectionEnded(error, self.progress, frozenset(unsent)))

    def settle(self) -> None:
        """Process everything that a step set in motion, one half at a time."""
        while True:
            if self.lost:
                self._lose(self.lost.pop())
            elif self.dropped:
                half, as_lost = self.dropped.pop()
                if half.state.is_final:
                    if isinstance(half, ReceiverHalf):
                        self.drained.pop(half.channel_id, None)
                        self.drop_queue(half, as_lost=as_lost)
                elif as_lost:
                    self._lose(half)
                elif isinstance(half, SenderHalf):
                    self.cancel_sender(half)
                else:
                    self.close_by_application(half)
            elif self.unblocked:
                self.resume(self.unblocked.popleft())
            else:
                return

    def _lose(self, half: Half) -> None:
        """End a half that was lost with its creating message, or that the peer reported lost, and notify the other side."""
        if half.state.is_final:
            # The half's control stream is already gone.
            ends = (SenderState.LOST, SenderState.DISCONNECTED, ReceiverState.LOST, ReceiverState.DISCONNECTED)
            if half.state not in ends and not half.reachable:
                self._notify_lost(half)
            if isinstance(half, SenderHalf):
                self.lose_messages(half, half.acked)
                half.acked = []
            return
        if half.control is not None:
            if half.is_sender and half.control.out_done:
                # The sender has finished its direction of the stream, so that direction can no longer be reset.
                self._notify_lost(half)
            self.reset_stream(half.control, RESET_LOST)
        if isinstance(half, SenderHalf):
            self.sender_lost(half)
        else:
            self.end_receiver(half, ReceiverInput.LOSE)

    def _notify_lost(self, half: Half) -> None:
        self.notices.append(integer_frame(CLOSED_CHANNEL_LOST, half.channel_id))
        self.send_notices()

    def send_notices(self) -> None:
        """Send the ClosedChannelLost frames that are waiting for a stream."""
        while self.notices and self.plain.stream_room > 0:
            data = self.notices.popleft()
            self.open_stream(data, unidirectional=True, fin=True)
            self.sent_frame(data)

    # Stream events from the QUIC connection.

    def receive_stream(self, stream_id: int, data: bytes, fin: bool, now_ns: int) -> None:
        self.now_ns = now_ns
        if self.is_ended:
            return
        stream = self.streams.get(stream_id)
        if stream is None and fin and stream_id & UNIDIRECTIONAL and self.receive_run_alone([data], 0, False):
            # The common case: the stream carried a single message without attachments.
            return
        try:
            if stream is None:
                if bool(stream_id & OPENED_BY_SERVER) != self.is_client:
                    # This side opened the stream, and both its directions have ended.
                    return
                stream = self._new_stream(stream_id)
            elif not stream.heard:
                self.heard(stream)
            if stream.in_done:
                return
            if data and stream.last_seen:
                raise _after_last()
            if fin:
                stream.fin = True
            if stream.role is Role.ABANDONED:
                if fin:
                    stream.in_done = True
                    self.forget_if_done(stream)
                return
            if data:
                if stream.position == len(stream.data) and not stream.pieces:
                    stream.data, stream.position = data, 0
                else:
                    stream.pieces.append(data)
                    stream.pieces_size += len(data)
            if (self.is_early or not self.is_ready) and stream_id != self.control_id:
                self._hold_stream(stream)
            elif stream.blocked_on is not None or (stream.needed > stream.pieces_size and not stream.fin):
                # The stream is waiting for room, or for the rest of a large message.
                self.account_stream(stream)
            else:
                self._read(stream)
            if self.lost or self.dropped or self.unblocked:
                self.settle()
        except RemoteProtocolError as error:
            self.fail(error)

    def receive_run_alone(self, items: list[bytes], start: int, unreliable: bool) -> int:
        """Process as many plain messages as possible, from ``items[start]`` on. Each traveled alone.

        Returns how many were processed; the caller must process the next one by itself.
        """
        if self.is_early or not self.is_ready:
            return 0
        count: int | None = self.step(self.receive_alone, items, start, unreliable)
        return len(items) if count is None else count

    def _new_stream(self, stream_id: int) -> Stream:
        """Register a stream that the peer opened. Raises RemoteProtocolError."""
        if len(self.streams) >= self.limits.max_open_streams:
            raise protocol_error("stream limit", f"more than {self.limits.max_open_streams} streams at once")
        stream = self.make_stream(stream_id, Role.NEW)
        # Until the server has responded, the client must begin everything with a Version frame.
        stream.must_begin_with_version = not self.is_client and not self.is_ready
        return stream

    def make_stream(self, stream_id: int, role: Role) -> Stream:
        """Register a stream. The peer opened it if its role is not known yet."""
        is_new = role is Role.NEW
        out_done = is_new and bool(stream_id & UNIDIRECTIONAL)
        stream = Stream(self.limits, stream_id=stream_id, role=role, out_done=out_done, heard=is_new)
        self.streams[stream_id] = stream
        return stream

    def reset_came(self, stream_id: int, code: int) -> None:
        """Process the peer's reset of its direction of a stream, or hold it. Raises RemoteProtocolError."""
        stream = self.streams.get(stream_id)
        if stream is None:
            if bool(stream_id & OPENED_BY_SERVER) != self.is_client:
                return
            stream = self._new_stream(stream_id)
        self.heard(stream)
        if stream.in_done:
            return
        if stream in self.held_streams:
            if stream.is_bidirectional:
                # The first frame names the stream's channel and still has to be processed: the peer relies on that.
                stream.held_reset = code
                return
            del self.held_streams[stream]
        stream.fin = True
        self._reset_arrived(stream, code)

    def stream_stopped(self, stream_id: int) -> None:
        """Stop writing to a stream that the peer stopped reading and QUIC has reset. Raises RemoteProtocolError."""
        stream = self.streams.get(stream_id)
        if stream is not None and stream.role is Role.CONNECTION:
            raise protocol_error("connection control lasts", "the peer stopped reading the connection control stream")
        self.forget_writes(stream_id)
        for sender in self.senders.values():
            if sender.ordered_stream == stream_id:
                sender.ordered_stream = None
                sender.close_fast_path()
                break
        if stream is not None:
            stream.out_done = True
            self.forget_if_done(stream)

    # Reading.

    def _read(self, stream: Stream) -> None:
        """Process the frames that have arrived, until the stream is held, abandoned or empty."""
        while True:
            if stream.role is Role.MESSAGES and stream.half is not None:
                self.receive_run(stream, stream.half)  # type: ignore[arg-type]
            if stream.position == len(stream.data) and not stream.pieces:
                break
            frame = stream.next_frame()
            if frame is None:
                break
            if stream.role is Role.CONTROL and SENT_UNRELIABLE <= frame[0] <= CLOSE_RECEIVER and not self.is_observed:
                self._on_control(stream, *frame)
            else:
                self._process(stream, *frame)
            if stream.blocked_on is not None or stream.role is Role.ABANDONED:
                break
        if stream.accounted or stream.position < len(stream.data) or stream.pieces:
            self.account_stream(stream)
        if stream.fin and stream.blocked_on is None and stream.role is not Role.ABANDONED:
            self._end_of_stream(stream)

    def resume(self, stream: Stream) -> None:
        """Resume a held stream, starting with the message that did not fit."""
        if stream.role is Role.ABANDONED or stream.in_done or self.is_ended:
            return
        frame, stream.held_frame = stream.held_frame, None
        if frame is not None and not self.receive_message(frame[1], stream):
            stream.held_frame = frame
            return
        self.commands.append(PauseStream(stream.stream_id, paused=False))
        self._read(stream)

    def _process(self, stream: Stream, tag: int, value: Any) -> None:
        """Process one frame of a stream. Raises RemoteProtocolError if it is not allowed there."""
        if self.is_observed:
            self.saw_frame(tag, value)
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
            self._on_control(stream, tag, value)
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
            if not self.receive_message(value, stream):
                stream.held_frame = tag, value
        elif tag == CHANNEL_CONTROL:
            stream.role = Role.CONTROL
            self._attach_control(stream, value)
        else:
            stream.role = Role.NOTICE
            self.closed_channel_lost(value)

    def _on_control(self, stream: Stream, tag: int, value: Any) -> None:
        half = stream.half
        stream.frames += 1
        if half is None:
            return
        if tag in (FINISH_SENDER, CLOSE_RECEIVER) and half.is_sender is (tag == CLOSE_RECEIVER):
            # This frame must be the last of its direction.
            stream.last_seen = True
            if stream.buffered:
                raise _after_last()
        if isinstance(half, SenderHalf):
            if tag == ACK_RELIABLE:
                self.acknowledged_reliable(half, value)
            elif tag == ACK_NACK_UNRELIABLE:
                self.resolved_unreliable(half, value)
            elif tag == CLOSE_RECEIVER:
                self.receiver_closed(half, value)
            else:
                raise _misplaced(tag, half, "receiver-to-sender")
        elif tag == SENT_UNRELIABLE:
            self.declared(half, value)
        elif tag == FINISH_SENDER:
            self.finished(half, value)
        else:
            raise _misplaced(tag, half, "sender-to-receiver")

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
        self.forget_if_done(stream)

    def _reset_arrived(self, stream: Stream, code: int) -> None:
        """Process a reset that is not, or no longer, held. Raises RemoteProtocolError."""
        stream.in_done = True
        half = stream.half
        if stream.role is Role.CONNECTION:
            raise protocol_error("connection control lasts", "the connection control stream was reset")
        if stream.role is not Role.CONTROL or half is None:
            # This is a stream of messages, for which the code does not matter, or one whose purpose will never be known.
            if stream.role is not Role.ABANDONED:
                self.abandon(stream)
            if stream.is_bidirectional:
                self.reset_stream(stream, RESET_LOST)
            self.forget_if_done(stream)
        elif code == RESET_LOST:
            self.reset_stream(stream, RESET_LOST)
            if isinstance(half, SenderHalf):
                self.sender_lost(half)
            else:
                self.end_receiver(half, ReceiverInput.LOSE)
        elif code == RESET_CANCELLED and isinstance(half, ReceiverHalf):
            # The receiver closes immediately and drops unread messages.
            self.end_in_order(half, ReceiverInput.CANCEL)
        else:
            text = f"the control stream of {describe(half.channel_id)} was reset with code {code}"
            raise protocol_error("reset code", text)

    # The exchange of headers, and data that arrives before it is complete.

    def _connection_control(self, stream: Stream, headers: Any) -> None:
        """Process a ConnectionControl frame. Raises RemoteProtocolError if it is not allowed there."""
        is_second = self.peer_headers_seen
        stream_id = stream.stream_id
        is_right = (
            stream_id == self.control_id if self.is_client else not stream_id & (UNIDIRECTIONAL | OPENED_BY_SERVER)
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
        self.peer_headers_seen = True
        self.events.append(PeerHeaders(headers))
        if self.is_client:
            self.is_ready = True
            self.plain.opening = b""
            self.release()

    def _hold_stream(self, stream: Stream) -> None:
        """Hold a stream; on a server, check whether it is the connection control stream.

        Errors in its first frames are detected immediately, so that a client that never sends its headers cannot make the server
        keep invalid data.
        """
        self.held_streams[stream] = None
        if not (self.is_early or self.is_client or self.peer_headers_seen or stream.held_frame is not None):
            self._check_held(stream)
        self.account_stream(stream)

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
                    del self.held_streams[stream]
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
        if not self.is_early and not self.is_client and not self.peer_headers_seen:
            for stream in list(self.held_streams):
                self._hold_stream(stream)
        if self.is_early or not self.is_ready:
            return
        streams, self.held_streams = list(self.held_streams), {}
        datagrams, self.held_datagrams = self.held_datagrams, []
        for stream in streams:
            frame, stream.held_frame = stream.held_frame, None
            if frame is not None:
                self._process(stream, *frame)
            if stream.role is not Role.ABANDONED and stream.blocked_on is None:
                self._read(stream)
            if stream.held_reset is not None and not stream.in_done:
                stream.fin = True
                self._reset_arrived(stream, stream.held_reset)
            self.settle()
        for data, must_begin_with_version in datagrams:
            self.account(-len(data))
            self._read_datagram(data, must_begin_with_version=must_begin_with_version)

    # Datagrams.

    def take_datagram(self, data: bytes) -> None:
        """Process a datagram, or check and hold it. Raises RemoteProtocolError."""
        if self.is_early or not self.is_ready:
            must_begin_with_version = not self.is_client and not self.is_ready
            for _ in self._messages_of(data, must_begin_with_version=must_begin_with_version):
                pass
            self.account(len(data))
            self.held_datagrams.append((data, must_begin_with_version))
        else:
            self._read_datagram(data, must_begin_with_version=False)

    def _read_datagram(self, data: bytes, *, must_begin_with_version: bool) -> None:
        for message in self._messages_of(data, must_begin_with_version=must_begin_with_version):
            if self.is_observed:
                self.saw_frame(MESSAGE, message)
            self.receive_message(message, None)

    def _messages_of(self, data: bytes, *, must_begin_with_version: bool) -> Iterator[Any]:
        """Yield the messages in a datagram. Raises RemoteProtocolError if it contains any other frame or a partial one."""
        position, end = 0, len(data)
        first = True
        while position < end or first:
            try:
                (tag, value), position = decode_frame(data, position, end, self.limits)
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

    # Control streams.

    def _attach_control(self, stream: Stream, channel_id: int) -> None:
        """Attach a control stream that the peer opened to its half, or reset it if the half is missing or already has one."""
        if not self.is_minted_here(channel_id):
            text = f"ChannelControl for {describe(channel_id)}, which its sender minted"
            raise protocol_error("control minter", text)
        half: Half | None = self.senders.get(channel_id) or self.receivers.get(channel_id)
        if half is not None and half.control is None:
            self._attach(half, stream)
        else:
            # The stream belongs to a ghost receiver, or raced with the channel's end. The reset makes the peer discard its half.
            self.counts.ghosts_refused += 1
            self.reset_stream(stream, RESET_LOST)
            self.abandon(stream)

    def open_control_streams(self) -> None:
        """Open control streams for waiting halves, as far as the transport has credit."""
        while self.awaiting_control and self.bidi_room > 0:
            half = self.awaiting_control.popleft()
            data = integer_frame(CHANNEL_CONTROL, half.channel_id)
            stream = self.make_stream(self.open_stream(data, unidirectional=False), Role.CONTROL)
            if self.is_observed:
                self.sent_frame(data)
            if half.state.is_final:
                # The half was lost before its control stream could be opened. The side that minted it must still be notified.
                self.reset_stream(stream, RESET_LOST)
                self.abandon(stream)
            else:
                self._attach(half, stream)

    def _attach(self, half: Half, stream: Stream) -> None:
        """Give a half its control stream, and send everything that was waiting for it."""
        half.control = stream
        stream.half = half
        if isinstance(half, SenderHalf):
            if half.state is SenderState.CANCEL_PENDING:
                self.reset_cancelled(half)
            else:
                if half.next_unreliable:
                    self.declare(half)
                self.try_finish(half)
        elif half.state is ReceiverState.CLOSE_PENDING:
            self.end_in_order(half, ReceiverInput.ATTACHED)
        elif half.is_accounted_for:
            self.complete(half)
        else:
            self.schedule_ack(half)


def _after_last() -> RemoteProtocolError:
    return protocol_error("last frame", "bytes after the last frame of a control stream")


def _misplaced(tag: int, half: Half, direction: str) -> RemoteProtocolError:
    text = f"a {FRAME_TYPES[tag].name} frame on the control stream of {describe(half.channel_id)}, {direction}"
    return protocol_error("frame place", text)


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

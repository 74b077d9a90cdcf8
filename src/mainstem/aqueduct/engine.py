"""An Aqueduct connection without I/O: streams, datagrams and resets go in, commands and events come out.

Methods are named by their caller. The QUIC connection reports through ``receive_*``; ``data_to_send`` returns the commands for
it; ``next_event`` returns notifications for the application; everything else is called by the application. Time is an argument,
in nanoseconds of any monotonic clock. The engine uses no socket, clock, thread or QUIC library.

One thread makes all calls. A call changes the state and appends to two queues, the commands and the events. Halves that have an
``owner`` report to it directly; otherwise the only callback to the application is the function passed to `call_on_output`, which
only schedules work. So a caller can take its time, drain the queues as often as it likes, and call the engine while handling an
event.

The engine makes the parts of a connection, starts each of their steps, and ends the connection. Each part has a file, which can be
read by itself; a part only knows those before it:

* `context`: what all parts share. `output`: the commands. `receive_buffer`: how much is buffered. `streams`: the open streams.
* `channel_table`: the halves of the channels, whose data is in `halves`.
* `send` and `receive`: the messages of a half, the reports about them, and its end. They do not know each other.
* `loss`: halves that are lost or dropped. `control`: the control stream of each half.
* `dispatch`: frames, which of them are allowed where, and which are processed now or held.

Received data takes one of three paths. Most messages without attachments travel alone, on a stream or in a datagram of their own,
and arrive in batches: `Receiving.receive_alone` processes as many as it can at once. The middle of a large message is only fed to a
reader. Everything else is processed frame by frame. The first two paths make the same decisions as the third; they return if they
cannot be sure.

Invariants. If the peer breaks a rule, the connection ends with a `ConnectionEnded` event and a close command; the engine does not
raise the error. After `ConnectionEnded` every half has reported its end, no command follows except the close, and only channels
that had finished before can still be read to their end. Work lists (``lost``, ``dropped``, ``unblocked``) are empty between calls:
each step that fills them ends with `FrameDispatcher.settle`. Nothing recurses, however deeply channels depend on one another.

Messages of one sender in mode ORDERED are never reordered. There is no ordering between channels, between modes, or between a
channel and the message that it came attached to, and QUIC can let a reset overtake the bytes before it.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from mainstem.aqueduct.channel_table import ChannelTable
from mainstem.aqueduct.context import Context
from mainstem.aqueduct.control import ControlStreams
from mainstem.aqueduct.dispatch import FrameDispatcher
from mainstem.aqueduct.events import CloseConnection, Command, ConnectionEnded, Event, Mode
from mainstem.aqueduct.frames import EXPLICIT_CLOSE, as_headers, describe, protocol_error
from mainstem.aqueduct.halves import OPENED_BY_SERVER, UNIDIRECTIONAL, Half, Incoming, ReceiverHalf, Role, UnreliableRun
from mainstem.aqueduct.limits import DEFAULT_LIMITS, Limits
from mainstem.aqueduct.loss import Loss
from mainstem.aqueduct.output import Output
from mainstem.aqueduct.receive import Receiving
from mainstem.aqueduct.receive_buffer import ReceiveBuffer
from mainstem.aqueduct.send import Sending
from mainstem.aqueduct.state import SenderState
from mainstem.aqueduct.streams import Streams
from mainstem.aqueduct.timing import DEFAULT_TIMING, Timing
from mainstem.errors import BackPressured, ConnectionLost, LocalProtocolError, RemoteProtocolError
from mainstem.instruments import NULL_INSTRUMENT, Instrument

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from mainstem.aqueduct.events import Attach


class AqueductEngine:
    """One side of a connection, as a state machine (docs/protocols/aqueduct.md).

    ``headers`` are a client's; a server passes its own to `accept`. ``peer`` names the peer in error messages. With
    ``early_data``, a server holds all data until `handshake_completed`, because it could be a replay.

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
        self._headers = as_headers(headers)
        self.is_ended = False
        self.context = context = Context(
            is_client=is_client, limits=limits, timing=timing, instrument=instrument, peer=peer
        )
        self.events = context.events
        self.output = output = Output(context)
        self.buffer = buffer = ReceiveBuffer(context, output)
        self.streams = streams = Streams(context, output, buffer)
        self.channels = channels = ChannelTable(context, output.plain)
        self.sending = sending = Sending(context, channels, output, streams)
        self.receiving = receiving = Receiving(context, channels, output, streams, buffer)
        self.loss = loss = Loss(context, channels, output, streams, sending, receiving)
        self.control = control = ControlStreams(context, channels, output, streams, sending, receiving)
        self.dispatcher = FrameDispatcher(
            context, output, streams, buffer, channels, receiving, loss, control, early_data=early_data
        )

    # Opening.

    def start(self, now_ns: int) -> None:
        """Open the connection control stream of a client. Messages can follow immediately. Raises LocalProtocolError."""
        self.context.now_ns = now_ns
        self.dispatcher.start(self._headers)

    def accept(
        self, headers: Mapping[str, bytes | str] | Iterable[tuple[str, bytes | str]] | None, now_ns: int
    ) -> None:
        """Respond to the client's headers as a server, and process everything held until now. Raises LocalProtocolError."""
        self.context.now_ns = now_ns
        self.dispatcher.accept(headers)
        self.context.counts.halves_created += 1
        self.channels.awaiting_control.append(self.channels.entrypoint)
        self._step(self.dispatcher.release)

    # Methods that the application calls. If they leave something to send, they call the function passed to `call_on_output`.

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

        Each item of ``attach`` says which half of a new channel travels with the message, and whether the channel is a oneshot. If
        ``tag`` is not None, an `Acknowledged` or `Lost` event later reports what happened to the message.

        Raises LocalProtocolError, BackPressured (a `Writable` event will follow) or ConnectionLost.
        """
        if self.is_ended:
            raise ConnectionLost("the connection has ended")
        sender = self.channels.senders.get(channel_id)
        if sender is None:
            raise LocalProtocolError(f"{describe(channel_id)} has no sender here", rule="no such sender")
        if sender.state is SenderState.OPEN and not sender.accepts(mode):
            messages, size = sender.count + len(sender.pending), sender.size + sender.pending_bytes
            text = f"{describe(channel_id)}: {messages} messages and {size} bytes are queued or unacknowledged"
            raise BackPressured(text)
        return tuple([half.channel_id for half in self.sending.send_on(sender, payload, mode, attach, tag)])

    def finish(self, channel_id: int) -> None:
        """End a channel gracefully: everything sent is still delivered, and nothing more can be sent."""
        sender = self.channels.senders.get(channel_id)
        if sender is not None and not self.is_ended:
            self.sending.finish(sender)
            self.context.wake()

    def cancel(self, channel_id: int) -> None:
        """Abandon a channel as soon as possible: messages that are in flight, or unread at the peer, are dropped.

        Has no effect once the channel has finished.
        """
        sender = self.channels.senders.get(channel_id)
        if sender is not None and not self.is_ended:
            self.sending.cancel(sender)
            self.dispatcher.settle()
            self.context.wake()

    def close_receiver(self, channel_id: int) -> None:
        """Close a receiver, dropping its unread messages and notifying its sender."""
        receiver = self.channels.receivers.get(channel_id)
        if receiver is not None:
            self.receiving.close(receiver)
        else:
            drained = self.channels.drained.pop(channel_id, None)
            if drained is not None:
                self.receiving.drop_queue(drained, as_lost=False)
        self.dispatcher.settle()
        self.context.wake()

    def drop(self, half: Half) -> None:
        """Give up a half that came attached to a message: cancel a sender, close a receiver."""
        if half.is_sender:
            self.cancel(half.channel_id)
        else:
            self.close_receiver(half.channel_id)

    def receive(self, channel_id: int) -> Incoming | None:
        """Take the oldest unread message of a receiver, or return None. The application then owns the halves attached to it."""
        receiver = self.channels.receivers.get(channel_id) or self.channels.drained.get(channel_id)
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
        self.receiving.taken(receiver, 1, len(message.payload))
        if self.receiving.unblocked:
            self._step(self.dispatcher.settle)
        if self.output.commands or self.output.writes:
            self.context.wake()
        return message

    def receive_from(self, receiver: ReceiverHalf) -> deque[bytes] | Incoming | None:
        """Take the oldest unread messages up to the first that has attachments, or that one alone if it is the oldest.

        Returns None if there are none. The application then counts as waiting. Unread messages of other channels must not block it,
        so the connection can buffer half as much again.
        """
        if not receiver.queue:
            if not receiver.state.is_final:
                self.buffer.awaited[receiver] = None
                if self.buffer.paused:
                    self.buffer.resume_reading()
            return None
        if not receiver.handed_over:
            return None
        head = receiver.queue.popleft()
        if isinstance(head, Incoming):
            self.receiving.taken(receiver, 1, len(head.payload))
        else:
            self.receiving.taken(receiver, len(head), sum(map(len, head)))
        if self.receiving.unblocked:
            self._step(self.dispatcher.settle)
        if self.output.commands or self.output.writes:
            self.context.wake()
        return head

    def call_on_output(self, wake: Callable[[], None]) -> None:
        """Set the function to call when the application's calls may have left something to send. It must not call the engine."""
        self.context.wake = self.output.plain.wake = wake

    def acknowledge_taken(self) -> None:
        """Acknowledge everything the application has taken. Call this before `close`, which overtakes pending acknowledgments."""
        if not self.is_ended:
            # Channels that arrived in this turn do not have a control stream yet.
            self.control.open_waiting()
            self.receiving.flush_taken()
            self.context.wake()

    def close(self, *, reason: str = "") -> None:
        """Close the connection and all its channels. Calling it again has no effect."""
        if not self.is_ended:
            self.output.commands.append(CloseConnection(EXPLICIT_CLOSE, reason))
            self._end(None)

    # State.

    @property
    def is_ready(self) -> bool:
        """Whether both sides have sent their headers, so that messages are processed."""
        return self.dispatcher.is_ready

    @property
    def live_halves(self) -> int:
        return self.channels.live

    @property
    def has_output(self) -> bool:
        """Whether there are commands, or could be once the transport has room."""
        output, channels = self.output, self.channels
        waiting = (
            output.writes or output.commands or channels.awaiting_control or self.sending.waiting or self.loss.notices
        )
        return bool(waiting or channels.early) or output.plain.has_output

    @property
    def unacknowledged(self) -> tuple[int, int]:
        """The number of reliable messages of all senders that are not acknowledged, and their bytes."""
        counts = [sender.unacknowledged for sender in list(self.channels.senders.values())]
        return sum(messages for messages, _ in counts), sum(size for _, size in counts)

    # Methods that the QUIC connection calls. It also calls `Output.transport_state`.

    def receive_stream(self, stream_id: int, data: bytes, fin: bool, now_ns: int) -> None:
        self.context.now_ns = now_ns
        if self.is_ended:
            return
        dispatcher, stream = self.dispatcher, self.streams.open.get(stream_id)
        if stream is None and fin and stream_id & UNIDIRECTIONAL and self._receive_run_alone([data], 0, False):
            # The common case: the stream carried a single message without attachments.
            return
        try:
            if stream is None:
                if bool(stream_id & OPENED_BY_SERVER) != self.context.is_client:
                    # This side opened the stream, and both its directions have ended.
                    return
                stream = dispatcher.add_stream(stream_id)
            elif not stream.heard:
                self.streams.heard(stream)
            if stream.in_done:
                return
            if data and stream.last_seen:
                raise protocol_error("last frame", "bytes after the last frame of a control stream")
            if fin:
                stream.fin = True
            if stream.role is Role.ABANDONED:
                if fin:
                    stream.in_done = True
                    self.streams.forget_if_done(stream)
                return
            if data:
                if stream.position == len(stream.data) and not stream.pieces:
                    stream.data, stream.position = data, 0
                else:
                    stream.pieces.append(data)
                    stream.pieces_size += len(data)
            if (dispatcher.is_early or not dispatcher.is_ready) and stream_id != dispatcher.control_id:
                dispatcher.hold(stream)
            elif stream.blocked_on is not None or (stream.needed > stream.pieces_size and not stream.fin):
                # The stream is waiting for room, or for the rest of a large message.
                self.buffer.account_stream(stream)
            else:
                dispatcher.read(stream)
            if self.channels.lost or self.channels.dropped or self.receiving.unblocked:
                self.dispatcher.settle()
        except RemoteProtocolError as error:
            self._fail(error)

    def receive_reset(self, stream_id: int, code: int, now_ns: int) -> None:
        """Process the peer's reset of its direction of a stream."""
        self.context.now_ns = now_ns
        if not self.is_ended:
            self._step(self.dispatcher.receive_reset, stream_id, code)

    def receive_stop_sending(self, stream_id: int, now_ns: int) -> None:
        """Note that the peer stopped reading a stream, which the QUIC connection has reset."""
        self.context.now_ns = now_ns
        if not self.is_ended:
            self._step(self._stream_stopped, stream_id)

    def receive_datagram(self, data: bytes, now_ns: int) -> None:
        self.context.now_ns = now_ns
        if not self.is_ended:
            self._step(self.dispatcher.receive_datagram, data)

    def receive_stream_ends(self, stream_ids: Sequence[int], pieces: list[bytes], now_ns: int) -> None:
        """Process the last bytes of several unidirectional streams. For most of these streams they are also the first bytes."""
        self.context.now_ns = now_ns
        index = 0
        are_new = self.streams.open.keys().isdisjoint(stream_ids)
        while index < len(pieces) and not self.is_ended:
            count = self._receive_run_alone(pieces, index, False) if are_new else 0
            if not count:
                self.receive_stream(stream_ids[index], pieces[index], True, now_ns)
            index += count or 1

    def receive_datagrams(self, datagrams: list[bytes], now_ns: int) -> None:
        self.context.now_ns = now_ns
        index = 0
        while index < len(datagrams) and not self.is_ended:
            count = self._receive_run_alone(datagrams, index, True)
            if not count:
                self.receive_datagram(datagrams[index], now_ns)
            index += count or 1

    def stream_delivered(self, stream_id: int, now_ns: int) -> None:
        """Note that everything written to a stream has reached the peer; the response to a `WatchDelivery` command."""
        self.context.now_ns = now_ns
        stream = self.streams.open.get(stream_id)
        if stream is not None:
            self.streams.heard(stream)

    def connection_lost(self, error: Exception | None, now_ns: int) -> None:
        self.context.now_ns = now_ns
        self._end(error)

    def handshake_completed(self, now_ns: int) -> None:
        """Process held early data: the TLS handshake is complete, so nothing can be a replay any longer."""
        self.context.now_ns = now_ns
        self._step(self.dispatcher.handshake_completed)

    # Output for the QUIC connection and the application, and timers.

    def data_to_send(self, now_ns: int) -> list[Command]:
        self.context.now_ns = now_ns
        if not self.is_ended:
            if self.channels.awaiting_control or self.channels.early:
                self.control.open_waiting()
            if self.loss.notices:
                self.loss.send_notices()
            if self.sending.waiting:
                self.sending.pump()
                self.dispatcher.settle()
        return self.output.take()

    def next_event(self) -> Event | None:
        """Remove and return the next event; None if there is none."""
        return self.events.popleft() if self.events else None

    def next_timeout_ns(self) -> int | None:
        """Return the time at which `handle_timeout` is due; None if no timer is set."""
        receiving = self.receiving
        if receiving.delayed and receiving.ack_due_ns is None:
            receiving.start_ack_timer()
        due, nacks = receiving.ack_due_ns, receiving.nack_heap
        if nacks and (due is None or nacks[0][0] < due):
            due = nacks[0][0]
        if self.sending.undeclared:
            declaration = self.sending.next_timeout_ns()
            due = declaration if due is None or declaration < due else due
        return due

    def handle_timeout(self, now_ns: int) -> None:
        """Send the acknowledgments, declarations and nacks that are due."""
        self.context.now_ns = now_ns
        if not self.is_ended:
            if self.sending.undeclared:
                self.sending.handle_timeout()
            self.receiving.handle_timeout()
            self.dispatcher.settle()

    # Steps.

    def _step(self, step: Callable[..., Any], *arguments: Any) -> Any:
        """Run a protocol step and everything it sets in motion; if the peer broke a rule, end the connection."""
        try:
            result = step(*arguments)
            if self.channels.lost or self.channels.dropped or self.receiving.unblocked:
                self.dispatcher.settle()
            return result
        except RemoteProtocolError as error:
            self._fail(error)
            return None

    def _fail(self, error: RemoteProtocolError) -> None:
        error.peer = self.context.peer
        if not self.is_ended:
            self.output.drop()
            self.output.commands.append(CloseConnection(error.code or 1, str(error)))
            self._end(error)

    def _end(self, error: Exception | None) -> None:
        """End every half because the connection ended. Only channels that had already finished can still be read to their end."""
        if self.is_ended:
            return
        self.is_ended = True
        unsent = self.sending.unsent_tags
        ended_senders, ended_receivers = self.sending.disconnect(), self.receiving.disconnect()
        self.channels.forget()
        self.streams.open.clear()
        self.dispatcher.forget()
        self.loss.notices.clear()
        self.buffer.forget(self.channels.drained.values())
        for sender, unacknowledged, progress in ended_senders:
            self.sending.report_end(sender, unacknowledged, progress)
        for receiver in ended_receivers:
            self.receiving.report_end(receiver)
        self.events.append(ConnectionEnded(error, self.sending.progress, unsent))

    def _receive_run_alone(self, items: list[bytes], start: int, unreliable: bool) -> int:
        """Process as many plain messages as possible, from ``items[start]`` on. Each traveled alone.

        Returns how many were processed; the caller must process the next one by itself.
        """
        if self.dispatcher.is_early or not self.dispatcher.is_ready:
            return 0
        count: int | None = self._step(self.receiving.receive_alone, items, start, unreliable)
        return len(items) if count is None else count

    def _stream_stopped(self, stream_id: int) -> None:
        """Stop writing to a stream that the peer stopped reading and QUIC has reset. Raises RemoteProtocolError."""
        stream = self.streams.open.get(stream_id)
        if stream is not None and stream.role is Role.CONNECTION:
            raise protocol_error("connection control lasts", "the peer stopped reading the connection control stream")
        self.output.forget_writes(stream_id)
        self.sending.stream_stopped(stream_id)
        if stream is not None:
            stream.out_done = True
            self.streams.forget_if_done(stream)

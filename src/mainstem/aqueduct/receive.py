"""Receive messages: routing, ghost receivers, queues, acknowledgments, giving up, and the end of a receiver.

A message is *processed* when it has passed every check, its halves exist, and it is in its receiver's queue. From then on it
can be acknowledged, and it is delivered exactly once unless the channel is cancelled or lost. A message that does not fit into
the queue is not processed and therefore not acknowledged. Its stream is held (``Stream.held_frame``), and the sender's limit on
unacknowledged messages eventually stops the sender: this is the protocol's back pressure. A datagram cannot be held; the oldest
unreliable message is dropped to make room for it.

A message can arrive before the message that its channel was attached to. If the peer minted the channel and it is not known to
have ended, a receiver is created immediately. It is not ``handed_over`` until the creating message arrives, and the application
cannot get it before, nor what comes in its messages. If the creating message never arrives (a *ghost receiver*), the peer refuses
the control stream that was opened for the receiver, and the receiver ends.

Three functions process messages, and all make the same decisions. `receive_message` takes any message. `receive_run` takes
plain messages that follow one another on a stream, without decoding each frame. `receive_alone` takes messages that were alone
on their streams or in their datagrams. The last two handle only messages that `receive_message` would accept, and leave
everything else to it.

Giving up (nacks): messages declared by a SentUnreliable frame have a grace period (``Timing.grace_ns``, or two round trips) to
arrive; `handle_timeout` then gives up those that have not. A nack is final: ``ReceiverHalf.mark`` moves past it, and a message
below the mark is dropped no matter how it arrives. Reliable messages are never nacked individually, only all together when a
receiver closes.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from mainstem._core.aqueduct.run_writer import RunReader, ranges_frame
from mainstem.aqueduct.events import PauseStream, ReceiverEnded
from mainstem.aqueduct.frames import (
    ACK_NACK_UNRELIABLE,
    ACK_RELIABLE,
    CLOSE_RECEIVER,
    ENTRYPOINT,
    MINTED_BY_SERVER,
    describe,
    protocol_error,
)
from mainstem.aqueduct.halves import Half, Incoming, ReceiverHalf, SenderHalf, UnreliableRun
from mainstem.aqueduct.limits import QUEUED_MESSAGE_OVERHEAD
from mainstem.aqueduct.state import ReceiverInput, ReceiverState, SenderState

if TYPE_CHECKING:
    from mainstem.aqueduct.channel_table import ChannelTable
    from mainstem.aqueduct.context import Context
    from mainstem.aqueduct.halves import Stream
    from mainstem.aqueduct.output import Output
    from mainstem.aqueduct.receive_buffer import ReceiveBuffer
    from mainstem.aqueduct.streams import Streams

RUN_LIMIT = 1024
"""Maximum number of plain messages taken from a stream at once. A run lies within one piece of a stream, which limits its bytes."""

MAX_RUN_START = (1 << 63) - 1 - RUN_LIMIT
"""The compiled run reader counts in signed 64-bit integers; larger numbers go through `receive_message`."""

ALONE_LIMIT = 64
"""Maximum number of messages that traveled alone to parse at once. Those that are not processed are parsed again."""

EMPTY_CLOSE = ranges_frame(CLOSE_RECEIVER, 0, [], 0)

MessageFields = tuple[int, int, tuple[int, ...], bytes]


class Receiving:
    """The receivers of a connection.

    ``unblocked`` holds streams that were waiting for room in a receiver and can be read again. ``delayed`` holds receivers with
    delayed acknowledgments, which are all due at ``ack_due_ns``. ``nack_heap`` holds receivers with messages to give up, and when.
    """

    def __init__(
        self, context: Context, channels: ChannelTable, output: Output, streams: Streams, buffer: ReceiveBuffer
    ) -> None:
        self._context = context
        self._channels = channels
        self._output = output
        self._streams = streams
        self._buffer = buffer
        self.unblocked: deque[Stream] = deque()
        self._runs = RunReader()
        self.delayed: list[ReceiverHalf] = []
        self.ack_due_ns: int | None = None
        self.nack_heap: list[tuple[int, int, ReceiverHalf]] = []
        self._nack_sequence = 0

    def receive_message(self, message: MessageFields, stream: Stream | None) -> bool:
        """Process a message from a stream, or from a datagram if ``stream`` is None; return False if the stream must be held."""
        channel_id, number, attachments, payload = message
        receiver = self._channels.receivers.get(channel_id)
        if receiver is None:
            receiver = self._missing_receiver(channel_id)
        if receiver is None or receiver.state is ReceiverState.CLOSE_PENDING:
            # The message is never acknowledged, so the receiver's last frame gives it up.
            self._context.counts.messages_discarded += 1
            return True
        if receiver.queue and self._buffer.is_full(receiver):
            if stream is not None:
                stream.blocked_on = receiver
                receiver.blocked[stream] = None
                self._output.commands.append(PauseStream(stream.stream_id, paused=True))
                return False
            if not self._evict(receiver):
                self._context.counts.messages_discarded += 1
                return True
        if receiver.oneshot and (number or receiver.has_had_a_message):
            raise protocol_error("oneshot", f"a second message on the oneshot {describe(channel_id)}")
        if stream is not None:
            receiver.note_reliable(number, 1, len(payload), self._context.limits)
            # The next messages on this stream are most likely for the same receiver.
            stream.half = None if receiver.oneshot else receiver
        elif not receiver.note_unreliable(number, 1, self._context.limits):
            self._context.counts.unreliable_late += 1
            return True
        if attachments:
            halves = tuple([self._take_attachment(attached, receiver) for attached in attachments])
            receiver.queue.append(Incoming(channel_id, payload, halves, number, stream is None))
        else:
            receiver.put((payload,), None if stream is not None else range(number, number + 1))
        self._processed(receiver, 1, len(payload))
        return True

    def _processed(self, receiver: ReceiverHalf, count: int, size: int) -> None:
        """Account for ``count`` queued messages of ``size`` bytes, wake the application, and schedule an acknowledgment."""
        was_empty = not receiver.queued
        size += count * QUEUED_MESSAGE_OVERHEAD
        receiver.queued += count
        receiver.queued_bytes += size
        self._context.counts.messages_received += count
        self._buffer.account(size)
        if was_empty and receiver.handed_over and receiver.owner is not None:
            receiver.owner.wake()
        if receiver.finish_count is not None and receiver.is_accounted_for:
            self.complete(receiver)
        elif receiver.control is not None:
            self.schedule_ack(receiver)

    def receive_alone(self, items: list[bytes], start: int, unreliable: bool) -> int:
        """Process consecutive plain messages of one channel, each alone on its stream or in its datagram.

        Returns how many messages from ``items[start]`` on were processed. The next one must go through `receive_message`, which
        makes the same decisions. Raises RemoteProtocolError.
        """
        runs, limits = self._runs, self._context.limits
        payloads = runs.gather(items, start, ALONE_LIMIT, limits.max_payload)
        receiver = self._channels.receivers.get(runs.channel) if payloads else None
        if receiver is None or self._context.is_observed or receiver.state is ReceiverState.CLOSE_PENDING:
            return 0
        first, count, size = runs.number, runs.count, runs.size
        if receiver.oneshot and (first or count > 1 or receiver.has_had_a_message):
            return 0
        if receiver.queue and self._buffer.is_full(receiver):
            return 0
        if count > 1 and (
            receiver.queued + count > limits.receive_messages
            or receiver.queued_bytes + size + count * QUEUED_MESSAGE_OVERHEAD > limits.receive_bytes
        ):
            return 0
        if not unreliable:
            receiver.note_reliable(first, count, size, limits)
            receiver.put(payloads)
        elif receiver.note_unreliable(first, count, limits):
            receiver.put(payloads, range(first, first + count))
        else:
            return 0
        self._processed(receiver, count, size)
        return count

    def receive_run(self, stream: Stream, receiver: ReceiverHalf) -> None:
        """Process the plain messages that come next on a stream, in order and without a gap.

        Makes the same decisions as `receive_message`, and leaves everything that is not plain to it.
        """
        limits, runs = self._context.limits, self._runs
        if receiver.state.is_final or receiver.state is ReceiverState.CLOSE_PENDING or self._context.is_observed:
            stream.half = None
            return
        first = receiver.top
        room = min(RUN_LIMIT, limits.receive_messages - receiver.queued)
        if receiver.finish_count is not None:
            room = min(room, receiver.finish_count - first)
        if room <= 0 or first > MAX_RUN_START or (receiver.queue and self._buffer.is_full(receiver)):
            return
        payloads = runs.read(stream.data, stream.position, receiver.prefix, first, room, limits.max_payload)
        count = runs.count
        if count:
            stream.position = runs.position
            stream.frames += count
            receiver.note_reliable(first, count, runs.size, limits)
            receiver.put(payloads)
            self._processed(receiver, count, runs.size)

    def _missing_receiver(self, channel_id: int) -> ReceiverHalf | None:
        """Return a new receiver for a message without one, or None if the peer did not mint the channel or it has ended."""
        if not self._channels.flows_here(channel_id):
            text = f"a message on {describe(channel_id)}, which flows the other way"
            raise protocol_error("channel direction", text)
        if self._channels.is_minted_here(channel_id) or channel_id in self._channels.closed_ids:
            return None
        self._channels.check_count()
        # The message that this channel is attached to has not arrived yet.
        receiver = self._channels.make_receiver(channel_id, minted_here=False, handed_over=False, obtainable=False)
        self._channels.receivers[channel_id] = receiver
        self._context.counts.halves_created += 1
        self._channels.early[receiver] = None
        return receiver

    def _evict(self, receiver: ReceiverHalf) -> bool:
        """Make room for a newer unreliable message by dropping the oldest message, if that is unreliable; return whether it was."""
        queue = receiver.queue
        head = queue[0]
        if isinstance(head, UnreliableRun):
            number, payload = head.numbers.popleft(), head.popleft()
            if not head:
                queue.popleft()
        elif isinstance(head, Incoming) and head.unreliable:
            number, payload = head.number, head.payload
            queue.popleft()
            self._channels.dropped.extend((half, True) for half in head.attachments)
        else:
            return False
        size = len(payload) + QUEUED_MESSAGE_OVERHEAD
        receiver.queued -= 1
        receiver.queued_bytes -= size
        self._buffer.account(-size)
        self._context.counts.unreliable_evicted += 1
        if number >= receiver.mark:
            # The message is not acknowledged yet. It was never delivered, so it will be given up.
            receiver.received.remove(number)
        return True

    def _take_attachment(self, channel_id: int, carrier: ReceiverHalf) -> Half:
        """Return the half that came attached to a message on the channel of ``carrier``. Raises RemoteProtocolError."""
        if bool(channel_id & MINTED_BY_SERVER) != self._context.is_client or channel_id == ENTRYPOINT:
            text = f"{describe(channel_id)} came attached, although the peer did not mint it"
            raise protocol_error("attachment minter", text)
        if not self._channels.attached_ids.add(channel_id):
            raise protocol_error("attached twice", f"channel {describe(channel_id)} was attached to two messages")
        # The filter forgets ids beyond its limit, so check the halves as well.
        receiver = self._channels.receivers.get(channel_id) or self._channels.drained.get(channel_id)
        if channel_id in self._channels.senders or (receiver is not None and receiver.handed_over):
            raise protocol_error("attached twice", f"{describe(channel_id)} was attached to two messages")
        if receiver is not None:
            receiver.handed_over = True
            if carrier.obtainable:
                self._make_obtainable(receiver)
            if receiver.state.is_final and not receiver.queue:
                del self._channels.drained[channel_id]
            return receiver
        self._channels.check_count()
        # A closed half was lost while its creating message was in flight, and that message's channel is being lost as well.
        was_closed = channel_id in self._channels.closed_ids
        obtainable = carrier.obtainable
        half: Half
        if self._channels.flows_here(channel_id):
            half = self._channels.make_receiver(channel_id, minted_here=False, handed_over=True, obtainable=obtainable)
            if was_closed:
                half.state = ReceiverState.LOST
                return half
            self._channels.receivers[channel_id] = half
        else:
            writer, limits = self._output.plain, self._context.limits
            half = SenderHalf(writer, channel_id, limits, minted_here=False, obtainable=obtainable)
            if was_closed:
                half.state = SenderState.LOST
                return half
            self._channels.senders[channel_id] = half
        self._context.counts.halves_created += 1
        if obtainable:
            self._channels.awaiting_control.append(half)
        else:
            self._channels.early[half] = None
        return half

    def _make_obtainable(self, receiver: ReceiverHalf) -> None:
        """Note that every message that leads to a receiver has arrived, and so to the halves in its unread messages."""
        halves: deque[Half] = deque((receiver,))
        while halves:
            half = halves.popleft()
            half.obtainable = True
            if half in self._channels.early:
                del self._channels.early[half]
                self._channels.awaiting_control.append(half)
            if isinstance(half, ReceiverHalf):
                for incoming in half.queue:
                    if isinstance(incoming, Incoming):
                        halves += incoming.attachments

    def closed_channel_lost(self, channel_id: int) -> None:
        """Process a ClosedChannelLost frame: a channel that the peer minted, and that had closed, was lost in transit."""
        if self._channels.is_minted_here(channel_id) or channel_id == ENTRYPOINT:
            text = f"ClosedChannelLost for {describe(channel_id)}, which the peer did not mint"
            raise protocol_error("notice minter", text)
        half: Half | None = self._channels.senders.get(channel_id) or self._channels.receivers.get(channel_id)
        kept = self._channels.drained.get(channel_id)
        if half is not None:
            self._channels.lost.append(half)
        elif kept is not None and not kept.handed_over:
            # The receiver ended before the application could get it.
            del self._channels.drained[channel_id]
            self._channels.move(kept, ReceiverInput.LOSE)
            self.drop_queue(kept, as_lost=True)
        # The channel can never be used again, so late messages must not create a ghost receiver.
        self._channels.closed_ids.add(channel_id)

    def _unblock(self, receiver: ReceiverHalf) -> None:
        """Schedule the streams that were waiting for room in this receiver to be read again."""
        for stream in receiver.blocked:
            stream.blocked_on = None
            self.unblocked.append(stream)
        receiver.blocked.clear()

    def taken(self, receiver: ReceiverHalf, count: int, size: int) -> None:
        """Account for ``count`` messages of ``size`` bytes that were taken, and unblock streams that were waiting for room."""
        size += count * QUEUED_MESSAGE_OVERHEAD
        receiver.queued -= count
        receiver.queued_bytes -= size
        buffer = self._buffer
        buffer.awaited.pop(receiver, None)
        buffer.account(-size)
        if receiver.state.is_final:
            if not receiver.queue:
                self._channels.drained.pop(receiver.channel_id, None)
        elif (
            receiver.blocked
            and receiver.queued * 2 <= self._context.limits.receive_messages
            and not buffer.is_full(receiver)
        ):
            self._unblock(receiver)

    # Acknowledgments, declarations and giving up.

    def schedule_ack(self, receiver: ReceiverHalf) -> None:
        """Schedule an acknowledgment on the control stream, or send it immediately if much is unacknowledged."""
        timing = self._context.timing
        if receiver.unacked_count >= timing.ack_messages or receiver.unacked_bytes >= timing.ack_bytes:
            self._flush_acks(receiver)
        elif not receiver.ack_scheduled and (receiver.unacked_count or receiver.received):
            receiver.ack_scheduled = True
            self.delayed.append(receiver)

    def _flush_acks(self, receiver: ReceiverHalf, *, final: bool = False) -> None:
        while receiver.unacked_count:
            self._streams.write_control(receiver, ranges_frame(ACK_RELIABLE, *receiver.take_acks()))
        if receiver.received or receiver.declared:
            while report := receiver.take_acks_and_nacks(final=final):
                self._streams.write_control(receiver, ranges_frame(ACK_NACK_UNRELIABLE, *report))

    def start_ack_timer(self) -> None:
        self.ack_due_ns = self._context.now_ns + self._context.timing.ack_delay_ns

    def handle_timeout(self) -> None:
        """Send the acknowledgments and nacks that are due."""
        if self.ack_due_ns is not None and self.ack_due_ns <= self._context.now_ns:
            receivers, self.delayed = self.delayed, []
            self.ack_due_ns = None
            for receiver in receivers:
                receiver.ack_scheduled = False
                if not receiver.state.is_final and receiver.control is not None:
                    self._flush_acks(receiver)
        if self.nack_heap:
            self._give_up_missing()

    def flush_taken(self) -> None:
        """Send delayed acknowledgments for messages that the application has taken, before the connection is closed.

        Receivers with unread messages are skipped: nobody will ever read those messages, and their sender must find out.
        """
        for receiver in list(self._channels.receivers.values()):
            has_unread = receiver.queue or (receiver.owner is not None and receiver.owner.has_unread)
            if receiver.control is not None and not receiver.state.is_final and not has_unread:
                self._flush_acks(receiver)

    def declared(self, receiver: ReceiverHalf, count: int) -> None:
        """Process a SentUnreliable frame: start the grace period of the messages it declares."""
        if receiver.oneshot and receiver.declared + count > 1:
            raise protocol_error("oneshot", f"{receiver.declared + count} messages declared on a oneshot")
        receiver.declare(count, self._context.now_ns, max(self._context.timing.grace_ns, 2 * self._context.rtt_ns))
        self._schedule_nack(receiver)
        self.schedule_ack(receiver)

    def _schedule_nack(self, receiver: ReceiverHalf) -> None:
        if not receiver.nack_scheduled and receiver.expiries:
            receiver.nack_scheduled = True
            self._nack_sequence += 1
            heappush(self.nack_heap, (receiver.expiries[0][2], self._nack_sequence, receiver))

    def _give_up_missing(self) -> None:
        """Give up declared messages that have not arrived within their grace period."""
        heap = self.nack_heap
        while heap and heap[0][0] <= self._context.now_ns:
            receiver = heappop(heap)[2]
            receiver.nack_scheduled = False
            if receiver.state.is_final or receiver.control is None:
                continue
            while receiver.expiries and receiver.expiries[0][2] <= self._context.now_ns:
                receiver.expired = receiver.expiries.popleft()[0]
            self._flush_acks(receiver)
            if receiver.is_accounted_for:
                self.complete(receiver)
            else:
                self._schedule_nack(receiver)

    # The end of a receiver.

    def finished(self, receiver: ReceiverHalf, count: int) -> None:
        """Process a FinishSender frame. The receiver ends once all messages are accounted for, possibly now."""
        if receiver.oneshot and count + receiver.declared > 1:
            raise protocol_error("oneshot", f"{count + receiver.declared} messages on a oneshot")
        receiver.finish(count)
        self._channels.move(receiver, ReceiverInput.FINISH_FRAME)
        if receiver.is_accounted_for:
            self.complete(receiver)

    def complete(self, receiver: ReceiverHalf) -> None:
        """End a receiver whose sender has finished and whose messages are all accounted for."""
        if receiver.control is not None:
            self.end_in_order(receiver, ReceiverInput.COMPLETE)

    def close(self, receiver: ReceiverHalf) -> None:
        """Close a receiver for the application. Attachments of queued messages end like dropped handles."""
        if receiver.control is not None:
            self.end_in_order(receiver, ReceiverInput.CLOSE)
        else:
            self._channels.move(receiver, ReceiverInput.CLOSE_UNATTACHED)
            self.drop_queue(receiver, as_lost=False)
            self._unblock(receiver)

    def end_in_order(self, receiver: ReceiverHalf, happened: ReceiverInput) -> None:
        """Send every outstanding acknowledgment and then a CloseReceiver without ranges, and end the receiver.

        Empty ranges mean the same under both readings of where ranges would start.
        """
        self._flush_acks(receiver, final=True)
        self._streams.write_control(receiver, EMPTY_CLOSE, fin=True)
        self.end(receiver, happened)

    def end(self, receiver: ReceiverHalf, happened: ReceiverInput) -> None:
        """End a receiver on the wire. After a graceful end, the application can still drain its queue."""
        self._channels.move(receiver, happened)
        channel_id = receiver.channel_id
        self._channels.receivers.pop(channel_id, None)
        self._buffer.awaited.pop(receiver, None)
        if not receiver.minted_here:
            self._channels.closed_ids.add(channel_id)
        if receiver.control is not None:
            self._streams.abandon(receiver.control)
            receiver.control = None
        end = receiver.state
        if end is not ReceiverState.FINISHED:
            self.drop_queue(receiver, as_lost=end is not ReceiverState.CLOSED)
        if receiver.blocked:
            self._unblock(receiver)
        if receiver.queue if receiver.handed_over else end in (ReceiverState.FINISHED, ReceiverState.CANCELLED):
            self._channels.drained[channel_id] = receiver
        if receiver.handed_over:
            self.report_end(receiver)

    def report_end(self, receiver: ReceiverHalf) -> None:
        if receiver.owner is None:
            self._context.events.append(ReceiverEnded(receiver.channel_id, receiver.state))
        else:
            receiver.owner.receiver_ended(receiver.state)

    def drop_queue(self, receiver: ReceiverHalf, *, as_lost: bool) -> None:
        """Drop unread messages together with their attachments."""
        if receiver.queue:
            self._buffer.account(-receiver.queued_bytes)
            for incoming in receiver.take_queue():
                # The application never held these halves. They are lost in transit, or end like dropped handles.
                self._channels.dropped.extend((half, as_lost) for half in incoming.attachments)

    def disconnect(self) -> list[ReceiverHalf]:
        """End every receiver because the connection ended; return them. Channels that had already finished can still be read."""
        drained, unread = self._channels.drained, []
        ended = list(self._channels.receivers.values())
        for receiver in ended:
            self._channels.move(receiver, ReceiverInput.DISCONNECT)
            receiver.blocked.clear()
            unread += receiver.take_queue()
        for receiver in [receiver for receiver in drained.values() if not receiver.handed_over]:
            del drained[receiver.channel_id]
            unread += receiver.take_queue()
        while unread:
            # The attachments of these messages can no longer be received, nor can the attachments of messages on those channels.
            for half in unread.pop().attachments:
                if isinstance(half, ReceiverHalf) and drained.pop(half.channel_id, None) is not None:
                    unread += half.take_queue()
        self.unblocked.clear()
        self.delayed.clear()
        self.ack_due_ns = None
        self.nack_heap.clear()
        return ended

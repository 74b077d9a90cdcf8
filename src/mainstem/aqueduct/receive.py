"""Messages on their way in: routing, ghost receivers, queues, and giving up.

A message is *processed* when it has passed every check, its halves exist and it is in its receiver's queue: from then on it
may be acknowledged, and it is delivered exactly once unless the channel is cancelled or lost. A message that does not fit
into the queue is not processed, hence not acknowledged. Its stream is held where it is (``Stream.held_frame``), and the
sender's bound on unacknowledged messages stops the sender: that is the protocol's back pressure. A datagram cannot be held;
the oldest unreliable message makes way for it.

A message may arrive before the message that its channel was attached to. If the peer minted the channel and it is not
known to be over, a receiver is created for it at once; it is not ``handed_over`` until the creating message arrives, and the
application cannot have it before. If that message never comes (a *ghost receiver*), the peer refuses the control stream that
was opened for it, and the receiver ceases.

Three functions process messages, and all agree: `receive_message` any message; `receive_run` the plain messages that follow
one another on a stream, without decoding frames one by one; `receive_alone` those that were alone on their streams or in
their datagrams. The last two only handle what `receive_message` would accept, and return 0 for everything else.

Giving up (nacks): what a SentUnreliable declares gets a grace (``Timing.grace_ns``, or two round trips) in which to arrive;
`nacks_due` then gives up what has not. A nack binds: ``ReceiverHalf.mark`` moves past it, and a message below the mark is
dropped however it comes. Reliable messages are never nacked one by one, only all together when a receiver closes.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from mainstem.aqueduct import send
from mainstem.aqueduct.channel_id import describe
from mainstem.aqueduct.codec import violation
from mainstem.aqueduct.events import (
    HoldStream,
)
from mainstem.aqueduct.frames import (
    AckNackUnreliable,
    AckReliable,
    ClosedChannelLost,
    CloseReceiver,
)
from mainstem.aqueduct.halves import Half, ReceivedMessage, ReceiverHalf, SenderHalf, Stream, Unreliable
from mainstem.aqueduct.limits import QUEUED_MESSAGE_OVERHEAD
from mainstem.aqueduct.state import ReceiverInput, ReceiverState, SenderState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mainstem.aqueduct.connection_state import ConnectionState
    from mainstem.aqueduct.frames import Message

RUN_LIMIT = 1024
"""Plain messages taken from a stream at once; a run is within one piece of a stream, so it is bounded in bytes too."""

MAX_RUN_START = (1 << 63) - 1 - RUN_LIMIT
"""The compiled reader of runs counts in signed integers of 64 bits; larger numbers go through `receive_message`."""

ALONE_LIMIT = 64
"""Messages that travelled alone, processed at once: what cannot be is parsed again with the next."""


def receive_message(state: ConnectionState, message: Message, *, stream: Stream | None) -> bool:
    """Process a message from a stream, or from a datagram (``stream`` None); False where the stream must be held."""
    channel_id = message.channel_id
    receiver = state.receivers.get(channel_id)
    if receiver is None:
        receiver = _missing_receiver(state, channel_id)
        if receiver is None:
            state.counts.messages_discarded += 1
            return True
    if receiver.state is ReceiverState.CLOSE_PENDING:
        # Never acknowledged, so given up when the last word can be said.
        state.counts.messages_discarded += 1
        return True
    if receiver.is_full(state.limits):
        if stream is not None:
            stream.blocked_on = receiver
            receiver.blocked[stream] = None
            state.out.command(HoldStream(stream.stream_id, held=True))
            return False
        if not _evict(state, receiver):
            state.counts.messages_discarded += 1
            return True
    if receiver.oneshot and (message.number or receiver.reliable_count or receiver.received.top or receiver.mark):
        raise violation(f"a second message on the oneshot {describe(channel_id)}", "oneshot")
    if stream is not None:
        receiver.note_reliable(message.number, 1, len(message.payload), state.limits)
    elif not receiver.note_unreliable(message.number, 1, state.limits):
        state.counts.unreliable_late += 1
        return True
    halves = tuple(_take_attachment(state, attached) for attached in message.attachments)
    state.counts.messages_received += 1
    if stream is not None and not halves:
        state.account(receiver.put_run([message.payload], len(message.payload)))
    elif not halves:
        state.account(receiver.put_unreliable(message.number, [message.payload], len(message.payload)))
    else:
        state.account(receiver.put(ReceivedMessage(message, halves, stream is None)))
    if receiver.handed_over and receiver.queued == 1:
        state.readable(receiver)
    if stream is not None:
        # What follows on this stream is most likely for the same receiver.
        stream.half = receiver
    if receiver.is_accounted_for:
        complete(state, receiver)
    else:
        schedule_ack(state, receiver)
    return True


def receive_alone(state: ConnectionState, items: list[bytes], start: int, *, unreliable: bool) -> int:
    """Process plain messages of one channel, numbered one after the other, each alone on its stream or in its datagram.

    Returns how many of those from ``items[start]`` on were processed; the next has to go through `receive_message`, which
    decides as this would. Raises RemoteProtocolError.
    """
    runs, limits = state.runs, state.limits
    payloads = runs.gather(items, start, ALONE_LIMIT, limits.max_payload)
    if not payloads:
        return 0
    channel_id, first = runs.channel, runs.number
    receiver = state.receivers.get(channel_id)
    if receiver is None or state.is_observed:
        return 0
    if receiver.oneshot:
        if first or receiver.reliable_count or receiver.received.top or receiver.mark:
            return 0
        del payloads[1:]
    if receiver.state is not ReceiverState.OPEN and receiver.state is not ReceiverState.FINISHING:
        return 0
    count, size = len(payloads), (len(payloads[0]) if receiver.oneshot else runs.size)
    waiting = receiver.queued
    # Some may have been given up, and some may not find room: then one at a time.
    several = not unreliable or first >= receiver.mark
    if (
        waiting + count > limits.receive_messages
        or receiver.queued_bytes + size + count * QUEUED_MESSAGE_OVERHEAD > limits.receive_bytes
    ):
        if receiver.is_full(limits):
            return 0
        several = False
    if not several:
        del payloads[1:]
        count, size = 1, len(payloads[0])
    if unreliable:
        if not receiver.note_unreliable(first, count, limits):
            state.counts.unreliable_late += 1
            return 1
        state.account(receiver.put_unreliable(first, payloads, size))
    else:
        receiver.note_reliable(first, count, size, limits)
        state.account(receiver.put_run(payloads, size))
    state.counts.messages_received += count
    if not waiting and receiver.handed_over:
        state.readable(receiver)
    if receiver.finish_count is not None and receiver.is_accounted_for:
        complete(state, receiver)
    elif not receiver.ack_scheduled or receiver.unacked_count >= state.timing.ack_messages:
        schedule_ack(state, receiver)
    return count


def receive_run(state: ConnectionState, stream: Stream, receiver: ReceiverHalf) -> int:
    """Process the plain messages that come next on a stream, in order and without a gap; returns how many they were.

    Nothing is decided here that `receive_message` would decide otherwise: what is not plain is left to it.
    """
    limits = state.limits
    if (
        receiver.state.is_final
        or receiver.state is ReceiverState.CLOSE_PENDING
        or receiver.oneshot
        or state.is_observed
    ):
        stream.half = None
        return 0
    first = max(receiver.acked.top, receiver.unacked.top)
    if first > MAX_RUN_START:
        return 0
    room = limits.receive_messages - receiver.queued
    if receiver.finish_count is not None:
        room = min(room, receiver.finish_count - first)
    if room <= 0 or receiver.queued_bytes >= limits.receive_bytes:
        return 0
    runs = state.runs
    payloads = stream.reader.next_run(runs, receiver.prefix, first, min(room, RUN_LIMIT), limits.max_payload)
    count = runs.count
    if not count:
        return 0
    was_empty = not receiver.queued
    receiver.note_run(first, count, runs.size)
    state.account(receiver.put_run(payloads, runs.size))
    state.counts.messages_received += count
    if was_empty and receiver.handed_over:
        state.readable(receiver)
    if receiver.is_accounted_for:
        complete(state, receiver)
    else:
        schedule_ack(state, receiver)
    return count


def _missing_receiver(state: ConnectionState, channel_id: int) -> ReceiverHalf | None:
    """The receiver for a message that found none: made now, where the peer minted the channel and it is not over."""
    if not state.flows_here(channel_id):
        raise violation(f"a message on {describe(channel_id)}, which flows the other way", "channel direction")
    if state.is_minted_here(channel_id) or state.was_closed(channel_id):
        return None
    state.check_channel_count()
    # The message that it is attached to has not come yet.
    return create_receiver(state, channel_id, minted_here=False, handed_over=False)


def _evict(state: ConnectionState, receiver: ReceiverHalf) -> bool:
    """Make room for a newer unreliable message by dropping the oldest, if that is unreliable too."""
    head = receiver.queue[0]
    if isinstance(head, deque) or (isinstance(head, ReceivedMessage) and not head.unreliable):
        return False
    number = head.numbers[0] if isinstance(head, Unreliable) else head.message.number
    state.account(-receiver.pop()[1])
    state.counts.unreliable_evicted += 1
    if number >= receiver.mark:
        # Not acknowledged yet: it will be given up, as it was never delivered.
        receiver.received.remove(number)
    if isinstance(head, ReceivedMessage):
        drop_halves(state, head.halves, as_lost=True)
    return True


def _take_attachment(state: ConnectionState, channel_id: int) -> Half:
    """The half that came attached to a message. Raises RemoteProtocolError."""
    if state.is_minted_here(channel_id) or channel_id == 0:
        raise violation(f"{describe(channel_id)} came attached, yet it was not minted by the peer", "attachment minter")
    state.note_taken(channel_id)
    if not state.flows_here(channel_id):
        if channel_id in state.senders:
            raise violation(f"the sender of {describe(channel_id)} was attached to two messages", "attached twice")
        state.check_channel_count()
        if state.was_closed(channel_id):
            sender = SenderHalf(
                channel_id, minted_here=False, reachable=True, limits=state.limits, writer=state.out.plain
            )
            sender.state = SenderState.LOST
            return sender
        return send.create_sender(state, channel_id, minted_here=False, reachable=True)
    receiver = state.receivers.get(channel_id)
    if receiver is not None:
        if receiver.handed_over:
            raise violation(f"the receiver of {describe(channel_id)} was attached to two messages", "attached twice")
        receiver.handed_over = True
        return receiver
    receiver = state.drained.get(channel_id)
    if receiver is not None:
        receiver.handed_over = True
        if not receiver.queue:
            del state.drained[channel_id]
        return receiver
    state.check_channel_count()
    if state.was_closed(channel_id):
        # It was lost while its creating message was on the way, and the channel of that message is being lost too.
        receiver = ReceiverHalf(channel_id, minted_here=False, reachable=True, handed_over=True)
        receiver.state = ReceiverState.LOST
        return receiver
    return create_receiver(state, channel_id, minted_here=False, handed_over=True)


def closed_channel_lost(state: ConnectionState, frame: ClosedChannelLost) -> None:
    """The peer reports that a channel which it had minted, and closed, was lost in transit."""
    channel_id = frame.channel_id
    if state.is_minted_here(channel_id) or channel_id == 0:
        raise violation(f"ClosedChannelLost for {describe(channel_id)}, which the peer did not mint", "notice minter")
    half: Half | None = state.senders.get(channel_id) or state.receivers.get(channel_id)
    if half is not None:
        state.lost.append(half)
    else:
        forget_drained(state, channel_id)
    # It can never be used any more: late messages need not make a ghost.
    state.note_closed(channel_id)


# Declarations and giving up.


def declared(state: ConnectionState, receiver: ReceiverHalf, count: int) -> None:
    """A SentUnreliable frame came: what it declares has a grace in which to arrive."""
    if receiver.oneshot and receiver.declared + count > 1:
        raise violation(f"{receiver.declared + count} messages declared on a oneshot", "oneshot")
    grace = max(state.timing.grace_ns, 2 * state.rtt_ns)
    receiver.declare(count, state.now_ns, grace)
    _schedule_nack(state, receiver)
    schedule_ack(state, receiver)


def _schedule_nack(state: ConnectionState, receiver: ReceiverHalf) -> None:
    if not receiver.nack_scheduled and receiver.expiries:
        receiver.nack_scheduled = True
        state.nack_sequence += 1
        heappush(state.nack_heap, (receiver.expiries[0][2], state.nack_sequence, receiver))


def nacks_due(state: ConnectionState) -> None:
    """Give up what was declared and has had its chance."""
    heap = state.nack_heap
    while heap and heap[0][0] <= state.now_ns:
        receiver = heappop(heap)[2]
        receiver.nack_scheduled = False
        if receiver.state.is_final or receiver.control is None:
            continue
        receiver.expire(state.now_ns)
        flush_acks(state, receiver)
        if receiver.is_accounted_for:
            complete(state, receiver)
        else:
            _schedule_nack(state, receiver)


def finished(state: ConnectionState, receiver: ReceiverHalf, count: int) -> None:
    """A FinishSender frame came: the receiver ends when all is accounted for, which may be now."""
    if receiver.oneshot and count + receiver.declared > 1:
        raise violation(f"{count + receiver.declared} messages on a oneshot", "oneshot")
    receiver.finish(count)
    state.move_receiver(receiver, ReceiverInput.FINISH_FRAME)
    if receiver.is_accounted_for:
        complete(state, receiver)


def take(state: ConnectionState, receiver: ReceiverHalf) -> ReceivedMessage | bytes:
    """The oldest of the messages that wait. Streams that waited for room go on."""
    entry, size = receiver.pop()
    _taken(state, receiver, size)
    return entry


def take_run(state: ConnectionState, receiver: ReceiverHalf) -> deque[bytes] | None:
    """The run of plain messages at the head of the queue; None if there is none."""
    run, size = receiver.pop_run()
    if run is not None:
        _taken(state, receiver, size)
    return run


def want(state: ConnectionState, channel_id: int) -> None:
    """The application waits for a message and there is none: unread messages of other channels must not stop it."""
    receiver = state.receivers.get(channel_id)
    if receiver is not None:
        state.awaited[receiver] = None
        if state.held:
            state.release()


def _taken(state: ConnectionState, receiver: ReceiverHalf, size: int) -> None:
    state.awaited.pop(receiver, None)
    state.account(-size)
    if receiver.state.is_final:
        if not receiver.queue:
            state.drained.pop(receiver.channel_id, None)
    elif (
        receiver.blocked and receiver.queued * 2 <= state.limits.receive_messages and not receiver.is_full(state.limits)
    ):
        unblock(state, receiver)


def schedule_ack(state: ConnectionState, receiver: ReceiverHalf) -> None:
    """Something is to be acknowledged: soon, or at once where much is."""
    if receiver.control is None:
        return
    timing = state.timing
    if receiver.unacked_count >= timing.ack_messages or receiver.unacked_bytes >= timing.ack_bytes:
        flush_acks(state, receiver)
    elif not receiver.ack_scheduled and (receiver.unacked_count or len(receiver.received)):
        receiver.ack_scheduled = True
        state.ack_list.append(receiver)


def flush_acks(state: ConnectionState, receiver: ReceiverHalf, *, final: bool = False) -> None:
    """Send what can be acknowledged or given up now."""
    while counts := receiver.take_ack_reliable():
        state.write_control(receiver, AckReliable(counts).encode())
    while counts := receiver.take_ack_nack(final=final):
        state.write_control(receiver, AckNackUnreliable(counts).encode())


def acks_due(state: ConnectionState) -> None:
    """The delay of acknowledgements is over."""
    receivers, state.ack_list = state.ack_list, []
    state.ack_due_ns = None
    for receiver in receivers:
        receiver.ack_scheduled = False
        if not receiver.state.is_final and receiver.control is not None:
            flush_acks(state, receiver)


def create_receiver(state: ConnectionState, channel_id: int, *, minted_here: bool, handed_over: bool) -> ReceiverHalf:
    """Create a receiver; where the peer minted it, with a control stream that is opened here."""
    assert channel_id not in state.receivers, "one receiver to a channel"
    receiver = ReceiverHalf(channel_id, minted_here=minted_here, reachable=not minted_here, handed_over=handed_over)
    state.receivers[channel_id] = receiver
    state.counts.halves_created += 1
    if not minted_here:
        state.awaiting_control.append(receiver)
    return receiver


# A receiver's end.


def close_receiver(state: ConnectionState, receiver: ReceiverHalf, happened: ReceiverInput) -> None:
    """Send the last frames and cease: every outstanding acknowledgement first, then a CloseReceiver without ranges.

    Empty ranges mean the same under both readings of where they would start.
    """
    flush_acks(state, receiver, final=True)
    state.write_control(receiver, CloseReceiver().encode())
    state.finish_control(receiver)
    end_receiver(state, receiver, happened)


def complete(state: ConnectionState, receiver: ReceiverHalf) -> None:
    """The sender has finished and all is accounted for."""
    if receiver.control is not None:
        close_receiver(state, receiver, ReceiverInput.COMPLETE)


def close_by_application(state: ConnectionState, receiver: ReceiverHalf) -> None:
    """The application reads no more. What is queued was acknowledged; what is attached to it is dropped like any handle."""
    if receiver.control is not None:
        close_receiver(state, receiver, ReceiverInput.CLOSE)
    else:
        state.move_receiver(receiver, ReceiverInput.CLOSE_UNATTACHED)
        drop_queue(state, receiver, as_lost=False)
        unblock(state, receiver)


def end_receiver(state: ConnectionState, receiver: ReceiverHalf, happened: ReceiverInput) -> None:
    """A receiver ceases to exist on the wire. After a graceful end the application can still drain its queue."""
    state.move_receiver(receiver, happened)
    channel_id = receiver.channel_id
    state.receivers.pop(channel_id, None)
    state.awaited.pop(receiver, None)
    if not receiver.minted_here:
        state.note_closed(channel_id)
    if receiver.control is not None:
        state.abandon(receiver.control)
        receiver.control = None
    end = receiver.state
    if end is not ReceiverState.FINISHED:
        drop_queue(state, receiver, as_lost=end is not ReceiverState.CLOSED)
    unblock(state, receiver)
    retain = bool(receiver.queue) if receiver.handed_over else end in (ReceiverState.FINISHED, ReceiverState.CANCELLED)
    if retain:
        state.drained[channel_id] = receiver
    if receiver.handed_over:
        state.receiver_ended(receiver)


def unblock(state: ConnectionState, receiver: ReceiverHalf) -> None:
    """Have the streams read again that waited for room in this receiver."""
    for stream in receiver.blocked:
        stream.blocked_on = None
        state.unblocked.append(stream)
    receiver.blocked.clear()


def drop_queue(state: ConnectionState, receiver: ReceiverHalf, *, as_lost: bool) -> None:
    """Drop what the application has not received, with what is attached to it."""
    if receiver.queue:
        state.account(-receiver.queued_bytes)
        for delivery in receiver.take_queue():
            drop_halves(state, delivery.halves, as_lost=as_lost)


def drop_halves(state: ConnectionState, halves: Iterable[Half], *, as_lost: bool) -> None:
    """Drop halves that the application never held: lost in transit, or closed and cancelled like a dropped handle."""
    state.dropped.extend((half, as_lost) for half in halves)


def forget_drained(state: ConnectionState, channel_id: int) -> None:
    """A receiver that had ended before the application could have it was lost: drop what it kept."""
    receiver = state.drained.get(channel_id)
    if receiver is not None and not receiver.handed_over:
        del state.drained[channel_id]
        state.move_receiver(receiver, ReceiverInput.LOSE)
        drop_queue(state, receiver, as_lost=True)

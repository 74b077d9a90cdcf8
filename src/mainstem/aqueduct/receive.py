"""Messages on their way in: routing, ghost receivers, queues, acknowledgements, giving up, and a receiver's end.

A message is *processed* when it has passed every check, its halves exist and it is in its receiver's queue: from then on it
may be acknowledged, and it is delivered exactly once unless the channel is cancelled or lost. A message that does not fit
into the queue is not processed, and so not acknowledged. Its stream is held where it is (``Stream.held_frame``), and the
sender's limit on unacknowledged messages stops the sender: that is the protocol's back pressure. A datagram cannot be held;
the oldest unreliable message makes way for it.

A message may arrive before the message that its channel was attached to. If the peer minted the channel and it is not
known to be over, a receiver is created for it at once; it is not ``handed_over`` until the creating message arrives, and the
application cannot have it before. If that message never comes (a *ghost receiver*), the peer refuses the control stream that
was opened for it, and the receiver ceases.

Three functions process messages, and all agree: `receive_message` takes any message; `receive_run` the plain messages that
follow one another on a stream, without decoding frames one by one; `receive_alone` those that were alone on their streams or in
their datagrams. The last two only handle what `receive_message` would accept, and return 0 for everything else.

Giving up (nacks): what a SentUnreliable declares has a grace period (``Timing.grace_ns``, or two round trips) in which to
arrive; `nacks_due` then gives up what has not. A nack binds: ``ReceiverHalf.mark`` moves past it, and a message below the mark
is dropped however it comes. Reliable messages are never nacked one by one, only all together when a receiver closes.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

from mainstem.aqueduct.events import PauseStream
from mainstem.aqueduct.frames import ENTRYPOINT, describe, encode_range_data, protocol_error
from mainstem.aqueduct.halves import Half, Incoming, ReceiverHalf, Stream, UnreliableRun
from mainstem.aqueduct.limits import QUEUED_MESSAGE_OVERHEAD
from mainstem.aqueduct.state import ReceiverInput, ReceiverState, SenderState

if TYPE_CHECKING:
    from collections import deque

    from mainstem.aqueduct.connection_state import ConnectionState

RUN_LIMIT = 1024
"""Plain messages taken from a stream at once; a run is within one piece of a stream, so it is limited in bytes too."""

MAX_RUN_START = (1 << 63) - 1 - RUN_LIMIT
"""The compiled reader of runs counts in signed integers of 64 bits; larger numbers go through `receive_message`."""

ALONE_LIMIT = 64
"""Messages that travelled alone, processed at once: what cannot be is parsed again with the next."""

MessageFields = tuple[int, int, tuple[int, ...], bytes]


def receive_message(state: ConnectionState, message: MessageFields, *, stream: Stream | None) -> bool:
    """Process a message from a stream, or from a datagram (``stream`` None); False if the stream must be held."""
    channel_id, number, attachments, payload = message
    receiver = state.receivers.get(channel_id)
    if receiver is None:
        receiver = _missing_receiver(state, channel_id)
    if receiver is None or receiver.state is ReceiverState.CLOSE_PENDING:
        # Never acknowledged, so given up with the receiver's last frame.
        state.counts.messages_discarded += 1
        return True
    if receiver.is_full(state.limits):
        if stream is not None:
            stream.blocked_on = receiver
            receiver.blocked[stream] = None
            state.commands.append(PauseStream(stream.stream_id, paused=True))
            return False
        if not _evict(state, receiver):
            state.counts.messages_discarded += 1
            return True
    if receiver.oneshot and (number or receiver.has_had_a_message):
        raise protocol_error("oneshot", f"a second message on the oneshot {describe(channel_id)}")
    if stream is not None:
        receiver.note_reliable(number, 1, len(payload), state.limits)
    elif not receiver.note_unreliable(number, 1, state.limits):
        state.counts.unreliable_late += 1
        return True
    if attachments:
        halves = tuple([_take_attachment(state, attached) for attached in attachments])
        size = receiver.put(Incoming(channel_id, payload, halves, number, stream is None))
    elif stream is not None:
        size = receiver.put_run((payload,), len(payload))
    else:
        size = receiver.put_unreliable(number, (payload,), len(payload))
    if stream is not None:
        # What follows on this stream is most likely for the same receiver.
        stream.half = receiver
    _processed(state, receiver, 1, size)
    return True


def _processed(state: ConnectionState, receiver: ReceiverHalf, count: int, size: int) -> None:
    """Messages are in the queue, and take ``size`` bytes there: account for them, tell the application, acknowledge soon."""
    state.counts.messages_received += count
    state.account(size)
    if receiver.queued == count and receiver.handed_over:
        state.readable(receiver)
    if receiver.finish_count is not None and receiver.is_accounted_for:
        complete(state, receiver)
    else:
        schedule_ack(state, receiver)


def receive_alone(state: ConnectionState, items: list[bytes], start: int, *, unreliable: bool) -> int:
    """Process plain messages of one channel, numbered one after the other, each alone on its stream or in its datagram.

    Returns how many of those from ``items[start]`` on were processed; the next has to go through `receive_message`, which
    decides as this would. Raises RemoteProtocolError.
    """
    runs, limits = state.runs, state.limits
    payloads = runs.gather(items, start, ALONE_LIMIT, limits.max_payload)
    receiver = state.receivers.get(runs.channel) if payloads else None
    if receiver is None or state.is_observed:
        return 0
    if receiver.state is not ReceiverState.OPEN and receiver.state is not ReceiverState.FINISHING:
        return 0
    first, count, size = runs.number, runs.count, runs.size
    if receiver.oneshot and (first or receiver.has_had_a_message):
        return 0
    has_room = (
        receiver.queued + count <= limits.receive_messages
        and receiver.queued_bytes + size + count * QUEUED_MESSAGE_OVERHEAD <= limits.receive_bytes
    )
    if not has_room and receiver.is_full(limits):
        return 0
    if count > 1 and (receiver.oneshot or not has_room or (unreliable and first < receiver.mark)):
        # Some may have been given up, and some may not find room: then one at a time.
        del payloads[1:]
        count, size = 1, len(payloads[0])
    if not unreliable:
        receiver.note_reliable(first, count, size, limits)
        size = receiver.put_run(payloads, size)
    elif receiver.note_unreliable(first, count, limits):
        size = receiver.put_unreliable(first, payloads, size)
    else:
        state.counts.unreliable_late += 1
        return 1
    _processed(state, receiver, count, size)
    return count


def receive_run(state: ConnectionState, stream: Stream, receiver: ReceiverHalf) -> int:
    """Process the plain messages that come next on a stream, in order and without a gap; return how many there were.

    It decides nothing that `receive_message` would decide otherwise: what is not plain is left to that.
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
    first = receiver.top
    room = limits.receive_messages - receiver.queued
    if receiver.finish_count is not None:
        room = min(room, receiver.finish_count - first)
    if room <= 0 or receiver.queued_bytes >= limits.receive_bytes or first > MAX_RUN_START:
        return 0
    runs = state.runs
    payloads = stream.next_run(runs, receiver.prefix, first, min(room, RUN_LIMIT))
    count = runs.count
    if count:
        receiver.note_reliable(first, count, runs.size, limits)
        _processed(state, receiver, count, receiver.put_run(payloads, runs.size))
    return count


def _missing_receiver(state: ConnectionState, channel_id: int) -> ReceiverHalf | None:
    """The receiver for a message that found none: created now if the peer minted the channel and it is not over."""
    if not state.flows_here(channel_id):
        text = f"a message on {describe(channel_id)}, which flows the other way"
        raise protocol_error("channel direction", text)
    if state.is_minted_here(channel_id) or state.was_closed(channel_id):
        return None
    state.check_channel_count()
    # The message that it is attached to has not come yet.
    return state.create_receiver(channel_id, minted_here=False, handed_over=False)


def _evict(state: ConnectionState, receiver: ReceiverHalf) -> bool:
    """Make room for a newer unreliable message by dropping the oldest, if that is unreliable too."""
    head = receiver.queue[0]
    if isinstance(head, Incoming):
        if not head.unreliable:
            return False
        number = head.number
    elif isinstance(head, UnreliableRun):
        number = head.numbers[0]
    else:
        return False
    state.account(receiver.pop()[1])
    state.counts.unreliable_evicted += 1
    if number >= receiver.mark:
        # Not acknowledged yet: it will be given up, as it was never delivered.
        receiver.received.remove(number)
    if isinstance(head, Incoming):
        state.dropped.extend((half, True) for half in head.attachments)
    return True


def _take_attachment(state: ConnectionState, channel_id: int) -> Half:
    """Return the half that came attached to a message. Raises RemoteProtocolError."""
    if state.is_minted_here(channel_id) or channel_id == ENTRYPOINT:
        text = f"{describe(channel_id)} came attached, although the peer did not mint it"
        raise protocol_error("attachment minter", text)
    state.note_taken(channel_id)
    if not state.flows_here(channel_id):
        if channel_id in state.senders:
            text = f"the sender of {describe(channel_id)} was attached to two messages"
            raise protocol_error("attached twice", text)
        state.check_channel_count()
        if state.was_closed(channel_id):
            sender = state.make_sender(channel_id, minted_here=False, reachable=True)
            sender.state = SenderState.LOST
            return sender
        return state.create_sender(channel_id, minted_here=False, reachable=True)
    receiver = state.receivers.get(channel_id)
    if receiver is not None:
        if receiver.handed_over:
            text = f"the receiver of {describe(channel_id)} was attached to two messages"
            raise protocol_error("attached twice", text)
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
        receiver = ReceiverHalf(channel_id, minted_here=False, handed_over=True)
        receiver.state = ReceiverState.LOST
        return receiver
    return state.create_receiver(channel_id, minted_here=False, handed_over=True)


def closed_channel_lost(state: ConnectionState, channel_id: int) -> None:
    """The peer reports that a channel which it had minted, and closed, was lost in transit."""
    if state.is_minted_here(channel_id) or channel_id == ENTRYPOINT:
        text = f"ClosedChannelLost for {describe(channel_id)}, which the peer did not mint"
        raise protocol_error("notice minter", text)
    half: Half | None = state.senders.get(channel_id) or state.receivers.get(channel_id)
    kept = state.drained.get(channel_id)
    if half is not None:
        state.lost.append(half)
    elif kept is not None and not kept.handed_over:
        # It had ended before the application could have it.
        del state.drained[channel_id]
        state.move_receiver(kept, ReceiverInput.LOSE)
        drop_queue(state, kept, as_lost=True)
    # It can never be used any more: late messages need not make a ghost.
    state.note_closed(channel_id)


# What the application takes.


def take(state: ConnectionState, receiver: ReceiverHalf) -> Incoming | bytes:
    """Take the oldest of the messages that wait. Streams that waited for room resume."""
    entry, change = receiver.pop()
    _taken(state, receiver, change)
    return entry


def take_run(state: ConnectionState, receiver: ReceiverHalf) -> deque[bytes] | None:
    """Take the run of plain messages at the head of the queue; None if there is none."""
    run, change = receiver.pop_run()
    if run is not None:
        _taken(state, receiver, change)
    return run


def _taken(state: ConnectionState, receiver: ReceiverHalf, change: int) -> None:
    state.awaited.pop(receiver, None)
    state.account(change)
    if receiver.state.is_final:
        if not receiver.queue:
            state.drained.pop(receiver.channel_id, None)
    elif (
        receiver.blocked and receiver.queued * 2 <= state.limits.receive_messages and not receiver.is_full(state.limits)
    ):
        unblock(state, receiver)


def unblock(state: ConnectionState, receiver: ReceiverHalf) -> None:
    """Have the streams read again that waited for room in this receiver."""
    for stream in receiver.blocked:
        stream.blocked_on = None
        state.unblocked.append(stream)
    receiver.blocked.clear()


# Acknowledgements, declarations and giving up.


def schedule_ack(state: ConnectionState, receiver: ReceiverHalf) -> None:
    """Something is to be acknowledged: soon, or at once if it is much."""
    if receiver.control is None:
        return
    timing = state.timing
    if receiver.unacked_count >= timing.ack_messages or receiver.unacked_bytes >= timing.ack_bytes:
        flush_acks(state, receiver)
    elif not receiver.ack_scheduled and (receiver.unacked_count or receiver.received):
        receiver.ack_scheduled = True
        state.ack_list.append(receiver)


def flush_acks(state: ConnectionState, receiver: ReceiverHalf, *, final: bool = False) -> None:
    """Send what can be acknowledged or given up now."""
    while counts := receiver.take_ack_reliable():
        state.write_control(receiver, b"\x05" + encode_range_data(counts))
    if receiver.received or receiver.declared:
        while counts := receiver.take_ack_nack(final=final):
            state.write_control(receiver, b"\x06" + encode_range_data(counts))


def acks_due(state: ConnectionState) -> None:
    """The delay of acknowledgements is over."""
    receivers, state.ack_list = state.ack_list, []
    state.ack_due_ns = None
    for receiver in receivers:
        receiver.ack_scheduled = False
        if not receiver.state.is_final and receiver.control is not None:
            flush_acks(state, receiver)


def acknowledge_taken(state: ConnectionState) -> None:
    """Acknowledge now what the application has taken, as far as that was delayed: the connection is about to be closed.

    A receiver with unread messages is left alone: nobody will ever read them, and their sender is to learn of it.
    """
    for receiver in list(state.receivers.values()):
        if receiver.control is not None and not receiver.state.is_final and not has_unread(receiver):
            flush_acks(state, receiver)


def has_unread(receiver: ReceiverHalf) -> bool:
    """Whether the application has not taken all that was processed."""
    return bool(receiver.queue) or (receiver.owner is not None and receiver.owner.has_unread)


def declared(state: ConnectionState, receiver: ReceiverHalf, count: int) -> None:
    """Process a SentUnreliable frame: what it declares has a grace period in which to arrive."""
    if receiver.oneshot and receiver.declared + count > 1:
        raise protocol_error("oneshot", f"{receiver.declared + count} messages declared on a oneshot")
    receiver.declare(count, state.now_ns, max(state.timing.grace_ns, 2 * state.rtt_ns))
    _schedule_nack(state, receiver)
    schedule_ack(state, receiver)


def _schedule_nack(state: ConnectionState, receiver: ReceiverHalf) -> None:
    if not receiver.nack_scheduled and receiver.expiries:
        receiver.nack_scheduled = True
        state.nack_sequence += 1
        heappush(state.nack_heap, (receiver.expiries[0][2], state.nack_sequence, receiver))


def nacks_due(state: ConnectionState) -> None:
    """Give up what was declared and has not arrived within its grace period."""
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


# A receiver's end.


def finished(state: ConnectionState, receiver: ReceiverHalf, count: int) -> None:
    """Process a FinishSender frame: the receiver ends when all is accounted for, which may be now."""
    if receiver.oneshot and count + receiver.declared > 1:
        raise protocol_error("oneshot", f"{count + receiver.declared} messages on a oneshot")
    receiver.finish(count)
    state.move_receiver(receiver, ReceiverInput.FINISH_FRAME)
    if receiver.is_accounted_for:
        complete(state, receiver)


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


def close_receiver(state: ConnectionState, receiver: ReceiverHalf, happened: ReceiverInput) -> None:
    """Send the last frames and cease: every outstanding acknowledgement first, then a CloseReceiver without ranges.

    Empty ranges mean the same under both readings of where they would start.
    """
    flush_acks(state, receiver, final=True)
    state.write_control(receiver, b"\x08\x00", fin=True)
    end_receiver(state, receiver, happened)


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
    if receiver.blocked:
        unblock(state, receiver)
    if receiver.queue if receiver.handed_over else end in (ReceiverState.FINISHED, ReceiverState.CANCELLED):
        state.drained[channel_id] = receiver
    if receiver.handed_over:
        state.receiver_ended(receiver)


def drop_queue(state: ConnectionState, receiver: ReceiverHalf, *, as_lost: bool) -> None:
    """Drop what the application has not received, with what is attached to it."""
    if receiver.queue:
        state.account(-receiver.queued_bytes)
        for incoming in receiver.take_queue():
            # Halves that the application never held: lost in transit, or ended like dropped handles.
            state.dropped.extend((half, as_lost) for half in incoming.attachments)

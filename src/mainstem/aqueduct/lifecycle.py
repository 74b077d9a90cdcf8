"""How halves are created, attached to their control streams, and cease; reachability, and loss that cascades.

A channel has a sender on one side and a receiver on the other. The side that minted its id created one half and attached
the other to a message; the peer creates its half when that message arrives, or when a message *on* the channel does.

The rules (docs/protocols/aqueduct.md):

* A half whose id the peer minted opens a control stream at once; one minted here waits for the peer to open it.
* Finish, cancel and close wait for the control stream. Ceasing by loss does not.
* A message that is acknowledged makes what was attached to it reachable, once its sender is. Until then the links stay
  with the sender (``SenderHalf.acked``).
* A message that is given up loses what was attached to it, and what was attached to the messages sent on that, and so on.
* A half that ceased before it was reachable is kept by the link to it, and by nothing else. When the link is lost, the
  peer is notified by a ClosedChannelLost on a stream of its own, because the control stream is gone.

Where a half is: in ``state.senders`` or ``state.receivers`` while it is live; in ``state.drained`` when it has ceased on the
wire and the application has yet to read it, or to receive the message that it came attached to; otherwise in no table. Its
state changes only by ``move_sender`` and ``move_receiver``, which index the tables of `state`: an impossible step is
a KeyError here, not a wrong state.

Cascades run as work lists, not as recursion. Whatever reaches, loses or drops a half appends it to ``state.reached``,
``state.lost`` or ``state.dropped``, and `settle` empties the lists, one half at a time, in that order of precedence: what is
acknowledged is reachable before anything is lost. A chain of 10,000 channels or a tree of 100,000 takes linear time and
constant stack. Every public step of the engine ends in `settle`.

A control stream is never reset by its opener before its ChannelControl has been delivered: QUIC lets a reset overtake the
data, and a stream that is reset before its first frame belongs to no channel. ``ConnectionState.reset_stream`` waits for that.

Loss and drops differ in what the peer receives. A lost half never was: its control stream is reset with "lost". A half that
the application dropped, or never took out of its message, ends as if its handle had been dropped: a sender is cancelled, a
receiver closed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.aqueduct.acknowledgements import declare, flush_acks, schedule_ack
from mainstem.aqueduct.channel_halves import Half, ReceivedMessage, ReceiverHalf, SenderHalf, Sent
from mainstem.aqueduct.events import Acknowledged, ConnectionEnded, Lost, Readable, ReceiverEnded, SenderEnded
from mainstem.aqueduct.frames import (
    RESET_CANCELLED,
    RESET_LOST,
    ChannelControl,
    ClosedChannelLost,
    CloseReceiver,
    FinishSender,
)
from mainstem.aqueduct.state import ReceiverInput, ReceiverState, SenderInput, SenderState
from mainstem.aqueduct.streams import Role, Stream

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mainstem.aqueduct.connection_state import ConnectionState

# Creation and attachment.


def create_sender(state: ConnectionState, channel_id: int, *, minted_here: bool, reachable: bool) -> SenderHalf:
    """Create a sender; where the peer minted it, with a control stream that is opened here."""
    assert channel_id not in state.senders, "one sender to a channel"
    sender = SenderHalf(
        channel_id, minted_here=minted_here, reachable=reachable, limits=state.limits, writer=state.out.plain
    )
    state.senders[channel_id] = sender
    state.counts.halves_created += 1
    if not minted_here:
        state.awaiting_control.append(sender)
        open_control_streams(state)
    return sender


def create_receiver(state: ConnectionState, channel_id: int, *, minted_here: bool, handed_over: bool) -> ReceiverHalf:
    """Create a receiver; where the peer minted it, with a control stream that is opened here."""
    assert channel_id not in state.receivers, "one receiver to a channel"
    receiver = ReceiverHalf(channel_id, minted_here=minted_here, reachable=not minted_here, handed_over=handed_over)
    state.receivers[channel_id] = receiver
    state.counts.halves_created += 1
    if not minted_here:
        state.awaiting_control.append(receiver)
        open_control_streams(state)
    return receiver


def open_control_streams(state: ConnectionState) -> None:
    """Open the control streams that wait, as far as the transport has credit."""
    while state.awaiting_control and state.out.bidi_room > 0:
        half = state.awaiting_control.popleft()
        stream = Stream(state.out.open(unidirectional=False), Role.CONTROL, opened_here=True, limits=state.limits)
        state.streams[stream.stream_id] = stream
        data = ChannelControl(half.channel_id).encode()
        state.out.write(stream.stream_id, data)
        state.sent_frame(data)
        if half.state.is_final:
            # It was lost before its control stream could be opened: its minter still has to be notified.
            state.reset_stream(stream, RESET_LOST)
            state.abandon(stream)
        else:
            attach(state, half, stream)


def attach(state: ConnectionState, half: Half, stream: Stream) -> None:
    """Give a half its control stream, and do what waited for it."""
    assert half.control is None, "one control stream to a half"
    half.control = stream
    stream.half = half
    if isinstance(half, SenderHalf):
        if half.state is SenderState.CANCEL_PENDING:
            reset_cancelled(state, half)
        else:
            declare(state, half)
            try_finish(state, half)
    elif half.state is ReceiverState.CLOSE_PENDING:
        close_receiver(state, half, ReceiverInput.ATTACHED)
    else:
        schedule_ack(state, half)
        if half.is_accounted_for:
            complete(state, half)


# A sender's end.


def try_finish(state: ConnectionState, sender: SenderHalf) -> None:
    """Send the last frame, once the control stream is there and no message waits for its number."""
    if sender.state is not SenderState.FINISH_PENDING or sender.pending:
        return
    if sender.ordered_stream is not None:
        state.out.finish(sender.ordered_stream)
        sender.ordered_stream = None
    if sender.control is None:
        return
    declare(state, sender)
    state.write_control(sender, FinishSender(sender.ledger.next).encode())
    state.move_sender(sender, SenderInput.ATTACHED)
    state.finish_control(sender)


def cancel(state: ConnectionState, sender: SenderHalf) -> None:
    """Give up what is queued and on its way, as soon as possible."""
    before = sender.state
    state.move_sender(sender, SenderInput.CANCEL)
    if sender.state is not SenderState.CANCEL_PENDING or before is SenderState.CANCEL_PENDING:
        return
    lose_messages(state, sender, sender.take_pending())
    state.waiting.pop(sender, None)
    stop_message_stream(state, sender, RESET_CANCELLED)
    if sender.control is not None:
        reset_cancelled(state, sender)


def reset_cancelled(state: ConnectionState, sender: SenderHalf) -> None:
    """Notify the receiver by resetting the control stream. Its acknowledgements still count until its last frame."""
    assert sender.control is not None
    state.move_sender(sender, SenderInput.ATTACHED)
    state.reset_stream(sender.control, RESET_CANCELLED)


def stream_stopped(state: ConnectionState, stream_id: int) -> None:
    """The peer reads no more of a stream, and the QUIC connection has reset it."""
    state.out.forget(stream_id)
    for sender in state.senders.values():
        if sender.ordered_stream == stream_id:
            sender.ordered_stream = None
            sender.ledger.close()
            break
    stream = state.streams.get(stream_id)
    if stream is not None and stream.role is not Role.CONNECTION:
        stream.out_done = True
        state.forget_if_done(stream)


def stop_message_stream(state: ConnectionState, sender: SenderHalf, code: int) -> None:
    """Reset the stream that carries a sender's ordered messages, if it is open."""
    if sender.ordered_stream is not None:
        state.out.reset(sender.ordered_stream, code)
        sender.ordered_stream = None


def receiver_closed(state: ConnectionState, sender: SenderHalf) -> None:
    """CloseReceiver came: whatever is not acknowledged by now never will be."""
    early = bool(sender.outstanding_messages)
    stream = sender.control
    assert stream is not None
    state.reset_stream(stream, RESET_CANCELLED)
    stop_message_stream(state, sender, RESET_CANCELLED)
    end_sender(state, sender, SenderInput.CLOSED_EARLY if early else SenderInput.CLOSED_COMPLETE)


def end_sender(state: ConnectionState, sender: SenderHalf, happened: SenderInput) -> None:
    """A sender ceases to exist. Its unacknowledged messages are given up, with everything attached to them."""
    state.move_sender(sender, happened)
    state.senders.pop(sender.channel_id, None)
    state.waiting.pop(sender, None)
    if not sender.minted_here:
        state.note_closed(sender.channel_id)
    if sender.control is not None:
        state.abandon(sender.control)
        sender.control = None
    unacknowledged = sender.unacknowledged
    state.tally += sender.tally
    outstanding = sender.take_outstanding()
    if sender.state is SenderState.LOST:
        outstanding += sender.acked
        sender.acked = []
    lose_messages(state, sender, outstanding)
    state.emit(SenderEnded(sender.channel_id, sender.state, *unacknowledged))


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
        state.emit(ReceiverEnded(channel_id, end))
        state.emit(Readable(channel_id))


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


# Reachability and loss.


def resolve_acked(state: ConnectionState, sender: SenderHalf, entries: Iterable[Sent]) -> None:
    """Messages were acknowledged: what is attached to them is reachable as soon as their sender is."""
    if not sender.reachable:
        sender.acked.extend(entries)
        return
    for entry in entries:
        state.reached.extend(entry.links)
        if entry.tag is not None:
            state.emit(Acknowledged(sender.channel_id, entry.tag))


def lose_messages(state: ConnectionState, sender: SenderHalf, entries: Iterable[Sent]) -> None:
    """Messages were given up: what is attached to them is lost."""
    for entry in entries:
        state.lost.extend(entry.links)
        if entry.tag is not None:
            state.emit(Lost(sender.channel_id, entry.tag))


def lose(state: ConnectionState, half: Half) -> None:
    """A half is lost, with its creating message or by the peer's notice. The other side is notified."""
    if isinstance(half, SenderHalf):
        if half.state.is_final:
            _lose_ceased(state, half, known=half.state in (SenderState.LOST, SenderState.DISCONNECTED))
            acked, half.acked = half.acked, []
            lose_messages(state, half, acked)
            return
        if half.control is not None:
            if half.control.out_done:
                # It has finished: its direction cannot be reset any more.
                _notify_lost(state, half)
            state.reset_stream(half.control, RESET_LOST)
        stop_message_stream(state, half, RESET_LOST)
        end_sender(state, half, SenderInput.LOSE)
    elif half.state.is_final:
        _lose_ceased(state, half, known=half.state in (ReceiverState.LOST, ReceiverState.DISCONNECTED))
    else:
        if half.control is not None:
            state.reset_stream(half.control, RESET_LOST)
        end_receiver(state, half, ReceiverInput.LOSE)


def _lose_ceased(state: ConnectionState, half: Half, *, known: bool) -> None:
    """A half ceased before its creating message was lost: its control stream is gone, so a notice is sent instead."""
    if not known and not half.reachable:
        _notify_lost(state, half)


def _notify_lost(state: ConnectionState, half: Half) -> None:
    state.notices.append(ClosedChannelLost(half.channel_id).encode())
    send_notices(state)


def send_notices(state: ConnectionState) -> None:
    """Send the ClosedChannelLost frames that wait for a stream."""
    while state.notices and state.out.plain.stream_room > 0:
        data = state.notices.popleft()
        stream_id = state.out.open(unidirectional=True)
        state.out.write(stream_id, data)
        state.out.finish(stream_id)
        state.sent_frame(data)


def forget_drained(state: ConnectionState, channel_id: int) -> None:
    """A receiver that had ended before the application could have it was lost: drop what it kept."""
    receiver = state.drained.get(channel_id)
    if receiver is not None and not receiver.handed_over:
        del state.drained[channel_id]
        state.move_receiver(receiver, ReceiverInput.LOSE)
        drop_queue(state, receiver, as_lost=True)


def _drop(state: ConnectionState, half: Half, *, as_lost: bool) -> None:
    if half.state.is_final:
        if isinstance(half, ReceiverHalf):
            state.drained.pop(half.channel_id, None)
            drop_queue(state, half, as_lost=as_lost)
    elif as_lost:
        lose(state, half)
    elif isinstance(half, SenderHalf):
        cancel(state, half)
    else:
        close_by_application(state, half)


def end_connection(state: ConnectionState, error: Exception | None) -> None:
    """Every half ends with the connection. Only channels that had finished before can still be read to their end."""
    if state.is_ended:
        return
    state.is_ended = True
    unread: list[ReceivedMessage] = []
    for sender in list(state.senders.values()):
        unacknowledged = sender.unacknowledged
        tally = sender.tally
        state.tally += tally
        unsent = tuple(item.tag for item in sender.pending if item.tag is not None)
        state.move_sender(sender, SenderInput.DISCONNECT)
        sender.take_outstanding()
        state.emit(SenderEnded(sender.channel_id, sender.state, *unacknowledged, tally, unsent))
    for receiver in list(state.receivers.values()):
        state.move_receiver(receiver, ReceiverInput.DISCONNECT)
        receiver.blocked.clear()
        unread += receiver.take_queue()
        state.emit(ReceiverEnded(receiver.channel_id, receiver.state))
    for receiver in [receiver for receiver in state.drained.values() if not receiver.handed_over]:
        del state.drained[receiver.channel_id]
        unread += receiver.take_queue()
    while unread:
        # What is attached to these can be received no more, nor what is attached to that.
        for half in unread.pop().halves:
            if isinstance(half, ReceiverHalf) and state.drained.pop(half.channel_id, None) is not None:
                unread += half.take_queue()
    state.disconnect()
    state.emit(ConnectionEnded(error, state.tally))


def settle(state: ConnectionState) -> None:
    """Complete everything that one step set in motion, one half at a time."""
    while True:
        if state.reached:
            half = state.reached.pop()
            if not half.reachable:
                half.reachable = True
                if isinstance(half, SenderHalf):
                    entries, half.acked = half.acked, []
                    resolve_acked(state, half, entries)
        elif state.lost:
            lose(state, state.lost.pop())
        elif state.dropped:
            half, as_lost = state.dropped.pop()
            _drop(state, half, as_lost=as_lost)
        elif state.unblocked:
            state.resume(state.unblocked.popleft())
        else:
            return

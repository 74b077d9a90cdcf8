"""How halves come to be, are attached to their control streams, and cease; reachability, and loss that cascades.

The rules, in one place:

* A half whose id the peer minted opens a control stream at once; one minted here waits for the peer to open it.
* Finish, cancel and close wait for the control stream. Ceasing by loss does not.
* A message that is acknowledged makes what was attached to it reachable once its sender is; a message that is given up
loses what was attached to it, and what was attached to the messages sent on that, and so on.
* A half that ceased before it was reachable is kept by the link to it, and by nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.aqueduct import receiving, sending
from mainstem.aqueduct.channel_halves import Half, ReceiverHalf, SenderHalf, Sent
from mainstem.aqueduct.events import Acknowledged, Lost, Readable, ReceiverEnded, SenderEnded
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

    from mainstem.aqueduct.connection_state import Core

# Creation and attachment.


def create_sender(core: Core, channel_id: int, *, minted_here: bool, reachable: bool) -> SenderHalf:
    """A new sender; where the peer minted it, with a control stream of its own making."""
    sender = SenderHalf(
        channel_id, minted_here=minted_here, reachable=reachable, limits=core.limits, writer=core.out.plain
    )
    core.senders[channel_id] = sender
    if not minted_here:
        core.awaiting_control.append(sender)
        open_control_streams(core)
    return sender


def create_receiver(core: Core, channel_id: int, *, minted_here: bool, taken: bool) -> ReceiverHalf:
    """A new receiver; where the peer minted it, with a control stream of its own making."""
    receiver = ReceiverHalf(channel_id, minted_here=minted_here, reachable=not minted_here, taken=taken)
    core.receivers[channel_id] = receiver
    if not minted_here:
        core.awaiting_control.append(receiver)
        open_control_streams(core)
    return receiver


def open_control_streams(core: Core) -> None:
    """Open the control streams that wait, as far as the transport has credit."""
    while core.awaiting_control and core.out.bidi_room > 0:
        half = core.awaiting_control.popleft()
        stream = Stream(core.out.open(unidirectional=False), Role.CONTROL, opened_here=True, limits=core.limits)
        core.streams[stream.stream_id] = stream
        data = ChannelControl(half.channel_id).encode()
        core.out.write(stream.stream_id, data)
        core.sent_frame(data)
        if half.state.is_final:
            # It was dropped as lost before it could say so: its minter still has to be told.
            core.reset_stream(stream, RESET_LOST)
            core.abandon(stream)
        else:
            attach(core, half, stream)


def attach(core: Core, half: Half, stream: Stream) -> None:
    """Give a half its control stream, and do what waited for it."""
    half.control = stream
    stream.half = half
    if isinstance(half, SenderHalf):
        if half.state is SenderState.CANCEL_PENDING:
            reset_cancelled(core, half)
        else:
            sending.declare(core, half)
            try_finish(core, half)
    elif half.state is ReceiverState.CLOSE_PENDING:
        close_receiver(core, half, ReceiverInput.ATTACHED)
    else:
        receiving.schedule_ack(core, half)
        if half.is_accounted_for:
            complete(core, half)


# A sender's end.


def try_finish(core: Core, sender: SenderHalf) -> None:
    """Send the last word, once the control stream is there and no message waits for its number."""
    if sender.state is not SenderState.FINISH_PENDING or sender.pending:
        return
    if sender.ordered_stream is not None:
        core.out.finish(sender.ordered_stream)
        sender.ordered_stream = None
    if sender.control is None:
        return
    sending.declare(core, sender)
    core.write_control(sender, FinishSender(sender.ledger.next).encode())
    core.move_sender(sender, SenderInput.ATTACHED)
    core.finish_control(sender)


def cancel(core: Core, sender: SenderHalf) -> None:
    """Give up what is queued and on its way, as soon as may be."""
    before = sender.state
    core.move_sender(sender, SenderInput.CANCEL)
    if sender.state is not SenderState.CANCEL_PENDING or before is SenderState.CANCEL_PENDING:
        return
    lose_messages(core, sender, sender.take_pending())
    core.waiting.pop(sender, None)
    stop_message_stream(core, sender, RESET_CANCELLED)
    if sender.control is not None:
        reset_cancelled(core, sender)


def reset_cancelled(core: Core, sender: SenderHalf) -> None:
    """Tell the receiver, by resetting the control stream. Acknowledgements are still taken until its last word."""
    assert sender.control is not None
    core.move_sender(sender, SenderInput.ATTACHED)
    core.reset_stream(sender.control, RESET_CANCELLED)


def stream_stopped(core: Core, stream_id: int) -> None:
    """The peer reads no more of a stream, and the QUIC connection has reset it."""
    core.out.forget(stream_id)
    for sender in core.senders.values():
        if sender.ordered_stream == stream_id:
            sender.ordered_stream = None
            sender.ledger.shut()
            break
    stream = core.streams.get(stream_id)
    if stream is not None and stream.role is not Role.CONNECTION:
        stream.out_done = True
        core.forget_if_done(stream)


def stop_message_stream(core: Core, sender: SenderHalf, code: int) -> None:
    """Reset the stream that carries a sender's ordered messages, if it is open."""
    if sender.ordered_stream is not None:
        core.out.reset(sender.ordered_stream, code)
        sender.ordered_stream = None


def receiver_closed(core: Core, sender: SenderHalf) -> None:
    """CloseReceiver came: whatever is not acknowledged by now never will be."""
    early = bool(sender.outstanding_messages)
    stream = sender.control
    assert stream is not None
    core.reset_stream(stream, RESET_CANCELLED)
    stop_message_stream(core, sender, RESET_CANCELLED)
    end_sender(core, sender, SenderInput.CLOSED_EARLY if early else SenderInput.CLOSED_COMPLETE)


def end_sender(core: Core, sender: SenderHalf, happened: SenderInput) -> None:
    """A sender ceases to exist. Its unacknowledged messages are given up with all that hangs on them."""
    core.move_sender(sender, happened)
    core.senders.pop(sender.channel_id, None)
    core.waiting.pop(sender, None)
    if not sender.minted_here:
        core.note_closed(sender.channel_id)
    if sender.control is not None:
        core.abandon(sender.control)
        sender.control = None
    outstanding = sender.take_outstanding()
    if sender.state is SenderState.LOST:
        outstanding += sender.acked
        sender.acked = []
    lose_messages(core, sender, outstanding)
    core.emit(SenderEnded(sender.channel_id, sender.state))


# A receiver's end.


def close_receiver(core: Core, receiver: ReceiverHalf, happened: ReceiverInput) -> None:
    """Say the last word and cease: every outstanding acknowledgement first, then a CloseReceiver without ranges.

    Empty ranges mean the same under both readings of where they would start.
    """
    receiving.flush_acks(core, receiver, final=True)
    core.write_control(receiver, CloseReceiver().encode())
    core.finish_control(receiver)
    end_receiver(core, receiver, happened)


def complete(core: Core, receiver: ReceiverHalf) -> None:
    """The sender has finished and all is accounted for."""
    if receiver.control is not None:
        close_receiver(core, receiver, ReceiverInput.COMPLETE)


def close_by_application(core: Core, receiver: ReceiverHalf) -> None:
    """The application wants no more. What is queued was acknowledged; what hangs on it is dropped like any handle."""
    if receiver.control is not None:
        close_receiver(core, receiver, ReceiverInput.CLOSE)
    else:
        core.move_receiver(receiver, ReceiverInput.CLOSE_UNATTACHED)
        drop_queue(core, receiver, as_lost=False)
        unblock(core, receiver)


def end_receiver(core: Core, receiver: ReceiverHalf, happened: ReceiverInput) -> None:
    """A receiver ceases to exist on the wire. After a graceful end the application can still drain its queue."""
    core.move_receiver(receiver, happened)
    channel_id = receiver.channel_id
    core.receivers.pop(channel_id, None)
    core.thirsty.pop(receiver, None)
    if not receiver.minted_here:
        core.note_closed(channel_id)
    if receiver.control is not None:
        core.abandon(receiver.control)
        receiver.control = None
    state = receiver.state
    if state is not ReceiverState.FINISHED:
        drop_queue(core, receiver, as_lost=state is not ReceiverState.CLOSED)
    unblock(core, receiver)
    kept = bool(receiver.queue) if receiver.taken else state in (ReceiverState.FINISHED, ReceiverState.CANCELLED)
    if kept:
        core.drained[channel_id] = receiver
    if receiver.taken:
        core.emit(ReceiverEnded(channel_id, state))
        core.emit(Readable(channel_id))


def unblock(core: Core, receiver: ReceiverHalf) -> None:
    """Let the streams go on that waited for room in this receiver."""
    for stream in receiver.blocked:
        stream.blocked_on = None
        core.unblocked.append(stream)
    receiver.blocked.clear()


def drop_queue(core: Core, receiver: ReceiverHalf, *, as_lost: bool) -> None:
    """Drop what the application has not received, with what is attached to it."""
    if receiver.queue:
        core.account(-receiver.queued_bytes)
        for delivery in receiver.take_queue():
            drop_halves(core, delivery.halves, as_lost=as_lost)


def drop_halves(core: Core, halves: Iterable[Half], *, as_lost: bool) -> None:
    """Drop halves that the application never held: lost in transit, or closed and cancelled like a dropped handle."""
    core.dropped.extend((half, as_lost) for half in halves)


# Reachability and loss.


def resolve_acked(core: Core, sender: SenderHalf, entries: Iterable[Sent]) -> None:
    """Messages were acknowledged: what hangs on them is reachable as soon as their sender is."""
    if not sender.reachable:
        sender.acked.extend(entries)
        return
    for entry in entries:
        core.reached.extend(entry.links)
        if entry.tag is not None:
            core.emit(Acknowledged(sender.channel_id, entry.tag))


def lose_messages(core: Core, sender: SenderHalf, entries: Iterable[Sent]) -> None:
    """Messages were given up: what hangs on them is lost."""
    for entry in entries:
        core.lost.extend(entry.links)
        if entry.tag is not None:
            core.emit(Lost(sender.channel_id, entry.tag))


def lose(core: Core, half: Half) -> None:
    """Loss arrives at a half, by its creating message or by the peer's word. The other side is told."""
    if isinstance(half, SenderHalf):
        if half.state.is_final:
            _lose_ceased(core, half, known=half.state in (SenderState.LOST, SenderState.DISCONNECTED))
            acked, half.acked = half.acked, []
            lose_messages(core, half, acked)
            return
        if half.control is not None:
            if half.control.out_done:
                # It has finished: its direction cannot be reset any more.
                _notify_lost(core, half)
            core.reset_stream(half.control, RESET_LOST)
        stop_message_stream(core, half, RESET_LOST)
        end_sender(core, half, SenderInput.LOSE)
    elif half.state.is_final:
        _lose_ceased(core, half, known=half.state in (ReceiverState.LOST, ReceiverState.DISCONNECTED))
    else:
        if half.control is not None:
            core.reset_stream(half.control, RESET_LOST)
        end_receiver(core, half, ReceiverInput.LOSE)


def _lose_ceased(core: Core, half: Half, *, known: bool) -> None:
    """A half that ceased before its creating message was lost: its control stream is gone, so a stream of its own says
    it.
    """
    if not known and not half.reachable:
        _notify_lost(core, half)


def _notify_lost(core: Core, half: Half) -> None:
    core.notices.append(ClosedChannelLost(half.channel_id).encode())
    send_notices(core)


def send_notices(core: Core) -> None:
    """Send the ClosedChannelLost frames that wait for a stream."""
    while core.notices and core.out.plain.stream_room > 0:
        data = core.notices.popleft()
        stream_id = core.out.open(unidirectional=True)
        core.out.write(stream_id, data)
        core.out.finish(stream_id)
        core.sent_frame(data)


def forget_drained(core: Core, channel_id: int) -> None:
    """A receiver that had ended before anybody could take it was lost: drop what it kept."""
    receiver = core.drained.get(channel_id)
    if receiver is not None and not receiver.taken:
        del core.drained[channel_id]
        core.move_receiver(receiver, ReceiverInput.LOSE)
        drop_queue(core, receiver, as_lost=True)


def _drop(core: Core, half: Half, *, as_lost: bool) -> None:
    if half.state.is_final:
        if isinstance(half, ReceiverHalf):
            core.drained.pop(half.channel_id, None)
            drop_queue(core, half, as_lost=as_lost)
    elif as_lost:
        lose(core, half)
    elif isinstance(half, SenderHalf):
        cancel(core, half)
    else:
        close_by_application(core, half)


def settle(core: Core) -> None:
    """Work off everything that one step set in motion, one half at a time."""
    while True:
        if core.reached:
            half = core.reached.pop()
            if not half.reachable:
                half.reachable = True
                if isinstance(half, SenderHalf):
                    entries, half.acked = half.acked, []
                    resolve_acked(core, half, entries)
        elif core.lost:
            lose(core, core.lost.pop())
        elif core.dropped:
            half, as_lost = core.dropped.pop()
            _drop(core, half, as_lost=as_lost)
        elif core.unblocked:
            core.resume(core.unblocked.popleft())
        else:
            return

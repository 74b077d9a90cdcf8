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

from mainstem.aqueduct import receive, send
from mainstem.aqueduct.events import ConnectionEnded, ReceiverEnded, SenderEnded
from mainstem.aqueduct.frames import (
    RESET_LOST,
    ChannelControl,
    ClosedChannelLost,
)
from mainstem.aqueduct.halves import Half, ReceivedMessage, ReceiverHalf, Role, SenderHalf, Stream
from mainstem.aqueduct.state import ReceiverInput, ReceiverState, SenderInput, SenderState

if TYPE_CHECKING:
    from mainstem.aqueduct.connection_state import ConnectionState


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
            send.reset_cancelled(state, half)
        else:
            send.declare(state, half)
            send.try_finish(state, half)
    elif half.state is ReceiverState.CLOSE_PENDING:
        receive.close_receiver(state, half, ReceiverInput.ATTACHED)
    else:
        receive.schedule_ack(state, half)
        if half.is_accounted_for:
            receive.complete(state, half)


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


def lose(state: ConnectionState, half: Half) -> None:
    """A half is lost, with its creating message or by the peer's notice. The other side is notified."""
    if isinstance(half, SenderHalf):
        if half.state.is_final:
            _lose_ceased(state, half, known=half.state in (SenderState.LOST, SenderState.DISCONNECTED))
            acked, half.acked = half.acked, []
            send.lose_messages(state, half, acked)
            return
        if half.control is not None:
            if half.control.out_done:
                # It has finished: its direction cannot be reset any more.
                _notify_lost(state, half)
            state.reset_stream(half.control, RESET_LOST)
        send.stop_message_stream(state, half, RESET_LOST)
        send.end_sender(state, half, SenderInput.LOSE)
    elif half.state.is_final:
        _lose_ceased(state, half, known=half.state in (ReceiverState.LOST, ReceiverState.DISCONNECTED))
    else:
        if half.control is not None:
            state.reset_stream(half.control, RESET_LOST)
        receive.end_receiver(state, half, ReceiverInput.LOSE)


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


def _drop(state: ConnectionState, half: Half, *, as_lost: bool) -> None:
    if half.state.is_final:
        if isinstance(half, ReceiverHalf):
            state.drained.pop(half.channel_id, None)
            receive.drop_queue(state, half, as_lost=as_lost)
    elif as_lost:
        lose(state, half)
    elif isinstance(half, SenderHalf):
        send.cancel(state, half)
    else:
        receive.close_by_application(state, half)


def end_connection(state: ConnectionState, error: Exception | None) -> None:
    """Every half ends with the connection. Only channels that had finished before can still be read to their end."""
    if state.is_ended:
        return
    state.is_ended = True
    unread: list[ReceivedMessage] = []
    unsent: set[object] = set()
    for sender in list(state.senders.values()):
        unacknowledged = sender.unacknowledged
        tally = sender.tally
        state.tally += tally
        unsent.update(item.tag for item in sender.pending if item.tag is not None)
        state.move_sender(sender, SenderInput.DISCONNECT)
        sender.take_outstanding()
        if sender.owner is None:
            state.emit(SenderEnded(sender.channel_id, sender.state, *unacknowledged, tally))
        else:
            sender.owner.ended(sender.state, *unacknowledged, tally)
    for receiver in list(state.receivers.values()):
        state.move_receiver(receiver, ReceiverInput.DISCONNECT)
        receiver.blocked.clear()
        unread += receiver.take_queue()
        if receiver.owner is None:
            state.emit(ReceiverEnded(receiver.channel_id, receiver.state))
        else:
            receiver.owner.ended(receiver.state)
    for receiver in [receiver for receiver in state.drained.values() if not receiver.handed_over]:
        del state.drained[receiver.channel_id]
        unread += receiver.take_queue()
    while unread:
        # What is attached to these can be received no more, nor what is attached to that.
        for half in unread.pop().halves:
            if isinstance(half, ReceiverHalf) and state.drained.pop(half.channel_id, None) is not None:
                unread += half.take_queue()
    state.disconnect()
    state.emit(ConnectionEnded(error, state.tally, frozenset(unsent)))


def settle(state: ConnectionState) -> None:
    """Complete everything that one step set in motion, one half at a time."""
    while True:
        if state.reached:
            half = state.reached.pop()
            if not half.reachable:
                half.reachable = True
                if isinstance(half, SenderHalf):
                    entries, half.acked = half.acked, []
                    send.resolve_acked(state, half, entries)
        elif state.lost:
            lose(state, state.lost.pop())
        elif state.dropped:
            half, as_lost = state.dropped.pop()
            _drop(state, half, as_lost=as_lost)
        elif state.unblocked:
            state.resume(state.unblocked.popleft())
        else:
            return

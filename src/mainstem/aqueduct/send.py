"""Messages on their way out: numbering, the three carriers, and what acknowledgements set free.

A message goes out at once where it can: a reliable one needs a stream (ORDERED keeps one open for all of a sender's
messages, UNORDERED opens one for each), an unreliable one a datagram. Where the transport has no room it waits in
``SenderHalf.pending``, and everything sent after it on the same channel waits behind it; `pump` sends what waits, sender by
sender in turn, when the transport has room again. A message gets its number when it is given to the transport, never
earlier: what is dropped while it waits leaves no gap.

Two bounds hold a sender. Reliable messages that are queued or unacknowledged are bounded by the application's ``max_messages``
and ``max_bytes``: beyond them `send` raises BackPressured, and one `Writable` event follows when a quarter is free again. An
unreliable message never waits for the application: where too many wait, the oldest of them is dropped.

The short way. Most messages are bytes without attachments, and what Python does for each is most of their cost. While nothing
is in the way (the sender is OPEN, nothing is pending, its ordered stream is open, no instrument observes) `Ledger.put` and
`QuickSender.put` write frames in compiled code, into `Output`'s writer, and count them in the same ledger. ``ledger.close()``
closes that way; every change of a sender's state does, and so does anything that has to wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem._core.aqueduct.run_writer import QuickSender
from mainstem.aqueduct.channel_id import describe
from mainstem.aqueduct.events import (
    NO_MESSAGES,
    Acknowledged,
    Lost,
    Mode,
    SenderEnded,
    Writable,
)
from mainstem.aqueduct.frames import (
    RESET_CANCELLED,
    FinishSender,
    SentUnreliable,
    message_head,
)
from mainstem.aqueduct.halves import Pending, SenderHalf, Sent
from mainstem.aqueduct.state import SenderInput, SenderState
from mainstem.errors import BackPressured, LocalProtocolError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mainstem.aqueduct.connection_state import ConnectionState


def check(state: ConnectionState, sender: SenderHalf, payload: bytes, mode: Mode, attachments: int) -> None:
    """Check that a message may be sent.

    Raises LocalProtocolError for what the channel or the limits forbid, BackPressured if there is no room for a reliable
    message. An unreliable one never waits for room.
    """
    if sender.state is not SenderState.OPEN:
        raise LocalProtocolError(
            f"{describe(sender.channel_id)}: no message can be sent in state {sender.state.name}", rule="sender state"
        )
    if sender.oneshot and (sender.ledger.next or sender.next_unreliable or sender.pending):
        raise LocalProtocolError(f"{describe(sender.channel_id)} is a oneshot and has had its message", rule="oneshot")
    if len(payload) > state.limits.max_payload:
        raise LocalProtocolError(
            f"a payload of {len(payload)} bytes; the limit is {state.limits.max_payload}", rule="size limit"
        )
    if attachments > state.limits.max_attachments:
        raise LocalProtocolError(
            f"{attachments} attachments; the limit is {state.limits.max_attachments}", rule="attachment limit"
        )
    if mode is not Mode.UNRELIABLE and not sender.has_room:
        sender.wants_room = True
        raise BackPressured(
            f"{describe(sender.channel_id)}: {sender.outstanding_messages} messages and "
            f"{sender.outstanding_bytes} bytes are queued or unacknowledged"
        )


def send(state: ConnectionState, sender: SenderHalf, item: Pending) -> None:
    """Send or queue a message that `check` has passed.

    If there is no room for an unreliable message, the oldest one in the queue is dropped, or the new one if there is none.
    """
    mode = item.mode
    full = mode is Mode.UNRELIABLE and sender.unreliable_count >= state.limits.unreliable_outstanding
    if full or sender.pending or not _transmit(state, sender, item):
        sender.ledger.close()
        sender.pending.append(item)
        sender.pending_bytes += len(item.payload)
        state.waiting[sender] = None
        if mode is Mode.UNRELIABLE:
            _make_way(state, sender, full=full)
    elif sender.ordered_stream is not None and not sender.oneshot and not state.is_observed:
        # Nothing is in the way of the ones that follow.
        sender.ledger.open(sender.ordered_stream)
    if sender.oneshot:
        state.move_sender(sender, SenderInput.FINISH)
        try_finish(state, sender)


def quick_sender(state: ConnectionState, sender: SenderHalf, mode: Mode) -> QuickSender | None:
    """The short way for the plain messages of one sender that do not travel in order; None if there is none."""
    if sender.oneshot or state.is_observed:
        return None
    return QuickSender(
        sender.ledger,
        state,
        sender,
        SenderState.OPEN,
        unreliable=mode is Mode.UNRELIABLE,
        bound=state.limits.unreliable_outstanding,
        declare=schedule_declaration,
    )


def _make_way(state: ConnectionState, sender: SenderHalf, *, full: bool) -> None:
    """Keep the unreliable messages that wait within the sender's bounds: the oldest of them makes way."""
    pending = sender.pending
    while (
        full
        or len(pending) > sender.ledger.max_messages
        or (sender.outstanding_bytes > sender.ledger.max_bytes and len(pending) > 1)
    ):
        full = False
        for index, item in enumerate(pending):
            if item.mode is Mode.UNRELIABLE:
                del pending[index]
                _drop_item(state, sender, item)
                break
        else:
            return


def _drop_item(state: ConnectionState, sender: SenderHalf, item: Pending) -> None:
    state.counts.unreliable_dropped += 1
    sender.pending_bytes -= len(item.payload)
    state.lost.extend(item.links)
    if item.tag is not None:
        state.emit(Lost(sender.channel_id, item.tag))


def _transmit(state: ConnectionState, sender: SenderHalf, item: Pending) -> bool:
    """Give a message to the transport, with its number; False where there is no room for it now."""
    out = state.out
    channel_id, payload = sender.channel_id, item.payload
    ids = tuple([half.channel_id for half in item.links]) if item.links else ()
    if item.mode is Mode.UNRELIABLE:
        if out.plain.datagram_room <= 0:
            return False
        frame = message_head(channel_id, sender.next_unreliable, ids, len(payload)) + payload
        if len(frame) + len(out.plain.opening) <= out.plain.max_datagram:
            if item.links or item.tag is not None:
                sender.unreliable[sender.next_unreliable] = Sent(item.links, item.tag)
            sender.next_unreliable += 1
            out.datagram(frame)
            state.sent_frame(frame)
            schedule_declaration(state, sender)
            return True
        # Too large: it goes on a stream, is reliable, and counts against the reliable bounds.
        if sender.ledger.count >= sender.ledger.max_messages:
            return False
    ledger = sender.ledger
    if item.mode is Mode.ORDERED:
        stream_id = sender.ordered_stream
        if stream_id is None:
            if out.plain.stream_room <= 0:
                return False
            stream_id = sender.ordered_stream = out.open(unidirectional=True)
    else:
        if out.plain.stream_room <= 0:
            return False
        stream_id = out.open(unidirectional=True)
    size = len(payload)
    head = message_head(channel_id, ledger.next, ids, size)
    out.write(stream_id, head)
    if payload:
        out.write(stream_id, payload)
    if stream_id != sender.ordered_stream:
        out.finish(stream_id)
    if state.is_observed:
        # Only then are they put together.
        state.sent_frame(head + payload)
    ledger.add(size, Sent(item.links, item.tag) if item.links or item.tag is not None else None)
    return True


def pump(state: ConnectionState) -> None:
    """The transport has room: send what waits, sender by sender in turn."""
    waiting = state.waiting
    for _ in range(len(waiting)):
        sender = next(iter(waiting))
        del waiting[sender]
        while sender.pending and _transmit(state, sender, sender.pending[0]):
            sender.pending_bytes -= len(sender.pending.popleft().payload)
        if sender.pending:
            waiting[sender] = None
        else:
            try_finish(state, sender)
        offer_room(state, sender)


def offer_room(state: ConnectionState, sender: SenderHalf) -> None:
    """Notify the application that a sender which had refused a message has room again."""
    if sender.wants_room and sender.has_much_room:
        sender.wants_room = False
        state.emit(Writable(sender.channel_id, sender.owner))


def acknowledged_reliable(state: ConnectionState, sender: SenderHalf, counts: tuple[int, ...]) -> None:
    """An AckReliable frame came."""
    resolve_acked(state, sender, sender.take_ack_reliable(counts))
    offer_room(state, sender)


def answered_unreliable(state: ConnectionState, sender: SenderHalf, counts: tuple[int, ...]) -> None:
    """An AckNackUnreliable frame came."""
    if not counts:
        return
    acked, nacked = sender.take_ack_nack(counts)
    resolve_acked(state, sender, acked)
    lose_messages(state, sender, nacked)


def closed(state: ConnectionState, sender: SenderHalf, counts: tuple[int, ...]) -> None:
    """A CloseReceiver frame came: its ranges first, then everything that is left is given up."""
    if counts:
        acknowledged_reliable(state, sender, counts)
    receiver_closed(state, sender)


def schedule_declaration(state: ConnectionState, sender: SenderHalf) -> None:
    """Unreliable messages went out: declare them soon, several at once if more come."""
    state.declare_list[sender] = None


def declare(state: ConnectionState, sender: SenderHalf) -> None:
    """Declare the unreliable messages that are not declared yet, if the control stream is there."""
    count = sender.next_unreliable - sender.declared
    if count and sender.control is not None and not sender.control.out_done:
        sender.declared = sender.next_unreliable
        state.write_control(sender, SentUnreliable(count).encode())


def declare_due(state: ConnectionState) -> None:
    """The delay of declarations is over."""
    senders, state.declare_list = state.declare_list, {}
    state.declare_due_ns = None
    for sender in senders:
        # Without a control stream it is done when the stream is attached.
        if not sender.state.is_final:
            declare(state, sender)


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
    return sender


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
    if sender.owner is None:
        state.events.append(SenderEnded(sender.channel_id, sender.state, *unacknowledged))
    else:
        sender.owner.ended(sender.state, *unacknowledged, NO_MESSAGES)


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

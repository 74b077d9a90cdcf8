"""Messages on their way out: numbering, the three carriers, what acknowledgements set free, and a sender's end.

A message goes out at once if it can: a reliable one needs a stream (ORDERED keeps one open for all of a sender's messages,
UNORDERED opens one for each), an unreliable one a datagram. If the transport has no room it waits in ``SenderHalf.pending``,
and everything sent after it on the same channel waits behind it; `pump` sends what waits, sender by sender in turn, when the
transport has room again. A message gets its number when it is given to the transport, never earlier: dropping one that waits
leaves no gap.

Two limits apply to a sender. Reliable messages that are queued or unacknowledged are limited by the application's
``max_messages`` and ``max_bytes``: beyond them `AqueductEngine.send` raises BackPressured, and one `Writable` event follows
when a quarter is free again. An unreliable message never waits for the application: if too many wait, the oldest of them is
dropped.

The fast path. Most messages are bytes without attachments, and what Python does for each is most of their cost. While nothing
is in the way (the sender is OPEN, nothing is pending, its ordered stream is open, no instrument observes) `Ledger.put` and
`QuickSender.put` write frames in compiled code, into the connection's `MessageWriter`, and count them in the same ledger.
``ledger.close()`` ends that; every change of a sender's state does, and so does anything that has to wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem._core.aqueduct.run_writer import QuickSender
from mainstem.aqueduct.connection_state import LARGE_PIECE
from mainstem.aqueduct.events import NO_PROGRESS, Acknowledged, Attach, Lost, Mode, SenderEnded, Writable
from mainstem.aqueduct.frames import RESET_CANCELLED, RESET_LOST, describe, encode_uint, message_head
from mainstem.aqueduct.halves import Pending, SenderHalf, Sent
from mainstem.aqueduct.state import SenderInput, SenderState
from mainstem.errors import LocalProtocolError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mainstem.aqueduct.connection_state import ConnectionState
    from mainstem.aqueduct.events import SendProgress
    from mainstem.aqueduct.halves import Half


def send(
    state: ConnectionState,
    sender: SenderHalf,
    payload: bytes,
    mode: Mode,
    attach: Sequence[tuple[Attach, bool]],
    tag: object,
) -> tuple[Half, ...]:
    """Send or queue a message; return the halves of the new channels that stay here.

    The caller has checked that a reliable message has room (`has_room`). If an unreliable one has none, the oldest one in the
    queue is dropped, or the new one if there is none. Raises LocalProtocolError for what the channel or the limits forbid.
    """
    limits = state.limits
    if sender.state is not SenderState.OPEN:
        text = f"{describe(sender.channel_id)}: no message can be sent in state {sender.state.name}"
        raise LocalProtocolError(text, rule="sender state")
    if sender.oneshot and (sender.ledger.next or sender.next_unreliable or sender.pending):
        raise LocalProtocolError(f"{describe(sender.channel_id)} is a oneshot and has had its message", rule="oneshot")
    if len(payload) > limits.max_payload:
        raise LocalProtocolError(
            f"a payload of {len(payload)} bytes; the limit is {limits.max_payload}", rule="size limit"
        )
    if len(attach) > limits.max_attachments:
        raise LocalProtocolError(
            f"{len(attach)} attachments; the limit is {limits.max_attachments}", rule="attachment limit"
        )
    links = tuple([_make_half(state, kind, oneshot) for kind, oneshot in attach]) if attach else ()
    full = mode is Mode.UNRELIABLE and sender.next_unreliable - sender.mark >= limits.unreliable_outstanding
    if full or sender.pending or not _transmit(state, sender, payload, mode, links, tag):
        sender.ledger.close()
        sender.pending.append(Pending(payload, mode, links, tag))
        sender.pending_bytes += len(payload)
        state.waiting[sender] = None
        if mode is Mode.UNRELIABLE:
            _make_room(state, sender, full=full)
    elif sender.ordered_stream is not None and not sender.oneshot and not state.is_observed:
        # Nothing is in the way of the ones that follow.
        sender.ledger.open(sender.ordered_stream)
    if sender.oneshot:
        finish(state, sender)
    return links


def has_room(sender: SenderHalf, mode: Mode) -> bool:
    """Whether another message may be sent; if not, a `Writable` event will follow."""
    if mode is Mode.UNRELIABLE or sender.has_room:
        return True
    sender.wants_room = True
    return False


def _make_half(state: ConnectionState, kind: Attach, oneshot: bool) -> Half:
    """Create the half of a new channel that stays here."""
    outgoing = kind is Attach.RECEIVER
    channel_id = state.mint(outgoing=outgoing, oneshot=oneshot)
    if outgoing:
        return state.create_sender(channel_id, minted_here=True, reachable=False)
    return state.create_receiver(channel_id, minted_here=True, handed_over=True)


def quick_sender(state: ConnectionState, sender: SenderHalf, mode: Mode) -> QuickSender | None:
    """Return the fast path for the plain messages of one sender that do not travel in order; None if there is none."""
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


def _make_room(state: ConnectionState, sender: SenderHalf, *, full: bool) -> None:
    """Keep the unreliable messages that wait within the sender's limits by dropping the oldest of them."""
    pending, ledger = sender.pending, sender.ledger
    while (
        full
        or len(pending) > ledger.max_messages
        or (ledger.size + sender.pending_bytes > ledger.max_bytes and len(pending) > 1)
    ):
        full = False
        for index, item in enumerate(pending):
            if item.mode is Mode.UNRELIABLE:
                del pending[index]
                sender.pending_bytes -= len(item.payload)
                state.counts.unreliable_dropped += 1
                lose_messages(state, sender, (Sent(item.links, item.tag),))
                break
        else:
            return


def _transmit(
    state: ConnectionState, sender: SenderHalf, payload: bytes, mode: Mode, links: tuple[Half, ...], tag: object
) -> bool:
    """Give a message to the transport, with its number; False if there is no room for it now."""
    plain, ledger = state.plain, sender.ledger
    ids = tuple([half.channel_id for half in links]) if links else ()
    entry = Sent(links, tag) if links or tag is not None else None
    size = len(payload)
    if mode is Mode.UNRELIABLE:
        if plain.datagram_room <= 0:
            return False
        frame = message_head(sender.prefix, sender.next_unreliable, ids, size) + payload
        if len(frame) + len(plain.opening) <= plain.max_datagram:
            if entry is not None:
                sender.unreliable[sender.next_unreliable] = entry
            sender.next_unreliable += 1
            state.send_datagram(frame)
            state.sent_frame(frame)
            schedule_declaration(state, sender)
            return True
        # Too large: it goes on a stream, is reliable, and counts against the reliable limits.
        if ledger.count >= ledger.max_messages:
            return False
    stream_id = sender.ordered_stream if mode is Mode.ORDERED else None
    if stream_id is None:
        if plain.stream_room <= 0:
            return False
        stream_id = state.open_stream(unidirectional=True)
        if mode is Mode.ORDERED:
            sender.ordered_stream = stream_id
    head = message_head(sender.prefix, ledger.next, ids, size)
    if size < LARGE_PIECE:
        state.write(stream_id, head + payload, fin=mode is not Mode.ORDERED)
    else:
        state.write(stream_id, head)
        state.write(stream_id, payload, fin=mode is not Mode.ORDERED)
    if state.is_observed:
        state.sent_frame(head + payload)
    ledger.add(size, entry)
    return True


def pump(state: ConnectionState) -> None:
    """The transport has room: send what waits, sender by sender in turn."""
    waiting = state.waiting
    for _ in range(len(waiting)):
        sender = next(iter(waiting))
        del waiting[sender]
        while sender.pending and _transmit(state, sender, *sender.pending[0]):
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
        state.events.append(Writable(sender.channel_id, sender.owner))


# What the receiver reports.


def acknowledged_reliable(state: ConnectionState, sender: SenderHalf, counts: tuple[int, ...]) -> None:
    """Process an AckReliable frame."""
    resolve_acked(state, sender, sender.take_ack_reliable(counts))
    offer_room(state, sender)


def resolved_unreliable(state: ConnectionState, sender: SenderHalf, counts: tuple[int, ...]) -> None:
    """Process an AckNackUnreliable frame."""
    acked, nacked = sender.take_ack_nack(counts)
    resolve_acked(state, sender, acked)
    lose_messages(state, sender, nacked)


def receiver_closed(state: ConnectionState, sender: SenderHalf, counts: tuple[int, ...]) -> None:
    """Process a CloseReceiver frame: its ranges first, then everything that is left is given up."""
    if counts:
        acknowledged_reliable(state, sender, counts)
    assert sender.control is not None
    state.reset_stream(sender.control, RESET_CANCELLED)
    stop_message_stream(state, sender, RESET_CANCELLED)
    early = bool(sender.ledger.count or sender.pending)
    end_sender(state, sender, SenderInput.CLOSED_EARLY if early else SenderInput.CLOSED_COMPLETE)


def resolve_acked(state: ConnectionState, sender: SenderHalf, entries: list[Sent]) -> None:
    """Messages were acknowledged: what is attached to them is reachable as soon as their sender is."""
    if not entries:
        return
    if not sender.reachable:
        sender.acked.extend(entries)
        return
    # As deep as channels depend on one another, without recursion.
    found = [(sender.channel_id, entries)]
    while found:
        channel_id, entries = found.pop()
        for entry in entries:
            if entry.tag is not None:
                state.events.append(Acknowledged(channel_id, entry.tag))
            for half in entry.links:
                if not half.reachable:
                    half.reachable = True
                    if isinstance(half, SenderHalf) and half.acked:
                        found.append((half.channel_id, half.acked))
                        half.acked = []


def lose_messages(state: ConnectionState, sender: SenderHalf, entries: Iterable[Sent]) -> None:
    """Messages were given up: what is attached to them is lost."""
    for entry in entries:
        state.lost.extend(entry.links)
        if entry.tag is not None:
            state.events.append(Lost(sender.channel_id, entry.tag))


# Declarations.


def schedule_declaration(state: ConnectionState, sender: SenderHalf) -> None:
    """Unreliable messages went out: declare them soon, several at once if more come."""
    state.declare_list[sender] = None


def declare(state: ConnectionState, sender: SenderHalf) -> None:
    """Declare the unreliable messages that are not declared yet, if there is a control stream."""
    count = sender.next_unreliable - sender.declared
    if count and sender.control is not None and not sender.control.out_done:
        sender.declared = sender.next_unreliable
        state.write_control(sender, b"\x04" + encode_uint(count))


def declare_due(state: ConnectionState) -> None:
    """The delay of declarations is over."""
    senders, state.declare_list = state.declare_list, {}
    state.declare_due_ns = None
    for sender in senders:
        # Without a control stream it is done when the stream is attached.
        if not sender.state.is_final:
            declare(state, sender)


# A sender's end.


def finish(state: ConnectionState, sender: SenderHalf) -> None:
    """End the channel gracefully."""
    state.move_sender(sender, SenderInput.FINISH)
    try_finish(state, sender)


def try_finish(state: ConnectionState, sender: SenderHalf) -> None:
    """Send the last frame, once there is a control stream and no message waits for its number."""
    if sender.state is not SenderState.FINISH_PENDING or sender.pending:
        return
    if sender.ordered_stream is not None:
        state.write(sender.ordered_stream, b"", fin=True)
        sender.ordered_stream = None
    if sender.control is not None:
        declare(state, sender)
        state.move_sender(sender, SenderInput.ATTACHED)
        state.write_control(sender, b"\x07" + encode_uint(sender.ledger.next), fin=True)


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
        state.reset(sender.ordered_stream, code)
        sender.ordered_stream = None


def sender_lost(state: ConnectionState, sender: SenderHalf) -> None:
    """A sender is lost in transit."""
    stop_message_stream(state, sender, RESET_LOST)
    end_sender(state, sender, SenderInput.LOSE)


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
    state.progress += sender.progress
    lose_messages(state, sender, sender.take_outstanding())
    if sender.state is SenderState.LOST:
        lose_messages(state, sender, sender.acked)
        sender.acked = []
    report_end(state, sender, unacknowledged, NO_PROGRESS)


def report_end(
    state: ConnectionState, sender: SenderHalf, unacknowledged: tuple[int, int], progress: SendProgress
) -> None:
    """Tell the application that a sender ceased to exist."""
    if sender.owner is None:
        state.events.append(SenderEnded(sender.channel_id, sender.state, *unacknowledged, progress))
    else:
        sender.owner.sender_ended(sender.state, *unacknowledged, progress)

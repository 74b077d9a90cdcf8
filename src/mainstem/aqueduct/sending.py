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
from mainstem.aqueduct import lifecycle
from mainstem.aqueduct.acknowledgements import schedule_declaration
from mainstem.aqueduct.channel_halves import Half, Pending, SenderHalf, Sent
from mainstem.aqueduct.channel_id import describe
from mainstem.aqueduct.events import Attach, Lost, Mode, Writable
from mainstem.aqueduct.frames import message_head
from mainstem.aqueduct.state import SenderInput, SenderState
from mainstem.errors import BackPressured, LocalProtocolError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mainstem.aqueduct.connection_state import ConnectionState


def send(
    state: ConnectionState,
    sender: SenderHalf,
    payload: bytes,
    *,
    mode: Mode,
    attach: Sequence[tuple[Attach, bool]],
    tag: object,
) -> tuple[int, ...]:
    """Send or queue one message; returns the ids of the channels that were made for ``attach``.

    Raises LocalProtocolError for what the channel or the limits forbid, BackPressured where there is no room for a
    reliable message. An unreliable one never waits for room: the oldest that waits makes way, and without any, the new
    one is lost.
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
    if len(attach) > state.limits.max_attachments:
        raise LocalProtocolError(
            f"{len(attach)} attachments; the limit is {state.limits.max_attachments}", rule="attachment limit"
        )
    if mode is not Mode.UNRELIABLE and not sender.has_room:
        sender.wants_room = True
        raise BackPressured(
            f"{describe(sender.channel_id)}: {sender.outstanding_messages} messages and "
            f"{sender.outstanding_bytes} bytes are queued or unacknowledged"
        )
    ids, links = _make_attachments(state, attach)
    item = Pending(payload, mode, ids, links, tag)
    full = mode is Mode.UNRELIABLE and sender.unreliable_count >= state.limits.unreliable_outstanding
    if full or sender.pending or not _transmit(state, sender, item):
        sender.ledger.close()
        sender.pending.append(item)
        sender.pending_bytes += len(payload)
        state.waiting[sender] = None
        if mode is Mode.UNRELIABLE:
            _make_way(state, sender, full=full)
    elif sender.ordered_stream is not None and not sender.oneshot and not state.is_observed:
        # Nothing is in the way of the ones that follow.
        sender.ledger.open(sender.ordered_stream)
    if sender.oneshot:
        state.move_sender(sender, SenderInput.FINISH)
        lifecycle.try_finish(state, sender)
    return ids


def quick_sender(state: ConnectionState, sender: SenderHalf, mode: Mode) -> QuickSender | None:
    """The short way for the plain messages of one sender that do not travel in order; None where there is none."""
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


def _make_attachments(
    state: ConnectionState, attach: Sequence[tuple[Attach, bool]]
) -> tuple[tuple[int, ...], tuple[Half, ...]]:
    if not attach:
        return (), ()
    ids = []
    links: list[Half] = []
    for kind, oneshot in attach:
        outgoing = kind is Attach.RECEIVER
        channel_id = state.minter.mint(outgoing=outgoing, oneshot=oneshot)
        ids.append(channel_id)
        if outgoing:
            links.append(lifecycle.create_sender(state, channel_id, minted_here=True, reachable=False))
        else:
            links.append(lifecycle.create_receiver(state, channel_id, minted_here=True, handed_over=True))
    return tuple(ids), tuple(links)


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
    channel_id, payload, ids = sender.channel_id, item.payload, item.ids
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
            lifecycle.try_finish(state, sender)
        offer_room(state, sender)


def offer_room(state: ConnectionState, sender: SenderHalf) -> None:
    """Notify the application that a sender which had refused a message has room again."""
    if sender.wants_room and sender.has_much_room:
        sender.wants_room = False
        state.emit(Writable(sender.channel_id))


def acknowledged_reliable(state: ConnectionState, sender: SenderHalf, counts: tuple[int, ...]) -> None:
    """An AckReliable frame came."""
    lifecycle.resolve_acked(state, sender, sender.take_ack_reliable(counts))
    offer_room(state, sender)


def answered_unreliable(state: ConnectionState, sender: SenderHalf, counts: tuple[int, ...]) -> None:
    """An AckNackUnreliable frame came."""
    if not counts:
        return
    acked, nacked = sender.take_ack_nack(counts)
    lifecycle.resolve_acked(state, sender, acked)
    lifecycle.lose_messages(state, sender, nacked)


def closed(state: ConnectionState, sender: SenderHalf, counts: tuple[int, ...]) -> None:
    """A CloseReceiver frame came: its ranges first, then everything that is left is given up."""
    if counts:
        acknowledged_reliable(state, sender, counts)
    lifecycle.receiver_closed(state, sender)


def require_sender(state: ConnectionState, channel_id: int) -> SenderHalf:
    """The live sender of that id. Raises LocalProtocolError where there is none."""
    sender = state.senders.get(channel_id)
    if sender is None:
        raise LocalProtocolError(f"{describe(channel_id)} has no sender here", rule="no such sender")
    return sender

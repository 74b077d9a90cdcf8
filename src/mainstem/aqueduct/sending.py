"""Messages on their way out: numbering, the three carriers, declarations, and what acknowledgements set free.

A message gets its number when it is given to the transport, never earlier: what is dropped while it waits leaves no
gap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem._core.aqueduct.run_writer import QuickSender
from mainstem.aqueduct import lifecycle
from mainstem.aqueduct.channel_halves import Half, Pending, SenderHalf, Sent
from mainstem.aqueduct.channel_id import describe
from mainstem.aqueduct.events import Attach, Lost, Mode, Writable
from mainstem.aqueduct.frames import SentUnreliable, message_head
from mainstem.aqueduct.state import SenderInput, SenderState
from mainstem.errors import BackPressured, LocalProtocolError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mainstem.aqueduct.connection_state import Core


def send(
    core: Core, sender: SenderHalf, payload: bytes, *, mode: Mode, attach: Sequence[tuple[Attach, bool]], tag: object
) -> tuple[int, ...]:
    """Send or queue one message; returns the ids of the channels made for ``attach`` (which half, and whether a
    oneshot).

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
    if len(payload) > core.limits.max_payload:
        raise LocalProtocolError(
            f"a payload of {len(payload)} bytes; the limit is {core.limits.max_payload}", rule="size limit"
        )
    if len(attach) > core.limits.max_attachments:
        raise LocalProtocolError(
            f"{len(attach)} attachments; the limit is {core.limits.max_attachments}", rule="attachment limit"
        )
    if mode is not Mode.UNRELIABLE and not sender.has_room:
        sender.wants_room = True
        raise BackPressured(
            f"{describe(sender.channel_id)}: {sender.outstanding_messages} messages and "
            f"{sender.outstanding_bytes} bytes are queued or unacknowledged"
        )
    ids, links = _make_attachments(core, attach)
    item = Pending(payload, mode, ids, links, tag)
    full = mode is Mode.UNRELIABLE and sender.unreliable_count >= core.limits.unreliable_outstanding
    if full or sender.pending or not _transmit(core, sender, item):
        sender.ledger.shut()
        sender.pending.append(item)
        sender.pending_bytes += len(payload)
        core.waiting[sender] = None
        if mode is Mode.UNRELIABLE:
            _make_way(core, sender, full=full)
    elif sender.ordered_stream is not None and not sender.oneshot and not core.is_observed:
        # Nothing is in the way of the ones that follow.
        sender.ledger.open(sender.ordered_stream)
    if sender.oneshot:
        core.move_sender(sender, SenderInput.FINISH)
        lifecycle.try_finish(core, sender)
    return ids


def quick_sender(core: Core, sender: SenderHalf, mode: Mode) -> QuickSender | None:
    """The short way for the plain messages of one sender that do not travel in order; None where there is none."""
    if sender.oneshot or core.is_observed:
        return None
    return QuickSender(
        sender.ledger,
        core,
        sender,
        SenderState.OPEN,
        unreliable=mode is Mode.UNRELIABLE,
        bound=core.limits.unreliable_outstanding,
        declare=schedule_declaration,
    )


def _make_attachments(core: Core, attach: Sequence[tuple[Attach, bool]]) -> tuple[tuple[int, ...], tuple[Half, ...]]:
    if not attach:
        return (), ()
    ids = []
    links: list[Half] = []
    for kind, oneshot in attach:
        outgoing = kind is Attach.RECEIVER
        channel_id = core.minter.mint(outgoing=outgoing, oneshot=oneshot)
        ids.append(channel_id)
        if outgoing:
            links.append(lifecycle.create_sender(core, channel_id, minted_here=True, reachable=False))
        else:
            links.append(lifecycle.create_receiver(core, channel_id, minted_here=True, taken=True))
    return tuple(ids), tuple(links)


def _make_way(core: Core, sender: SenderHalf, *, full: bool) -> None:
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
                _drop_item(core, sender, item)
                break
        else:
            return


def _drop_item(core: Core, sender: SenderHalf, item: Pending) -> None:
    core.counts.unreliable_dropped += 1
    sender.pending_bytes -= len(item.payload)
    core.lost.extend(item.links)
    if item.tag is not None:
        core.emit(Lost(sender.channel_id, item.tag))


def _transmit(core: Core, sender: SenderHalf, item: Pending) -> bool:
    """Give a message to the transport, with its number; False where there is no room for it now."""
    out = core.out
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
            core.sent_frame(frame)
            schedule_declaration(core, sender)
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
    if core.is_observed:
        # Only then are they put together.
        core.sent_frame(head + payload)
    ledger.add(size, Sent(item.links, item.tag) if item.links or item.tag is not None else None)
    return True


def pump(core: Core) -> None:
    """The transport has room: send what waits, sender by sender in turn."""
    waiting = core.waiting
    for _ in range(len(waiting)):
        sender = next(iter(waiting))
        del waiting[sender]
        while sender.pending and _transmit(core, sender, sender.pending[0]):
            sender.pending_bytes -= len(sender.pending.popleft().payload)
        if sender.pending:
            waiting[sender] = None
        else:
            lifecycle.try_finish(core, sender)
        offer_room(core, sender)


def offer_room(core: Core, sender: SenderHalf) -> None:
    """Tell the application that a sender which had refused a message has room again."""
    if sender.wants_room and sender.has_much_room:
        sender.wants_room = False
        core.emit(Writable(sender.channel_id))


def schedule_declaration(core: Core, sender: SenderHalf) -> None:
    """Unreliable messages went out: declare them soon, several at once if more come."""
    core.declare_list[sender] = None
    if core.declare_due_ns is None:
        timing = core.timing
        delay = min(timing.declare_delay_ns, max(core.rtt_ns // 2, timing.declare_floor_ns))
        core.declare_due_ns = core.now_ns + delay


def declare(core: Core, sender: SenderHalf) -> None:
    """Declare the unreliable messages that are not declared yet, if the control stream is there."""
    count = sender.next_unreliable - sender.declared
    if count and sender.control is not None and not sender.control.out_done:
        sender.declared = sender.next_unreliable
        core.write_control(sender, SentUnreliable(count).encode())


def declare_due(core: Core) -> None:
    """The delay of declarations is over."""
    senders, core.declare_list = core.declare_list, {}
    core.declare_due_ns = None
    for sender in senders:
        # Without a control stream it is done when the stream is attached.
        if not sender.state.is_final:
            declare(core, sender)


def acknowledged_reliable(core: Core, sender: SenderHalf, counts: tuple[int, ...]) -> None:
    """An AckReliable frame came."""
    lifecycle.resolve_acked(core, sender, sender.take_ack_reliable(counts))
    offer_room(core, sender)


def answered_unreliable(core: Core, sender: SenderHalf, counts: tuple[int, ...]) -> None:
    """An AckNackUnreliable frame came."""
    if not counts:
        return
    acked, nacked = sender.take_ack_nack(counts)
    lifecycle.resolve_acked(core, sender, acked)
    lifecycle.lose_messages(core, sender, nacked)


def closed(core: Core, sender: SenderHalf, counts: tuple[int, ...]) -> None:
    """A CloseReceiver frame came: its ranges first, then everything that is left is given up."""
    if counts:
        acknowledged_reliable(core, sender, counts)
    lifecycle.receiver_closed(core, sender)


def require_sender(core: Core, channel_id: int) -> SenderHalf:
    """The live sender of that id. Raises LocalProtocolError where there is none."""
    sender = core.senders.get(channel_id)
    if sender is None:
        raise LocalProtocolError(f"{describe(channel_id)} has no sender here", rule="no such sender")
    return sender

"""Send messages: numbering, the three carriers, the effects of acknowledgments, and the end of a sender.

A message is sent immediately if possible. A reliable message needs a stream (ORDERED keeps one open for all of a sender's
messages, UNORDERED opens one per message); an unreliable message needs a datagram. If the transport has no room, the message
waits in ``SenderHalf.pending``, and everything sent after it on the same channel waits behind it. When the transport has room
again, `pump` sends waiting messages, sender by sender in turn. A message gets its number when it is passed to the transport,
never earlier, so dropping a waiting message leaves no gap.

Limits apply per sender. Reliable messages that are queued or unacknowledged are limited by the application's ``max_messages``
and ``max_bytes``, and by what the receiver has acknowledged so far (`SenderHalf.byte_limit`). Beyond these limits `send` raises
BackPressured, and a single `Writable` event follows once a quarter is free again. An unreliable message never makes the
application wait: if too many are waiting, the oldest of them is dropped.

The fast path. Most messages are bytes without attachments, and the Python code that runs for each is most of their cost. While
nothing is in the way (the sender is OPEN, nothing is pending, no instrument observes), `SenderHalf.put` writes them to the
connection's `MessageWriter` in compiled code. `Sending.send_on` opens the fast path for messages of the same mode;
``close_fast_path`` ends it. Every change of a sender's state calls that, and so does every message that has to wait.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from mainstem._core.aqueduct.run_writer import integer_frame, message_head
from mainstem.aqueduct.events import NO_PROGRESS, Acknowledged, Attach, Lost, Mode, SenderEnded, Writable
from mainstem.aqueduct.frames import FINISH_SENDER, RESET_CANCELLED, RESET_LOST, SENT_UNRELIABLE, describe
from mainstem.aqueduct.halves import Half, Pending, SenderHalf, Sent
from mainstem.aqueduct.output import LARGE_PIECE
from mainstem.aqueduct.state import SenderInput, SenderState
from mainstem.errors import LocalProtocolError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mainstem.aqueduct.channel_table import ChannelTable
    from mainstem.aqueduct.context import Context
    from mainstem.aqueduct.events import SendProgress
    from mainstem.aqueduct.output import Output
    from mainstem.aqueduct.streams import Streams


class Sending:
    """The senders of a connection. ``waiting`` holds those with messages for which the transport had no room."""

    def __init__(self, context: Context, channels: ChannelTable, output: Output, streams: Streams) -> None:
        self._context = context
        self._channels = channels
        self._output = output
        self._streams = streams
        self.waiting: OrderedDict[SenderHalf, None] = OrderedDict()
        # Total progress of the senders that have ended.
        self.progress = NO_PROGRESS
        # The channels whose unreliable messages must be declared. They are all due at one time.
        self.undeclared: dict[int, None] = output.plain.undeclared
        self._declare_due_ns: int | None = None

    def send_on(
        self, sender: SenderHalf, payload: bytes, mode: Mode, attach: Sequence[tuple[Attach, bool]], tag: object
    ) -> tuple[Half, ...]:
        """Send one message on ``sender``, which must have room; return the halves of the new channels that stay here.

        If there is no room for an unreliable message, the oldest one in the queue is dropped, or else the new one. Raises
        LocalProtocolError if the channel or the limits forbid the message.
        """
        context, channels, writer = self._context, self._channels, self._output.plain
        limits = context.limits
        if sender.state is not SenderState.OPEN:
            text = f"{describe(sender.channel_id)}: no message can be sent in state {sender.state.name}"
            raise LocalProtocolError(text, rule="sender state")
        if sender.oneshot and (sender.next or sender.next_unreliable or sender.pending):
            text = f"{describe(sender.channel_id)} is a oneshot and has had its message"
            raise LocalProtocolError(text, rule="oneshot")
        if len(payload) > limits.max_payload:
            text = f"a payload of {len(payload)} bytes; the limit is {limits.max_payload}"
            raise LocalProtocolError(text, rule="size limit")
        kept: list[Half] = []
        if attach:
            if len(attach) > limits.max_attachments:
                text = f"{len(attach)} attachments; the limit is {limits.max_attachments}"
                raise LocalProtocolError(text, rule="attachment limit")
            for kind, oneshot in attach:
                channel_id = channels.mint(outgoing=kind is Attach.RECEIVER, oneshot=oneshot)
                context.counts.halves_created += 1
                if kind is Attach.RECEIVER:
                    sender_here = SenderHalf(writer, channel_id, limits, minted_here=True)
                    channels.senders[channel_id] = sender_here
                    kept.append(sender_here)
                else:
                    receiver = channels.make_receiver(channel_id, minted_here=True, handed_over=True, obtainable=True)
                    channels.receivers[channel_id] = receiver
                    kept.append(receiver)
        links = tuple(kept)
        full = mode is Mode.UNRELIABLE and sender.next_unreliable - sender.mark >= limits.unreliable_outstanding
        if full or sender.pending or not self._transmit(sender, payload, mode, links, tag):
            sender.close_fast_path()
            sender.pending.append(Pending(payload, mode, links, tag))
            sender.pending_bytes += len(payload)
            self.waiting[sender] = None
            if mode is Mode.UNRELIABLE:
                self._make_room(sender, full=full)
        elif not sender.oneshot and not context.is_observed:
            # Nothing is in the way of the messages that follow, so they can take the fast path.
            stream_id = sender.ordered_stream if mode is Mode.ORDERED else None
            sender.open_fast_path(-1 if stream_id is None else stream_id, mode is Mode.UNRELIABLE)
        if sender.oneshot:
            self.finish(sender)
        context.wake()
        return links

    def _make_room(self, sender: SenderHalf, *, full: bool) -> None:
        """Drop the oldest waiting unreliable messages until the waiting messages are within the sender's limits."""
        pending = sender.pending
        while (
            full
            or len(pending) > sender.max_messages
            or (sender.size + sender.pending_bytes > sender.max_bytes and len(pending) > 1)
        ):
            full = False
            for index, item in enumerate(pending):
                if item.mode is Mode.UNRELIABLE:
                    del pending[index]
                    sender.pending_bytes -= len(item.payload)
                    self._context.counts.unreliable_dropped += 1
                    self.lose_messages(sender, (Sent(item.links, item.tag),))
                    break
            else:
                return

    def _transmit(self, sender: SenderHalf, payload: bytes, mode: Mode, links: tuple[Half, ...], tag: object) -> bool:
        """Number a message and pass it to the transport; return False if there is no room for it now."""
        output, context = self._output, self._context
        plain = output.plain
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
                output.send_datagram(frame)
                context.sent_frame(frame)
                self.undeclared[sender.channel_id] = None
                return True
            # Too large for a datagram: the message goes on a stream, so it is reliable and counts against the reliable limits.
            if sender.count >= sender.max_messages:
                return False
        is_ordered = mode is Mode.ORDERED
        stream_id = sender.ordered_stream if is_ordered else None
        if stream_id is None and plain.stream_room <= 0:
            return False
        head = message_head(sender.prefix, sender.next, ids, size)
        is_large = size >= LARGE_PIECE
        data = head if is_large else head + payload
        if stream_id is not None:
            output.write(stream_id, data)
        else:
            stream_id = output.open_stream(data, unidirectional=True, fin=not is_ordered)
            if is_ordered:
                sender.ordered_stream = stream_id
        if is_large:
            output.write(stream_id, payload)
        if context.is_observed:
            context.sent_frame(head + payload)
        sender.add(size, entry)
        return True

    def pump(self) -> None:
        """Send waiting messages as far as the transport has room, sender by sender in turn."""
        waiting = self.waiting
        for _ in range(len(waiting)):
            sender, _ = waiting.popitem(last=False)
            while sender.pending and self._transmit(sender, *sender.pending[0]):
                sender.pending_bytes -= len(sender.pending.popleft().payload)
            if sender.pending:
                waiting[sender] = None
            else:
                self._try_finish(sender)
            self._offer_room(sender)

    def _offer_room(self, sender: SenderHalf) -> None:
        """Notify the application if a sender that had refused a message has room again."""
        if sender.wants_room and sender.has_much_room:
            sender.wants_room = False
            self._context.events.append(Writable(sender.channel_id, sender.owner))

    # Reports from the receiver.

    def acknowledged_reliable(self, sender: SenderHalf, counts: tuple[int, ...]) -> None:
        """Process an AckReliable frame."""
        entries = sender.take_ack_reliable(counts)
        if entries:
            self._resolve_acked(sender, entries)
        if sender.wants_room:
            self._offer_room(sender)

    def resolved_unreliable(self, sender: SenderHalf, counts: tuple[int, ...]) -> None:
        """Process an AckNackUnreliable frame."""
        acked, nacked = sender.take_ack_nack(counts)
        self._resolve_acked(sender, acked)
        self.lose_messages(sender, nacked)

    def receiver_closed(self, sender: SenderHalf, counts: tuple[int, ...]) -> None:
        """Process a CloseReceiver frame: acknowledge its ranges, then give up every other message."""
        if counts:
            self.acknowledged_reliable(sender, counts)
        assert sender.control is not None
        self._streams.reset(sender.control, RESET_CANCELLED)
        self._stop_message_stream(sender, RESET_CANCELLED)
        early = sender.count or sender.pending
        self._end(sender, SenderInput.CLOSED_EARLY if early else SenderInput.CLOSED_COMPLETE)

    def _resolve_acked(self, sender: SenderHalf, entries: list[Sent]) -> None:
        """Process acknowledged messages: their attachments become reachable as soon as their sender is."""
        if not sender.reachable:
            sender.acked.extend(entries)
            return
        # Follow chains of attachments without recursion, however deep they are.
        found = [(sender.channel_id, entries)]
        while found:
            channel_id, entries = found.pop()
            for entry in entries:
                if entry.tag is not None:
                    self._context.events.append(Acknowledged(channel_id, entry.tag))
                for half in entry.links:
                    if not half.reachable:
                        half.reachable = True
                        if isinstance(half, SenderHalf) and half.acked:
                            found.append((half.channel_id, half.acked))
                            half.acked = []

    def lose_messages(self, sender: SenderHalf, entries: Iterable[Sent]) -> None:
        """Give up messages: their attachments are lost."""
        for entry in entries:
            self._channels.lost.extend(entry.links)
            if entry.tag is not None:
                self._context.events.append(Lost(sender.channel_id, entry.tag))

    # Declarations.

    def _declare(self, sender: SenderHalf) -> None:
        """Declare the unreliable messages that have not been declared yet, if there is a control stream."""
        count = sender.next_unreliable - sender.declared
        if count and sender.control is not None and not sender.control.out_done:
            sender.declared += count
            self._streams.write_control(sender, integer_frame(SENT_UNRELIABLE, count))

    def next_timeout_ns(self) -> int:
        """Return the time at which ``undeclared`` messages must be declared."""
        context = self._context
        if self._declare_due_ns is None:
            timing = context.timing
            delay = min(timing.declare_delay_ns, max(context.rtt_ns // 2, timing.declare_floor_ns))
            self._declare_due_ns = context.now_ns + delay
        return self._declare_due_ns

    def handle_timeout(self) -> None:
        """Send the declarations that are due."""
        if self._declare_due_ns is None or self._declare_due_ns > self._context.now_ns:
            return
        channel_ids = list(self.undeclared)
        self.undeclared.clear()
        self._declare_due_ns = None
        for channel_id in channel_ids:
            sender = self._channels.senders.get(channel_id)
            # Without a control stream, this happens when the stream is attached.
            if sender is not None:
                self._declare(sender)

    # The end of a sender.

    def finish(self, sender: SenderHalf) -> None:
        """End a channel gracefully: everything sent is still delivered, and nothing more can be sent."""
        self._channels.move(sender, SenderInput.FINISH)
        self._try_finish(sender)

    def _try_finish(self, sender: SenderHalf) -> None:
        """Send the last frame once there is a control stream and no message is waiting for a number."""
        if sender.state is not SenderState.FINISH_PENDING or sender.pending:
            return
        if sender.ordered_stream is not None:
            self._output.write(sender.ordered_stream, b"", fin=True)
            sender.ordered_stream = None
        if sender.control is not None:
            if sender.next_unreliable:
                self._declare(sender)
            self._channels.move(sender, SenderInput.ATTACHED)
            self._streams.write_control(sender, integer_frame(FINISH_SENDER, sender.next), fin=True)

    def attached(self, sender: SenderHalf) -> None:
        """Send everything that was waiting for the sender's control stream."""
        if sender.state is SenderState.CANCEL_PENDING:
            self._reset_cancelled(sender)
        else:
            if sender.next_unreliable:
                self._declare(sender)
            if sender.state is SenderState.FINISH_PENDING:
                self._try_finish(sender)

    def cancel(self, sender: SenderHalf) -> None:
        """Cancel a sender: give up its queued messages, and notify the receiver once there is a control stream."""
        before = sender.state
        self._channels.move(sender, SenderInput.CANCEL)
        if sender.state is not SenderState.CANCEL_PENDING or before is SenderState.CANCEL_PENDING:
            return
        self.lose_messages(sender, sender.take_pending())
        self.waiting.pop(sender, None)
        self._stop_message_stream(sender, RESET_CANCELLED)
        if sender.control is not None:
            self._reset_cancelled(sender)

    def _reset_cancelled(self, sender: SenderHalf) -> None:
        """Notify the receiver by resetting the control stream. The receiver's acknowledgments count until its last frame."""
        assert sender.control is not None
        self._channels.move(sender, SenderInput.ATTACHED)
        self._streams.reset(sender.control, RESET_CANCELLED)

    def stream_stopped(self, stream_id: int) -> None:
        """Note that the peer stopped reading a stream, which may have carried a sender's ordered messages."""
        for sender in self._channels.senders.values():
            if sender.ordered_stream == stream_id:
                sender.ordered_stream = None
                sender.close_fast_path()
                break

    def _stop_message_stream(self, sender: SenderHalf, code: int) -> None:
        """Reset the stream that carries a sender's ordered messages, if it is open."""
        if sender.ordered_stream is not None:
            self._output.reset(sender.ordered_stream, code)
            sender.ordered_stream = None

    def lose(self, sender: SenderHalf) -> None:
        """End a sender that was lost with the message it was attached to, or that the peer reported lost."""
        self._stop_message_stream(sender, RESET_LOST)
        self._end(sender, SenderInput.LOSE)

    def _end(self, sender: SenderHalf, happened: SenderInput) -> None:
        """End a sender, giving up its unacknowledged messages and everything attached to them."""
        self._channels.move(sender, happened)
        self._channels.senders.pop(sender.channel_id, None)
        self.waiting.pop(sender, None)
        if not sender.minted_here:
            self._channels.closed_ids.add(sender.channel_id)
        if sender.control is not None:
            self._streams.abandon(sender.control)
            sender.control = None
        unacknowledged = sender.unacknowledged
        self.progress += sender.progress
        self.lose_messages(sender, sender.take_outstanding())
        if sender.state is SenderState.LOST:
            self.lose_messages(sender, sender.acked)
            sender.acked = []
        self.report_end(sender, unacknowledged, NO_PROGRESS)

    @property
    def unsent_tags(self) -> frozenset[object]:
        """The tags of the messages that are waiting for room in the transport."""
        senders = self._channels.senders.values()
        return frozenset(item.tag for sender in senders for item in sender.pending if item.tag is not None)

    def disconnect(self) -> list[tuple[SenderHalf, tuple[int, int], SendProgress]]:
        """End every sender because the connection ended. Returns what to report about each."""
        ended = []
        for sender in list(self._channels.senders.values()):
            ended.append((sender, sender.unacknowledged, sender.progress))
            self.progress += sender.progress
            self._channels.move(sender, SenderInput.DISCONNECT)
            sender.take_outstanding()
        self.waiting.clear()
        self.undeclared.clear()
        self._declare_due_ns = None
        return ended

    def report_end(self, sender: SenderHalf, unacknowledged: tuple[int, int], progress: SendProgress) -> None:
        if sender.owner is None:
            self._context.events.append(SenderEnded(sender.channel_id, sender.state))
        else:
            sender.owner.sender_ended(sender.state, *unacknowledged, progress)

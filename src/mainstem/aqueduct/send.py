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

from typing import TYPE_CHECKING

from mainstem._core.aqueduct.run_writer import integer_frame, message_head
from mainstem.aqueduct.connection_state import LARGE_PIECE, ConnectionState
from mainstem.aqueduct.events import NO_PROGRESS, Acknowledged, Attach, Lost, Mode, SenderEnded, Writable
from mainstem.aqueduct.frames import FINISH_SENDER, RESET_CANCELLED, RESET_LOST, SENT_UNRELIABLE, describe
from mainstem.aqueduct.halves import Half, Pending, SenderHalf, Sent
from mainstem.aqueduct.state import SenderInput, SenderState
from mainstem.errors import BackPressured, ConnectionLost, LocalProtocolError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mainstem.aqueduct.events import SendProgress


class Sending(ConnectionState):
    # Methods that the application calls. If they leave something to send, they call the function passed to `call_on_output`.

    def send(
        self,
        channel_id: int,
        payload: bytes,
        *,
        mode: Mode = Mode.ORDERED,
        attach: Sequence[tuple[Attach, bool]] = (),
        tag: object = None,
    ) -> tuple[int, ...]:
        """Send one message; return the ids of the new channels, in the order of ``attach``.

        Each item of ``attach`` says which half of a new channel travels with the message, and whether the channel is a oneshot. If
        ``tag`` is not None, an `Acknowledged` or `Lost` event later reports what happened to the message.

        Raises LocalProtocolError, BackPressured (a `Writable` event will follow) or ConnectionLost.
        """
        if self.is_ended:
            raise ConnectionLost("the connection has ended")
        sender = self.senders.get(channel_id)
        if sender is None:
            raise LocalProtocolError(f"{describe(channel_id)} has no sender here", rule="no such sender")
        if sender.state is SenderState.OPEN and not sender.accepts(mode):
            messages, size = sender.count + len(sender.pending), sender.size + sender.pending_bytes
            text = f"{describe(channel_id)}: {messages} messages and {size} bytes are queued or unacknowledged"
            raise BackPressured(text)
        return tuple([half.channel_id for half in self.send_on(sender, payload, mode, attach, tag)])

    def send_on(
        self, sender: SenderHalf, payload: bytes, mode: Mode, attach: Sequence[tuple[Attach, bool]], tag: object
    ) -> tuple[Half, ...]:
        """Send one message on ``sender``, which must have room; return the halves of the new channels that stay here.

        If there is no room for an unreliable message, the oldest one in the queue is dropped, or else the new one. Raises
        LocalProtocolError if the channel or the limits forbid the message.
        """
        limits = self.limits
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
                channel_id = self.mint(outgoing=kind is Attach.RECEIVER, oneshot=oneshot)
                self.counts.halves_created += 1
                if kind is Attach.RECEIVER:
                    sender_here = self.senders[channel_id] = SenderHalf(
                        self.plain, channel_id, limits, minted_here=True
                    )
                    kept.append(sender_here)
                else:
                    receiver = self.make_receiver(channel_id, minted_here=True, handed_over=True)
                    self.receivers[channel_id] = receiver
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
        elif not sender.oneshot and not self.is_observed:
            # Nothing is in the way of the messages that follow, so they can take the fast path.
            stream_id = sender.ordered_stream if mode is Mode.ORDERED else None
            sender.open_fast_path(-1 if stream_id is None else stream_id, mode is Mode.UNRELIABLE)
        if sender.oneshot:
            self.finish_sender(sender)
        self.wake()
        return links

    def finish(self, channel_id: int) -> None:
        """End a channel gracefully: everything sent is still delivered, and nothing more can be sent."""
        sender = self.senders.get(channel_id)
        if sender is not None and not self.is_ended:
            self.finish_sender(sender)
            self.wake()

    # Sending.

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
                    self.counts.unreliable_dropped += 1
                    self.lose_messages(sender, (Sent(item.links, item.tag),))
                    break
            else:
                return

    def _transmit(self, sender: SenderHalf, payload: bytes, mode: Mode, links: tuple[Half, ...], tag: object) -> bool:
        """Number a message and pass it to the transport; return False if there is no room for it now."""
        plain = self.plain
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
                self.send_datagram(frame)
                self.sent_frame(frame)
                self.declare_list[sender.channel_id] = None
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
            self.write(stream_id, data)
        else:
            stream_id = self.open_stream(data, unidirectional=True, fin=not is_ordered)
            if is_ordered:
                sender.ordered_stream = stream_id
        if is_large:
            self.write(stream_id, payload)
        if self.is_observed:
            self.sent_frame(head + payload)
        sender.add(size, entry)
        return True

    def pump(self) -> None:
        """Send waiting messages as far as the transport has room, sender by sender in turn."""
        waiting = self.waiting
        for _ in range(len(waiting)):
            sender = next(iter(waiting))
            del waiting[sender]
            while sender.pending and self._transmit(sender, *sender.pending[0]):
                sender.pending_bytes -= len(sender.pending.popleft().payload)
            if sender.pending:
                waiting[sender] = None
            else:
                self.try_finish(sender)
            self.offer_room(sender)

    def offer_room(self, sender: SenderHalf) -> None:
        """Notify the application if a sender that had refused a message has room again."""
        if sender.wants_room and sender.has_much_room:
            sender.wants_room = False
            self.events.append(Writable(sender.channel_id, sender.owner))

    # Reports from the receiver.

    def acknowledged_reliable(self, sender: SenderHalf, counts: tuple[int, ...]) -> None:
        """Process an AckReliable frame."""
        entries = sender.take_ack_reliable(counts)
        if entries:
            self.resolve_acked(sender, entries)
        if sender.wants_room:
            self.offer_room(sender)

    def resolved_unreliable(self, sender: SenderHalf, counts: tuple[int, ...]) -> None:
        """Process an AckNackUnreliable frame."""
        acked, nacked = sender.take_ack_nack(counts)
        self.resolve_acked(sender, acked)
        self.lose_messages(sender, nacked)

    def receiver_closed(self, sender: SenderHalf, counts: tuple[int, ...]) -> None:
        """Process a CloseReceiver frame: acknowledge its ranges, then give up every other message."""
        if counts:
            self.acknowledged_reliable(sender, counts)
        assert sender.control is not None
        self.reset_stream(sender.control, RESET_CANCELLED)
        self.stop_message_stream(sender, RESET_CANCELLED)
        early = sender.count or sender.pending
        self.end_sender(sender, SenderInput.CLOSED_EARLY if early else SenderInput.CLOSED_COMPLETE)

    def resolve_acked(self, sender: SenderHalf, entries: list[Sent]) -> None:
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
                    self.events.append(Acknowledged(channel_id, entry.tag))
                for half in entry.links:
                    if not half.reachable:
                        half.reachable = True
                        if isinstance(half, SenderHalf) and half.acked:
                            found.append((half.channel_id, half.acked))
                            half.acked = []

    def lose_messages(self, sender: SenderHalf, entries: Iterable[Sent]) -> None:
        """Give up messages: their attachments are lost."""
        for entry in entries:
            self.lost.extend(entry.links)
            if entry.tag is not None:
                self.events.append(Lost(sender.channel_id, entry.tag))

    # Declarations.

    def declare(self, sender: SenderHalf) -> None:
        """Declare the unreliable messages that have not been declared yet, if there is a control stream."""
        count = sender.next_unreliable - sender.declared
        if count and sender.control is not None and not sender.control.out_done:
            sender.declared += count
            self.write_control(sender, integer_frame(SENT_UNRELIABLE, count))

    def declare_due(self) -> None:
        channel_ids = list(self.declare_list)
        self.declare_list.clear()
        self.declare_due_ns = None
        for channel_id in channel_ids:
            sender = self.senders.get(channel_id)
            # Without a control stream, this happens when the stream is attached.
            if sender is not None:
                self.declare(sender)

    # The end of a sender.

    def finish_sender(self, sender: SenderHalf) -> None:
        self.move(sender, SenderInput.FINISH)
        self.try_finish(sender)

    def try_finish(self, sender: SenderHalf) -> None:
        """Send the last frame once there is a control stream and no message is waiting for a number."""
        if sender.state is not SenderState.FINISH_PENDING or sender.pending:
            return
        if sender.ordered_stream is not None:
            self.write(sender.ordered_stream, b"", fin=True)
            sender.ordered_stream = None
        if sender.control is not None:
            if sender.next_unreliable:
                self.declare(sender)
            self.move(sender, SenderInput.ATTACHED)
            self.write_control(sender, integer_frame(FINISH_SENDER, sender.next), fin=True)

    def cancel_sender(self, sender: SenderHalf) -> None:
        """Cancel a sender: give up its queued messages, and notify the receiver once there is a control stream."""
        before = sender.state
        self.move(sender, SenderInput.CANCEL)
        if sender.state is not SenderState.CANCEL_PENDING or before is SenderState.CANCEL_PENDING:
            return
        self.lose_messages(sender, sender.take_pending())
        self.waiting.pop(sender, None)
        self.stop_message_stream(sender, RESET_CANCELLED)
        if sender.control is not None:
            self.reset_cancelled(sender)

    def reset_cancelled(self, sender: SenderHalf) -> None:
        """Notify the receiver by resetting the control stream. The receiver's acknowledgments count until its last frame."""
        assert sender.control is not None
        self.move(sender, SenderInput.ATTACHED)
        self.reset_stream(sender.control, RESET_CANCELLED)

    def stop_message_stream(self, sender: SenderHalf, code: int) -> None:
        """Reset the stream that carries a sender's ordered messages, if it is open."""
        if sender.ordered_stream is not None:
            self.reset(sender.ordered_stream, code)
            sender.ordered_stream = None

    def sender_lost(self, sender: SenderHalf) -> None:
        self.stop_message_stream(sender, RESET_LOST)
        self.end_sender(sender, SenderInput.LOSE)

    def end_sender(self, sender: SenderHalf, happened: SenderInput) -> None:
        """End a sender, giving up its unacknowledged messages and everything attached to them."""
        self.move(sender, happened)
        self.senders.pop(sender.channel_id, None)
        self.waiting.pop(sender, None)
        if not sender.minted_here:
            self._note(self._closed_ids, sender.channel_id)
        if sender.control is not None:
            self.abandon(sender.control)
            sender.control = None
        unacknowledged = sender.unacknowledged
        self.progress += sender.progress
        self.lose_messages(sender, sender.take_outstanding())
        if sender.state is SenderState.LOST:
            self.lose_messages(sender, sender.acked)
            sender.acked = []
        self.report_end(sender, unacknowledged, NO_PROGRESS)

    def report_end(self, sender: SenderHalf, unacknowledged: tuple[int, int], progress: SendProgress) -> None:
        if sender.owner is None:
            self.events.append(SenderEnded(sender.channel_id, sender.state))
        else:
            sender.owner.sender_ended(sender.state, *unacknowledged, progress)

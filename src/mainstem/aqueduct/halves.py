"""What one side knows of the sender and of the receiver of a channel: numbers, acknowledgements, queues, links.

Nothing here decides what happens next; that is for `send`, `receive` and `streams`. A half is data with the arithmetic that
keeps it consistent.

A sender numbers its messages in two sequences from 0, one for messages on streams (reliable) and one for datagrams
(unreliable). A message gets its number when it is given to the transport, so numbers have no gaps.

* Reliable: the compiled `Ledger` keeps the size of each unacknowledged message; ``ledger.first`` is the lowest of them and
  ``ledger.next`` the next number. Only a message that something depends on (attachments, or the application's tag) has a
  `Sent` entry, so plain messages cost one integer each.
* Unreliable: ``next_unreliable`` is the next number, ``declared`` counts those that were declared, ``mark`` is where the last
  AckNackUnreliable ended: all below is decided. ``mark <= next_unreliable`` and ``declared <= next_unreliable`` always.
* ``pending`` holds messages that wait for room in the transport; they have no number, and dropping one leaves no gap.

A receiver keeps what it has processed as ranges, never as single numbers:

* Reliable: ``unacked`` (processed, not acknowledged) and ``acked`` are disjoint; ``reliable_count`` is the size of both, and
  ``top`` is one more than the highest number in them.
* Unreliable: ``received`` holds what was processed at or above ``mark``; below ``mark`` all is decided, and is never
  processed (a nack binds). ``declared`` counts what the sender declared; the grace period of all below ``expired`` is over.
* ``queue`` holds what the application has not taken: runs of plain payloads, or one `Incoming` with its attachments.
  ``queued`` and ``queued_bytes`` count it; a message costs `QUEUED_MESSAGE_OVERHEAD` beside its payload.

Ranges from the peer are checked against what was really sent before any number in them is visited, so that the work is
bounded by the messages sent and not by what the peer writes. A set with more than ``Limits.max_gaps`` ranges ends the
connection.

Messages of different streams and datagrams come in any order, and a channel's messages may come before the message that the
channel was attached to. So a receiver can exist, be acknowledged and even finish before the application can have it
(``handed_over``). The state tables (`state`) hold which input is possible when.
"""

from __future__ import annotations

from collections import deque
from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple, Protocol

from mainstem._core.aqueduct.ranges import RangeSet
from mainstem._core.aqueduct.run_writer import Ledger, MessageWriter
from mainstem.aqueduct.events import Mode, SendProgress
from mainstem.aqueduct.frames import ONESHOT, Frame, FrameReader, message_prefix, protocol_error
from mainstem.aqueduct.limits import MAX_UINT, QUEUED_MESSAGE_OVERHEAD, Limits
from mainstem.aqueduct.state import ReceiverState, SenderState, direct

if TYPE_CHECKING:
    from collections.abc import Sequence

OPENED_BY_SERVER = 1
UNIDIRECTIONAL = 2

RANGES_A_FRAME = 256
"""Ranges in one acknowledgement frame: two integers each, at most 20 bytes, so that any frame stays a few kilobytes."""

DECLARATION_GRAIN_NS = 50_000_000
"""Declarations that come closer together than this share one deadline, so that a flood of them is a few entries."""


class SenderOwner(Protocol):
    """The application's side of a sender."""

    def writable(self) -> None:
        """There is room again. Called outside of the engine's steps."""

    def check(self) -> None:
        """Raise the error by which the sender ended."""

    def sender_ended(self, state: SenderState, messages: int, size: int, progress: SendProgress) -> None:
        """The sender ceased to exist with this many messages, of ``size`` bytes, undelivered."""


class ReceiverOwner(Protocol):
    """The application's side of a receiver."""

    def wake(self) -> None:
        """There may be something to receive."""

    @property
    def has_unread(self) -> bool:
        """Whether it holds messages that it took from the receiver and that nobody has read."""

    def receiver_ended(self, state: ReceiverState) -> None:
        """The receiver ceased to exist on the wire."""


class Sent(NamedTuple):
    """A message that something depends on: creation links to the halves attached to it, or the application's tag."""

    links: tuple[Half, ...]
    tag: object


class Pending(NamedTuple):
    """A message that waits for a stream or for room for a datagram. It has no number yet."""

    payload: bytes
    mode: Mode
    links: tuple[Half, ...]
    tag: object


class Incoming(NamedTuple):
    """A received message. ``attachments`` are the halves that came with it, in the order in which they were attached."""

    channel_id: int
    payload: bytes
    attachments: tuple[Half, ...] = ()
    number: int = 0
    unreliable: bool = False


class UnreliableRun(deque[bytes]):
    """Unreliable messages without attachments that wait for the application, and their numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers: deque[int] = deque()


@direct
class Role(Enum):
    """What a stream is for, which its first frames determine."""

    NEW = auto()
    CONNECTION = auto()
    CONTROL = auto()
    MESSAGES = auto()
    NOTICE = auto()
    """A ClosedChannelLost, alone."""
    ABANDONED = auto()
    """Whatever still comes on it is dropped."""


class Stream(FrameReader):
    """One QUIC stream, and the reader of its frames."""

    __slots__ = (
        "accounted",
        "blocked_on",
        "fin",
        "frames",
        "half",
        "heard",
        "held_frame",
        "held_reset",
        "in_done",
        "is_bidirectional",
        "last_seen",
        "must_begin_with_version",
        "opened_here",
        "out_done",
        "reset_pending",
        "role",
        "stream_id",
        "versioned",
    )

    def __init__(self, stream_id: int, role: Role, *, opened_here: bool, limits: Limits) -> None:
        super().__init__(limits)
        self.stream_id = stream_id
        self.role = role
        self.opened_here = opened_here
        # The half that it controls, or the receiver that its last message was for.
        self.half: Half | None = None
        # Bytes of this stream that the connection counts as buffered.
        self.accounted = 0
        self.frames = 0
        self.versioned = False
        self.must_begin_with_version = False
        # The frame came that must be the last of its direction: FinishSender or CloseReceiver.
        self.last_seen = False
        # The receiver whose full queue this stream waits for, and the frame that did not fit.
        self.blocked_on: ReceiverHalf | None = None
        self.held_frame: Frame | None = None
        # The code of a reset that came while the stream was held.
        self.held_reset: int | None = None
        self.fin = False
        self.in_done = False
        self.is_bidirectional = not stream_id & UNIDIRECTIONAL
        self.out_done = not self.is_bidirectional and not opened_here
        # The peer is known to have seen this stream.
        self.heard = not opened_here
        self.reset_pending: int | None = None


class SenderHalf:
    """The sending half of a channel, on the side where messages go in."""

    is_sender = True

    __slots__ = (
        "acked",
        "channel_id",
        "control",
        "declared",
        "ledger",
        "mark",
        "minted_here",
        "next_unreliable",
        "oneshot",
        "ordered_stream",
        "owner",
        "pending",
        "pending_bytes",
        "prefix",
        "reachable",
        "state",
        "unreliable",
        "wants_room",
    )

    def __init__(
        self, channel_id: int, *, minted_here: bool, reachable: bool, limits: Limits, writer: MessageWriter
    ) -> None:
        self.channel_id = channel_id
        self.oneshot = bool(channel_id & ONESHOT)
        self.minted_here = minted_here
        self.reachable = reachable
        self.state = SenderState.OPEN
        self.control: Stream | None = None
        self.ordered_stream: int | None = None
        self.owner: SenderOwner | None = None
        # What is reliable and not acknowledged.
        self.prefix = message_prefix(channel_id)
        self.ledger = Ledger(writer, self.prefix, limits.send_messages, limits.send_bytes, limits.max_payload)
        self.next_unreliable = 0
        self.declared = 0
        self.mark = 0
        # Of the undecided unreliable messages: those that something depends on.
        self.unreliable: dict[int, Sent] = {}
        # Acknowledged while the sender was not reachable: their links must stay.
        self.acked: list[Sent] = []
        self.pending: deque[Pending] = deque()
        self.pending_bytes = 0
        self.wants_room = False

    @property
    def has_room(self) -> bool:
        """Whether another reliable message is within the limits that the application chose."""
        ledger = self.ledger
        return (
            ledger.count + len(self.pending) < ledger.max_messages
            and ledger.size + self.pending_bytes < ledger.max_bytes
        )

    @property
    def has_much_room(self) -> bool:
        """Whether enough is free to wake a waiting task: a quarter of the limits, at least one message."""
        ledger = self.ledger
        messages, size = ledger.max_messages, ledger.max_bytes
        return ledger.count + len(self.pending) <= messages - max(
            1, messages // 4
        ) and ledger.size + self.pending_bytes <= size - max(1, size // 4)

    @property
    def unacknowledged(self) -> tuple[int, int]:
        """The reliable messages that were sent or queued and not acknowledged, and their bytes."""
        if not self.pending:
            return self.ledger.count, self.ledger.size
        waiting = [len(item.payload) for item in self.pending if item.mode is not Mode.UNRELIABLE]
        return self.ledger.count + len(waiting), self.ledger.size + sum(waiting)

    @property
    def progress(self) -> SendProgress:
        """How many messages were sent, acknowledged and queued."""
        ledger = self.ledger
        return SendProgress(ledger.next + self.next_unreliable, ledger.next - ledger.count, len(self.pending))

    def take_ack_reliable(self, counts: tuple[int, ...]) -> list[Sent]:
        """Note acknowledged numbers; return the messages among them that something depends on."""
        ledger = self.ledger
        position = ledger.first
        out: list[Sent] = []
        for index, count in enumerate(counts):
            stop = position + count
            if index % 2 == 0:
                if stop > ledger.next:
                    raise protocol_error("acknowledged unsent", f"acknowledgement of {stop - 1}, which was never sent")
                try:
                    out += ledger.acknowledge(position, stop)
                except ValueError as error:
                    raise protocol_error("acknowledged twice", f"reliable message {error} acknowledged twice") from None
            position = stop
        ledger.settle()
        return out

    def take_ack_nack(self, counts: tuple[int, ...]) -> tuple[list[Sent], list[Sent]]:
        """Note acknowledged and given-up numbers; return those of either kind that something depends on."""
        stop = self.mark + sum(counts)
        if stop > self.next_unreliable:
            text = f"response to unreliable message {stop - 1}, which was never sent"
            raise protocol_error("acknowledged unsent", text)
        acked: list[Sent] = []
        nacked: list[Sent] = []
        position = self.mark
        for index, count in enumerate(counts):
            if self.unreliable:
                out = nacked if index % 2 else acked
                for number in range(position, position + count):
                    entry = self.unreliable.pop(number, None)
                    if entry is not None:
                        out.append(entry)
            position += count
        self.mark = stop
        return acked, nacked

    def take_outstanding(self) -> list[Sent]:
        """Take out every undecided message that something depends on; nothing is outstanding afterwards."""
        entries: list[Sent] = self.ledger.clear()
        entries += self.unreliable.values()
        entries += self.take_pending()
        self.unreliable.clear()
        return entries

    def take_pending(self) -> list[Sent]:
        """Take out the messages that wait, as `Sent` if something depends on them."""
        entries = [Sent(item.links, item.tag) for item in self.pending if item.links or item.tag is not None]
        self.pending.clear()
        self.pending_bytes = 0
        return entries


class ReceiverHalf:
    """The receiving half of a channel, on the side where messages come out."""

    is_sender = False

    __slots__ = (
        "ack_scheduled",
        "acked",
        "blocked",
        "channel_id",
        "control",
        "declared",
        "expired",
        "expiries",
        "finish_count",
        "handed_over",
        "mark",
        "minted_here",
        "nack_scheduled",
        "oneshot",
        "owner",
        "prefix",
        "queue",
        "queued",
        "queued_bytes",
        "reachable",
        "received",
        "reliable_count",
        "state",
        "top",
        "unacked",
        "unacked_bytes",
        "unacked_count",
    )

    def __init__(self, channel_id: int, *, minted_here: bool, handed_over: bool) -> None:
        self.channel_id = channel_id
        self.oneshot = bool(channel_id & ONESHOT)
        self.prefix = message_prefix(channel_id)
        self.minted_here = minted_here
        self.reachable = not minted_here
        self.state = ReceiverState.OPEN
        self.control: Stream | None = None
        # Whether the message that the receiver was attached to has come: only then can the application get at it.
        self.handed_over = handed_over
        self.owner: ReceiverOwner | None = None
        self.queue: deque[Incoming | deque[bytes]] = deque()
        self.queued = 0
        self.queued_bytes = 0
        self.blocked: dict[Stream, None] = {}
        self.acked = RangeSet()
        self.unacked = RangeSet()
        self.top = 0
        self.unacked_count = 0
        self.unacked_bytes = 0
        self.reliable_count = 0
        self.mark = 0
        self.received = RangeSet()
        self.declared = 0
        self.expired = 0
        self.expiries: deque[tuple[int, int, int]] = deque()
        self.finish_count: int | None = None
        self.ack_scheduled = False
        self.nack_scheduled = False

    def is_full(self, limits: Limits) -> bool:
        """Whether the application is behind by as much as it may be."""
        return self.queued >= limits.receive_messages or self.queued_bytes >= limits.receive_bytes

    @property
    def has_had_a_message(self) -> bool:
        """Whether any message was processed or given up."""
        return bool(self.reliable_count or self.mark or self.received)

    # The queue. Each method returns the bytes by which what is buffered changes.

    def put(self, incoming: Incoming) -> int:
        """Queue one message that has attachments."""
        self.queue.append(incoming)
        return self._queued(1, len(incoming.payload))

    def put_run(self, payloads: Sequence[bytes], size: int) -> int:
        """Queue plain reliable messages of ``size`` bytes."""
        queue = self.queue
        if queue and type(queue[-1]) is deque:
            queue[-1].extend(payloads)
        else:
            queue.append(deque(payloads))
        return self._queued(len(payloads), size)

    def put_unreliable(self, first: int, payloads: Sequence[bytes], size: int) -> int:
        """Queue plain unreliable messages of ``size`` bytes, numbered from ``first`` on."""
        queue = self.queue
        run = queue[-1] if queue else None
        if not isinstance(run, UnreliableRun):
            run = UnreliableRun()
            queue.append(run)
        run.extend(payloads)
        run.numbers.extend(range(first, first + len(payloads)))
        return self._queued(len(payloads), size)

    def _queued(self, count: int, size: int) -> int:
        size += count * QUEUED_MESSAGE_OVERHEAD
        self.queued += count
        self.queued_bytes += size
        return size

    def pop(self) -> tuple[Incoming | bytes, int]:
        """Take out the oldest message."""
        head = self.queue[0]
        entry: Incoming | bytes
        if isinstance(head, Incoming):
            entry, payload = head, head.payload
            self.queue.popleft()
        else:
            if isinstance(head, UnreliableRun):
                head.numbers.popleft()
            entry = payload = head.popleft()
            if not head:
                self.queue.popleft()
        return entry, self._queued(-1, -len(payload))

    def pop_run(self) -> tuple[deque[bytes] | None, int]:
        """Take out the run of plain messages at the head of the queue."""
        head = self.queue[0]
        if isinstance(head, Incoming):
            return None, 0
        self.queue.popleft()
        return head, self._queued(-len(head), -sum(map(len, head)))

    def take_queue(self) -> list[Incoming]:
        """Take out everything that the application has not received; return what has attachments."""
        out = [entry for entry in self.queue if isinstance(entry, Incoming)]
        self.queue.clear()
        self.queued = self.queued_bytes = 0
        return out

    # What has come.

    def note_reliable(self, first: int, count: int, size: int, limits: Limits) -> None:
        """Note that ``count`` reliable messages of ``size`` bytes, numbered from ``first`` on, are being processed.

        Raises RemoteProtocolError if they cannot be.
        """
        stop = first + count
        if self.finish_count is not None and stop > self.finish_count:
            text = f"reliable message {stop - 1} on a channel that finished at {self.finish_count}"
            raise protocol_error("message after finish", text)
        if stop > MAX_UINT:
            raise protocol_error("message number", f"message number {stop - 1}")
        if first >= self.top:
            self.unacked.add_range(first, stop)
        else:
            for number in range(first, stop):
                if number in self.acked or not self.unacked.add(number):
                    raise protocol_error("duplicate message", f"reliable message {number} came twice")
        if first != self.top:
            self._check_gaps(max(len(self.unacked), len(self.acked)), limits)
        self.top = max(self.top, stop)
        self.reliable_count += count
        self.unacked_count += count
        self.unacked_bytes += size

    def note_unreliable(self, first: int, count: int, limits: Limits) -> bool:
        """Note ``count`` unreliable messages, numbered from ``first`` on.

        False if the first was given up before, and none must be processed.
        """
        stop = first + count
        if first < self.mark:
            return False
        if self.finish_count is not None and stop > self.declared:
            text = f"unreliable message {stop - 1} beyond the {self.declared} declared"
            raise protocol_error("message after finish", text)
        if stop > MAX_UINT:
            raise protocol_error("message number", f"message number {stop - 1}")
        if first >= self.received.top:
            self.received.add_range(first, stop)
        else:
            for number in range(first, stop):
                if not self.received.add(number):
                    raise protocol_error("duplicate message", f"unreliable message {number} came twice")
        self._check_gaps(len(self.received), limits)
        return True

    def _check_gaps(self, count: int, limits: Limits) -> None:
        if count > limits.max_gaps:
            raise protocol_error("gap limit", f"more than {limits.max_gaps} gaps in the message numbers")

    def declare(self, count: int, now_ns: int, grace_ns: int) -> None:
        """The sender declares ``count`` more unreliable messages."""
        if count == 0:
            raise protocol_error("empty declaration", "a SentUnreliable of nothing")
        if self.declared + count > MAX_UINT:
            raise protocol_error("declaration overflow", "more declared messages than there are numbers")
        self.declared += count
        expiries = self.expiries
        if expiries and now_ns - expiries[-1][1] < DECLARATION_GRAIN_NS:
            created = expiries.pop()[1]
        else:
            created = now_ns
        expiries.append((self.declared, created, now_ns + grace_ns))

    def finish(self, count: int) -> None:
        """The sender has finished, after ``count`` reliable messages."""
        if self.top > count:
            text = f"finished at {count} reliable messages, although a later one came"
            raise protocol_error("message after finish", text)
        if self.received.top > self.declared:
            raise protocol_error("message after finish", "finished with unreliable messages that were never declared")
        self.finish_count = count

    def expire(self, now_ns: int) -> None:
        """End the grace period of declared messages whose time is up."""
        while self.expiries and self.expiries[0][2] <= now_ns:
            self.expired = self.expiries.popleft()[0]

    @property
    def is_accounted_for(self) -> bool:
        """Whether the sender has finished, and every message it declared was received or given up."""
        return self.reliable_count == self.finish_count and (
            not self.declared or max(self.received.first_missing(self.mark), self.expired) >= self.declared
        )

    def take_ack_reliable(self) -> tuple[int, ...]:
        """Run lengths of an AckReliable frame, empty if there is nothing to acknowledge. ConnectionCounters as sent."""
        unacked = self.unacked
        if not unacked:
            return ()
        position = self.acked.first_missing(0)
        counts: list[int] = []
        for number, (start, stop) in enumerate(list(unacked)[:RANGES_A_FRAME]):
            if start > position:
                counts.extend((start - position,) if number else (0, start - position))
            counts.append(stop - start)
            self.acked.add_range(start, stop)
            position = stop
        unacked.discard_below(position)
        if not unacked:
            self.unacked_count = self.unacked_bytes = 0
        return tuple(counts)

    def take_ack_nack(self, *, final: bool = False) -> tuple[int, ...]:
        """Run lengths of an AckNackUnreliable frame, empty if there is nothing to report. ConnectionCounters as sent.

        A gap is given up only after its grace period; ``final`` gives up every gap below the last message received,
        because the receiver is about to cease.
        """
        position = self.mark
        counts: list[int] = []
        for count, (start, stop) in enumerate(self.received, 1):
            if start > position:
                reach = start if final else min(start, self.expired)
                if reach > position:
                    counts.extend((reach - position,) if counts else (0, reach - position))
                    position = reach
                if position < start:
                    break
            counts.append(stop - position)
            position = stop
            if count == RANGES_A_FRAME:
                break
        else:
            if not final and self.expired > position:
                counts.extend((self.expired - position,) if counts else (0, self.expired - position))
                position = self.expired
        self.mark = position
        self.received.discard_below(position)
        return tuple(counts)


Half = SenderHalf | ReceiverHalf

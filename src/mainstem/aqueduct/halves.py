"""What one side knows of the sender and of the receiver of a channel: numbers, acknowledgements, queues, links.

Nothing here decides what happens next; that is `lifecycle`. A half is data with the arithmetic that keeps it consistent.

A sender numbers its messages in two sequences from 0, one for what travels on streams (reliable) and one for datagrams
(unreliable). A message gets its number when it is given to the transport, so numbers have no gaps.

* Reliable: the compiled `Ledger` keeps the size of each unacknowledged message; ``ledger.first`` is the lowest of them and
  ``ledger.next`` the next number. Only a message that something depends on (attachments, or the application's tag) has a
  `Sent` entry, so plain messages cost one integer each.
* Unreliable: ``next_unreliable`` is the next number, ``declared`` counts those that were declared, ``mark`` where the last
  AckNackUnreliable ended: all below is decided. ``mark <= next_unreliable`` and ``declared <= next_unreliable`` always.
* ``pending`` holds messages that wait for room in the transport; they have no number, and dropping one leaves no gap.

A receiver keeps what it has processed as ranges, never as single numbers:

* Reliable: ``unacked`` (processed, not acknowledged) and ``acked`` are disjoint; ``reliable_count`` is the size of both.
* Unreliable: ``received`` holds what was processed at or above ``mark``; below ``mark`` all is decided, and is never
  processed (a nack binds). ``declared`` counts what the sender declared, ``expired`` how far the grace of that has run out.
* ``queue`` holds what the application has not taken: runs of plain payloads, or one `ReceivedMessage` with its attachments.
  ``queued`` and ``queued_bytes`` count it; an entry costs `QUEUED_MESSAGE_OVERHEAD` beside its payload.

Ranges from the peer are checked against what was really sent before any number in them is visited, so that the work is
bounded by the messages sent and not by what the peer writes. A set with more than ``Limits.max_gaps`` ranges ends the
connection.

What may be reordered: messages of different streams and datagrams come in any order, and a channel's messages may come
before the message that the channel was attached to. So a receiver can exist, be acknowledged and even finish before the
application can have it (``handed_over``). The state tables (`state`) hold which input is possible when.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Protocol

from mainstem._core.aqueduct.run_writer import Ledger, MessageWriter
from mainstem.aqueduct.channel_id import ONESHOT
from mainstem.aqueduct.codec import encode_uint, violation
from mainstem.aqueduct.events import Mode, Tally
from mainstem.aqueduct.frames import Frame, FrameReader
from mainstem.aqueduct.limits import MAX_UINT, QUEUED_MESSAGE_OVERHEAD, Limits
from mainstem.aqueduct.ranges import RangeSet
from mainstem.aqueduct.state import ReceiverState, SenderState, direct

if TYPE_CHECKING:
    from mainstem.aqueduct.frames import Message

OPENED_BY_SERVER = 1

RANGES_A_FRAME = 256
"""Ranges in one acknowledgement frame: two integers each, at most 20 bytes, so that any frame stays a few kilobytes."""

DECLARATION_GRAIN_NS = 50_000_000
"""Declarations that come closer together than this share one deadline, so that a flood of them is a few entries."""


class SenderOwner(Protocol):
    """Who is told of a sender's end, and that it has room again."""

    def writable(self) -> None:
        """There is room again. Called outside of the engine's steps."""

    def check(self) -> None:
        """Raise the error by which the sender ended."""

    def ended(self, state: SenderState, messages: int, size: int, tally: Tally) -> None:
        """The sender ceased to exist with this many messages, of ``size`` bytes, undelivered."""


class ReceiverOwner(Protocol):
    """Who is told that a receiver can be read, and of its end."""

    def wake(self) -> None:
        """There may be something to receive."""

    def ended(self, state: ReceiverState) -> None:
        """The receiver ceased to exist on the wire."""


@dataclass(slots=True)
class Sent:
    """A message that something depends on: creation links to the halves attached to it, or the application's tag."""

    links: tuple[Half, ...]
    tag: object


@dataclass(slots=True)
class Pending:
    """A message that waits for a stream or for room for a datagram. It has no number yet."""

    payload: bytes
    mode: Mode
    links: tuple[Half, ...]
    tag: object


@dataclass(slots=True)
class ReceivedMessage:
    """A message that waits for the application, with the halves that came attached to it."""

    message: Message
    halves: tuple[Half, ...]
    unreliable: bool


class Unreliable:
    """A run of unreliable messages without attachments that wait for the application."""

    __slots__ = ("numbers", "payloads")

    def __init__(self) -> None:
        self.payloads: deque[bytes] = deque()
        self.numbers: deque[int] = deque()


UNIDIRECTIONAL = 2


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


class Stream:
    """One QUIC stream."""

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
        "last_seen",
        "must_begin_with_version",
        "opened_here",
        "out_done",
        "reader",
        "reset_pending",
        "role",
        "stream_id",
        "versioned",
    )

    def __init__(self, stream_id: int, role: Role, *, opened_here: bool, limits: Limits) -> None:
        self.stream_id = stream_id
        self.role = role
        self.opened_here = opened_here
        self.half: Half | None = None
        self.reader = FrameReader(limits)
        # Bytes of this stream that the connection counts as waiting.
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
        self.out_done = bool(stream_id & UNIDIRECTIONAL) and not opened_here
        # The peer is known to have seen this stream.
        self.heard = not opened_here
        self.reset_pending: int | None = None

    @property
    def is_read(self) -> bool:
        """Its messages are processed as they come."""
        return self.role is Role.MESSAGES and self.blocked_on is None and not self.in_done

    @property
    def is_bidirectional(self) -> bool:
        return not self.stream_id & UNIDIRECTIONAL


class SenderHalf:
    """The sending half of a channel, at the side where messages go in."""

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
        prefix = b"\x03" + encode_uint(channel_id)
        self.ledger = Ledger(writer, prefix, limits.send_messages, limits.send_bytes, limits.max_payload)
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
        """Another reliable message is within the bounds that the application chose."""
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
    def outstanding_messages(self) -> int:
        """Reliable messages that were sent and not acknowledged, and all that wait."""
        return self.ledger.count + len(self.pending)

    @property
    def outstanding_bytes(self) -> int:
        """The bytes of `outstanding_messages`."""
        return self.ledger.size + self.pending_bytes

    @property
    def unacknowledged(self) -> tuple[int, int]:
        """The reliable messages that were sent or queued and not acknowledged, and their bytes."""
        waiting = [len(item.payload) for item in self.pending if item.mode is not Mode.UNRELIABLE]
        return self.ledger.count + len(waiting), self.ledger.size + sum(waiting)

    @property
    def tally(self) -> Tally:
        """How far the messages came."""
        ledger = self.ledger
        return Tally(
            left=ledger.next + self.next_unreliable,
            acknowledged=ledger.next - ledger.count,
            waiting=len(self.pending),
        )

    @property
    def unreliable_count(self) -> int:
        """Unreliable messages that are neither acknowledged nor given up."""
        return self.next_unreliable - self.mark

    def take_ack_reliable(self, counts: tuple[int, ...]) -> list[Sent]:
        """Note acknowledged numbers; returns the messages among them that something depends on."""
        ledger = self.ledger
        position = ledger.first
        out: list[Sent] = []
        for index, count in enumerate(counts):
            stop = position + count
            if index % 2 == 0:
                if stop > ledger.next:
                    raise violation(f"acknowledgement of {stop - 1}, which was never sent", "acknowledged unsent")
                try:
                    out += ledger.acknowledge(position, stop)
                except ValueError as error:
                    raise violation(f"reliable message {error} acknowledged twice", "acknowledged twice") from None
            position = stop
        ledger.settle()
        return out

    def take_ack_nack(self, counts: tuple[int, ...]) -> tuple[list[Sent], list[Sent]]:
        """Note acknowledged and given-up numbers; returns those of either kind that something depends on."""
        stop = self.mark + sum(counts)
        if stop > self.next_unreliable:
            raise violation(f"answer for unreliable message {stop - 1}, which was never sent", "acknowledged unsent")
        assert self.mark <= self.next_unreliable
        acked: list[Sent] = []
        nacked: list[Sent] = []
        position = self.mark
        for index, count in enumerate(counts):
            out = nacked if index % 2 else acked
            if self.unreliable:
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
        """Take out the messages that wait, as `Sent` where something depends on them."""
        entries = [Sent(item.links, item.tag) for item in self.pending if item.links or item.tag is not None]
        self.pending.clear()
        self.pending_bytes = 0
        return entries


class ReceiverHalf:
    """The receiving half of a channel, at the side where messages come out."""

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
        "unacked",
        "unacked_bytes",
        "unacked_count",
    )

    def __init__(self, channel_id: int, *, minted_here: bool, reachable: bool, handed_over: bool) -> None:
        self.channel_id = channel_id
        self.oneshot = bool(channel_id & ONESHOT)
        self.prefix = b"\x03" + encode_uint(channel_id)
        self.minted_here = minted_here
        self.reachable = reachable
        self.state = ReceiverState.OPEN
        self.control: Stream | None = None
        # Whether the message that the receiver was attached to has come: only then can the application get at it.
        self.handed_over = handed_over
        self.owner: ReceiverOwner | None = None
        # Messages with something attached, and runs of all the others.
        self.queue: deque[ReceivedMessage | Unreliable | deque[bytes]] = deque()
        self.queued = 0
        self.queued_bytes = 0
        self.blocked: dict[Stream, None] = {}
        self.acked = RangeSet()
        self.unacked = RangeSet()
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
        """The application is behind by as much as it may be."""
        return self.queued >= limits.receive_messages or self.queued_bytes >= limits.receive_bytes

    def put(self, delivery: ReceivedMessage) -> int:
        """Queue a message for the application; returns the bytes that it takes here."""
        self.queue.append(delivery)
        self.queued += 1
        size = len(delivery.message.payload) + QUEUED_MESSAGE_OVERHEAD
        self.queued_bytes += size
        return size

    def put_run(self, payloads: list[bytes], size: int) -> int:
        """Queue plain reliable messages of ``size`` bytes; returns the bytes that they take here."""
        queue = self.queue
        if queue and type(queue[-1]) is deque:
            queue[-1].extend(payloads)
        else:
            queue.append(deque(payloads))
        self.queued += len(payloads)
        size += len(payloads) * QUEUED_MESSAGE_OVERHEAD
        self.queued_bytes += size
        return size

    def put_unreliable(self, first: int, payloads: list[bytes], size: int) -> int:
        """Queue plain unreliable messages of ``size`` bytes, numbered from ``first`` on.

        Returns the bytes that they take here.
        """
        queue = self.queue
        run = queue[-1] if queue else None
        if not isinstance(run, Unreliable):
            run = Unreliable()
            queue.append(run)
        count = len(payloads)
        run.payloads.extend(payloads)
        run.numbers.extend(range(first, first + count))
        self.queued += count
        size += count * QUEUED_MESSAGE_OVERHEAD
        self.queued_bytes += size
        return size

    def pop(self) -> tuple[ReceivedMessage | bytes, int]:
        """Take out the oldest message, and the bytes that it took."""
        entry: ReceivedMessage | bytes
        head = self.queue[0]
        if not isinstance(head, ReceivedMessage):
            if isinstance(head, Unreliable):
                head.numbers.popleft()
            payloads = head.payloads if isinstance(head, Unreliable) else head
            entry = payloads.popleft()
            size = len(entry) + QUEUED_MESSAGE_OVERHEAD
            if not payloads:
                self.queue.popleft()
        else:
            entry = head
            size = len(head.message.payload) + QUEUED_MESSAGE_OVERHEAD
            self.queue.popleft()
        self.queued -= 1
        self.queued_bytes -= size
        return entry, size

    def pop_run(self) -> tuple[deque[bytes] | None, int]:
        """Take out the run of plain messages at the head of the queue, and the bytes that they took."""
        queue = self.queue
        if not queue or isinstance(queue[0], ReceivedMessage):
            return None, 0
        head = queue[0]
        run = head.payloads if isinstance(head, Unreliable) else head
        queue.popleft()
        size = sum(map(len, run)) + len(run) * QUEUED_MESSAGE_OVERHEAD
        self.queued -= len(run)
        self.queued_bytes -= size
        return run, size

    def note_run(self, first: int, count: int, size: int) -> None:
        """Note that ``count`` reliable messages of ``size`` bytes, numbered from ``first`` on, are being processed."""
        self.unacked.add_range(first, first + count)
        self.reliable_count += count
        self.unacked_count += count
        self.unacked_bytes += size

    def note_reliable(self, first: int, count: int, size: int, limits: Limits) -> None:
        """Note that ``count`` reliable messages of ``size`` bytes, numbered from ``first`` on, are being processed.

        Raises RemoteProtocolError where they cannot be.
        """
        stop = first + count
        if self.finish_count is not None and stop > self.finish_count:
            raise violation(
                f"reliable message {stop - 1} on a channel that finished at {self.finish_count}", "message after finish"
            )
        if stop > MAX_UINT:
            raise violation(f"message number {stop - 1}", "message number")
        if first >= self.unacked.top and first >= self.acked.top:
            self.unacked.add_range(first, stop)
        else:
            for number in range(first, stop):
                if number in self.acked or not self.unacked.add(number):
                    raise violation(f"reliable message {number} came twice", "duplicate message")
        if len(self.unacked) > limits.max_gaps or len(self.acked) > limits.max_gaps:
            raise violation(f"more than {limits.max_gaps} gaps in the message numbers", "gap limit")
        self.reliable_count += count
        self.unacked_count += count
        self.unacked_bytes += size

    def note_unreliable(self, first: int, count: int, limits: Limits) -> bool:
        """Note ``count`` unreliable messages, numbered from ``first`` on.

        False where the first was given up before, and none must be processed.
        """
        stop = first + count
        if first < self.mark:
            return False
        if self.finish_count is not None and stop > self.declared:
            raise violation(
                f"unreliable message {stop - 1} beyond the {self.declared} declared", "message after finish"
            )
        if stop > MAX_UINT:
            raise violation(f"message number {stop - 1}", "message number")
        if first >= self.received.top:
            self.received.add_range(first, stop)
        else:
            for number in range(first, stop):
                if not self.received.add(number):
                    raise violation(f"unreliable message {number} came twice", "duplicate message")
        if len(self.received) > limits.max_gaps:
            raise violation(f"more than {limits.max_gaps} gaps in the message numbers", "gap limit")
        return True

    def declare(self, count: int, now_ns: int, grace_ns: int) -> None:
        """The sender declares ``count`` more unreliable messages."""
        if count == 0:
            raise violation("a SentUnreliable of nothing", "empty declaration")
        if self.declared + count > MAX_UINT:
            raise violation("more declared messages than there are numbers", "declaration overflow")
        self.declared += count
        expiries = self.expiries
        if expiries and now_ns - expiries[-1][1] < DECLARATION_GRAIN_NS:
            created = expiries.pop()[1]
        else:
            created = now_ns
        expiries.append((self.declared, created, now_ns + grace_ns))

    def finish(self, count: int) -> None:
        """The sender has finished, after ``count`` reliable messages."""
        if max(self.unacked.top, self.acked.top) > count:
            raise violation(f"finished at {count} reliable messages, yet a later one came", "message after finish")
        if self.received.top > self.declared:
            raise violation("finished with unreliable messages that were never declared", "message after finish")
        self.finish_count = count

    def expire(self, now_ns: int) -> None:
        """Let the grace of declared messages run out."""
        while self.expiries and self.expiries[0][2] <= now_ns:
            self.expired = self.expiries.popleft()[0]

    @property
    def is_accounted_for(self) -> bool:
        """The sender has finished, and every message it declared was received or given up."""
        return (
            self.finish_count is not None
            and self.reliable_count == self.finish_count
            and max(self.received.first_missing(self.mark), self.expired) >= self.declared
        )

    def take_ack_reliable(self) -> tuple[int, ...]:
        """Run lengths of an AckReliable frame, empty where there is nothing to acknowledge. Counts as sent."""
        position = self.acked.first_missing(0)
        counts: list[int] = []
        ranges = []
        for start, stop in self.unacked:
            gap = start - position
            if gap:
                counts.extend((gap,) if counts else (0, gap))
            counts.append(stop - start)
            ranges.append((start, stop))
            position = stop
            if len(ranges) == RANGES_A_FRAME:
                break
        for start, stop in ranges:
            self.acked.add_range(start, stop)
        if ranges:
            self.unacked.discard_below(ranges[-1][1])
        if not len(self.unacked):
            self.unacked_count = self.unacked_bytes = 0
        return tuple(counts)

    def take_ack_nack(self, *, final: bool = False) -> tuple[int, ...]:
        """Run lengths of an AckNackUnreliable frame, empty where there is nothing to report. Counts as sent.

        A gap is given up only where its grace has run out; ``final`` gives up every gap below the last message
        received, because the receiver is about to cease.
        """
        position = self.mark
        counts: list[int] = []
        stopped = False
        for count, (start, stop) in enumerate(self.received, 1):
            if start > position:
                reach = start if final else min(start, self.expired)
                if reach > position:
                    counts.extend((reach - position,) if counts else (0, reach - position))
                    position = reach
                if position < start:
                    stopped = True
                    break
            counts.append(stop - position)
            position = stop
            if count == RANGES_A_FRAME:
                stopped = True
                break
        if not stopped and not final and self.expired > position:
            counts.extend((self.expired - position,) if counts else (0, self.expired - position))
            position = self.expired
        assert position >= self.mark, "what was decided stays so"
        self.mark = position
        self.received.discard_below(position)
        return tuple(counts)

    def take_queue(self) -> list[ReceivedMessage]:
        """Take out everything that the application has not received; returns what has attachments."""
        deliveries = [entry for entry in self.queue if isinstance(entry, ReceivedMessage)]
        self.queue.clear()
        self.queued = self.queued_bytes = 0
        return deliveries


Half = SenderHalf | ReceiverHalf


@dataclass(slots=True)
class Incoming:
    """One received message. ``attachments`` are the halves that came with it, in the order in which they were attached."""

    channel_id: int
    payload: bytes
    attachments: tuple[Half, ...]

"""What one side knows of the sender and of the receiver of a channel: numbers, acknowledgments, queues, links.

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
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol

from mainstem._core.aqueduct.ranges import RangeSet
from mainstem.aqueduct.events import Mode, SendProgress
from mainstem.aqueduct.frames import Frame, FrameReader, protocol_error
from mainstem.aqueduct.limits import MAX_UINT
from mainstem.aqueduct.state import ReceiverState, SenderState, direct

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mainstem._core.aqueduct.run_writer import Ledger
    from mainstem.aqueduct.limits import Limits

OPENED_BY_SERVER = 1
UNIDIRECTIONAL = 2

RANGES_A_FRAME = 256
"""Ranges in one acknowledgment frame: two integers each, at most 20 bytes, so that any frame stays a few kilobytes."""

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


@dataclass(slots=True, eq=False, kw_only=True)
class Stream(FrameReader):
    """One QUIC stream, and the reader of its frames."""

    stream_id: int
    role: Role
    opened_here: bool
    # The half that it controls, or the receiver that its last message was for.
    half: Half | None = None
    # Bytes of this stream that the connection counts as buffered.
    accounted: int = 0
    frames: int = 0
    versioned: bool = False
    must_begin_with_version: bool = False
    # The frame came that must be the last of its direction: FinishSender or CloseReceiver.
    last_seen: bool = False
    # The receiver whose full queue this stream waits for, and the frame that did not fit.
    blocked_on: ReceiverHalf | None = None
    held_frame: Frame | None = None
    # The code of a reset that came while the stream was held.
    held_reset: int | None = None
    fin: bool = False
    in_done: bool = False
    out_done: bool = False
    # The peer is known to have seen this stream; the code of a reset that waits for that.
    heard: bool = False
    reset_pending: int | None = None

    @property
    def is_bidirectional(self) -> bool:
        return not self.stream_id & UNIDIRECTIONAL


@dataclass(slots=True, eq=False)
class SenderHalf:
    """The sending half of a channel, on the side where messages go in."""

    is_sender: ClassVar[bool] = True

    channel_id: int
    minted_here: bool
    reachable: bool
    oneshot: bool
    # What each of its Message frames begins with, and what is reliable and not acknowledged.
    prefix: bytes
    ledger: Ledger
    state: SenderState = SenderState.OPEN
    control: Stream | None = None
    ordered_stream: int | None = None
    owner: SenderOwner | None = None
    next_unreliable: int = 0
    declared: int = 0
    mark: int = 0
    # Of the undecided unreliable messages: those that something depends on.
    unreliable: dict[int, Sent] = field(default_factory=dict)
    # Acknowledged while the sender was not reachable: their links must stay.
    acked: list[Sent] = field(default_factory=list)
    pending: deque[Pending] = field(default_factory=deque)
    pending_bytes: int = 0
    wants_room: bool = False

    @property
    def has_room(self) -> bool:
        """Whether another reliable message is within the limits."""
        ledger, pending = self.ledger, self.pending
        if not pending:
            return ledger.has_room()
        size = ledger.size + self.pending_bytes
        return ledger.count + len(pending) < ledger.max_messages and size < ledger.byte_limit()

    @property
    def has_much_room(self) -> bool:
        """Whether enough is free to wake a waiting task: a quarter of the limits, at least one message."""
        ledger = self.ledger
        messages, size = ledger.max_messages, ledger.byte_limit()
        is_short = ledger.count + len(self.pending) <= messages - max(1, messages // 4)
        return is_short and ledger.size + self.pending_bytes <= size - max(1, size // 4)

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
                    raise protocol_error("acknowledged unsent", f"acknowledgment of {stop - 1}, which was never sent")
                try:
                    out += ledger.acknowledge(position, stop)
                except ValueError as error:
                    raise protocol_error("acknowledged twice", f"reliable message {error} acknowledged twice") from None
            position = stop
        ledger.settle()
        return out

    def take_ack_nack(self, counts: tuple[int, ...]) -> tuple[list[Sent], list[Sent]]:
        """Note acknowledged and given-up numbers; return those of either kind that something depends on."""
        position, stop = self.mark, self.mark + sum(counts)
        if stop > self.next_unreliable:
            text = f"response to unreliable message {stop - 1}, which was never sent"
            raise protocol_error("acknowledged unsent", text)
        out: tuple[list[Sent], list[Sent]] = [], []
        for index, count in enumerate(counts):
            if self.unreliable:
                found = (self.unreliable.pop(number, None) for number in range(position, position + count))
                out[index % 2].extend(entry for entry in found if entry is not None)
            position += count
        self.mark = stop
        return out

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


@dataclass(slots=True, eq=False)
class ReceiverHalf:
    """The receiving half of a channel, on the side where messages come out."""

    is_sender: ClassVar[bool] = False

    channel_id: int
    minted_here: bool
    reachable: bool
    oneshot: bool
    # What each of its Message frames begins with.
    prefix: bytes
    # Whether the message that the receiver was attached to has come: only then can the application get at it.
    handed_over: bool
    state: ReceiverState = ReceiverState.OPEN
    control: Stream | None = None
    owner: ReceiverOwner | None = None
    queue: deque[Incoming | deque[bytes]] = field(default_factory=deque)
    queued: int = 0
    queued_bytes: int = 0
    # Streams that wait for room in the queue.
    blocked: dict[Stream, None] = field(default_factory=dict)
    acked: RangeSet = field(default_factory=RangeSet)
    unacked: RangeSet = field(default_factory=RangeSet)
    top: int = 0
    unacked_count: int = 0
    unacked_bytes: int = 0
    reliable_count: int = 0
    mark: int = 0
    received: RangeSet = field(default_factory=RangeSet)
    declared: int = 0
    expired: int = 0
    expiries: deque[tuple[int, int, int]] = field(default_factory=deque)
    finish_count: int | None = None
    ack_scheduled: bool = False
    nack_scheduled: bool = False

    @property
    def has_had_a_message(self) -> bool:
        """Whether any message was processed or given up."""
        return bool(self.reliable_count or self.mark or self.received)

    def put(self, payloads: Iterable[bytes], numbers: range | None = None) -> None:
        """Queue plain messages; ``numbers`` are those of unreliable ones."""
        queue = self.queue
        run = queue[-1] if queue else None
        if numbers is None:
            if type(run) is deque:
                run.extend(payloads)
            else:
                queue.append(deque(payloads))
        else:
            if not isinstance(run, UnreliableRun):
                run = UnreliableRun()
                queue.append(run)
            run.extend(payloads)
            run.numbers.extend(numbers)

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
        if first != self.top and max(len(self.unacked), len(self.acked)) > limits.max_gaps:
            raise _too_many_gaps(limits)
        self.top = max(self.top, stop)
        self.reliable_count += count
        self.unacked_count += count
        self.unacked_bytes += size

    def note_unreliable(self, first: int, count: int, limits: Limits) -> bool:
        """Note ``count`` unreliable messages, numbered from ``first`` on.

        False if the first was given up before, and none must be processed.
        """
        stop, received = first + count, self.received
        if first < self.mark:
            return False
        if self.finish_count is not None and stop > self.declared:
            text = f"unreliable message {stop - 1} beyond the {self.declared} declared"
            raise protocol_error("message after finish", text)
        if stop > MAX_UINT:
            raise protocol_error("message number", f"message number {stop - 1}")
        if first >= received.top:
            received.add_range(first, stop)
        else:
            for number in range(first, stop):
                if not received.add(number):
                    raise protocol_error("duplicate message", f"unreliable message {number} came twice")
        if len(received) > limits.max_gaps:
            raise _too_many_gaps(limits)
        return True

    def declare(self, count: int, now_ns: int, grace_ns: int) -> None:
        """The sender declares ``count`` more unreliable messages."""
        if count == 0:
            raise protocol_error("empty declaration", "a SentUnreliable of nothing")
        if self.declared + count > MAX_UINT:
            raise protocol_error("declaration overflow", "more declared messages than there are numbers")
        self.declared += count
        expiries, created = self.expiries, now_ns
        if expiries and now_ns - expiries[-1][1] < DECLARATION_GRAIN_NS:
            created = expiries.pop()[1]
        expiries.append((self.declared, created, now_ns + grace_ns))

    def finish(self, count: int) -> None:
        """The sender has finished, after ``count`` reliable messages."""
        if self.top > count:
            text = f"finished at {count} reliable messages, although a later one came"
            raise protocol_error("message after finish", text)
        if self.received.top > self.declared:
            raise protocol_error("message after finish", "finished with unreliable messages that were never declared")
        self.finish_count = count

    @property
    def is_accounted_for(self) -> bool:
        """Whether the sender has finished, and every message it declared was received or given up."""
        return self.reliable_count == self.finish_count and (
            not self.declared or max(self.received.first_missing(self.mark), self.expired) >= self.declared
        )

    def take_ack_reliable(self) -> tuple[int, ...]:
        """Run lengths of an AckReliable frame, empty if there is nothing to acknowledge. Counts as sent."""
        unacked, acked = self.unacked, self.acked
        if not unacked:
            return ()
        position = acked.first_missing(0)
        counts: list[int] = []
        for start, stop in list(unacked)[:RANGES_A_FRAME]:
            if start > position:
                counts += (start - position,) if counts else (0, start - position)
            counts.append(stop - start)
            acked.add_range(start, stop)
            position = stop
        unacked.discard_below(position)
        if not unacked:
            self.unacked_count = self.unacked_bytes = 0
        return tuple(counts)

    def take_ack_nack(self, *, final: bool = False) -> tuple[int, ...]:
        """Run lengths of an AckNackUnreliable frame, empty if there is nothing to report. Counts as sent.

        A gap is given up only after its grace period; ``final`` gives up every gap below the last message received,
        because the receiver is about to cease.
        """
        position = self.mark
        counts: list[int] = []
        for count, (start, stop) in enumerate(self.received, 1):
            if start > position:
                reach = start if final else min(start, self.expired)
                if reach > position:
                    counts += (reach - position,) if counts else (0, reach - position)
                    position = reach
                if position < start:
                    break
            counts.append(stop - position)
            position = stop
            if count == RANGES_A_FRAME:
                break
        else:
            if not final and self.expired > position:
                counts += (self.expired - position,) if counts else (0, self.expired - position)
                position = self.expired
        self.mark = position
        self.received.discard_below(position)
        return tuple(counts)


def _too_many_gaps(limits: Limits) -> Exception:
    return protocol_error("gap limit", f"more than {limits.max_gaps} gaps in the message numbers")


Half = SenderHalf | ReceiverHalf

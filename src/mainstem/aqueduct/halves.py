"""The sender and receiver halves of a channel, and the streams that serve them, as one side tracks them.

The halves make no decisions; `send`, `receive` and `engine` do. A half is data plus the arithmetic that keeps it consistent.

A sender numbers its messages in two sequences from 0, one for messages on streams (reliable) and one for datagrams
(unreliable). A message gets its number when it is passed to the transport, so numbers have no gaps.

* Reliable: the compiled base class `Ledger` keeps the size of each unacknowledged message. ``first`` is the lowest
  unacknowledged number, ``next`` the next number to assign, and ``count`` and ``size`` the messages in flight and their bytes.
  Only a message that something depends on (attachments, or the application's tag) has a `Sent` entry, so a plain message costs
  one integer.
* Unreliable: ``next_unreliable`` is the next number, ``declared`` counts the declared messages, and ``mark`` is where the last
  AckNackUnreliable ended: everything below it is decided. Neither ``mark`` nor ``declared`` ever exceeds ``next_unreliable``.
* ``pending`` holds messages waiting for room in the transport. They have no number yet, so dropping one leaves no gap.

A receiver stores the numbers it has processed as ranges, never one by one:

* Reliable: ``unacked`` (processed, not acknowledged) and ``acked`` are disjoint; ``reliable_count`` is the size of both, and
  ``top`` is one more than the highest number in them.
* Unreliable: ``received`` holds the numbers processed at or above ``mark``. Everything below ``mark`` is decided and never
  processed again (a nack is final). ``declared`` counts the messages the sender has declared. The grace period of all numbers
  below ``expired`` is over.
* ``queue`` holds messages that the application has not taken: runs of plain payloads, or single `Incoming` messages with their
  attachments. ``queued`` and ``queued_bytes`` count them; a message counts as its payload plus `QUEUED_MESSAGE_OVERHEAD`.

Ranges from the peer are checked against the numbers actually sent before any number in them is visited, so that the work is
bounded by the messages sent, not by what the peer writes. A set with more than ``Limits.max_gaps`` ranges ends the connection.

Messages on different streams and in datagrams arrive in any order, and a channel's messages can arrive before the message that
the channel was attached to. So a receiver can exist, be acknowledged and even finish before the application can get it
(``handed_over``). Even then, that message may be on a channel that the application cannot get. A half is ``obtainable`` once every
message that leads to it has arrived. The tables in `state` define which inputs are possible in each state.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import Enum, auto
from itertools import islice
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol

from mainstem._core.aqueduct.ranges import RangeSet
from mainstem._core.aqueduct.run_writer import Ledger
from mainstem.aqueduct.events import Mode, SendProgress
from mainstem.aqueduct.frames import ONESHOT, Frame, FrameReader, protocol_error
from mainstem.aqueduct.limits import MAX_UINT
from mainstem.aqueduct.state import ReceiverState, SenderState, direct

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mainstem._core.aqueduct.run_writer import MessageWriter
    from mainstem.aqueduct.limits import Limits

OPENED_BY_SERVER = 1
UNIDIRECTIONAL = 2

RANGES_A_FRAME = 256
"""Maximum number of ranges in an acknowledgment frame, so that a frame is a few kilobytes: a range takes at most 20 bytes."""

DECLARATION_GRAIN_NS = 50_000_000
"""Declarations that arrive closer together than this share one deadline, so that a flood of them creates few entries."""


Report = tuple[int, list[tuple[int, int]], int]
"""The content of an acknowledgment: where it begins, the ranges of acknowledged messages, and where it ends."""


class Owner(Protocol):
    """The application's side of a half. The first three methods are a sender's, the others a receiver's."""

    def writable(self) -> None:
        """Note that there is room again. Called outside the engine's steps."""

    def check(self) -> None:
        """Raise the error with which the sender ended."""

    def sender_ended(self, state: SenderState, messages: int, size: int, progress: SendProgress) -> None:
        """Note that the sender has ended, with ``messages`` messages of ``size`` bytes undelivered."""

    def wake(self) -> None:
        """Note that there may be something to receive."""

    @property
    def has_unread(self) -> bool:
        """Whether the owner holds messages that it took from the receiver and that nobody has read."""

    def receiver_ended(self, state: ReceiverState) -> None:
        """Note that the receiver has ended on the wire."""


class Sent(NamedTuple):
    """A message that something depends on: creation links to the halves attached to it, or the application's tag."""

    links: tuple[Half, ...]
    tag: object


class Pending(NamedTuple):
    """A message that is waiting for a stream or for room for a datagram. It has no number yet."""

    payload: bytes
    mode: Mode
    links: tuple[Half, ...]
    tag: object


class Incoming(NamedTuple):
    """A received message. ``attachments`` holds the halves that came with it, in the order they were attached."""

    channel_id: int
    payload: bytes
    attachments: tuple[Half, ...] = ()
    number: int = 0
    unreliable: bool = False


class UnreliableRun(deque[bytes]):
    """Unreliable messages without attachments that the application has not taken, and their numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers: deque[int] = deque()


@direct
class Role(Enum):
    """The purpose of a stream, as determined by its first frames."""

    NEW = auto()
    CONNECTION = auto()
    CONTROL = auto()
    MESSAGES = auto()
    NOTICE = auto()
    """A single ClosedChannelLost frame."""
    ABANDONED = auto()
    """Everything that still arrives on the stream is dropped."""


@dataclass(slots=True, eq=False, kw_only=True)
class Stream(FrameReader):
    """A QUIC stream of the connection, and the half that it serves."""

    stream_id: int
    role: Role
    # The half that the stream controls, or the receiver of its last message.
    half: Half | None = None
    # Bytes of this stream that the connection counts as buffered.
    accounted: int = 0
    frames: int = 0
    versioned: bool = False
    must_begin_with_version: bool = False
    # Whether FinishSender or CloseReceiver has arrived, which must be the last frame of its direction.
    last_seen: bool = False
    # The receiver with a full queue that this stream is waiting for, and the frame that did not fit.
    blocked_on: ReceiverHalf | None = None
    held_frame: Frame | None = None
    # The code of a reset that arrived while the stream was held.
    held_reset: int | None = None
    fin: bool = False
    in_done: bool = False
    out_done: bool = False
    # Whether the peer is known to have seen this stream, and the code of a reset that is waiting for that.
    heard: bool = False
    reset_pending: int | None = None

    @property
    def is_bidirectional(self) -> bool:
        return not self.stream_id & UNIDIRECTIONAL


class SenderHalf(Ledger):
    is_sender: ClassVar[bool] = True
    channel_id: int

    __slots__ = (
        *("acked", "control", "declared", "minted_here", "obtainable", "oneshot", "ordered_stream", "owner", "pending"),
        *("pending_bytes", "reachable", "state", "unreliable", "wants_room"),
    )

    def __init__(
        self, writer: MessageWriter, channel_id: int, limits: Limits, *, minted_here: bool, obtainable: bool = True
    ) -> None:
        messages, size, largest = limits.send_messages, limits.send_bytes, limits.max_payload
        Ledger.__init__(self, writer, channel_id, messages, size, largest, limits.unreliable_outstanding)
        self.minted_here = minted_here
        self.obtainable = obtainable
        self.reachable = not (minted_here and channel_id)
        self.oneshot = bool(channel_id & ONESHOT)
        self.state = SenderState.OPEN
        self.control: Stream | None = None
        self.ordered_stream: int | None = None
        self.owner: Owner | None = None
        self.declared = 0
        # The undecided unreliable messages that something depends on, by number.
        self.unreliable: dict[int, Sent] = {}
        # Messages acknowledged while the sender was not reachable. Their links must be kept.
        self.acked: list[Sent] = []
        self.pending: deque[Pending] = deque()
        self.pending_bytes = 0
        self.wants_room = False

    def accepts(self, mode: Mode) -> bool:
        """Return whether another message can be sent; if not, a `Writable` event will follow."""
        messages, size = self.count + len(self.pending), self.size + self.pending_bytes
        if mode is Mode.UNRELIABLE or (messages < self.max_messages and size < self.byte_limit()):
            return True
        self.wants_room = True
        return False

    @property
    def has_much_room(self) -> bool:
        """Whether enough is free to wake a waiting task: a quarter of the limits, at least one message."""
        messages, size = self.max_messages, self.byte_limit()
        is_short = self.count + len(self.pending) <= messages - max(1, messages // 4)
        return is_short and self.size + self.pending_bytes <= size - max(1, size // 4)

    @property
    def unacknowledged(self) -> tuple[int, int]:
        """The number of reliable messages that are queued, or sent and not acknowledged, and their bytes."""
        if not self.pending:
            return self.count, self.size
        waiting = [len(item.payload) for item in self.pending if item.mode is not Mode.UNRELIABLE]
        return self.count + len(waiting), self.size + sum(waiting)

    @property
    def progress(self) -> SendProgress:
        return SendProgress(self.next + self.next_unreliable, self.next - self.count, len(self.pending))

    def take_ack_reliable(self, counts: tuple[int, ...]) -> list[Sent]:
        """Process acknowledged numbers; return the messages among them that something depends on."""
        position = self.first
        out: list[Sent] = []
        for index, count in enumerate(counts):
            stop = position + count
            if index % 2 == 0:
                if stop > self.next:
                    raise protocol_error("acknowledged unsent", f"acknowledgment of {stop - 1}, which was never sent")
                try:
                    out += self.acknowledge(position, stop)
                except ValueError as error:
                    raise protocol_error("acknowledged twice", f"reliable message {error} acknowledged twice") from None
            position = stop
        return out

    def take_ack_nack(self, counts: tuple[int, ...]) -> tuple[list[Sent], list[Sent]]:
        """Process acknowledged and given-up numbers; return the messages of each kind that something depends on."""
        position = self.mark
        stop = position + sum(counts)
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
        """Remove all undecided messages; return those that something depends on."""
        entries: list[Sent] = self.clear()
        entries += self.unreliable.values()
        entries += self.take_pending()
        self.unreliable.clear()
        return entries

    def take_pending(self) -> list[Sent]:
        """Remove all waiting messages; return those that something depends on, as `Sent`."""
        entries = [Sent(item.links, item.tag) for item in self.pending if item.links or item.tag is not None]
        self.pending.clear()
        self.pending_bytes = 0
        return entries


@dataclass(slots=True, eq=False)
class ReceiverHalf:
    is_sender: ClassVar[bool] = False

    channel_id: int
    minted_here: bool
    reachable: bool
    oneshot: bool
    # The first bytes of each Message frame of the channel.
    prefix: bytes
    # Whether the message that the receiver was attached to has arrived. Only then can the application get the receiver.
    handed_over: bool
    obtainable: bool
    state: ReceiverState = ReceiverState.OPEN
    control: Stream | None = None
    owner: Owner | None = None
    queue: deque[Incoming | deque[bytes]] = field(default_factory=deque)
    queued: int = 0
    queued_bytes: int = 0
    # Streams that are waiting for room in the queue.
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
        return bool(self.reliable_count or self.mark or self.received)

    def put(self, payloads: Iterable[bytes], numbers: range | None = None) -> None:
        """Queue plain messages; ``numbers`` holds their numbers if they are unreliable."""
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
        """Remove all messages that the application has not received; return those with attachments."""
        out = [entry for entry in self.queue if isinstance(entry, Incoming)]
        self.queue.clear()
        self.queued = self.queued_bytes = 0
        return out

    # Received messages and reports from the sender.

    def note_reliable(self, first: int, count: int, size: int, limits: Limits) -> None:
        """Record ``count`` reliable messages of ``size`` bytes, numbered from ``first`` on, as processed.

        Raises RemoteProtocolError if they are not allowed.
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
        """Record ``count`` unreliable messages, numbered from ``first`` on, as processed.

        Returns False if the first was already given up; none of them may be processed then. Raises RemoteProtocolError.
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
        """Record that the sender declared ``count`` more unreliable messages. Raises RemoteProtocolError."""
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
        """Record that the sender finished after ``count`` reliable messages. Raises RemoteProtocolError."""
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

    def take_acks(self) -> Report:
        """Return the report of an AckReliable frame, and mark it as sent. There must be unacknowledged messages."""
        base = self.acked.first_missing(0)
        ranges = list(islice(self.unacked, RANGES_A_FRAME))
        for start, stop in ranges:
            self.acked.add_range(start, stop)
        end = ranges[-1][1]
        self.unacked.discard_below(end)
        if not self.unacked:
            self.unacked_count = self.unacked_bytes = 0
        return base, ranges, end

    def take_acks_and_nacks(self, *, final: bool = False) -> Report | None:
        """Return the report of an AckNackUnreliable frame, and mark it as sent; None if there is nothing to report.

        A gap is given up only after its grace period. ``final`` gives up every gap below the last message received, because the
        receiver is about to end.
        """
        base = end = self.mark
        ranges: list[tuple[int, int]] = []
        for start, stop in islice(self.received, RANGES_A_FRAME):
            if start > max(end, self.expired) and not final:
                break
            ranges.append((start, stop))
            end = stop
        if len(ranges) < RANGES_A_FRAME and not final:
            end = max(end, self.expired)
        self.mark = end
        self.received.discard_below(end)
        return None if end == base else (base, ranges, end)


def _too_many_gaps(limits: Limits) -> Exception:
    return protocol_error("gap limit", f"more than {limits.max_gaps} gaps in the message numbers")


Half = SenderHalf | ReceiverHalf

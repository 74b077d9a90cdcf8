"""The state that the parts of a connection share: its halves, its filters, its output, its events and its work lists.

One instance belongs to one connection, and one thread uses it. What lives where:

* ``senders``, ``receivers`` hold the live halves by channel id, ``drained`` the receivers that ceased on the wire and still
  have something for the application. ``streams`` holds every QUIC stream of which either direction is open.
* ``reached``, ``lost``, ``dropped``, ``unblocked`` are work lists: they are filled by any step and emptied by
  `lifecycle.settle` before the engine returns to its caller. Nothing recurses, however deep channels depend on one another.
* ``waiting`` (senders with messages for which the transport had no room), ``awaiting_control`` (halves without a stream) and
  ``notices`` wait for the transport and are served by ``data_to_send``, in the order in which they came.
* ``ack_list``, ``declare_list`` and ``nack_heap`` belong to the three timers.
* ``events`` and ``out`` are the two queues to the outside.

Two filters remember, as exact sets of ranges, the ids that the peer minted: those that were attached to a message (once is
allowed), and those whose half ceased here (late frames for them are dropped, instead of making ghost receivers). They are
bounded; forgetting an old range costs a ghost receiver one round trip and nothing else.

``buffered`` is the sum of everything that waits here: unread messages, held streams, half frames. Above
``Limits.max_buffered_bytes`` the whole connection stops being read, and at twice as much, which only a peer that ignores flow
control can reach, it ends. A connection must not stop forever because of channels that are never read while the application
waits at another one: while a reader waits at an empty receiver (``awaited``) the bound is half as much again. Invariant:
``held`` is True exactly while the transport was asked to stop reading.

``resume`` is the one call upwards: `Inbound` sets it, and `lifecycle.settle` calls it for streams that may be read again.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mainstem._core.aqueduct.run_writer import RunReader
from mainstem.aqueduct.channel_id import MINTED_BY_SERVER, SPACE_MASK, TO_CLIENT, Minter, describe
from mainstem.aqueduct.codec import violation
from mainstem.aqueduct.events import NO_MESSAGES, Event, HoldConnection, Readable, ReceiverEnded
from mainstem.aqueduct.halves import Role, Stream
from mainstem.aqueduct.output import Output
from mainstem.aqueduct.ranges import RangeSet
from mainstem.aqueduct.state import RECEIVER_TABLE, SENDER_TABLE, ReceiverInput, SenderInput
from mainstem.instruments import NULL_INSTRUMENT, Instrument

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainstem.aqueduct.frames import Frame
    from mainstem.aqueduct.halves import Half, ReceiverHalf, SenderHalf
    from mainstem.aqueduct.limits import Limits


@dataclass(frozen=True, kw_only=True)
class Timing:
    """The protocol's own delays, in nanoseconds. Each stays below what the specification calls reasonable."""

    ack_delay_ns: int = 5_000_000
    """From processing a message to its acknowledgement, at most (the specification asks for less than 1 s)."""

    declare_delay_ns: int = 100_000_000
    """From sending a datagram to declaring it, at most; half the round trip where that is less."""

    declare_floor_ns: int = 10_000_000
    """The least delay of a declaration, so that short round trips do not make a frame for each message."""

    grace_ns: int = 1_000_000_000
    """From a declaration to giving up what it declared, at least; twice the round trip where that is more."""

    ack_messages: int = 256
    """Messages after which an acknowledgement goes out at once: a quarter of any sensible sender's bound, or less."""

    ack_bytes: int = 256 << 10
    """Bytes after which an acknowledgement goes out at once: a sixteenth of a sender's default bound. Each one costs the
    sender a packet to read and one to send."""


@dataclass(slots=True)
class Counts:
    """What a connection has seen that is worth counting."""

    halves_created: int = 0
    """Channel halves, of either kind and from either side."""
    messages_received: int = 0
    messages_discarded: int = 0
    """Messages for a receiver that is not there, or no longer."""
    ghosts_refused: int = 0
    """Control streams for a half that is not there: the peer made a ghost receiver."""
    unreliable_evicted: int = 0
    """Unreliable messages dropped because newer ones came before the application had taken them."""
    unreliable_late: int = 0
    """Unreliable messages that came after they had been given up."""
    unreliable_dropped: int = 0
    """Unreliable messages dropped here because there was no room to send them."""


class ConnectionState:
    """One connection's shared state."""

    def __init__(self, *, is_client: bool, limits: Limits, timing: Timing, instrument: Instrument, peer: str) -> None:
        self.is_client = is_client
        self.limits = limits
        self.timing = timing
        self.peer = peer
        self.is_ended = False
        self.now_ns = 0
        self.rtt_ns = 0
        self.out = Output(is_client=is_client)
        self.minter = Minter(is_client=is_client)
        self.runs = RunReader()
        self.events: deque[Event] = deque()
        self.counts = Counts()
        self.senders: dict[int, SenderHalf] = {}
        # How far the messages of the senders that have ended came.
        self.tally = NO_MESSAGES
        self.receivers: dict[int, ReceiverHalf] = {}
        # Receivers that ceased on the wire and that the application still has to read, or has yet to get.
        self.drained: dict[int, ReceiverHalf] = {}
        self.streams: dict[int, Stream] = {}
        # The control streams that could not be opened yet, for want of stream credit.
        self.awaiting_control: deque[Half] = deque()
        # Senders with messages that wait for room in the transport.
        self.waiting: dict[SenderHalf, None] = {}
        self.buffered = 0
        self.held = False
        # Receivers at which the application waits, with nothing to read.
        self.awaited: dict[ReceiverHalf, None] = {}
        # Exact filters over the ids that the peer minted, for each index space.
        self._closed: dict[int, RangeSet] = {}
        self._taken: dict[int, RangeSet] = {}
        # Work lists of `lifecycle.settle`.
        self.reached: list[Half] = []
        self.lost: list[Half] = []
        self.dropped: list[tuple[Half, bool]] = []
        self.unblocked: deque[Stream] = deque()
        # ClosedChannelLost frames, each of which wants a stream of its own.
        self.notices: deque[bytes] = deque()
        self.resume: Callable[[Stream], None]
        # Called where the application left something to be sent.
        self.wake: Callable[[], None] = _nothing
        # Timers: acknowledgements and declarations are due together, each list at one time.
        self.ack_list: list[ReceiverHalf] = []
        self.ack_due_ns: int | None = None
        self.declare_list: dict[SenderHalf, None] = {}
        self.declare_due_ns: int | None = None
        self.nack_heap: list[tuple[int, int, ReceiverHalf]] = []
        self.nack_sequence = 0
        self._instrument = instrument
        self._observed = instrument is not NULL_INSTRUMENT

    # Who minted an id, and which way it flows.

    def is_minted_here(self, channel_id: int) -> bool:
        return bool(channel_id & MINTED_BY_SERVER) != self.is_client

    def flows_here(self, channel_id: int) -> bool:
        return bool(channel_id & TO_CLIENT) == self.is_client

    # The filters.

    def _note(self, table: dict[int, RangeSet], channel_id: int) -> bool:
        ranges = table.setdefault(channel_id & SPACE_MASK, RangeSet())
        added = ranges.add(channel_id >> 3)
        if len(ranges) > self.limits.max_filter_ranges:
            ranges.drop_oldest()
        return added

    def note_closed(self, channel_id: int) -> None:
        """A peer-minted half ceased here: late frames for it are dropped from now on."""
        self._note(self._closed, channel_id)

    def was_closed(self, channel_id: int) -> bool:
        ranges = self._closed.get(channel_id & SPACE_MASK)
        return ranges is not None and channel_id >> 3 in ranges

    def note_taken(self, channel_id: int) -> None:
        """A peer-minted half came attached to a message, which may happen once. Raises RemoteProtocolError."""
        if not self._note(self._taken, channel_id):
            raise violation(f"channel {describe(channel_id)} was attached to two messages", "attached twice")

    @property
    def filter_ranges(self) -> int:
        """Ranges in all filters together."""
        return sum(map(len, (*self._closed.values(), *self._taken.values())))

    # Memory.

    def account(self, change: int) -> None:
        """Note that bytes began or ceased to wait here; reading stops and goes on by it. Raises RemoteProtocolError."""
        self.buffered += change
        assert self.buffered >= 0, "more was taken than came"
        limit = self.limits.max_buffered_bytes
        if change > 0:
            if self.buffered > limit and not self.held and self.buffered > self._hold_bound():
                self.held = True
                self.out.command(HoldConnection(held=True))
            if self.buffered > 2 * limit:
                raise violation(
                    f"{self.buffered} bytes wait here, sent past flow control; the limit is {limit}", "buffer limit"
                )
        elif self.held:
            self.release()

    def _hold_bound(self) -> int:
        """How many bytes may wait before reading stops: half as many again while a reader waits with nothing to read.

        What it waits for may be behind the messages of other channels, and those may never be read.
        """
        limit = self.limits.max_buffered_bytes
        return limit + limit // 2 if any(not receiver.queued for receiver in self.awaited) else limit

    def release(self) -> None:
        """Read on, if little enough waits; or, where a reader has nothing to read, as soon as there is any room."""
        limit = self.limits.max_buffered_bytes
        if self.held and (
            self.buffered < limit // 2
            or (self.awaited and self._hold_bound() > limit and self.buffered < limit + limit // 2 - limit // 16)
        ):
            self.held = False
            self.out.command(HoldConnection(held=False))

    def account_stream(self, stream: Stream) -> None:
        """Note how many bytes of a stream wait now. Raises RemoteProtocolError."""
        waiting = stream.reader.buffered
        if waiting != stream.accounted:
            change, stream.accounted = waiting - stream.accounted, waiting
            self.account(change)

    def check_channel_count(self) -> None:
        """Refuse another peer-minted half beyond the limit. Raises RemoteProtocolError."""
        count = len(self.senders) + len(self.receivers) + len(self.drained)
        if count >= self.limits.max_channels:
            raise violation(f"more than {self.limits.max_channels} channels at once", "channel limit")

    # Observation.

    @property
    def is_observed(self) -> bool:
        return self._observed

    def saw_frame(self, frame: Frame) -> None:
        if self._observed:
            self._instrument.frame_in(self.peer, frame.encode(), self.now_ns)

    def sent_frame(self, data: bytes) -> None:
        if self._observed:
            self._instrument.frame_out(self.peer, data, self.now_ns)

    def emit(self, event: Event) -> None:
        self.events.append(event)

    def readable(self, receiver: ReceiverHalf) -> None:
        """There is something to receive where there was nothing."""
        if receiver.owner is None:
            self.events.append(Readable(receiver.channel_id))
        else:
            receiver.owner.wake()

    def receiver_ended(self, receiver: ReceiverHalf) -> None:
        """A receiver that the application can have ceased to exist on the wire."""
        if receiver.owner is None:
            self.events.append(ReceiverEnded(receiver.channel_id, receiver.state))
            self.events.append(Readable(receiver.channel_id))
        else:
            receiver.owner.ended(receiver.state)

    # Halves change state through these two.

    def move_sender(self, sender: SenderHalf, happened: SenderInput) -> None:
        old = sender.state
        sender.state = SENDER_TABLE[old, happened]
        sender.ledger.close()
        if self._observed and sender.state is not old:
            self._instrument.state_change(
                f"sender {describe(sender.channel_id)}", old.name, sender.state.name, self.now_ns
            )

    def move_receiver(self, receiver: ReceiverHalf, happened: ReceiverInput) -> None:
        old = receiver.state
        receiver.state = RECEIVER_TABLE[old, happened]
        if self._observed and receiver.state is not old:
            self._instrument.state_change(
                f"receiver {describe(receiver.channel_id)}", old.name, receiver.state.name, self.now_ns
            )

    # Streams.

    def write_control(self, half: Half, data: bytes) -> None:
        """Send a frame on a half's control stream."""
        assert half.control is not None
        self.out.write(half.control.stream_id, data)
        self.sent_frame(data)

    def finish_control(self, half: Half) -> None:
        """End this side's direction of a half's control stream."""
        stream = half.control
        assert stream is not None
        self.out.finish(stream.stream_id)
        stream.out_done = True
        self.forget_if_done(stream)

    def reset_stream(self, stream: Stream, code: int) -> None:
        """Reset this side's direction, but never before the peer can determine which channel the stream belongs to.

        A reset may overtake the bytes before it, and a stream that is reset before its first frame was read belongs to no
        channel. So the side that opened the stream waits until its ChannelControl has been delivered.
        """
        if stream.out_done:
            return
        if stream.heard:
            self.out.reset(stream.stream_id, code)
            stream.out_done = True
            self.forget_if_done(stream)
        elif stream.reset_pending is None:
            stream.reset_pending = code
            self.out.watch(stream.stream_id)

    def heard(self, stream: Stream) -> None:
        """The peer is known to have seen this stream: a reset that waited for that goes out."""
        if stream.heard:
            return
        stream.heard = True
        if stream.reset_pending is not None:
            code, stream.reset_pending = stream.reset_pending, None
            self.reset_stream(stream, code)

    def abandon(self, stream: Stream) -> None:
        """Drop whatever still comes on this stream."""
        if stream.blocked_on is not None:
            stream.blocked_on.blocked.pop(stream, None)
            stream.blocked_on = None
        stream.role = Role.ABANDONED
        stream.half = None
        stream.held_frame = None
        stream.reader.clear()
        self.account_stream(stream)
        if stream.fin:
            stream.in_done = True
        self.forget_if_done(stream)

    def forget_if_done(self, stream: Stream) -> None:
        """Both directions have ended: nothing more can happen on this stream."""
        if stream.in_done and stream.out_done:
            self.streams.pop(stream.stream_id, None)

    def disconnect(self) -> None:
        """The connection ended: forget everything that only it could need. What was kept to be read stays."""
        self.senders.clear()
        self.receivers.clear()
        self.streams.clear()
        self.awaiting_control.clear()
        self.waiting.clear()
        self.reached.clear()
        self.lost.clear()
        self.dropped.clear()
        self.unblocked.clear()
        self.awaited.clear()
        self.notices.clear()
        self.ack_list.clear()
        self.declare_list.clear()
        self.nack_heap.clear()
        self.ack_due_ns = self.declare_due_ns = None
        self.buffered = sum(receiver.queued_bytes for receiver in self.drained.values())


def _nothing() -> None:
    """Nobody asked to be called."""

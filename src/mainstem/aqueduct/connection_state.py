"""The state that the parts of a connection share: its halves, its filters, its output, its events and its work lists.

One instance belongs to one connection, and one thread uses it:

* ``senders``, ``receivers`` hold the live halves by channel id, ``drained`` the receivers that ceased on the wire and still
  have something for the application. ``streams`` holds every QUIC stream of which either direction is open.
* ``lost``, ``dropped``, ``unblocked`` are work lists: any step may fill them, and `Streams.settle` empties them before the
  engine returns to its caller. Nothing recurses, however deep channels depend on one another.
* ``waiting`` (senders with messages for which the transport had no room), ``awaiting_control`` (halves without a stream) and
  ``notices`` wait for the transport and are served by ``data_to_send``, in the order in which they came.
* ``ack_list``, ``declare_list`` and ``nack_heap`` belong to the three timers.
* ``events`` and ``commands`` are the two queues to the outside. What is written to streams is joined, stream by stream, until
  the transport asks for it. Stream ids are minted here, in QUIC's own order (bit 0 is set for streams that the server opened,
  bit 1 for those of one direction), so that the engine never waits for its transport.

Two filters remember, as exact sets of ranges, the ids that the peer minted: those that were attached to a message (once is
allowed), and those whose half ceased here (late frames for them are dropped, instead of making ghost receivers). They are
limited; forgetting an old range costs a ghost receiver one round trip and nothing else.

``buffered_bytes`` is the sum of everything that waits here: unread messages, held streams, partial frames. Above
``Limits.max_buffered_bytes`` the whole connection stops being read, and at twice as much, which only a peer that ignores flow
control can reach, it ends. A connection must not stop forever because of channels that are never read while the application
waits at another one: while a reader waits at an empty receiver (``awaited``) the limit is half as much again. Invariant:
``paused`` is True exactly while the transport was asked to stop reading.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mainstem._core.aqueduct.ranges import RangeSet
from mainstem._core.aqueduct.run_writer import Ledger, MessageWriter, RunReader, integer_frame
from mainstem.aqueduct.events import (
    NO_PROGRESS,
    Command,
    Event,
    PauseConnection,
    ResetStream,
    SendDatagram,
    SendStream,
    WatchDelivery,
)
from mainstem.aqueduct.frames import (
    ENTRYPOINT,
    INDEX_SHIFT,
    MESSAGE,
    MINTED_BY_SERVER,
    ONESHOT,
    SPACE_MASK,
    TO_CLIENT,
    VERSION_BYTES,
    as_headers,
    describe,
    encode_frame,
    protocol_error,
)
from mainstem.aqueduct.halves import OPENED_BY_SERVER, UNIDIRECTIONAL, ReceiverHalf, Role, SenderHalf, Stream
from mainstem.aqueduct.limits import DEFAULT_LIMITS, Limits
from mainstem.aqueduct.state import TABLE
from mainstem.instruments import NULL_INSTRUMENT, Instrument

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from mainstem.aqueduct.halves import Half

LARGE_PIECE = 1 << 12
"""Bytes from which on a piece is handed to the transport by itself: joining it with others would copy it once more."""

UNREAD_BYTES = 1 << 14
"""Bytes that a receiver may hold although nobody reads it and much is buffered already."""

UNREAD_SHARES = 16
"""The part of what is free that one receiver which nobody reads may hold."""

UNLIMITED = 1 << 60
"""Room if the transport has set no limit."""


@dataclass(frozen=True, kw_only=True)
class Timing:
    """The protocol's own delays, in nanoseconds. Each stays below what the specification calls reasonable."""

    ack_delay_ns: int = 5_000_000
    """From processing a message to its acknowledgment, at most (the specification asks for less than 1 s)."""

    declare_delay_ns: int = 100_000_000
    """From sending a datagram to declaring it, at most; half the round trip if that is less."""

    declare_floor_ns: int = 10_000_000
    """The shortest delay of a declaration, so that short round trips do not make a frame for each message."""

    grace_ns: int = 1_000_000_000
    """From a declaration to giving up what it declared, at least; twice the round trip if that is more."""

    ack_messages: int = 256
    """Messages after which an acknowledgment goes out at once: a quarter of any sensible sender's limit, or less."""

    ack_bytes: int = 256 << 10
    """Bytes after which an acknowledgment goes out at once: a sixteenth of a sender's default limit. Each one costs the
    sender a packet to read and one to send."""


DEFAULT_TIMING = Timing()


@dataclass(slots=True)
class ConnectionCounters:
    """What a connection counts."""

    halves_created: int = 0
    """Channel halves, of either kind and from either side."""
    messages_received: int = 0
    messages_discarded: int = 0
    """Messages for a receiver that does not exist, or no longer."""
    ghosts_refused: int = 0
    """Control streams for a half that does not exist: the peer made a ghost receiver."""
    unreliable_evicted: int = 0
    """Unreliable messages dropped because newer ones came before the application had taken them."""
    unreliable_late: int = 0
    """Unreliable messages that came after they had been given up."""
    unreliable_dropped: int = 0
    """Unreliable messages dropped here because there was no room to send them."""


class ConnectionState:
    """One connection's shared state. `AqueductEngine` documents the parameters."""

    def __init__(
        self,
        *,
        is_client: bool,
        headers: Mapping[str, bytes | str] | Iterable[tuple[str, bytes | str]] | None = None,
        limits: Limits = DEFAULT_LIMITS,
        timing: Timing = DEFAULT_TIMING,
        instrument: Instrument = NULL_INSTRUMENT,
        peer: str = "",
        early_data: bool = False,
    ) -> None:
        self.is_client = is_client
        self._headers = as_headers(headers)
        self.limits = limits
        self.timing = timing
        self.peer = peer
        self.is_ended = False
        self.now_ns = self.rtt_ns = 0
        self.counts = ConnectionCounters()
        self.events: deque[Event] = deque()
        self._instrument = instrument
        self.is_observed = instrument is not NULL_INSTRUMENT
        # What may be processed (`streams`). The handshake is not complete, and what comes could be a replay:
        self.is_early = early_data and not is_client
        # The client: the server's ConnectionControl came. The server: the application accepted.
        self.is_ready = False
        self.peer_headers_seen = False
        self.control_id: int | None = None
        self.held_streams: dict[Stream, None] = {}
        self.held_datagrams: list[tuple[bytes, bool]] = []
        # Halves and streams.
        self.senders: dict[int, SenderHalf] = {}
        self.receivers: dict[int, ReceiverHalf] = {}
        # Receivers that ceased on the wire and that the application still has to read, or has yet to get.
        self.drained: dict[int, ReceiverHalf] = {}
        self.streams: dict[int, Stream] = {}
        # Of the senders that have ended.
        self.progress = NO_PROGRESS
        self._next_index = dict.fromkeys(range(SPACE_MASK + 1), 0)
        # Exact filters over the ids that the peer minted, for each index space.
        self._closed_ids: dict[int, RangeSet] = {}
        self._taken_ids: dict[int, RangeSet] = {}
        # Memory. Receivers at which the application waits, with nothing to read:
        self.buffered_bytes = 0
        self.paused = False
        self.awaited: dict[ReceiverHalf, None] = {}
        # Work lists of `settle`.
        self.lost: list[Half] = []
        self.dropped: list[tuple[Half, bool]] = []
        self.unblocked: deque[Stream] = deque()
        # What waits for the transport: halves without a control stream, senders with messages, ClosedChannelLost frames.
        self.awaiting_control: deque[Half] = deque()
        self.waiting: dict[SenderHalf, None] = {}
        self.notices: deque[bytes] = deque()
        # Timers: acknowledgments and declarations are due together, each list at one time.
        self.ack_list: list[ReceiverHalf] = []
        self.ack_due_ns: int | None = None
        self.declare_list: dict[SenderHalf, None] = {}
        self.declare_due_ns: int | None = None
        self.nack_heap: list[tuple[int, int, ReceiverHalf]] = []
        self.nack_sequence = 0
        # Output. Plain messages are encoded as they are sent; the writer also counts what there is room for.
        self.runs = RunReader()
        self.plain = MessageWriter()
        self.plain.stream_room = self.bidi_room = UNLIMITED
        self.commands: list[Command] = []
        self._writes: dict[int, list[bytes]] = {}
        self._fins: set[int] = set()
        # By the bit of unidirectional streams: the next id, and the first that the transport was not given yet.
        initiator = 0 if is_client else OPENED_BY_SERVER
        self._next_id = {0: initiator, UNIDIRECTIONAL: initiator | UNIDIRECTIONAL}
        self._first_new = self._next_id.copy()
        # Called when the application left something to be sent.
        self.wake: Callable[[], None] = _nothing
        self.entrypoint: Half
        if is_client:
            # The entrypoint has used the first index of the client's own outgoing space.
            self._next_index[ENTRYPOINT] = 1
            # Everything that the client sends before the server has responded begins with a Version frame.
            self.plain.opening = VERSION_BYTES
            self.counts.halves_created = 1
            self.entrypoint = self.senders[ENTRYPOINT] = self.make_sender(ENTRYPOINT, minted_here=True)
        else:
            self.entrypoint = self.receivers[ENTRYPOINT] = self.make_receiver(
                ENTRYPOINT, minted_here=False, handed_over=True
            )

    # Channel ids.

    def mint(self, *, outgoing: bool, oneshot: bool) -> int:
        """Mint a channel id, sequentially in each index space; ``outgoing`` for a channel whose sender stays here."""
        space = (0 if self.is_client else MINTED_BY_SERVER) | (ONESHOT if oneshot else 0)
        if outgoing != self.is_client:
            space |= TO_CLIENT
        index = self._next_index[space]
        self._next_index[space] = index + 1
        return index << INDEX_SHIFT | space

    def is_minted_here(self, channel_id: int) -> bool:
        return bool(channel_id & MINTED_BY_SERVER) != self.is_client

    def flows_here(self, channel_id: int) -> bool:
        return bool(channel_id & TO_CLIENT) == self.is_client

    def _note(self, table: dict[int, RangeSet], channel_id: int) -> bool:
        """Add a peer-minted id to a filter; False if it was there. Late frames for an id in ``_closed_ids`` are dropped."""
        ranges = table.get(channel_id & SPACE_MASK)
        if ranges is None:
            ranges = table[channel_id & SPACE_MASK] = RangeSet()
        added = ranges.add(channel_id >> INDEX_SHIFT)
        if len(ranges) > self.limits.max_filter_ranges:
            ranges.drop_oldest()
        return added

    def was_closed(self, channel_id: int) -> bool:
        """Whether a peer-minted half ceased here."""
        ranges = self._closed_ids.get(channel_id & SPACE_MASK)
        return ranges is not None and channel_id >> INDEX_SHIFT in ranges

    @property
    def filter_ranges(self) -> int:
        """Ranges in all filters together."""
        return sum(map(len, (*self._closed_ids.values(), *self._taken_ids.values())))

    # Halves. One that the peer minted is reachable, and its control stream is to be opened here.

    def make_sender(self, channel_id: int, *, minted_here: bool) -> SenderHalf:
        limits, prefix, oneshot = self.limits, integer_frame(MESSAGE, channel_id), bool(channel_id & ONESHOT)
        ledger = Ledger(self.plain, prefix, limits.send_messages, limits.send_bytes, limits.max_payload)
        return SenderHalf(channel_id, minted_here, not (minted_here and channel_id), oneshot, prefix, ledger)

    def make_receiver(self, channel_id: int, *, minted_here: bool, handed_over: bool) -> ReceiverHalf:
        oneshot = bool(channel_id & ONESHOT)
        # The one message of a oneshot is never read as a run.
        prefix = b"" if oneshot else integer_frame(MESSAGE, channel_id)
        return ReceiverHalf(channel_id, minted_here, not minted_here, oneshot, prefix, handed_over)

    def check_channel_count(self) -> None:
        """Refuse another peer-minted half beyond the limit. Raises RemoteProtocolError."""
        if len(self.senders) + len(self.receivers) + len(self.drained) >= self.limits.max_channels:
            raise protocol_error("channel limit", f"more than {self.limits.max_channels} channels at once")

    def move(self, half: Half, happened: Any) -> None:
        """Change a half's state. An impossible step is a KeyError here, not a wrong state."""
        old = half.state
        half.state = TABLE[old, happened]
        if isinstance(half, SenderHalf):
            half.ledger.close()
        if self.is_observed and half.state is not old:
            subject = f"{'sender' if half.is_sender else 'receiver'} {describe(half.channel_id)}"
            self._instrument.state_change(subject, old.name, half.state.name, self.now_ns)

    def saw_frame(self, tag: int, value: Any) -> None:
        """Report a frame to the instrument; called only if there is one."""
        self._instrument.frame_in(self.peer, encode_frame(tag, value), self.now_ns)

    def sent_frame(self, data: bytes) -> None:
        if self.is_observed:
            self._instrument.frame_out(self.peer, data, self.now_ns)

    # Memory.

    def account(self, change: int) -> None:
        """Note that bytes began or ceased to be buffered; pause or resume reading. Raises RemoteProtocolError."""
        self.buffered_bytes += change
        if change > 0:
            limit = self.limits.max_buffered_bytes
            if self.buffered_bytes > limit:
                if not self.paused and self.buffered_bytes > self._pause_limit():
                    self.paused = True
                    self.commands.append(PauseConnection(paused=True))
                if self.buffered_bytes > 2 * limit:
                    text = f"{self.buffered_bytes} bytes are buffered, sent past flow control; the limit is {limit}"
                    raise protocol_error("buffer limit", text)
        elif self.paused:
            self.resume_reading()

    def is_full(self, receiver: ReceiverHalf) -> bool:
        """Whether the application is behind by as much as it may be.

        If it waited at the receiver, that is the receiver's own limit. Otherwise maybe nobody reads it, and then it may only take
        a share of what is free: however many are unread, together they take no more than half of what may be buffered.
        """
        limits, size = self.limits, receiver.queued_bytes
        if receiver.queued >= limits.receive_messages or size >= limits.receive_bytes:
            return True
        free = limits.max_buffered_bytes // 2 - self.buffered_bytes
        return size >= UNREAD_BYTES and size >= free // UNREAD_SHARES and receiver not in self.awaited

    def _pause_limit(self) -> int:
        """How many bytes may be buffered before reading stops: half as many again while a reader waits at an empty receiver.

        What it waits for may be behind the messages of other channels, and those may never be read.
        """
        limit = self.limits.max_buffered_bytes
        return limit + limit // 2 if any(not receiver.queued for receiver in self.awaited) else limit

    def resume_reading(self) -> None:
        """Resume reading if little enough is buffered; or, if a reader has nothing to read, as soon as there is any room."""
        limit, most = self.limits.max_buffered_bytes, self._pause_limit()
        if self.buffered_bytes < limit // 2 or (most > limit and self.buffered_bytes < most - limit // 16):
            self.paused = False
            self.commands.append(PauseConnection(paused=False))

    def account_stream(self, stream: Stream) -> None:
        """Note how many bytes of a stream are buffered now. Raises RemoteProtocolError."""
        buffered = stream.buffered
        if buffered != stream.accounted:
            change, stream.accounted = buffered - stream.accounted, buffered
            self.account(change)

    # Streams.

    def open_stream(self, *, unidirectional: bool) -> int:
        """Return a new stream's id. The caller has checked that there is room, and writes a frame at once."""
        plain = self.plain
        if plain.has_alone:
            self._gather_alone()
        if unidirectional:
            kind = UNIDIRECTIONAL
            plain.stream_room -= 1
        else:
            kind = 0
            self.bidi_room -= 1
        stream_id = self._next_id[kind]
        self._next_id[kind] = stream_id + 4
        self._writes[stream_id] = [plain.opening] if plain.opening else []
        return stream_id

    def _is_new(self, stream_id: int) -> bool:
        """Whether a stream was opened here and the transport was not given any of it yet."""
        first_new = self._first_new[stream_id & UNIDIRECTIONAL]
        return stream_id >= first_new and not (stream_id ^ first_new) & OPENED_BY_SERVER

    def write(self, stream_id: int, data: bytes, *, fin: bool = False) -> None:
        """Write to a stream, and end it after that if ``fin``."""
        if self.plain.stream_id >= 0:
            self._gather()
        pieces = self._writes.get(stream_id)
        if pieces is None:
            self._writes[stream_id] = [data]
        else:
            pieces.append(data)
        if fin:
            self._fins.add(stream_id)

    def write_control(self, half: Half, data: bytes, *, fin: bool = False) -> None:
        """Send a frame on a half's control stream, and end this side's direction after that if ``fin``."""
        stream = half.control
        assert stream is not None
        self.write(stream.stream_id, data, fin=fin)
        if self.is_observed:
            self.sent_frame(data)
        if fin:
            stream.out_done = True
            if stream.in_done:
                self.forget_if_done(stream)

    def reset(self, stream_id: int, code: int) -> None:
        """End a stream abruptly; what the transport has not been given yet is dropped."""
        self._gather()
        if self._is_new(stream_id):
            # A stream is never opened without a frame on it, and streams are opened in the order of their ids.
            self._flush()
        self.forget_writes(stream_id)
        self.commands.append(ResetStream(stream_id, code))

    def forget_writes(self, stream_id: int) -> None:
        """Drop what was written to a stream and not given to the transport."""
        self._gather()
        if not self._is_new(stream_id):
            self._writes.pop(stream_id, None)
            self._fins.discard(stream_id)

    def reset_stream(self, stream: Stream, code: int) -> None:
        """Reset this side's direction, but never before the peer can determine which channel the stream belongs to.

        A reset may overtake the bytes before it, and a stream that is reset before its first frame was read belongs to no
        channel. So the side that opened the stream waits until its ChannelControl has been delivered.
        """
        if stream.out_done:
            return
        if stream.heard:
            self.reset(stream.stream_id, code)
            stream.out_done = True
            self.forget_if_done(stream)
        elif stream.reset_pending is None:
            stream.reset_pending = code
            self._flush()
            self.commands.append(WatchDelivery(stream.stream_id))

    def heard(self, stream: Stream) -> None:
        """The peer is known to have seen this stream: a reset that waited for that goes out."""
        if not stream.heard:
            stream.heard = True
            if stream.reset_pending is not None:
                code, stream.reset_pending = stream.reset_pending, None
                self.reset_stream(stream, code)

    def abandon(self, stream: Stream) -> None:
        """Drop whatever still comes on this stream."""
        if stream.blocked_on is not None:
            stream.blocked_on.blocked.pop(stream, None)
        stream.role = Role.ABANDONED
        stream.half = stream.blocked_on = stream.held_frame = None
        stream.clear()
        if stream.accounted:
            self.account_stream(stream)
        if stream.fin:
            stream.in_done = True
            self.forget_if_done(stream)

    def forget_if_done(self, stream: Stream) -> None:
        """If both directions have ended, nothing more can happen on this stream."""
        if stream.in_done and stream.out_done:
            self.streams.pop(stream.stream_id, None)

    # What goes out.

    def transport_state(
        self,
        bidi_streams: int | None = None,
        uni_streams: int | None = None,
        datagrams: int | None = None,
        max_datagram: int | None = None,
        rtt_ns: int = 0,
    ) -> None:
        """Note what the QUIC connection has room for; None leaves a value alone. New streams are counted here."""
        plain = self.plain
        if bidi_streams is not None:
            self.bidi_room = bidi_streams - (self._next_id[0] - self._first_new[0]) // 4
        if uni_streams is not None:
            new = (self._next_id[UNIDIRECTIONAL] - self._first_new[UNIDIRECTIONAL]) // 4
            plain.stream_room = uni_streams - new - plain.waiting_singles
        if datagrams is not None:
            plain.datagram_room = datagrams
        if max_datagram is not None:
            plain.max_datagram = max_datagram
        self.rtt_ns = rtt_ns or self.rtt_ns

    def send_datagram(self, data: bytes) -> None:
        """Send a datagram."""
        self._gather_alone()
        self.plain.datagram_room -= 1
        self.commands.append(SendDatagram(self.plain.opening + data))

    def _gather(self) -> None:
        """Put the plain messages where the other writes of their stream are."""
        if self.plain.stream_id >= 0:
            stream_id, pieces = self.plain.take()
            self._writes.setdefault(stream_id, []).extend(pieces)

    def _gather_alone(self) -> None:
        """Put the messages that travel alone where the other commands are. Their streams get their ids here."""
        singles, datagrams = self.plain.take_alone()
        if singles:
            # Streams are opened in the order of their ids.
            self._flush()
            stream_id = self._next_id[UNIDIRECTIONAL]
            for data in singles:
                self.commands.append(SendStream(stream_id, data, True))
                stream_id += 4
            self._next_id[UNIDIRECTIONAL] = stream_id
        self.commands.extend(map(SendDatagram, datagrams))

    def _flush(self) -> None:
        if self.plain.stream_id >= 0:
            self._gather()
        append, fins = self.commands.append, self._fins
        for stream_id, pieces in self._writes.items():
            fin = stream_id in fins
            if len(pieces) == 1:
                append(SendStream(stream_id, pieces[0], fin))
                continue
            small: list[bytes] = []
            for piece in pieces:
                if len(piece) < LARGE_PIECE:
                    small.append(piece)
                    continue
                if small:
                    append(SendStream(stream_id, b"".join(small), False))
                    small = []
                append(SendStream(stream_id, piece, False))
            if small or fin:
                append(SendStream(stream_id, b"".join(small), fin))
        self._writes.clear()
        fins.clear()

    @property
    def has_output(self) -> bool:
        """Whether there are commands, or may be once the transport has room."""
        waiting = self._writes or self.commands or self.awaiting_control or self.waiting or self.notices
        return bool(waiting) or self.plain.has_output

    def drop_output(self) -> None:
        """Forget what has not gone out."""
        self._gather()
        self.plain.take_alone()
        self._writes.clear()
        self._fins.clear()
        self.commands.clear()

    def forget(self) -> None:
        """The connection ended: forget everything that only it could need. What was kept to be read stays."""
        for table in (
            *(self.senders, self.receivers, self.streams, self.held_streams, self.held_datagrams),
            *(self.lost, self.dropped, self.unblocked, self.awaited),
            *(self.awaiting_control, self.waiting, self.notices),
            *(self.ack_list, self.declare_list, self.nack_heap),
        ):
            table.clear()
        self.ack_due_ns = self.declare_due_ns = None
        self.buffered_bytes = sum(receiver.queued_bytes for receiver in self.drained.values())


def _nothing() -> None:
    """The default of ``wake``."""

"""The state that the parts of a connection share: halves, filters, output, events and work lists.

Each instance belongs to one connection and is used by one thread:

* ``senders`` and ``receivers`` hold the live halves by channel id. ``drained`` holds receivers that have ended on the wire but
  still have something for the application. ``streams`` holds every QUIC stream that is open in either direction.
* ``lost``, ``dropped`` and ``unblocked`` are work lists. Any step can fill them, and `AqueductEngine.settle` empties them before
  the engine returns to its caller. Nothing recurses, however deeply channels depend on one another.
* ``waiting`` (senders with messages for which the transport had no room), ``awaiting_control`` (halves without a stream) and
  ``notices`` wait for the transport. ``data_to_send`` serves each of them in order of arrival.
* ``ack_list``, ``declare_list`` and ``nack_heap`` belong to the three timers.
* ``events`` and ``commands`` are the two output queues. Writes to a stream are joined until the transport asks for output.
  Stream ids are minted here, in QUIC's own order (bit 0 is set for streams that the server opened, bit 1 for unidirectional
  streams), so that the engine never waits for its transport.

Two filters store ids that the peer minted, as exact sets of ranges: ids that have been attached to a message (allowed only
once), and ids whose half has ended here (late frames for them are dropped instead of creating ghost receivers). The filters
are limited in size; forgetting an old range costs only one round trip for a ghost receiver.

``buffered_bytes`` is the total size of all buffered data: unread messages, held streams and datagrams, partial frames. Above
``Limits.max_buffered_bytes`` the engine stops reading the whole connection. At twice that limit, which only a peer that
ignores flow control can reach, the connection ends. Channels that nobody reads must not stop the connection forever while the
application waits for another channel. Therefore the limit is half as much again while a reader waits at an empty receiver
(``awaited``). Invariant: ``paused`` is True exactly while the transport has been asked to stop reading.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mainstem._core.aqueduct.ranges import RangeSet
from mainstem._core.aqueduct.run_writer import MessageWriter, RunReader, integer_frame
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
"""Minimum size in bytes at which a piece is passed to the transport by itself: joining it with others would copy it again."""

UNREAD_BYTES = 1 << 14
"""Number of bytes that an unread receiver can always hold, even if much is buffered already."""

UNREAD_SHARES = 16
"""Divisor of the free buffer space: one unread receiver can hold this fraction of it."""

UNLIMITED = 1 << 60
"""The room assumed when the transport has set no limit."""


@dataclass(frozen=True, kw_only=True)
class Timing:
    """The protocol's own delays, in nanoseconds. Each is below what the specification calls reasonable."""

    ack_delay_ns: int = 5_000_000
    """Maximum delay from processing a message to acknowledging it (the specification asks for less than 1 s)."""

    declare_delay_ns: int = 100_000_000
    """Maximum delay from sending a datagram to declaring it; half the round-trip time if that is less."""

    declare_floor_ns: int = 10_000_000
    """Minimum delay of a declaration, so that short round trips do not cause one frame per message."""

    grace_ns: int = 1_000_000_000
    """Minimum time from a declaration to giving up the messages it declared; twice the round-trip time if that is more."""

    ack_messages: int = 256
    """Number of messages after which an acknowledgment is sent immediately: at most a quarter of any reasonable sender's limit."""

    ack_bytes: int = 256 << 10
    """Number of bytes after which an acknowledgment is sent immediately: a sixteenth of a sender's default limit. Each
    acknowledgment costs the sender one packet to read and one to send."""


DEFAULT_TIMING = Timing()


@dataclass(slots=True)
class ConnectionCounters:
    halves_created: int = 0
    """Channel halves created, both senders and receivers, minted by either side."""
    messages_received: int = 0
    messages_discarded: int = 0
    """Messages for a receiver that does not exist or has ended."""
    ghosts_refused: int = 0
    """Control streams refused because their half does not exist: the peer created a ghost receiver."""
    unreliable_evicted: int = 0
    """Unreliable messages dropped because newer ones arrived before the application had taken them."""
    unreliable_late: int = 0
    """Unreliable messages that arrived after they had been given up."""
    unreliable_dropped: int = 0
    """Unreliable messages dropped here because there was no room to send them."""


class ConnectionState:
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
        # The gates of `engine`. True while the handshake is incomplete, so that incoming data could be a replay:
        self.is_early = early_data and not is_client
        # True once the server's ConnectionControl has arrived (client) or the application has accepted (server).
        self.is_ready = False
        self.peer_headers_seen = False
        self.control_id: int | None = None
        self.held_streams: dict[Stream, None] = {}
        self.held_datagrams: list[tuple[bytes, bool]] = []
        # Halves and streams.
        self.senders: dict[int, SenderHalf] = {}
        self.receivers: dict[int, ReceiverHalf] = {}
        # Receivers that have ended on the wire, and that the application has not read to the end or not received yet.
        self.drained: dict[int, ReceiverHalf] = {}
        self.streams: dict[int, Stream] = {}
        # Total progress of the senders that have ended.
        self.progress = NO_PROGRESS
        self._next_index = dict.fromkeys(range(SPACE_MASK + 1), 0)
        # Exact filters of the ids that the peer minted, by index space.
        self._closed_ids: dict[int, RangeSet] = {}
        self._taken_ids: dict[int, RangeSet] = {}
        # Memory. ``awaited`` holds the receivers at which the application waits with nothing to read.
        self.buffered_bytes = 0
        self.paused = False
        self.awaited: dict[ReceiverHalf, None] = {}
        # Work lists of `settle`.
        self.lost: list[Half] = []
        self.dropped: list[tuple[Half, bool]] = []
        self.unblocked: deque[Stream] = deque()
        # Waiting for the transport: halves without a control stream, senders with messages, ClosedChannelLost frames.
        self.awaiting_control: deque[Half] = deque()
        self.waiting: dict[SenderHalf, None] = {}
        self.notices: deque[bytes] = deque()
        # Timers. All entries of ``ack_list`` are due at one time, and so are all channels in ``declare_list``.
        self.ack_list: list[ReceiverHalf] = []
        self.ack_due_ns: int | None = None
        self.declare_due_ns: int | None = None
        self.nack_heap: list[tuple[int, int, ReceiverHalf]] = []
        self.nack_sequence = 0
        # Output. Plain messages are encoded as they are sent. The writer also tracks how much room the transport has.
        self.runs = RunReader()
        self.plain = MessageWriter()
        self.declare_list: dict[int, None] = self.plain.undeclared
        self.plain.stream_room = self.bidi_room = UNLIMITED
        self.commands: list[Command] = []
        self._writes: dict[int, list[bytes]] = {}
        self._fins: set[int] = set()
        # Keyed by the bit of unidirectional streams: the next id, and the first id not yet passed to the transport.
        initiator = 0 if is_client else OPENED_BY_SERVER
        self._next_id = {0: initiator, UNIDIRECTIONAL: initiator | UNIDIRECTIONAL}
        self._first_new = self._next_id.copy()
        # Called when the application has left something to send.
        self.wake: Callable[[], None] = _nothing
        self.entrypoint: Half
        if is_client:
            # The entrypoint has used the first index of the client's own outgoing space.
            self._next_index[ENTRYPOINT] = 1
            # Everything the client sends before the server has responded begins with a Version frame.
            self.plain.opening = VERSION_BYTES
            self.counts.halves_created = 1
            self.entrypoint = self.senders[ENTRYPOINT] = SenderHalf(self.plain, ENTRYPOINT, limits, minted_here=True)
        else:
            self.entrypoint = self.receivers[ENTRYPOINT] = self.make_receiver(
                ENTRYPOINT, minted_here=False, handed_over=True
            )

    # Channel ids.

    def mint(self, *, outgoing: bool, oneshot: bool) -> int:
        """Mint the next channel id of an index space; ``outgoing`` means that the channel's sender stays here."""
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
        """Add a peer-minted id to a filter; return False if the filter already had it."""
        ranges = table.get(channel_id & SPACE_MASK)
        if ranges is None:
            ranges = table[channel_id & SPACE_MASK] = RangeSet()
        added = ranges.add(channel_id >> INDEX_SHIFT)
        if len(ranges) > self.limits.max_filter_ranges:
            ranges.drop_oldest()
        return added

    def was_closed(self, channel_id: int) -> bool:
        ranges = self._closed_ids.get(channel_id & SPACE_MASK)
        return ranges is not None and channel_id >> INDEX_SHIFT in ranges

    # Halves. A half that the peer minted is reachable, and this side opens its control stream.

    def make_receiver(self, channel_id: int, *, minted_here: bool, handed_over: bool) -> ReceiverHalf:
        prefix = integer_frame(MESSAGE, channel_id)
        return ReceiverHalf(channel_id, minted_here, not minted_here, bool(channel_id & ONESHOT), prefix, handed_over)

    def check_channel_count(self) -> None:
        if len(self.senders) + len(self.receivers) + len(self.drained) >= self.limits.max_channels:
            raise protocol_error("channel limit", f"more than {self.limits.max_channels} channels at once")

    def move(self, half: Half, happened: Any) -> None:
        """Change a half's state. An impossible transition raises KeyError instead of leading to a wrong state."""
        old = half.state
        half.state = TABLE[old, happened]
        if isinstance(half, SenderHalf):
            half.close_fast_path()
        if self.is_observed and half.state is not old:
            subject = f"{'sender' if half.is_sender else 'receiver'} {describe(half.channel_id)}"
            self._instrument.state_change(subject, old.name, half.state.name, self.now_ns)

    def saw_frame(self, tag: int, value: Any) -> None:
        self._instrument.frame_in(self.peer, encode_frame(tag, value), self.now_ns)

    def sent_frame(self, data: bytes) -> None:
        if self.is_observed:
            self._instrument.frame_out(self.peer, data, self.now_ns)

    # Memory.

    def account(self, change: int) -> None:
        """Add ``change`` to the number of buffered bytes, and pause or resume reading. Raises RemoteProtocolError."""
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
        """Return whether a receiver holds as many unread messages as it is allowed to.

        If the application is waiting at the receiver, the receiver's own limit applies. Otherwise it may be that nobody reads it,
        so it can take only a share of the free space. Together, unread receivers take at most half of the buffer limit, however
        many there are.
        """
        limits, size = self.limits, receiver.queued_bytes
        if receiver.queued >= limits.receive_messages or size >= limits.receive_bytes:
            return True
        free = limits.max_buffered_bytes // 2 - self.buffered_bytes
        return size >= UNREAD_BYTES and size >= free // UNREAD_SHARES and receiver not in self.awaited

    def _pause_limit(self) -> int:
        """Return how many bytes can be buffered before reading pauses; half as many again while a reader waits for messages.

        The message that the reader waits for may be behind messages of other channels that are never read.
        """
        limit = self.limits.max_buffered_bytes
        return limit + limit // 2 if any(not receiver.queued for receiver in self.awaited) else limit

    def resume_reading(self) -> None:
        """Resume reading once less than half the limit is buffered or, if a reader is waiting, as soon as there is room."""
        limit, most = self.limits.max_buffered_bytes, self._pause_limit()
        if self.buffered_bytes < limit // 2 or (most > limit and self.buffered_bytes < most - limit // 16):
            self.paused = False
            self.commands.append(PauseConnection(paused=False))

    def account_stream(self, stream: Stream) -> None:
        buffered = stream.buffered
        if buffered != stream.accounted:
            change, stream.accounted = buffered - stream.accounted, buffered
            self.account(change)

    # Streams.

    def open_stream(self, data: bytes, *, unidirectional: bool, fin: bool = False) -> int:
        """Open a stream that begins with ``data``; return its id. The caller has checked that there is room."""
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
        self._writes[stream_id] = [plain.opening, data] if plain.opening else [data]
        if fin:
            self._fins.add(stream_id)
        return stream_id

    def _is_new(self, stream_id: int) -> bool:
        first_new = self._first_new[stream_id & UNIDIRECTIONAL]
        return stream_id >= first_new and not (stream_id ^ first_new) & OPENED_BY_SERVER

    def write(self, stream_id: int, data: bytes, *, fin: bool = False) -> None:
        """Write to a stream; if ``fin``, end this side's direction."""
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
        """Send a frame on a half's control stream; if ``fin``, end this side's direction."""
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
        """End a stream abruptly, dropping data that has not been passed to the transport."""
        self._gather()
        if self._is_new(stream_id):
            # Every stream opens with a frame, and streams open in the order of their ids.
            self._flush()
        self.forget_writes(stream_id)
        self.commands.append(ResetStream(stream_id, code))

    def forget_writes(self, stream_id: int) -> None:
        """Drop data written to a stream that has not been passed to the transport."""
        self._gather()
        if not self._is_new(stream_id):
            self._writes.pop(stream_id, None)
            self._fins.discard(stream_id)

    def reset_stream(self, stream: Stream, code: int) -> None:
        """Reset this side's direction, but never before the peer can determine which channel the stream belongs to.

        A reset can overtake the bytes before it, and a stream that is reset before its first frame was read belongs to no channel.
        So the side that opened the stream waits until its ChannelControl has been delivered.
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
        """Note that the peer has seen this stream, and send a reset that was waiting for that."""
        if not stream.heard:
            stream.heard = True
            if stream.reset_pending is not None:
                code, stream.reset_pending = stream.reset_pending, None
                self.reset_stream(stream, code)

    def abandon(self, stream: Stream) -> None:
        """Ignore everything that still arrives on this stream."""
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
        if stream.in_done and stream.out_done:
            self.streams.pop(stream.stream_id, None)

    # Output.

    def transport_state(
        self,
        bidi_streams: int | None = None,
        uni_streams: int | None = None,
        datagrams: int | None = None,
        max_datagram: int | None = None,
        rtt_ns: int = 0,
    ) -> None:
        """Record how much room the QUIC connection has, minus streams it does not know yet; None leaves a value unchanged."""
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
        self._gather_alone()
        self.plain.datagram_room -= 1
        self.commands.append(SendDatagram(self.plain.opening + data))

    def _gather(self) -> None:
        """Append the pending plain messages to the other writes of their stream."""
        if self.plain.stream_id >= 0:
            stream_id, pieces = self.plain.take()
            self._writes.setdefault(stream_id, []).extend(pieces)

    def _gather_alone(self) -> None:
        """Append the messages that travel alone to the commands, assigning ids to their streams."""
        singles, datagrams = self.plain.take_alone()
        if singles:
            # Streams must open in the order of their ids.
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
        """Whether there are commands, or could be once the transport has room."""
        waiting = self._writes or self.commands or self.awaiting_control or self.waiting or self.notices
        return bool(waiting) or self.plain.has_output

    def drop_output(self) -> None:
        self._gather()
        self.plain.take_alone()
        self._writes.clear()
        self._fins.clear()
        self.commands.clear()

    def forget(self) -> None:
        """Forget everything that only a live connection needs. Messages kept for the application to read stay."""
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

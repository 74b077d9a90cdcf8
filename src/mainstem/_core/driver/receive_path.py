"""The receiver's ordinary duty cycle, compiled: datagrams into terms, positions, status messages.

The protocol: docs/protocols/aeron.md, 15.

Theory of operation. A ``ReceivePath`` is one image: one publication's stream as it arrives on this host. A
``ReceiveEndpointCore`` holds a channel's sockets and decides which image a datagram belongs to. The path copies a
datagram's frames from the socket's buffer to the place in the image's log that their headers name, in whatever order they
arrive. From the log's contents the cycle derives two positions: the high-water mark (rcv-hwm, the end of the furthest
frame) and the rebuild position (rcv-pos, the end of the stream's gapless part). The ``LossDetector`` keeps a timer for each
gap between the two. The path requests gaps with NAKs, or fills them with padding if the stream is unreliable. Status
messages report the subscribers' position and the window to every sender of the image. There is no other flow control.

Exceptional events go into the ``EventBuffer``: SETUP, datagrams of unknown sessions or from unknown sources, loss reports,
the end of the stream. The receiver agent drains the buffer after the cycle, in the same thread. A full buffer drops
events; the sender repeats the frames that caused them.

Who writes what:

- The receiver's thread runs all of this code. It alone writes the image's log: frames, padding, zeroes, and in the
  metadata the end of the stream, the number of live connections and whether the publication was revoked. It moves rcv-hwm
  and rcv-pos.
- Subscribers, in other processes, read the log and write their own positions.
- The receiver agent changes the public flags (``draining``, ``rejected``, ``status_events``, ``window_length``, ...), the
  tables and the connections between two cycles, with the GIL. The conductor sends it commands. The arrays ``conn_...`` hold
  borrowed pointers to objects that ``references`` keeps alive, because a cycle without the GIL cannot count references.

Invariants:

- ``rebuild position <= high-water mark``, and neither falls. The scheduled position, which the next status message
  reports, does not fall either.
- At least the bytes from the high-water mark to ``clean_limit`` are zero. The path zeroes bytes beyond that limit shortly
  before it writes them, so that the zeroes are still in the cache when the frames replace them. Subscribers read the
  previous contents of those bytes three terms earlier.
- A datagram is inserted only between the last status message's position and half a term beyond it, where no subscriber
  reads. A datagram before this range is an under-run, one behind it an over-run; both are counted and dropped. Padding that
  begins inside the range may end behind it, because only its header is written.
- The path checks a whole datagram before it inserts any of it: its frames belong to one session, stream and term, follow
  one another, and end within the term. Inserted bytes never change: ``insert_frames`` drops repeats.
- An image ends when every live connection has announced an end; the furthest of these is the stream's end.

Memory ordering: ``insert_frames`` stores a frame's first word last, with release. A later frame may become visible before
an earlier one, but subscribers read frames in order. rcv-hwm and rcv-pos are for operators and flow control; subscribers
do not read them. The path loads the subscribers' positions with acquire before it sends the status message that lets the
sender overwrite the bytes behind them. It stores the zeroes before the frame, whose release makes them visible.

Time: this code reads the clock only for timestamps in messages. ``now_ns`` is the time of the cycle.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import cython

if TYPE_CHECKING:
    from typing_extensions import Buffer

if not cython.compiled:
    from mainstem._core.driver.events import WHOLE_FRAME
    from mainstem._core.driver.frame_checks import frames_length, sound_setup
    from mainstem._core.driver.loss_detector import MAX_GAPS
    from mainstem._core.layout import *
    from mainstem._core.log.term import (
        NO_TIMESTAMP,
        bits_of,
        check_stream,
        clean_to,
        fill_with_padding,
        first_gap,
        gap_end,
        insert_frames,
        stamp_frames,
        wrap32,
    )
    from mainstem._core.memory.plain import *
    from mainstem._core.system_counter import *

    # Limit on one image's senders through one socket. Redundant paths usually are two. Anyone can send datagrams of a known
    # session, and each connection gets every status message.
    MAX_CONNECTIONS_OF_SOCKET = 16

from mainstem._core.driver.block_allocator import BlockAllocator
from mainstem._core.driver.datagram import Address, Transport
from mainstem._core.driver.delay import StaticDelay
from mainstem._core.driver.events import EventBuffer
from mainstem._core.driver.loss_detector import LossDetector
from mainstem._core.driver.positions import PositionSet
from mainstem._core.driver.table import PathTable
from mainstem._core.memory.buffer import AtomicBuffer

NO_END = cython.declare(cython.longlong, -1)
# How many bytes are zeroed beyond what the next frames need: few enough to stay in the cache until frames replace them.
CLEAN_AHEAD = cython.declare(cython.longlong, 64 * 1024)
# How often a datagram from an unknown source is reported: often enough to connect promptly, too rarely to be a burden.
CONNECT_INTERVAL = cython.declare(cython.longlong, 1_000_000)
# Padding at the end of a term is shorter than this fraction of the term, because a message has an eighth of it at most.
MAX_PADDING_FRACTION = cython.declare(cython.longlong, 4)
FIRST_TRANSPORTS = 1
FIRST_CONNECTIONS = 2
CONNECTION_COLUMNS = 7
# Losses are accumulated this long before Python is notified: repair does not need Python, and the report is not urgent.
LOSS_REPORT_DELAY_NS = cython.declare(cython.longlong, 10_000_000)


@cython.cclass
class Silence:
    """A session whose data is not reported until ``until_ns``; an entry of ``ReceiveEndpointCore.silences``."""

    until_ns: public[cython.longlong]

    def __init__(self, until_ns: cython.longlong) -> None:
        self.until_ns = until_ns


@cython.cclass
class ReceiveEndpointCore:
    """The sockets of a subscription's channel. Only the receiver's thread uses it.

    ``paths`` maps (session, stream) to an image's path, ``interests`` holds (stream, 0) for subscribed streams, and
    ``silences`` holds sessions that Python already knows and that must not be reported. The timestamp offsets are where in each
    message's payload to store the time at which the kernel (media) or this driver (channel) received it: -1 for nowhere, -8 for
    the reserved value.
    """

    paths: readonly[PathTable]
    interests: readonly[PathTable]
    silences: readonly[PathTable]
    key: readonly[cython.int]
    last_packet_ns: readonly[cython.longlong]
    counters: AtomicBuffer
    cells: cython.p_uchar
    events: EventBuffer
    references: list
    transport_memory: AtomicBuffer
    transports: cython.pp_void
    room: cython.int
    unknown_key: cython.longlong
    media_timestamp_offset: public[cython.longlong]
    channel_timestamp_offset: public[cython.longlong]

    def __init__(self, counters: AtomicBuffer, key: cython.int = 0) -> None:
        self.counters = counters
        self.cells = counters.base
        self.key = key
        self.paths = PathTable()
        self.interests = PathTable()
        self.silences = PathTable()
        self.events = EventBuffer()
        self.references = []
        self.last_packet_ns = 0
        self.unknown_key = 0
        self.media_timestamp_offset = NO_TIMESTAMP
        self.channel_timestamp_offset = NO_TIMESTAMP
        self._resize(FIRST_TRANSPORTS)

    def _resize(self, room: cython.int) -> None:
        i: cython.int
        memory: AtomicBuffer = AtomicBuffer(bytearray(8 * room))
        self.references += [None] * (room - len(self.references))
        if cython.compiled:
            self.transports = cython.cast(cython.pp_void, memory.base)
        else:
            self.transports = [None] * room
        self.transport_memory = memory
        self.room = room
        for i in range(room):
            self._set_transport(i, self.references[i])

    def _set_transport(self, index: cython.int, transport: Transport | None) -> None:
        if not cython.compiled:
            self.transports[index] = transport
        elif transport is None:
            self.transports[index] = cython.NULL
        else:
            self.transports[index] = cython.cast(cython.p_void, transport)

    def add_transport(self, transport: Transport) -> int:
        # Slots never move, because events and connections identify a socket by its slot's index.
        if None not in self.references:
            self._resize(2 * len(self.references))
        index: cython.int = self.references.index(None)
        self.references[index] = transport
        self._set_transport(index, transport)
        return index

    def remove_transport(self, index: cython.int) -> Transport | None:
        # Clear the borrowed pointer first, so that a cycle never finds a pointer to a deleted object.
        transport = self.references[index]
        self._set_transport(index, None)
        self.references[index] = None
        return transport

    def transport(self, index: cython.int) -> Transport | None:
        return self.references[index]

    def poll(self, now_ns: cython.longlong) -> cython.int:
        i: cython.int
        n: cython.int = 0
        # Each socket gets a bounded number of batches, so that a busy one does not starve the others.
        self.unknown_key = 0
        for i in range(self.room):
            if (self.transports[i] != cython.NULL) if cython.compiled else (self.transports[i] is not None):
                n += self.poll_transport(cython.cast(Transport, self.transports[i]), i, now_ns)
        if n > 0:
            self.last_packet_ns = now_ns
        return n

    def poll_transport(self, transport: Transport, index: cython.int, now_ns: cython.longlong) -> cython.int:
        """Read one batch from a socket, and more while there are fewer datagrams than streams: visiting every stream is costly."""
        n: cython.int = 0
        nbytes: cython.longlong = 0
        while transport.receive() > 0:
            while transport.next_datagram():
                n += 1
                # Count malformed datagrams too: the counter reports what the network delivered.
                nbytes += transport.length
                if not self.dispatch(transport, index, now_ns):
                    add_to_counter(self.cells, SYSTEM_INVALID_PACKETS, 1)
            # Stop once there are events: Python handles them after the cycle, and the buffer is bounded.
            if n >= self.paths.count or transport.received < transport.slots or self.events.count > 0:
                break
        if n > 0:
            add_to_counter(self.cells, SYSTEM_BYTES_RECEIVED, nbytes)
        return n

    def dispatch(self, transport: Transport, index: cython.int, now_ns: cython.longlong) -> cython.bint:
        base = transport.base
        at: cython.longlong = transport.at
        length: cython.int = transport.length
        kind: cython.int
        min_length: cython.int
        frame_length: cython.int
        if length < 8:
            return False
        frame_length = get32(base, at + FRAME_LENGTH_OFFSET)
        kind = get16(base, at + FRAME_TYPE_OFFSET)
        if get8(base, at + FRAME_VERSION_OFFSET) != 0 or frame_length < 0:
            return False
        if kind == TYPE_DATA or kind == TYPE_PAD:
            # Senders pad the last frame of a datagram to the alignment, so an unaligned length means that it was truncated.
            if length < DATA_HEADER_LENGTH or (length & (FRAME_ALIGNMENT - 1)) != 0:
                return False
            # Do not compare it with the frame's length: that is 0 in a heartbeat, and in a PAD the length of all it covers.
            return self.on_data(transport, index, now_ns)
        if frame_length > length:
            return False
        if kind == TYPE_SETUP:
            return self.on_setup(transport, index, now_ns)
        if kind == TYPE_RTTM:
            if length < RTTM_LENGTH:
                return False
            if self.paths.find(get32(base, at + RTTM_SESSION_ID_OFFSET), get32(base, at + RTTM_STREAM_ID_OFFSET)) >= 0:
                self.events.put_frame(EVENT_FRAME, self.key, -1, now_ns, transport, index, WHOLE_FRAME)
            return True
        # Control frames for senders are legal here, and ignored.
        if kind == TYPE_SM:
            min_length = SM_LENGTH
        elif kind == TYPE_NAK:
            min_length = NAK_LENGTH
        elif kind == TYPE_ERR:
            min_length = ERR_LENGTH
        elif kind == TYPE_RSP_SETUP:
            min_length = RSP_SETUP_LENGTH
        else:
            return False
        return length >= min_length

    def on_data(self, transport: Transport, index: cython.int, now_ns: cython.longlong) -> cython.bint:
        base = transport.base
        at: cython.longlong = transport.at
        session_id: cython.int = get32(base, at + FRAME_SESSION_ID_OFFSET)
        stream_id: cython.int = get32(base, at + FRAME_STREAM_ID_OFFSET)
        path: cython.int = self.paths.find(session_id, stream_id)
        key: cython.longlong
        # The common case takes one lookup; all other branches are for sessions without an image.
        if path >= 0:
            return cython.cast(ReceivePath, self.paths.entries[path]).on_data(transport, index, now_ns)
        # If nobody subscribes or the stream has ended, no image would be created, so there is no need for a SETUP.
        if self.interests.find(stream_id, 0) < 0 or (get8(base, at + FRAME_FLAGS_OFFSET) & FLAG_EOS) != 0:
            return True
        # An image was refused or removed a short time ago, and the sender may not know it yet.
        path = self.silences.find(session_id, stream_id)
        if path >= 0 and now_ns < cython.cast(Silence, self.silences.entries[path]).until_ns:
            return True
        key = get64(base, at + FRAME_SESSION_ID_OFFSET)
        if key != self.unknown_key or self.events.count == 0:
            # Report each session once per batch.
            self.unknown_key = key
            self.events.put_frame(EVENT_UNKNOWN_SESSION, self.key, -1, now_ns, transport, index, DATA_HEADER_LENGTH)
        return True

    def on_setup(self, transport: Transport, index: cython.int, now_ns: cython.longlong) -> cython.bint:
        base = transport.base
        at: cython.longlong = transport.at
        # A SETUP's lengths decide how much memory is mapped, so check them before Python sees the frame.
        if transport.length < SETUP_LENGTH or not sound_setup(base, at):
            return False
        if self.interests.find(get32(base, at + SETUP_STREAM_ID_OFFSET), 0) >= 0:
            self.events.put_frame(EVENT_SETUP, self.key, -1, now_ns, transport, index, SETUP_LENGTH)
        return True


@cython.cclass
class ReceivePath:
    """One image's path from the network into its log (docs/protocols/aeron.md, 15.3 to 15.5).

    The constructor's ``high_water_mark`` and ``receiver_position`` are counter ids; the path sets both counters to
    ``join_position``. It validates and inserts datagrams, requests missing data, moves rcv-hwm and rcv-pos, zeroes the log ahead
    of what it inserts, schedules and sends status messages, and writes the end of the stream into the log's metadata.

    ``draining`` sets the EOS flag in status messages, ``rejected`` stops insertion and status messages, ``status_events``
    reports the time of each status message to Python, and ``reports_loss_at_once`` skips the 10 ms for which losses are
    accumulated. Any thread may set them. ``window_length`` is the window that the next status message offers.
    """

    log: readonly[AtomicBuffer]
    subscribers: readonly[PositionSet]
    session_id: readonly[cython.int]
    stream_id: readonly[cython.int]
    initial_term_id: readonly[cython.int]
    mtu: readonly[cython.int]
    term_length: readonly[cython.longlong]
    join_position: readonly[cython.longlong]
    key: public[cython.int]
    window_length: public[cython.longlong]
    force_status: public[cython.bint]
    draining: public[cython.bint]
    revoked: public[cython.bint]
    rejected: public[cython.bint]
    status_events: public[cython.bint]
    reports_loss_at_once: public[cython.bint]
    allocator: public[BlockAllocator | None]
    detector: readonly[LossDetector]
    is_reliable: cython.bint
    naks_at: cython.longlong
    bytes_lost: cython.longlong
    loss_due_ns: cython.longlong
    status_interval_ns: public[cython.longlong]
    connection_timeout_ns: public[cython.longlong]
    gap_scan_interval_ns: public[cython.longlong]
    next_python_ns: public[cython.longlong]
    last_packet_ns: readonly[cython.longlong]
    rebuild_position: readonly[cython.longlong]
    high_water_mark: readonly[cython.longlong]
    end_of_stream_position: readonly[cython.longlong]
    clean_position: readonly[cython.longlong]
    clean_limit: cython.longlong
    last_status_position: readonly[cython.longlong]
    status_messages_sent: readonly[cython.longlong]
    connections: readonly[cython.int]
    counters: AtomicBuffer
    scratch: AtomicBuffer
    events: EventBuffer
    base: cython.p_uchar
    cells: cython.p_uchar
    frame: cython.p_uchar
    meta: cython.longlong
    bits: cython.int
    endpoint_key: cython.int
    media_timestamp_offset: cython.longlong
    channel_timestamp_offset: cython.longlong
    connect_due_ns: cython.longlong
    high_at: cython.longlong
    rebuilt_at: cython.longlong
    receiver_id: cython.longlong
    group_tag: cython.longlong
    has_group_tag: cython.bint
    scheduled_position: cython.longlong
    scheduled_window: cython.longlong
    status_due_ns: cython.longlong
    noticed_gap: cython.longlong
    noticed_mark: cython.longlong
    filled: cython.bint
    gap_scan_due_ns: cython.longlong
    references: list
    connection_memory: AtomicBuffer
    connection_room: cython.longlong
    conn_transport: cython.pp_void
    conn_control: cython.pp_void
    conn_source: cython.pp_void
    conn_index: cython.p_longlong
    conn_any_source: cython.p_longlong
    conn_ns: cython.p_longlong
    conn_end: cython.p_longlong

    def __init__(
        self,
        log: AtomicBuffer,
        counters: AtomicBuffer,
        session_id: cython.int,
        stream_id: cython.int,
        initial_term_id: cython.int,
        term_length: cython.longlong,
        mtu: cython.int,
        join_position: cython.longlong,
        window_length: cython.longlong,
        receiver_id: cython.longlong,
        high_water_mark: cython.longlong,
        receiver_position: cython.longlong,
        group_tag: int | None = None,
        now_ns: cython.longlong = 0,
    ) -> None:
        check_stream(term_length, mtu, window_length)
        log.check(0, 3 * term_length + LOG_METADATA_LENGTH)
        if join_position < 0 or join_position % FRAME_ALIGNMENT:
            raise ValueError(f"no stream can be joined at position {join_position}")
        for counter_id in (high_water_mark, receiver_position):
            counters.check(counter_id * COUNTER_VALUE_LENGTH, COUNTER_VALUE_LENGTH)
        self.log = log
        self.base = log.base
        self.meta = log.capacity - LOG_METADATA_LENGTH
        self.counters = counters
        self.cells = counters.base
        self.subscribers = PositionSet(counters)
        self.session_id = session_id
        self.stream_id = stream_id
        self.initial_term_id = initial_term_id
        self.term_length = term_length
        self.bits = bits_of(term_length)
        self.mtu = mtu
        self.join_position = join_position
        self.window_length = window_length
        self.receiver_id = receiver_id
        self.has_group_tag = group_tag is not None
        self.group_tag = group_tag if group_tag is not None else 0
        # Byte offsets into the values' buffer, so that a cycle does not multiply.
        self.high_at = high_water_mark * COUNTER_VALUE_LENGTH
        self.rebuilt_at = receiver_position * COUNTER_VALUE_LENGTH
        self._begin(now_ns)
        # Set them before any subscriber position exists: readers of the counters see a stream that begins at the join position.
        st64(self.cells, self.high_at, join_position)
        st64(self.cells, self.rebuilt_at, join_position)

    def _begin(self, now_ns: cython.longlong) -> None:
        self.key = 0
        self.endpoint_key = 0
        self.media_timestamp_offset = NO_TIMESTAMP
        self.channel_timestamp_offset = NO_TIMESTAMP
        self.events = None
        self.allocator = None
        self.scratch = AtomicBuffer(bytearray(64))
        self.frame = self.scratch.base
        self.references = []
        self.connections = 0
        self._resize_connections(FIRST_CONNECTIONS)
        self.force_status = False
        self.draining = False
        self.revoked = False
        self.rejected = False
        self.status_events = False
        self.status_interval_ns = 200_000_000
        self.connection_timeout_ns = 5_000_000_000
        # Behind an open gap the mark moves with every datagram; scanning for more gaps this often is enough.
        self.gap_scan_interval_ns = 100_000
        self.next_python_ns = NEVER_NS
        self.last_packet_ns = now_ns
        self.rebuild_position = self.join_position
        self.high_water_mark = self.join_position
        self.clean_position = self.join_position
        self.clean_limit = self.clean_position + PARTITION_COUNT * self.term_length - FRAME_ALIGNMENT
        self.last_status_position = self.join_position
        self.scheduled_position = self.join_position
        self.scheduled_window = self.window_length
        self.status_due_ns = now_ns
        self.status_messages_sent = 0
        self.end_of_stream_position = NO_END
        self.detector = LossDetector(StaticDelay.unicast())
        self.is_reliable = True
        self.naks_at = -1
        self.bytes_lost = 0
        self.loss_due_ns = NEVER_NS
        self.reports_loss_at_once = False
        self.noticed_gap = NO_END
        self.noticed_mark = NO_END
        self.filled = False
        self.gap_scan_due_ns = now_ns
        self.connect_due_ns = now_ns

    def attach(self, endpoint: ReceiveEndpointCore, events: EventBuffer) -> None:
        """Set the endpoint through which the image arrives and the buffer for its events; the cycle does not check for None."""
        assert events is not None, "a path without an event buffer cannot be driven"
        self.endpoint_key = endpoint.key
        self.media_timestamp_offset = endpoint.media_timestamp_offset
        self.channel_timestamp_offset = endpoint.channel_timestamp_offset
        self.events = events

    def _resize_connections(self, room: cython.longlong) -> None:
        n: cython.int
        rows: list = [(self.conn_index[n], self.conn_ns[n], self.conn_end[n]) for n in range(self.connections)]
        memory: AtomicBuffer = AtomicBuffer(bytearray(8 * CONNECTION_COLUMNS * room))
        if cython.compiled:
            self.conn_transport = cython.cast(cython.pp_void, memory.base)
            self.conn_control = cython.cast(cython.pp_void, memory.base + 8 * room)
            self.conn_source = cython.cast(cython.pp_void, memory.base + 16 * room)
            self.conn_index = cython.cast(cython.p_longlong, memory.base + 24 * room)
            self.conn_any_source = cython.cast(cython.p_longlong, memory.base + 32 * room)
            self.conn_ns = cython.cast(cython.p_longlong, memory.base + 40 * room)
            self.conn_end = cython.cast(cython.p_longlong, memory.base + 48 * room)
        else:
            self.conn_transport, self.conn_control, self.conn_source = ([None] * room for _ in range(3))
            self.conn_index, self.conn_any_source, self.conn_ns, self.conn_end = ([0] * room for _ in range(4))
        self.connection_memory = memory
        self.connection_room = room
        for n in range(self.connections):
            self.conn_index[n], self.conn_ns[n], self.conn_end[n] = rows[n]
            self._set_connection(n, self.references[n][0], self.references[n][1], self.references[n][2])

    def add_connection(
        self, transport: Transport, index: cython.int, control: Address, source: Address | None, now_ns: cython.longlong
    ) -> bool:
        """Add a connection to a sender; return False if it is known (it is refreshed) or the socket has 16 live connections.

        Control frames go to ``control`` through ``transport``. Datagrams that arrive at that socket (``index``), from ``source``
        unless it is None, keep the connection alive.
        """
        n: cython.int
        # A repeated SETUP comes here: same socket, control address and source.
        for n in range(self.connections):
            if self.conn_index[n] == index and bytes(self.references[n][1]) == bytes(control):
                held = self.references[n][2]
                if (held is None) == (source is None) and (source is None or bytes(held) == bytes(source)):
                    self.conn_ns[n] = now_ns
                    return False
        assert index >= 0, f"there is no socket {index}"
        if not self._has_connection_room(index, now_ns):
            return False
        n = self.connections
        if n == self.connection_room:
            self._resize_connections(2 * self.connection_room)
        # Take the reference before storing the pointer, because the cycle does not count references.
        self.references.append((transport, control, source))
        self._set_connection(n, transport, control, source)
        self.conn_index[n] = index
        self.conn_ns[n] = now_ns
        self.conn_end[n] = NO_END
        self.connections = n + 1
        self._publish_connections(now_ns)
        return True

    def _has_connection_room(self, index: cython.int, now_ns: cython.longlong) -> bool:
        """Whether the socket can take one more connection; if it is full, a silent connection is dropped to make room."""
        n: cython.int
        count: cython.int = 0
        silent: cython.int = -1
        for n in range(self.connections):
            if self.conn_index[n] == index:
                count += 1
                if not self.alive(n, now_ns):
                    silent = n
        if count >= MAX_CONNECTIONS_OF_SOCKET and silent >= 0:
            self._drop_connection(silent)
            return True
        return bool(count < MAX_CONNECTIONS_OF_SOCKET)

    def _set_connection(self, n: cython.int, transport, control, source) -> None:
        self.conn_transport[n] = cython.cast(cython.p_void, transport) if cython.compiled else transport
        self.conn_control[n] = cython.cast(cython.p_void, control) if cython.compiled else control
        self.conn_any_source[n] = source is None
        self.conn_source[n] = cython.cast(cython.p_void, source) if cython.compiled else source

    def _drop_connection(self, n: cython.int) -> None:
        i: cython.int
        # Move the rows behind it down, so that the used rows stay contiguous from 0; their order means nothing.
        del self.references[n]
        for i in range(n, self.connections - 1):
            self.conn_index[i] = self.conn_index[i + 1]
            self.conn_ns[i] = self.conn_ns[i + 1]
            self.conn_end[i] = self.conn_end[i + 1]
            self._set_connection(i, self.references[i][0], self.references[i][1], self.references[i][2])
        self.connections -= 1

    def remove_transport(self, index: cython.int, now_ns: cython.longlong) -> None:
        # Iterate backwards, because dropping a row moves those behind it.
        n: cython.int = self.connections - 1
        while n >= 0:
            if self.conn_index[n] == index:
                self._drop_connection(n)
            n -= 1
        self._publish_connections(now_ns)

    def _publish_connections(self, now_ns: cython.longlong) -> None:
        st32(self.base, self.meta + LOG_ACTIVE_TRANSPORT_COUNT_OFFSET, self.connection_count(now_ns))

    def connection_count(self, now_ns: cython.longlong) -> int:
        n: cython.int
        alive: cython.int = 0
        for n in range(self.connections):
            if self.alive(n, now_ns):
                alive += 1
        return alive

    def alive(self, row: cython.int, now_ns: cython.longlong) -> cython.bint:
        return now_ns - self.conn_ns[row] < self.connection_timeout_ns

    def term_at(self, position: cython.longlong) -> cython.longlong:
        return ((position >> self.bits) % PARTITION_COUNT) << self.bits

    def term_id_at(self, position: cython.longlong) -> cython.int:
        """Return the id of the term of ``position``; ids wrap at 32 bits, positions do not."""
        return wrap32((position >> self.bits) + self.initial_term_id)

    def scan_limit(self, position: cython.longlong) -> cython.longlong:
        """Return where in the term of ``position`` a scan for gaps ends: at the high-water mark or at the end of the term."""
        limit: cython.longlong = (position & (self.term_length - 1)) + self.high_water_mark - position
        return limit if limit < self.term_length else self.term_length

    def connection_of(self, transport: Transport, index: cython.int) -> cython.int:
        i: cython.int
        for i in range(self.connections):
            # With ``conn_any_source`` (a multicast or wildcard socket), the socket alone identifies the connection.
            if self.conn_index[i] == index and (
                self.conn_any_source[i] or transport.from_same_source(cython.cast(Address, self.conn_source[i]))
            ):
                return i
        return -1

    def on_data(self, transport: Transport, index: cython.int, now_ns: cython.longlong) -> cython.bint:
        base = transport.base
        at: cython.longlong = transport.at
        offset: cython.longlong = get32(base, at + FRAME_TERM_OFFSET_OFFSET)
        terms: cython.longlong = wrap32(
            cython.cast(cython.longlong, get32(base, at + FRAME_TERM_ID_OFFSET)) - self.initial_term_id
        )
        row: cython.int
        moved: cython.longlong = 0
        moment: cython.longlong
        position: cython.longlong
        excess: cython.longlong
        if offset < 0 or offset >= self.term_length or (offset & (FRAME_ALIGNMENT - 1)) != 0:
            return False
        # A term before the first belongs to an earlier incarnation of the stream. A rejected image notifies its sender with ERR
        # frames. Drop the datagram in both cases.
        if terms < 0 or self.rejected:
            return True
        position = (terms << self.bits) + offset
        if get32(base, at + FRAME_LENGTH_OFFSET) != 0:
            # Check the whole datagram before copying any of it, so that a malformed one leaves nothing in the log.
            moved = frames_length(base, at, transport.length, self.term_length)
            if moved < 0:
                return False
        elif transport.length != DATA_HEADER_LENGTH:
            return False
        # No status message has allowed the sender to go beyond half a term, and the memory there may not be clean. Two things may
        # reach beyond it: padding, of which only the header is written, and the heartbeats of a sender that stands at the end of
        # such padding, where a term begins. Any other heartbeat is of a sender that follows faster receivers, and does not keep the
        # image alive. Frames are written only where the log's blocks are allocated.
        excess = position + moved - self.last_status_position - self.term_length // 2
        if moved == 0:
            if excess > 0 and (offset != 0 or excess > self.term_length // MAX_PADDING_FRACTION):
                add_to_counter(self.cells, SYSTEM_FLOW_CONTROL_OVER_RUNS, 1)
                return True
        elif (excess > 0 and (2 * excess > self.term_length or excess > moved - transport.length)) or (
            self.allocator is not None and not self.allocator.admits(position + min(moved, transport.length))
        ):
            add_to_counter(self.cells, SYSTEM_FLOW_CONTROL_OVER_RUNS, 1)
            return True
        # After the checks, so that a malformed datagram keeps no connection alive.
        row = self.connection_of(transport, index)
        if row < 0 and now_ns >= self.connect_due_ns:
            # No SETUP announced this path to the sender: it is one of several, or was added later.
            self.connect_due_ns = now_ns + CONNECT_INTERVAL
            self.events.put_frame(
                EVENT_UNKNOWN_SESSION, self.endpoint_key, -1, now_ns, transport, index, DATA_HEADER_LENGTH
            )
        if moved == 0:
            self.on_heartbeat(position, get8(base, at + FRAME_FLAGS_OFFSET), row, now_ns)
            return True
        if position < self.last_status_position:
            add_to_counter(self.cells, SYSTEM_FLOW_CONTROL_UNDER_RUNS, 1)
            # Data that was already consumed. It is not inserted, but a sender that repeats recently sent data is alive.
            if position < self.last_status_position - self.scheduled_window:
                return True
        else:
            if self.media_timestamp_offset != NO_TIMESTAMP:
                moment = transport.arrival_ns(now_ns)
                stamp_frames(base, at, transport.length, self.media_timestamp_offset, moment)
            if self.channel_timestamp_offset != NO_TIMESTAMP:
                moment = transport.epoch_ns(now_ns)
                stamp_frames(base, at, transport.length, self.channel_timestamp_offset, moment)
            if position + moved > self.clean_limit:
                self.clean_for(position + moved)
            # Order does not matter: each frame has a fixed place, and a repeat finds its place taken.
            insert_frames(self.base, self.term_at(position) + offset, base, at, transport.length)
            self.raise_mark(position + moved)
        self.last_packet_ns = now_ns
        if row >= 0:
            self.conn_ns[row] = now_ns
        return True

    def clean_for(self, position: cython.longlong) -> cython.void:
        """Zero the log up to a position that is about to be written, and ``CLEAN_AHEAD`` bytes beyond."""
        target: cython.longlong = position + CLEAN_AHEAD - PARTITION_COUNT * self.term_length
        # ``clean_to`` stops at a term's end.
        while self.clean_position < target:
            self.clean_position = clean_to(self.base, self.term_length, self.clean_position, target, False)
        self.clean_limit = self.clean_position + PARTITION_COUNT * self.term_length - FRAME_ALIGNMENT

    def raise_mark(self, position: cython.longlong) -> cython.void:
        # Datagrams may arrive out of order, so only ever raise the mark.
        if position > self.high_water_mark:
            self.high_water_mark = position
            st64(self.cells, self.high_at, position)
        else:
            self.filled = True

    def on_heartbeat(
        self, position: cython.longlong, flags: cython.int, row: cython.int, now_ns: cython.longlong
    ) -> cython.void:
        mark: cython.longlong
        if position < self.last_status_position - self.term_length:
            add_to_counter(self.cells, SYSTEM_FLOW_CONTROL_UNDER_RUNS, 1)
            return
        add_to_counter(self.cells, SYSTEM_HEARTBEATS_RECEIVED, 1)
        self.last_packet_ns = now_ns
        if row >= 0:
            self.conn_ns[row] = now_ns
        # A heartbeat tells the sender's position: missing data before it was lost, and is requested as far as the path would
        # insert it.
        mark = min(position, self.last_status_position + self.term_length // 2)
        if mark > self.clean_limit:
            self.clean_for(mark)
        self.raise_mark(mark)
        if flags & FLAG_EOS:
            self.on_end(position, (flags & FLAG_REVOKED) != 0, row, now_ns)

    def on_end(
        self, position: cython.longlong, revoked: cython.bint, row: cython.int, now_ns: cython.longlong
    ) -> cython.void:
        """Note the end of the stream on one connection; it ends when all live ones have ended (docs/protocols/aeron.md, 15.5)."""
        i: cython.int
        end: cython.longlong = position
        if row >= 0:
            self.conn_end[row] = position
        for i in range(self.connections):
            if self.conn_end[i] > end:
                end = self.conn_end[i]
            if self.conn_end[i] < 0 and self.alive(i, now_ns):
                return
        # Only once, except that a revocation may follow an ordinary end if the publication was revoked while it drained.
        if self.end_of_stream_position < 0 or (revoked and not self.revoked):
            self.end_of_stream_position = end
            # A reader that sees the end then checks whether the stream was revoked, so store that first.
            if revoked:
                self.revoked = True
                put8(self.base, self.meta + LOG_IS_PUBLICATION_REVOKED_OFFSET, 1)
            st64(self.base, self.meta + LOG_END_OF_STREAM_POSITION_OFFSET, end)
            if revoked:
                self.events.put(EVENT_END_OF_STREAM, self.endpoint_key, self.key, now_ns, 1)

    def work(self, now_ns: cython.longlong, reminders: cython.bint) -> cython.int:
        """Run one duty cycle: update positions, look for gaps, send a status message if one is due. Return the amount of work.

        ``reminders``: whether a status message may be sent although nothing was consumed.
        """
        work: cython.int = 0
        # If missing blocks made the window small, announce it again each time it grows.
        if self.allocator is not None and self.allocator.follow(
            self.scheduled_position + self.scheduled_window, now_ns
        ):
            self.force_status = True
            work = 1
        self.rebuild(now_ns)
        # Tell the sender at once that its whole stream has arrived, so that it does not linger longer than necessary.
        if (
            self.end_of_stream_position >= 0
            and not self.draining
            and not self.revoked
            and self.rebuild_position >= self.high_water_mark
            and self.events.put(EVENT_END_OF_STREAM, self.endpoint_key, self.key, now_ns, 0)
        ):
            self.draining = True
            self.status_due_ns = now_ns
        # Send by consumption, so that a fast stream gets its window in time, and by time, to show that a quiet receiver is alive.
        if self.schedule_status() or (reminders and now_ns >= self.status_due_ns):
            self.send_status(now_ns)
            work = 1
        return work

    def next_due_ns(self) -> cython.longlong:
        result: cython.longlong = min(self.next_python_ns, min(self.status_due_ns, self.detector.deadline_ns))
        if self.noticed_gap != NO_END and (self.filled or self.high_water_mark != self.noticed_mark):
            result = min(result, self.gap_scan_due_ns)
        if self.bytes_lost > 0:
            result = min(result, self.loss_due_ns)
        return result

    def rebuild(self, now_ns: cython.longlong) -> cython.void:
        """Move the rebuild position to the first gap, and note that gap."""
        position: cython.longlong = min(self.subscribers.highest(self.rebuild_position), self.high_water_mark)
        offset: cython.longlong
        limit: cython.longlong
        whole: cython.longlong
        gap: cython.bint = False
        # A subscriber ahead of the rebuild position has passed a gap that was filled since, so the scan can start there.
        if position < self.rebuild_position:
            position = self.rebuild_position
        while position < self.high_water_mark:
            offset = position & (self.term_length - 1)
            limit = self.scan_limit(position)
            whole = first_gap(self.base, self.term_at(position), offset, limit)
            position += whole - offset
            if whole < limit:
                gap = True
                break
        if position != self.rebuild_position:
            self.rebuild_position = position
            st64(self.cells, self.rebuilt_at, position)
        if not gap:
            if self.noticed_gap != NO_END:
                self.noticed_gap = NO_END
                self.detector.forget(now_ns)
        # A scan of everything behind a gap takes time proportional to its length, so scan only for a new gap, at a deadline, or
        # after an interval.
        elif (
            position != self.noticed_gap
            or now_ns >= self.detector.deadline_ns
            or ((self.filled or self.high_water_mark != self.noticed_mark) and now_ns >= self.gap_scan_due_ns)
        ):
            self.noticed_gap = position
            self.noticed_mark = self.high_water_mark
            self.filled = False
            self.gap_scan_due_ns = now_ns + self.gap_scan_interval_ns
            self.find_gaps(now_ns)
            self.repair(now_ns)
        if self.bytes_lost > 0 and (self.reports_loss_at_once or now_ns >= self.loss_due_ns):
            # If the event does not fit, keep the bytes and report them with the next ones.
            if self.events.put(EVENT_LOSS, self.endpoint_key, self.key, now_ns, self.bytes_lost):
                self.bytes_lost = 0

    def find_gaps(self, now_ns: cython.longlong) -> cython.void:
        position: cython.longlong = self.rebuild_position
        offset: cython.longlong
        limit: cython.longlong
        gap: cython.longlong
        fresh: cython.longlong = 0
        self.detector.begin()
        while position < self.high_water_mark and self.detector.count < MAX_GAPS:
            offset = position & (self.term_length - 1)
            limit = self.scan_limit(position)
            gap = first_gap(self.base, self.term_at(position), offset, limit)
            position += gap - offset
            if gap < limit:
                limit = gap_end(self.base, self.term_at(position), gap, limit)
                fresh += self.detector.found(position, limit - gap, now_ns)
                position += limit - gap
        self.detector.finish(now_ns)
        if fresh > 0:
            if self.bytes_lost == 0:
                self.loss_due_ns = now_ns + LOSS_REPORT_DELAY_NS
            self.bytes_lost += fresh

    def repair(self, now_ns: cython.longlong) -> cython.void:
        """Request the gaps that are due, or fill them if the stream is unreliable."""
        i: cython.int
        if self.revoked or self.rejected:
            return
        i = self.detector.next_due(0, now_ns)
        while i >= 0:
            if self.is_reliable:
                self.put_nak(self.detector.position[i], self.detector.request_length, now_ns)
            elif self.fill(self.detector.position[i], self.detector.request_length):
                add_to_counter(self.cells, SYSTEM_LOSS_GAP_FILLS, 1)
            i = self.detector.next_due(i + 1, now_ns)
        self.detector.set_deadline()

    def schedule_status(self) -> cython.bint:
        """Whether consumers moved far enough or the window changed (docs/protocols/aeron.md, 15.4)."""
        # Subscribers cannot have read data that did not arrive, so a corrupt counter of another process must not clean the log.
        consumed: cython.longlong = min(self.subscribers.lowest(self.scheduled_position), self.high_water_mark)
        if not (
            self.force_status
            or consumed > self.scheduled_position + self.scheduled_window // 4
            or self.window_length != self.scheduled_window
        ):
            return False
        self.force_status = False
        # A subscriber may have left, or joined further back: never withdraw an announced position.
        if consumed < self.scheduled_position:
            consumed = self.scheduled_position
        self.scheduled_position = consumed
        self.scheduled_window = self.window_length
        return True

    def send_status(self, now_ns: cython.longlong) -> cython.void:
        length: cython.int = SM_LENGTH
        window: cython.longlong = self.scheduled_window
        if self.allocator is not None:
            window = self.allocator.window(self.scheduled_position, window)
        self.status_due_ns = now_ns + self.status_interval_ns
        if self.status_events or self.rejected:
            self.events.put(EVENT_STATUS_DUE, self.endpoint_key, self.key, now_ns, 0)
        # A rejected image sends an ERR frame instead. Python sends it, on the event above.
        if self.rejected:
            return
        put32(self.frame, SM_SESSION_ID_OFFSET, self.session_id)
        put32(self.frame, SM_STREAM_ID_OFFSET, self.stream_id)
        put32(
            self.frame,
            SM_CONSUMPTION_TERM_ID_OFFSET,
            self.term_id_at(self.scheduled_position),
        )
        put32(
            self.frame,
            SM_CONSUMPTION_TERM_OFFSET_OFFSET,
            cython.cast(cython.int, self.scheduled_position & (self.term_length - 1)),
        )
        put32(self.frame, SM_RECEIVER_WINDOW_OFFSET, cython.cast(cython.int, window))
        put64(self.frame, SM_RECEIVER_ID_OFFSET, self.receiver_id)
        if self.has_group_tag:
            put64(self.frame, SM_GROUP_TAG_OFFSET, self.group_tag)
            length = SM_LENGTH_WITH_GROUP_TAG
        put32(self.frame, FRAME_LENGTH_OFFSET, length)
        put8(self.frame, FRAME_VERSION_OFFSET, 0)
        put8(self.frame, FRAME_FLAGS_OFFSET, SM_FLAG_EOS if self.draining else 0)
        put16(self.frame, FRAME_TYPE_OFFSET, TYPE_SM)
        if self.put_to_all(self.frame, length, now_ns) > 0:
            self.status_messages_sent += 1
            add_to_counter(self.cells, SYSTEM_STATUS_MESSAGES_SENT, 1)
        # Even if nobody received it: arriving data is checked against the scheduled position.
        self.last_status_position = self.scheduled_position

    def put_to_all(self, base: cython.p_const_uchar, length: cython.int, now_ns: cython.longlong) -> cython.int:
        i: cython.int
        left: cython.int = 0
        alive: cython.int = 0
        for i in range(self.connections):
            # Every sender of the image receives the same frames, because each of them needs the window.
            if self.alive(i, now_ns):
                alive += 1
                if cython.cast(Transport, self.conn_transport[i]).send_one(
                    cython.cast(Address, self.conn_control[i]), base, 0, length
                ):
                    left += 1
        # A connection dies by silence, which no datagram announces, so update the number that subscribers see with each control
        # frame.
        if alive != ld32(self.base, self.meta + LOG_ACTIVE_TRANSPORT_COUNT_OFFSET):
            st32(self.base, self.meta + LOG_ACTIVE_TRANSPORT_COUNT_OFFSET, alive)
        if left < alive:
            add_to_counter(self.cells, SYSTEM_SHORT_SENDS, 1)
        return left

    def send_frame(self, frame: Buffer, now_ns: cython.longlong) -> int:
        buffer: AtomicBuffer = AtomicBuffer(bytearray(frame))
        return self.put_to_all(buffer.base, cython.cast(cython.int, buffer.capacity), now_ns)

    def put_nak(self, position: cython.longlong, length: cython.longlong, now_ns: cython.longlong) -> cython.int:
        put32(self.frame, FRAME_LENGTH_OFFSET, NAK_LENGTH)
        put8(self.frame, FRAME_VERSION_OFFSET, 0)
        put8(self.frame, FRAME_FLAGS_OFFSET, 0)
        put16(self.frame, FRAME_TYPE_OFFSET, TYPE_NAK)
        put32(self.frame, NAK_SESSION_ID_OFFSET, self.session_id)
        put32(self.frame, NAK_STREAM_ID_OFFSET, self.stream_id)
        put32(self.frame, NAK_TERM_ID_OFFSET, self.term_id_at(position))
        put32(self.frame, NAK_TERM_OFFSET_OFFSET, cython.cast(cython.int, position & (self.term_length - 1)))
        put32(self.frame, NAK_LENGTH_OFFSET, cython.cast(cython.int, length))
        left: cython.int = self.put_to_all(self.frame, NAK_LENGTH, now_ns)
        # Count one NAK per gap, regardless of the number of senders it went to.
        if left > 0:
            add_to_counter(self.cells, SYSTEM_NAKS_SENT, 1)
            if self.naks_at >= 0:
                fadd64(self.cells, self.naks_at, 1)
        return left

    def fill(self, position: cython.longlong, length: cython.longlong) -> cython.bint:
        """Turn a gap of an unreliable stream into padding; return False if the gap has been filled meanwhile."""
        return fill_with_padding(
            self.base,
            self.meta,
            self.term_at(position),
            position & (self.term_length - 1),
            length,
            self.term_id_at(position),
        )

    def set_loss_detector(self, detector: LossDetector, is_reliable: cython.bint = True) -> None:
        assert detector is not None, "the path asks its detector about every gap"
        self.detector = detector
        self.is_reliable = is_reliable

    def set_nak_counter(self, counter_id: cython.longlong) -> None:
        self.counters.check(counter_id * COUNTER_VALUE_LENGTH, COUNTER_VALUE_LENGTH)
        self.naks_at = counter_id * COUNTER_VALUE_LENGTH

    def status_now(self) -> None:
        self.status_due_ns = 0

"""The receiver's ordinary duty cycle, compiled: datagrams into terms, positions, status messages.

The protocol: docs/protocols/aeron.md, 15.

Theory of operation. A ``ReceivePath`` is one image: one publication's stream as it arrives here. A
``ReceiveEndpointCore`` is a channel's sockets, and which image a datagram is for. A datagram's frames are copied from
the socket's buffer to the place in the image's log that their header names, in whatever order they arrive. From what is
there the cycle derives two positions: the high-water mark (rcv-hwm, the end of the furthest frame) and the rebuild
position (rcv-pos, up to which there is no gap). Gaps between them are timed by the ``LossDetector`` and asked for with
NAKs, or filled with padding where the stream is unreliable. Status messages report the subscribers' position and the
window to every sender of the image; that is all of the flow control.

What is not ordinary goes into the ``EventBuffer``, for the receiver agent, which drains it after the cycle, in the same
thread: SETUP, datagrams of unknown sessions or from unknown sources, loss reports, the end of the stream. When the
buffer is full an event is dropped, and the sender's repetition brings it again.

Who writes what:

- The receiver's thread runs all of this. It alone writes the image's log: frames, padding, zeroes, and in the metadata
  the end of the stream, the number of live connections and whether the publication was revoked. It moves rcv-hwm and
  rcv-pos.
- Subscribers, in other processes, read the log and write their own positions.
- The public flags (``draining``, ``rejected``, ``status_events``, ``window_length``, ...), tables and connections are
  changed by the receiver agent between two cycles, with the GIL; what the conductor wants of them comes as a command.
  The arrays ``conn_...`` hold borrowed pointers to what ``references`` keeps alive, because a cycle without the GIL
  cannot count references.

Invariants:

- ``rebuild position <= high-water mark``, and neither falls. The scheduled position, which the next status message
  reports, does not fall either.
- The log is zero from the high-water mark to ``clean_limit``, at least. What lies beyond it is zeroed shortly before it is
  written, so that the zeroes are still in the cache when the frames replace them. That is what was read three terms
  earlier.
- A datagram is inserted only between the last status message's position and half a term beyond it. So no subscriber is in
  the memory: before that it is an under-run, behind it an over-run, counted and dropped. Padding that begins before that
  edge may end behind it: only its header is written.
- A datagram is checked whole before any of it is inserted: frames of one session, stream and term that follow one
  another, and do not run over the term. What is inserted once is never changed: repeats are dropped by
  ``insert_frames``.
- An image ends when every live connection has named an end; the furthest of these is the stream's.

What may be reordered: ``insert_frames`` stores a frame's first word last, with release. A later frame may be visible
before an earlier one, but subscribers walk in order. rcv-hwm and rcv-pos are for operators and flow control;
subscribers do not read them. Subscribers' positions are loaded with acquire before the status message that lets the
sender write behind them. The zeroes are stored before the frame with whose release they become visible.

Time: nothing here reads a clock but for timestamps in messages. ``now_ns`` is the time of the cycle.
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

    # Senders of one image through one socket: redundant paths, of which two are usual. Anyone can send datagrams of a known
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
# How many bytes are zeroed beyond the next frames at a time: few enough that they stay in the cache until they are written.
CLEAN_AHEAD = cython.declare(cython.longlong, 64 * 1024)
# How often a datagram from an unknown source is reported: often enough to connect at once, too seldom to be a burden.
CONNECT_INTERVAL = cython.declare(cython.longlong, 1_000_000)
FIRST_TRANSPORTS = 1
FIRST_CONNECTIONS = 2
CONNECTION_COLUMNS = 7
# Loss is gathered this long before it is reported to Python: repairing it needs no Python, and a report is not urgent.
LOSS_REPORT_DELAY_NS = cython.declare(cython.longlong, 10_000_000)


@cython.cclass
class Silence:
    """A session whose data is not reported until ``until_ns``; an entry of ``ReceiveEndpointCore.silences``."""

    until_ns: public[cython.longlong]

    def __init__(self, until_ns: cython.longlong) -> None:
        self.until_ns = until_ns


@cython.cclass
class ReceiveEndpointCore:
    """The sockets of a subscription's channel. Used by the receiver's thread only.

    ``paths`` leads from (session, stream) to an image's path, ``interests`` holds (stream, 0) of subscribed streams, and
    ``silences`` sessions that are known to Python and not to be reported. The timestamp offsets say where in each message's
    payload the time goes at which the kernel (media) or this driver (channel) received it: -1 nowhere, -8 into the reserved value.
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
        # Slots are fixed, because their index names the socket in events and connections.
        if None not in self.references:
            self._resize(2 * len(self.references))
        index: cython.int = self.references.index(None)
        self.references[index] = transport
        self._set_transport(index, transport)
        return index

    def remove_transport(self, index: cython.int) -> Transport | None:
        # The borrowed pointer goes first: a cycle never finds one whose object is gone.
        transport = self.references[index]
        self._set_transport(index, None)
        self.references[index] = None
        return transport

    def transport(self, index: cython.int) -> Transport | None:
        return self.references[index]

    def poll(self, now_ns: cython.longlong) -> cython.int:
        i: cython.int
        n: cython.int = 0
        # Bounded: a socket that never runs dry does not keep the others waiting.
        self.unknown_key = 0
        for i in range(self.room):
            if (self.transports[i] != cython.NULL) if cython.compiled else (self.transports[i] is not None):
                n += self.poll_transport(cython.cast(Transport, self.transports[i]), i, now_ns)
        if n > 0:
            self.last_packet_ns = now_ns
        return n

    def poll_transport(self, transport: Transport, index: cython.int, now_ns: cython.longlong) -> cython.int:
        """Take a batch from one socket, and as many more as it has streams: a round visits each of them, which has to pay."""
        n: cython.int = 0
        nbytes: cython.longlong = 0
        while transport.receive() > 0:
            while transport.next_datagram():
                n += 1
                # Also those that turn out malformed: the counter is what the network delivered.
                nbytes += transport.length
                if not self.dispatch(transport, index, now_ns):
                    fadd64(self.cells, SYSTEM_INVALID_PACKETS * COUNTER_VALUE_LENGTH, 1)
            # What Python has to decide waits for the end of the cycle, and has bounded room.
            if n >= self.paths.count or transport.received < transport.slots or self.events.count > 0:
                break
        if n > 0:
            fadd64(self.cells, SYSTEM_BYTES_RECEIVED * COUNTER_VALUE_LENGTH, nbytes)
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
            # Senders pad the last frame of a datagram to the alignment, so a length that is not aligned was cut on its way.
            if length < DATA_HEADER_LENGTH or (length & (FRAME_ALIGNMENT - 1)) != 0:
                return False
            # Not compared with the frame's length: a heartbeat has 0 there, and a PAD the length of all it covers.
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
        # Control frames that are meant for senders: legal here, and ignored.
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
        # The common case, one look-up: all other branches are for sessions without an image.
        if path >= 0:
            return cython.cast(ReceivePath, self.paths.entries[path]).on_data(transport, index, now_ns)
        # No subscription for it, or the stream has ended: no image would be made, so there is nothing to ask for.
        if self.interests.find(stream_id, 0) < 0 or (get8(base, at + FRAME_FLAGS_OFFSET) & FLAG_EOS) != 0:
            return True
        # An image was refused or has gone a short time ago, and the sender may not know it yet.
        path = self.silences.find(session_id, stream_id)
        if path >= 0 and now_ns < cython.cast(Silence, self.silences.entries[path]).until_ns:
            return True
        key = get64(base, at + FRAME_SESSION_ID_OFFSET)
        if key != self.unknown_key or self.events.count == 0:
            # One report for each batch is enough.
            self.unknown_key = key
            self.events.put_frame(EVENT_UNKNOWN_SESSION, self.key, -1, now_ns, transport, index, DATA_HEADER_LENGTH)
        return True

    def on_setup(self, transport: Transport, index: cython.int, now_ns: cython.longlong) -> cython.bint:
        base = transport.base
        at: cython.longlong = transport.at
        # Lengths in a SETUP decide how much memory is mapped: they are checked before Python sees the frame.
        if transport.length < SETUP_LENGTH or not sound_setup(base, at):
            return False
        if self.interests.find(get32(base, at + SETUP_STREAM_ID_OFFSET), 0) >= 0:
            self.events.put_frame(EVENT_SETUP, self.key, -1, now_ns, transport, index, SETUP_LENGTH)
        return True


@cython.cclass
class ReceivePath:
    """One image's way from the network into its log (docs/protocols/aeron.md, 15.3 to 15.5).

    ``high_water_mark`` and ``receiver_position`` of the constructor are counter ids; the path sets both to ``join_position``. It
    validates and inserts datagrams, asks for what is missing, moves rcv-hwm and rcv-pos, cleans ahead of what it inserts,
    schedules and sends status messages, and writes the end of the stream into the log's metadata.

    ``draining`` puts the EOS flag into status messages, ``rejected`` stops insertion and status messages, ``status_events``
    reports each status message's time to Python, ``reports_loss_at_once`` does not gather losses for 10 ms first; all may be
    set from any thread. ``window_length`` is what the next status message offers.
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
        # Byte offsets in the values' buffer, so that a cycle does not multiply.
        self.high_at = high_water_mark * COUNTER_VALUE_LENGTH
        self.rebuilt_at = receiver_position * COUNTER_VALUE_LENGTH
        self._begin(now_ns)
        # Before a subscriber's position exists: who reads the counters finds a stream that begins where it was joined.
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
        # Behind an open gap the mark moves with every datagram; to scan for more gaps this often is enough.
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
        """Set through which sockets the image arrives, and where its events go; the cycle does not check for None."""
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
        """Add a connection to a sender; False when it was known (then it is refreshed), or this socket has 16 that live.

        Control frames go to ``control`` through ``transport``; datagrams of that socket (``index``), from ``source`` where one is
        given, keep it alive.
        """
        n: cython.int
        # The same sender through the same socket, by control address and source: a SETUP that is repeated comes here.
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
        # Referenced before its pointer is stored, for the cycle counts no references.
        self.references.append((transport, control, source))
        self._set_connection(n, transport, control, source)
        self.conn_index[n] = index
        self.conn_ns[n] = now_ns
        self.conn_end[n] = NO_END
        self.connections = n + 1
        self._publish_connections(now_ns)
        return True

    def _has_connection_room(self, index: cython.int, now_ns: cython.longlong) -> bool:
        """Whether the socket may have one more connection; of a full one a silent connection makes room."""
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
        # The rows behind it move down, so that those in use stay the first ones; their order means nothing.
        del self.references[n]
        for i in range(n, self.connections - 1):
            self.conn_index[i] = self.conn_index[i + 1]
            self.conn_ns[i] = self.conn_ns[i + 1]
            self.conn_end[i] = self.conn_end[i + 1]
            self._set_connection(i, self.references[i][0], self.references[i][1], self.references[i][2])
        self.connections -= 1

    def remove_transport(self, index: cython.int, now_ns: cython.longlong) -> None:
        # Backwards, as dropping a row moves those behind it.
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
        """The id of the term of ``position``; ids wrap at 32 bits, positions do not."""
        return wrap32((position >> self.bits) + self.initial_term_id)

    def scan_limit(self, position: cython.longlong) -> cython.longlong:
        """Where in the term of ``position`` a scan for gaps ends: at the high-water mark, or with the term."""
        limit: cython.longlong = (position & (self.term_length - 1)) + self.high_water_mark - position
        return limit if limit < self.term_length else self.term_length

    def connection_of(self, transport: Transport, index: cython.int) -> cython.int:
        i: cython.int
        for i in range(self.connections):
            # ``conn_any_source``: a multicast or wildcard socket, where the socket alone identifies the connection.
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
        # Before the beginning of the stream: of an earlier life of it, and dropped. Rejected: the sender is notified by ERR frames.
        if terms < 0 or self.rejected:
            return True
        position = (terms << self.bits) + offset
        if get32(base, at + FRAME_LENGTH_OFFSET) != 0:
            # Checked whole before any of it is copied, so that a malformed datagram leaves nothing in the log.
            moved = frames_length(base, at, transport.length, self.term_length)
            if moved < 0:
                return False
        elif transport.length != DATA_HEADER_LENGTH:
            return False
        # Beyond half a term no status message has allowed the sender to go, and the memory may not be clean. Padding may lead
        # beyond, of which only the header is written, and then the sender's heartbeats lie there, which write nothing. What is
        # written must have blocks.
        excess = position + moved - self.last_status_position - self.term_length // 2
        if (excess > 0 and (2 * excess > self.term_length or (moved > 0 and excess > moved - transport.length))) or (
            moved > 0
            and self.allocator is not None
            and not self.allocator.admits(position + min(moved, transport.length))
        ):
            fadd64(self.cells, SYSTEM_OVER_RUNS * COUNTER_VALUE_LENGTH, 1)
            return True
        # After the checks: a malformed datagram keeps no connection alive.
        row = self.connection_of(transport, index)
        if row < 0 and now_ns >= self.connect_due_ns:
            # A way to the sender that no SETUP announced: one of several, or added later.
            self.connect_due_ns = now_ns + CONNECT_INTERVAL
            self.events.put_frame(
                EVENT_UNKNOWN_SESSION, self.endpoint_key, -1, now_ns, transport, index, DATA_HEADER_LENGTH
            )
        if moved == 0:
            self.on_heartbeat(position, get8(base, at + FRAME_FLAGS_OFFSET), row, now_ns)
            return True
        if position < self.last_status_position:
            fadd64(self.cells, SYSTEM_UNDER_RUNS * COUNTER_VALUE_LENGTH, 1)
            # A repeat of what was consumed. It is not inserted, but a sender that repeats lately sent data is alive.
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
            # In whatever order datagrams come: each has its place, and a repeat finds its place taken.
            insert_frames(self.base, self.term_at(position) + offset, base, at, transport.length)
            self.raise_mark(position + moved)
        self.last_packet_ns = now_ns
        if row >= 0:
            self.conn_ns[row] = now_ns
        return True

    def clean_for(self, position: cython.longlong) -> cython.void:
        """Zero the log up to a position that is about to be written, and a little beyond."""
        target: cython.longlong = position + CLEAN_AHEAD - PARTITION_COUNT * self.term_length
        # ``clean_to`` stops at a term's end.
        while self.clean_position < target:
            self.clean_position = clean_to(self.base, self.term_length, self.clean_position, target, False)
        self.clean_limit = self.clean_position + PARTITION_COUNT * self.term_length - FRAME_ALIGNMENT

    def raise_mark(self, position: cython.longlong) -> cython.void:
        # Datagrams overtake one another, so the mark may only rise.
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
            fadd64(self.cells, SYSTEM_UNDER_RUNS * COUNTER_VALUE_LENGTH, 1)
            return
        fadd64(self.cells, SYSTEM_HEARTBEATS_RECEIVED * COUNTER_VALUE_LENGTH, 1)
        self.last_packet_ns = now_ns
        if row >= 0:
            self.conn_ns[row] = now_ns
        # A heartbeat says how far the sender is: what is missing before it was lost, and is asked for, as far as it would be
        # inserted.
        mark = min(position, self.last_status_position + self.term_length // 2)
        if mark > self.clean_limit:
            self.clean_for(mark)
        self.raise_mark(mark)
        if flags & FLAG_EOS:
            self.on_end(position, (flags & FLAG_REVOKED) != 0, row, now_ns)

    def on_end(
        self, position: cython.longlong, revoked: cython.bint, row: cython.int, now_ns: cython.longlong
    ) -> cython.void:
        """One connection carries the end of the stream; it has ended when all live ones do (docs/protocols/aeron.md, 15.5)."""
        i: cython.int
        end: cython.longlong = position
        if row >= 0:
            self.conn_end[row] = position
        for i in range(self.connections):
            if self.conn_end[i] > end:
                end = self.conn_end[i]
            if self.conn_end[i] < 0 and self.alive(i, now_ns):
                return
        # Once, but a revocation may follow an ordinary end: the publication was withdrawn while it drained.
        if self.end_of_stream_position < 0 or (revoked and not self.revoked):
            self.end_of_stream_position = end
            # A reader that sees the end asks next whether the stream was revoked, so that is stored first.
            if revoked:
                self.revoked = True
                put8(self.base, self.meta + LOG_IS_PUBLICATION_REVOKED_OFFSET, 1)
            st64(self.base, self.meta + LOG_END_OF_STREAM_POSITION_OFFSET, end)
            self.events.put(EVENT_END_OF_STREAM, self.endpoint_key, self.key, now_ns, 1 if revoked else 0)

    def work(self, now_ns: cython.longlong, reminders: cython.bint) -> cython.int:
        """One duty cycle: positions, gaps, the status message that is due; how much there was to do.

        ``reminders``: a status message may be sent though nothing was consumed.
        """
        work: cython.int = 0
        # If the window was small because blocks were missing, announce it again each time it grows.
        if self.allocator is not None and self.allocator.follow(
            self.scheduled_position + self.scheduled_window, now_ns
        ):
            self.force_status = True
            work = 1
        self.rebuild(now_ns)
        # By consumption, so that a fast stream gets its window in time; by time, so that a quiet receiver is known to live.
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
        """Move the position up to which the stream is whole, and notices the first gap behind it."""
        position: cython.longlong = min(self.subscribers.highest(self.rebuild_position), self.high_water_mark)
        offset: cython.longlong
        limit: cython.longlong
        whole: cython.longlong
        gap: cython.bint = False
        # A subscriber ahead of the rebuild position has passed a gap that is complete by now: the scan may start there.
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
        # Scanning all that is behind a gap costs by its length. So only for a new gap, a deadline, or after an interval.
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
            # Where the event does not fit, the bytes stay and are reported with the next ones.
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
        """Ask for the gaps whose time has come, or fill them where the stream is unreliable."""
        i: cython.int
        if self.revoked or self.rejected:
            return
        i = self.detector.next_due(0, now_ns)
        while i >= 0:
            if self.is_reliable:
                self.put_nak(self.detector.position[i], self.detector.request_length, now_ns)
            elif self.fill(self.detector.position[i], self.detector.request_length):
                fadd64(self.cells, SYSTEM_GAP_FILLS * COUNTER_VALUE_LENGTH, 1)
            i = self.detector.next_due(i + 1, now_ns)
        self.detector.set_deadline()

    def schedule_status(self) -> cython.bint:
        """Whether consumers moved far enough, or the window changed (docs/protocols/aeron.md, 15.4)."""
        # No subscriber has read what did not arrive: a counter that another process corrupted must not clean the log.
        consumed: cython.longlong = min(self.subscribers.lowest(self.scheduled_position), self.high_water_mark)
        if not (
            self.force_status
            or consumed > self.scheduled_position + self.scheduled_window // 4
            or self.window_length != self.scheduled_window
        ):
            return False
        self.force_status = False
        # Subscribers may be gone, or one may have joined behind: what was announced is not taken back.
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
        # A rejected image sends an ERR frame instead, from Python, which the event above asks for.
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
            fadd64(self.cells, SYSTEM_STATUS_MESSAGES_SENT * COUNTER_VALUE_LENGTH, 1)
        # Even where it left for no one: what was scheduled is what the checks of arriving data go by.
        self.last_status_position = self.scheduled_position

    def put_to_all(self, base: cython.p_const_uchar, length: cython.int, now_ns: cython.longlong) -> cython.int:
        i: cython.int
        left: cython.int = 0
        alive: cython.int = 0
        for i in range(self.connections):
            # Every sender of the image receives the same: each of several needs the window.
            if self.alive(i, now_ns):
                alive += 1
                if cython.cast(Transport, self.conn_transport[i]).send_one(
                    cython.cast(Address, self.conn_control[i]), base, 0, length
                ):
                    left += 1
        # Connections die by silence, which no datagram announces: subscribers see the number as of the last control frame.
        if alive != ld32(self.base, self.meta + LOG_ACTIVE_TRANSPORT_COUNT_OFFSET):
            st32(self.base, self.meta + LOG_ACTIVE_TRANSPORT_COUNT_OFFSET, alive)
        if left < alive:
            fadd64(self.cells, SYSTEM_SHORT_SENDS * COUNTER_VALUE_LENGTH, 1)
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
        # One NAK for each gap, to however many senders it went.
        if left > 0:
            fadd64(self.cells, SYSTEM_NAKS_SENT * COUNTER_VALUE_LENGTH, 1)
            if self.naks_at >= 0:
                fadd64(self.cells, self.naks_at, 1)
        return left

    def fill(self, position: cython.longlong, length: cython.longlong) -> cython.bint:
        """Make a gap of an unreliable stream padding; false when it has been filled meanwhile."""
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

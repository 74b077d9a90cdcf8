"""The sender's ordinary duty cycle, compiled: limits, data and heartbeats out, status messages in.

The protocol: docs/protocols/aeron.md, 14.

Theory of operation. A ``SendPath`` does the sender's work for one network publication; a ``SendEndpointCore`` is the
socket that several of them share. Each cycle sends what the receivers' window allows, straight from the log: the bytes
of a term are the bytes of the datagrams, so only the kernel copies them. Frames are gathered into datagrams up to the MTU,
and equal datagrams into runs, which one call of sendmmsg sends with segmentation offload.

The cycle handles the ordinary cases itself, without the GIL. Anything that needs a decision goes into an ``EventBuffer``: an
unknown receiver, one that left or timed out, a SETUP that is due, a frame for Python. The sender agent drains the buffer
after the cycle, in the same thread. A full buffer drops events as the network drops datagrams; the peer repeats whatever
caused them.

Who writes what:

- The sender's thread runs all of this code. It writes the counters pub-lmt, pub-pos, snd-pos, snd-lmt and snd-bpe,
  ``is connected`` in the log's metadata, and zeroes behind the consumers.
- Producers, in other processes, write frames and tails. Spies, which are subscribers on this host, write their own
  positions.
- The sender agent changes the public flags (``draining``, ``end_of_stream``, ``revoked``, ...) and the entries of ``paths``,
  ``destinations`` and ``spies`` between two cycles, with the GIL. The conductor sends it commands. Tables hold borrowed
  pointers to objects that Python keeps alive, because a cycle without the GIL cannot count references: it calls
  ``cython.cast(SendPath, self.paths.entries[i])`` immediately and never stores it.

Invariants:

- ``slowest consumer <= sender position <= tail``. ``sender position <= sender limit``, unless the limit was lowered; the
  path then sends nothing until the limit passes the position again.
- The clean region begins at the stream's start and ends one term behind the slowest consumer.
- The publisher limit is ``min(sender position, slowest spy) + window``. It rises only as long as producers stay out of
  memory that is not zero yet: the limit must be less than two terms ahead of the clean position's term, or two if that
  position begins its term.
- Data before the sender position is sent again only for a NAK, and only as far back as the ``RetransmitHandler`` allows.

Memory ordering: the path loads a frame's length with acquire before it passes the bytes to the kernel. It stores the sender
position with release after the kernel took them. The clean position is local. Zeroes are stored before the limit that
admits producers to them; the path stores the limit with release, and producers load it with acquire.

Time: nothing here reads a clock. ``now_ns`` is the time of the cycle, and deadlines are compared with it, so a simulator can
run this code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import cython

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Buffer

if not cython.compiled:
    from mainstem._core.driver.events import WHOLE_FRAME
    from mainstem._core.driver.frame_checks import before_beginning
    from mainstem._core.layout import *
    from mainstem._core.log.term import (
        MAX_RUNS,
        NO_TIMESTAMP,
        bits_of,
        check_stream,
        clean_to,
        scan_runs,
        stamp_frames,
        tail_position,
        wrap32,
    )
    from mainstem._core.memory.plain import *
    from mainstem._core.system_counter import *

from mainstem._core.driver.block_allocator import BlockAllocator
from mainstem._core.driver.datagram import Address, Transport
from mainstem._core.driver.destinations import DestinationList
from mainstem._core.driver.events import EventBuffer
from mainstem._core.driver.positions import PositionSet
from mainstem._core.driver.receivers import ReceiverTable
from mainstem._core.driver.retransmit import RetransmitHandler
from mainstem._core.driver.table import PathTable
from mainstem._core.log.term import RunBatch
from mainstem._core.memory.buffer import AtomicBuffer

# A sender that has used up its window reports its position after this long, then at doubling intervals. If the last datagram
# before the limit was lost, the receiver does not know that anything is missing, and would learn it only from the next heartbeat.
FIRST_PROBE_NS = cython.declare(cython.longlong, 10_000_000)
# Each receiver's timeout is checked this many times per timeout interval.
EXPIRY_CHECKS = cython.declare(cython.longlong, 16)
# Batches that one control socket may deliver per cycle, so that a flood of control frames cannot stop the data.
CONTROL_BATCHES = cython.declare(cython.int, 4)


@cython.cclass
class SendEndpointCore:
    """The socket of a publication's channel: sends data to one destination or to ``many``, receives control frames.

    A ``destination`` of None means the address the socket is connected to. Only the sender's thread uses it.
    """

    transport: readonly[Transport]
    paths: readonly[PathTable]
    key: readonly[cython.int]
    many: readonly[cython.bint]
    destinations: readonly[DestinationList]
    last_status_ns: readonly[cython.longlong]
    counters: AtomicBuffer
    cells: cython.p_uchar
    events: EventBuffer
    single: Address
    first: cython.int

    def __init__(
        self,
        transport: Transport,
        counters: AtomicBuffer,
        key: cython.int = 0,
        many: cython.bint = False,
        destination: Address | None = None,
    ) -> None:
        self.transport = transport
        self.counters = counters
        self.cells = counters.base
        self.key = key
        self.many = many
        self.single = destination
        self.paths = PathTable()
        self.events = EventBuffer()
        self.destinations = DestinationList()
        self.first = 0
        self.last_status_ns = 0

    def set_destination(self, destination: Address | None) -> None:
        self.single = destination

    def send_runs(self, to: Address, base: cython.p_const_uchar, batch: RunBatch) -> cython.int:
        return self.transport.send_runs(to, base, batch.offset, batch.length, batch.segment, batch.count)

    def send_batch(self, only: Address, base: cython.p_const_uchar, batch: RunBatch) -> cython.int:
        """Send a batch to ``only``, the single destination or each of many; return how many runs left whole for all of them."""
        i: cython.int
        which: cython.int
        left: cython.int
        least: cython.int = batch.count
        # ``only`` is the only receiver of a response channel.
        if only is not None:
            return self.send_runs(only, base, batch)
        if not self.many:
            return self.send_runs(self.single, base, batch)
        # A full socket buffer refuses the last destinations, so each batch starts with another one.
        self.first += 1
        if self.first >= self.destinations.count:
            self.first = 0
        for i in range(self.destinations.count):
            which = (self.first + i) % self.destinations.count
            left = self.send_runs(cython.cast(Address, self.destinations.entries[which]), base, batch)
            # The position advances by what left for all destinations. The others get the rest twice, and drop the repeats.
            if left < least:
                least = left
        return least

    def put_frame(
        self, only: Address, base: cython.p_const_uchar, at: cython.longlong, length: cython.int
    ) -> cython.bint:
        i: cython.int
        result: cython.bint = True
        if only is not None or not self.many:
            if only is None:
                return self.transport.send_one(self.single, base, at, length)
            return self.transport.send_one(only, base, at, length)
        for i in range(self.destinations.count):
            if not self.transport.send_one(cython.cast(Address, self.destinations.entries[i]), base, at, length):
                result = False
        return result

    def send_frame(self, frame: Buffer, only: Address | None = None) -> bool:
        # Copy it: transports take an address, and the caller's bytes may not be contiguous or writable.
        buffer: AtomicBuffer = AtomicBuffer(bytearray(frame))
        return bool(self.put_frame(only, buffer.base, 0, cython.cast(cython.int, buffer.capacity)))

    def poll(self, now_ns: cython.longlong) -> cython.int:
        n: cython.int = 0
        batches: cython.int = 0
        # A batch may be as large as the transport's slots; the rest stays in the socket's buffer until the next cycle.
        while batches < CONTROL_BATCHES and self.transport.receive() > 0:
            batches += 1
            while self.transport.next_datagram():
                n += 1
                if not self.dispatch(now_ns):
                    add_to_counter(self.cells, SYSTEM_INVALID_PACKETS, 1)
        return n

    def dispatch(self, now_ns: cython.longlong) -> cython.bint:
        base = self.transport.base
        at: cython.longlong = self.transport.at
        length: cython.int = self.transport.length
        kind: cython.int
        frame_length: cython.int
        if length < 8:
            return False
        frame_length = get32(base, at + FRAME_LENGTH_OFFSET)
        kind = get16(base, at + FRAME_TYPE_OFFSET)
        # Every control frame states its length; if it is longer than its datagram, it was truncated or forged.
        if get8(base, at + FRAME_VERSION_OFFSET) != 0 or frame_length < 0 or frame_length > length:
            return False
        if kind == TYPE_SM:
            return self.on_status(now_ns)
        if kind == TYPE_NAK:
            return self.on_nak(now_ns)
        return self.on_other(now_ns)

    def on_other(self, now_ns: cython.longlong) -> cython.bint:
        base = self.transport.base
        at: cython.longlong = self.transport.at
        length: cython.int = self.transport.length
        kind: cython.int = get16(base, at + FRAME_TYPE_OFFSET)
        path: cython.int
        text: cython.int
        if kind == TYPE_RTTM:
            if length < RTTM_LENGTH:
                return False
        elif kind == TYPE_ERR:
            if length < ERR_LENGTH:
                return False
            text = get32(base, at + ERR_TEXT_LENGTH_OFFSET)
            if text < 0 or text > ERR_MAX_TEXT_LENGTH or ERR_LENGTH + text > length:
                return False
        elif kind == TYPE_RSP_SETUP:
            if length < RSP_SETUP_LENGTH:
                return False
        else:
            # A sender gets data and SETUPs only if its channel is looped back; everything else is unknown.
            return (kind == TYPE_DATA or kind == TYPE_PAD or kind == TYPE_SETUP) and length >= DATA_HEADER_LENGTH
        # In all three, the session and stream ids follow the common header.
        path = self.paths.find(get32(base, at + 8), get32(base, at + 12))
        if path >= 0:
            cython.cast(SendPath, self.paths.entries[path]).report(EVENT_FRAME, self.transport, now_ns)
        return True

    def on_nak(self, now_ns: cython.longlong) -> cython.bint:
        base = self.transport.base
        at: cython.longlong = self.transport.at
        path: cython.int
        if self.transport.length < NAK_LENGTH:
            return False
        path = self.paths.find(get32(base, at + NAK_SESSION_ID_OFFSET), get32(base, at + NAK_STREAM_ID_OFFSET))
        # A NAK for a publication that is gone is legal and has no effect. Receivers send NAKs until they notice the end.
        return path < 0 or cython.cast(SendPath, self.paths.entries[path]).on_nak(
            get32(base, at + NAK_TERM_ID_OFFSET),
            get32(base, at + NAK_TERM_OFFSET_OFFSET),
            get32(base, at + NAK_LENGTH_OFFSET),
            self.transport.source_key(),
            now_ns,
        )

    def on_status(self, now_ns: cython.longlong) -> cython.bint:
        """Refresh the destination that a status message came from, then pass the message to its publication."""
        base = self.transport.base
        at: cython.longlong = self.transport.at
        index: cython.int
        offset: cython.longlong
        if self.transport.length < SM_LENGTH:
            return False
        offset = get32(base, at + SM_CONSUMPTION_TERM_OFFSET_OFFSET)
        # Check here what does not need the publication; ``SendPath.on_status_message`` checks the rest.
        if get32(base, at + SM_RECEIVER_WINDOW_OFFSET) < 0 or offset < 0 or (offset & (FRAME_ALIGNMENT - 1)) != 0:
            return False
        add_to_counter(self.cells, SYSTEM_STATUS_MESSAGES_RECEIVED, 1)
        # Even for an unknown publication: names are resolved again only when the endpoint hears nothing.
        self.last_status_ns = now_ns
        if self.many and not self.destinations.refresh(self.transport, get64(base, at + SM_RECEIVER_ID_OFFSET), now_ns):
            # A dynamic destination announces itself with status messages. Only Python can add it, since it needs an ``Address``.
            self.events.put_frame(EVENT_DESTINATION, self.key, -1, now_ns, self.transport, 0, WHOLE_FRAME)
        index = self.paths.find(get32(base, at + SM_SESSION_ID_OFFSET), get32(base, at + SM_STREAM_ID_OFFSET))
        return index < 0 or cython.cast(SendPath, self.paths.entries[index]).on_status_message(self.transport, now_ns)


@cython.cclass
class SendPath:
    """One network publication's path from its log to the network (docs/protocols/aeron.md, 11.6 and 14).

    The constructor's last arguments are counter ids; those counters must already hold the start position. The path moves
    pub-lmt, pub-pos, snd-pos, snd-lmt and snd-bpe, cleans the log and writes is-connected by itself.

    Any thread may set ``draining``, ``end_of_stream`` and ``revoked``, and read positions. ``tracks_minimum`` makes the limit the
    lowest of the counted receivers' limits (otherwise it only rises), ``limit_frozen`` stops it, and ``limit_cap`` bounds it.
    ``timestamp_offset`` is where in each message's payload to store the time of sending (-1 for nowhere, -8 for the reserved
    value). ``group_ready`` says whether flow control has the receivers it requires.
    """

    log: readonly[AtomicBuffer]
    allocator: public[BlockAllocator | None]
    spies: readonly[PositionSet]
    endpoint: readonly[SendEndpointCore]
    destination: readonly[Address | None]
    session_id: readonly[cython.int]
    stream_id: readonly[cython.int]
    initial_term_id: readonly[cython.int]
    mtu: readonly[cython.int]
    term_length: readonly[cython.longlong]
    window_length: readonly[cython.longlong]
    publisher_limit: readonly[cython.longlong]
    sender_position: readonly[cython.longlong]
    sender_limit: readonly[cython.longlong]
    clean_position: readonly[cython.longlong]
    last_send_ns: readonly[cython.longlong]
    last_status_ns: readonly[cython.longlong]
    table: readonly[ReceiverTable]
    retransmit: readonly[RetransmitHandler]
    naks_at: cython.longlong
    connected: readonly[cython.bint]
    key: public[cython.int]
    on_resend: public[Callable[[int, int], None] | None]
    draining: public[cython.bint]
    end_of_stream: public[cython.bint]
    revoked: public[cython.bint]
    spies_simulate_connection: public[cython.bint]
    group_ready: public[cython.bint]
    limit_frozen: public[cython.bint]
    tracks_minimum: public[cython.bint]
    has_initial_connection: public[cython.bint]
    setup_elicited: public[cython.bint]
    received_unicast_eos: public[cython.bint]
    limit_cap: public[cython.longlong]
    timestamp_offset: public[cython.longlong]
    setup_due_ns: public[cython.longlong]
    setup_interval_ns: public[cython.longlong]
    heartbeat_interval_ns: public[cython.longlong]
    receiver_timeout_ns: public[cython.longlong]
    next_python_ns: public[cython.longlong]
    counters: AtomicBuffer
    scratch: AtomicBuffer
    batch: RunBatch
    events: EventBuffer
    base: cython.p_uchar
    cells: cython.p_uchar
    frame: cython.p_uchar
    meta: cython.longlong
    bits: cython.int
    max_runs: cython.int
    limit_at: cython.longlong
    produced_at: cython.longlong
    sent_at: cython.longlong
    sender_limit_at: cython.longlong
    pressure_at: cython.longlong
    heartbeat_due_ns: cython.longlong
    padding_position: cython.longlong
    probe_due_ns: cython.longlong
    probe_interval_ns: cython.longlong
    expiry_due_ns: cython.longlong
    counts_pressure: cython.bint
    malformed_position: cython.longlong
    has_taken_blocks: cython.bint

    def __init__(
        self,
        log: AtomicBuffer,
        counters: AtomicBuffer,
        session_id: cython.int,
        stream_id: cython.int,
        initial_term_id: cython.int,
        term_length: cython.longlong,
        mtu: cython.int,
        window_length: cython.longlong,
        publisher_limit: cython.longlong,
        publisher_position: cython.longlong,
        sender_position: cython.longlong,
        sender_limit: cython.longlong,
        back_pressure: cython.longlong,
        max_runs: cython.int = 16,
        spies_simulate_connection: cython.bint = False,
        now_ns: cython.longlong = 0,
    ) -> None:
        check_stream(term_length, mtu, window_length)
        assert 0 < max_runs <= MAX_RUNS, f"max_runs: {max_runs} is not one of 1 to {MAX_RUNS}"
        log.check(0, 3 * term_length + LOG_METADATA_LENGTH)
        for counter_id in (publisher_limit, publisher_position, sender_position, sender_limit, back_pressure):
            counters.check(counter_id * COUNTER_VALUE_LENGTH, COUNTER_VALUE_LENGTH)
        self.log = log
        self.base = log.base
        self.meta = log.capacity - LOG_METADATA_LENGTH
        self.counters = counters
        self.cells = counters.base
        self.session_id = session_id
        self.stream_id = stream_id
        self.initial_term_id = initial_term_id
        self.term_length = term_length
        self.bits = bits_of(term_length)
        self.mtu = mtu
        self.timestamp_offset = NO_TIMESTAMP
        self.window_length = window_length
        self.max_runs = max_runs
        self.limit_at = publisher_limit * COUNTER_VALUE_LENGTH
        self.produced_at = publisher_position * COUNTER_VALUE_LENGTH
        self.sent_at = sender_position * COUNTER_VALUE_LENGTH
        self.sender_limit_at = sender_limit * COUNTER_VALUE_LENGTH
        self.pressure_at = back_pressure * COUNTER_VALUE_LENGTH
        self.publisher_limit = ld64(self.cells, self.limit_at)
        self.sender_position = ld64(self.cells, self.sent_at)
        self.sender_limit = ld64(self.cells, self.sender_limit_at)
        assert self.sender_position >= 0, f"a stream cannot start at position {self.sender_position}"
        assert self.sender_position % FRAME_ALIGNMENT == 0, f"no frame starts at position {self.sender_position}"
        # The limit starts at the position: nothing is sent before a receiver has allowed it.
        # Nothing before the start was ever written.
        self.clean_position = self.sender_position
        self.spies = PositionSet(counters)
        self.spies_simulate_connection = spies_simulate_connection
        self._begin(now_ns)

    def _begin(self, now_ns: cython.longlong) -> None:
        self.endpoint = None
        self.allocator = None
        self.has_taken_blocks = False
        self.destination = None
        self.events = None
        self.batch = RunBatch()
        self.scratch = AtomicBuffer(bytearray(64))
        self.frame = self.scratch.base
        self.key = 0
        self.table = ReceiverTable()
        self.retransmit = RetransmitHandler(self.term_length)
        self.naks_at = -1
        self.on_resend = None
        self.connected = False
        self.draining = False
        self.end_of_stream = False
        self.revoked = False
        self.group_ready = True
        self.limit_frozen = False
        self.tracks_minimum = False
        self.has_initial_connection = False
        self.setup_elicited = False
        self.received_unicast_eos = False
        self.counts_pressure = True
        self.malformed_position = -1
        # No cap. The maximum int64 serves for positions as well as times.
        self.limit_cap = NEVER_NS
        self.setup_due_ns = now_ns
        self.setup_interval_ns = 100_000_000
        self.heartbeat_interval_ns = 100_000_000
        self.receiver_timeout_ns = 5_000_000_000
        self.next_python_ns = NEVER_NS
        self.heartbeat_due_ns = now_ns
        self.padding_position = -1
        self.probe_due_ns = now_ns
        self.probe_interval_ns = FIRST_PROBE_NS
        self.expiry_due_ns = now_ns
        self.last_send_ns = now_ns
        self.last_status_ns = now_ns

    def attach(self, endpoint: SendEndpointCore, events: EventBuffer) -> None:
        """Set the stream's socket and the buffer for its events; the cycle checks neither for None."""
        assert endpoint is not None, "a path without an endpoint cannot be driven"
        assert events is not None, "a path without an event buffer cannot be driven"
        self.endpoint = endpoint
        self.events = events

    def set_destination(self, destination: Address | None) -> None:
        self.destination = destination

    @property
    def receiver_count(self) -> int:
        return self.table.count

    @property
    def has_receivers(self) -> bool:
        return self.table.count > 0

    def term_at(self, position: cython.longlong) -> cython.longlong:
        return ((position >> self.bits) % PARTITION_COUNT) << self.bits

    def term_id_at(self, position: cython.longlong) -> cython.int:
        """Return the id of the term of ``position``; ids wrap at 32 bits, positions do not."""
        return wrap32((position >> self.bits) + self.initial_term_id)

    def position_of(self, term_id: cython.int, offset: cython.longlong) -> cython.longlong:
        terms: cython.longlong = wrap32(cython.cast(cython.longlong, term_id) - self.initial_term_id)
        return shift_left(terms, self.bits) + offset

    def work(self, now_ns: cython.longlong, heartbeats: cython.bint) -> cython.longlong:
        """Run one duty cycle; return the bytes sent, plus 1 if blocks were allocated. ``heartbeats``: one may be sent."""
        sent: cython.longlong = 0
        # Only Python knows a SETUP's flags and TTL. If the event does not fit, the next cycle asks again.
        if (not self.has_initial_connection or self.setup_elicited) and now_ns >= self.setup_due_ns:
            if self.events.put(EVENT_SETUP_DUE, self.endpoint.key, self.key, now_ns, 0):
                self.setup_due_ns = now_ns + self.setup_interval_ns
        # Without receivers, but with spies that count as receivers, there is nobody to send to: the position follows the spies.
        if self.table.count == 0 and self.spies_simulate_connection and self.spies.count > 0:
            self.follow_spies()
        else:
            sent = self.send_data(now_ns)
        # Check timers after sending data: a data frame makes a heartbeat superfluous.
        if sent == 0:
            if heartbeats and self.has_initial_connection:
                # Idle: a heartbeat tells receivers the stream's position, so that they notice the loss of its last frames.
                if now_ns >= self.heartbeat_due_ns:
                    self.send_heartbeat(now_ns)
                # Stopped by the window: double the interval, because a receiver that is merely slow needs no reminder.
                elif self.batch.blocked and now_ns >= self.probe_due_ns:
                    self.probe_interval_ns = 2 * self.probe_interval_ns
                    self.send_heartbeat(now_ns)
            # A receiver that left or was discounted may have been the one that held the limit back.
            if self.tracks_minimum and self.table.count > 0 and not self.limit_frozen:
                self.set_sender_limit(self.table.lowest_edge(self.sender_limit))
        self.move_limits(now_ns)
        if now_ns >= self.retransmit.deadline_ns:
            self.repeat_delayed(now_ns)
        if now_ns >= self.expiry_due_ns:
            self.expire_receivers(now_ns)
        # Block allocation counts as work, so that the next step follows at once.
        return sent + 1 if self.has_taken_blocks else sent

    def set_connected(self, connected: cython.bint) -> cython.void:
        if connected != self.connected:
            self.connected = connected
            st32(self.base, self.meta + LOG_IS_CONNECTED_OFFSET, 1 if connected else 0)

    def move_limits(self, now_ns: cython.longlong) -> cython.void:
        """Update the publisher limit, the clean position and the producer position (docs/protocols/aeron.md, 11.6)."""
        limit: cython.longlong
        consumer: cython.longlong
        ahead: cython.longlong
        before: cython.longlong
        self.has_taken_blocks = False
        # For operators and for draining; producers do not read it.
        produced: cython.longlong = tail_position(self.base, self.meta, self.term_length, self.initial_term_id)
        st64(self.cells, self.produced_at, produced)
        has_readers: cython.bint = not self.revoked and (
            (self.table.count > 0 and self.group_ready) or (self.spies_simulate_connection and self.spies.count > 0)
        )
        # The conductor clamped the limit when draining began, so it must not rise again.
        if self.draining:
            self.set_connected(has_readers)
            return
        # Without a receiver, producers stop at once: their data would be sent to nobody, and then be lost.
        if not has_readers:
            self.set_connected(False)
            if self.publisher_limit > self.sender_position:
                self.publisher_limit = self.sender_position
                st64(self.cells, self.limit_at, self.sender_position)
            return
        # The sender is a consumer like every spy; the slowest of them limits the producers.
        consumer = self.spies.lowest(self.sender_position)
        if consumer > self.sender_position:
            consumer = self.sender_position
        limit = consumer + self.window_length
        if self.allocator is not None:
            before = self.allocator.position
            limit = self.allocator.limit(limit, produced, now_ns)
            self.has_taken_blocks = self.allocator.position != before
        # While connected the limit only rises: a spy that joins further back must not withdraw what producers were allowed.
        if limit > self.publisher_limit:
            # Clean only up to one term behind the consumers, so that NAKs for recently sent data still find it in the log.
            self.clean_position = clean_to(
                self.base, self.term_length, self.clean_position, consumer - self.term_length, True
            )
            # Producers must not write memory that is not clean yet. It holds the data from three terms before.
            ahead = (limit >> self.bits) - (self.clean_position >> self.bits)
            if ahead < 2 or (ahead == 2 and (self.clean_position & (self.term_length - 1)) != 0):
                self.publisher_limit = limit
                st64(self.cells, self.limit_at, limit)
        # Set this after the limit, so that producers that see they are connected can write.
        self.set_connected(True)

    def follow_spies(self) -> cython.void:
        """Move the sender position with the spies, without sending, if there are only spies (docs/protocols/aeron.md, 19.5)."""
        # Never beyond the producers, whatever value another process gave to a spy's counter.
        position: cython.longlong = min(
            self.spies.highest(self.sender_position),
            tail_position(self.base, self.meta, self.term_length, self.initial_term_id),
        )
        if position > self.sender_position:
            self.sender_position = position
            self.padding_position = -1
            st64(self.cells, self.sent_at, position)
        if self.sender_limit < self.sender_position:
            self.set_sender_limit(self.sender_position)

    def send_data(self, now_ns: cython.longlong) -> cython.longlong:
        position: cython.longlong = self.sender_position
        bytes_sent: cython.longlong = 0
        accepted: cython.int
        count: cython.int
        i: cython.int
        moment: cython.longlong
        covered: cython.longlong
        # Send from one term at a time. The next cycle sends from the next term, and follows at once because there was work.
        count = scan_runs(
            self.batch,
            self.base,
            self.term_at(position),
            position & (self.term_length - 1),
            self.term_length,
            self.sender_limit - position,
            self.mtu,
            self.max_runs,
            self.endpoint.transport.max_segments,
        )
        if self.batch.malformed != 0 and count == 0 and position != self.malformed_position:
            # The stream ends here, since the start of the next frame is unknown. If the event does not fit, the next cycle retries.
            if self.events.put(EVENT_MALFORMED_FRAME, self.endpoint.key, self.key, now_ns, self.batch.malformed):
                self.malformed_position = position
        if count == 0:
            if self.batch.blocked and self.counts_pressure:
                # Count back pressure once between two successful sends.
                self.counts_pressure = False
                fadd64(self.cells, self.pressure_at, 1)
                add_to_counter(self.cells, SYSTEM_SENDER_FLOW_CONTROL_LIMITS, 1)
            return 0
        if self.timestamp_offset != NO_TIMESTAMP:
            moment = self.endpoint.transport.epoch_ns(now_ns)
            # Stamp the log itself, because its bytes are sent. A retransmission carries the time of the first sending.
            for i in range(count):
                stamp_frames(self.base, self.batch.offset[i], self.batch.length[i], self.timestamp_offset, moment)
        accepted = self.endpoint.send_batch(self.destination, self.base, self.batch)
        # A full socket buffer is not an error: the position stays before the unsent data, and the next cycle continues there.
        if accepted < count:
            add_to_counter(self.cells, SYSTEM_SHORT_SENDS, 1)
        if accepted <= 0:
            return 0
        # Bytes on the wire and distance in the stream differ by padding, of which only the header is sent.
        for i in range(accepted):
            bytes_sent += self.batch.length[i]
        covered = self.batch.advance[accepted - 1] - self.batch.length[accepted - 1]
        if accepted > 1:
            covered -= self.batch.advance[accepted - 2]
        self.sender_position = position + self.batch.advance[accepted - 1]
        # Padding ends a run, so the bytes that the last run covers follow its last header.
        self.padding_position = self.sender_position - covered - DATA_HEADER_LENGTH if covered > 0 else -1
        st64(self.cells, self.sent_at, self.sender_position)
        add_to_counter(self.cells, SYSTEM_BYTES_SENT, bytes_sent)
        self.counts_pressure = True
        self.last_send_ns = now_ns
        self.heartbeat_due_ns = now_ns + self.heartbeat_interval_ns
        # The window had room, so the next stall starts with the shortest interval again.
        self.probe_interval_ns = FIRST_PROBE_NS
        self.probe_due_ns = now_ns + FIRST_PROBE_NS
        return bytes_sent

    def stamp_header(
        self, length: cython.int, flags: cython.int, kind: cython.int, position: cython.longlong
    ) -> cython.void:
        put32(self.frame, FRAME_LENGTH_OFFSET, length)
        put8(self.frame, FRAME_VERSION_OFFSET, 0)
        put8(self.frame, FRAME_FLAGS_OFFSET, flags)
        put16(self.frame, FRAME_TYPE_OFFSET, kind)
        put32(self.frame, 8, cython.cast(cython.int, position & (self.term_length - 1)))
        put32(self.frame, 12, self.session_id)
        put32(self.frame, 16, self.stream_id)

    def send_heartbeat(self, now_ns: cython.longlong) -> cython.void:
        """Send an empty data frame at the sender's position; its flags carry the end of the stream."""
        flags: cython.int = FLAG_UNFRAGMENTED
        if self.end_of_stream:
            flags |= FLAG_EOS
            # Revoked implies ended: a receiver that does not know the flag sees an ordinary end of the stream.
            if self.revoked:
                flags |= FLAG_REVOKED
        # Padding may lead past the limit, where a receiver accepts no heartbeat. The receiver accepts a heartbeat at the start of
        # the padding, which reveals loss before it. That one does not carry the end of the stream.
        if self.sender_position > self.sender_limit and self.padding_position >= 0:
            self.announce(self.padding_position, FLAG_UNFRAGMENTED)
        self.announce(self.sender_position, flags)
        self.last_send_ns = now_ns
        self.heartbeat_due_ns = now_ns + self.heartbeat_interval_ns
        self.probe_due_ns = now_ns + self.probe_interval_ns

    def announce(self, position: cython.longlong, flags: cython.int) -> cython.void:
        # A frame length of 0 distinguishes a heartbeat from a data frame without payload.
        self.stamp_header(0, flags, TYPE_DATA, position)
        put32(self.frame, FRAME_TERM_ID_OFFSET, self.term_id_at(position))
        put64(self.frame, FRAME_RESERVED_VALUE_OFFSET, 0)
        if self.endpoint.put_frame(self.destination, self.frame, 0, DATA_HEADER_LENGTH):
            add_to_counter(self.cells, SYSTEM_HEARTBEATS_SENT, 1)
        else:
            add_to_counter(self.cells, SYSTEM_SHORT_SENDS, 1)

    def send_setup(self, flags: cython.int, ttl: cython.int) -> bool:
        self.stamp_header(SETUP_LENGTH, flags, TYPE_SETUP, self.sender_position)
        put32(self.frame, SETUP_INITIAL_TERM_ID_OFFSET, self.initial_term_id)
        put32(self.frame, SETUP_ACTIVE_TERM_ID_OFFSET, self.term_id_at(self.sender_position))
        put32(self.frame, SETUP_TERM_LENGTH_OFFSET, cython.cast(cython.int, self.term_length))
        put32(self.frame, SETUP_MTU_OFFSET, self.mtu)
        put32(self.frame, SETUP_TTL_OFFSET, ttl)
        left: cython.bint = self.endpoint.put_frame(self.destination, self.frame, 0, SETUP_LENGTH)
        if not left:
            add_to_counter(self.cells, SYSTEM_SHORT_SENDS, 1)
        return bool(left)

    def heartbeat_now(self) -> None:
        self.heartbeat_due_ns = 0

    def set_sender_limit(self, limit: cython.longlong) -> cython.void:
        # Every change of the limit goes through here, so the cap, which holds it while a receiver joins, always applies.
        if limit > self.limit_cap:
            limit = self.limit_cap
        if limit != self.sender_limit:
            self.sender_limit = limit
            st64(self.cells, self.sender_limit_at, limit)

    def report(self, kind: cython.int, transport: Transport, now_ns: cython.longlong) -> cython.bint:
        return self.events.put_frame(kind, self.endpoint.key, self.key, now_ns, transport, 0, WHOLE_FRAME)

    def on_status_message(self, transport: Transport, now_ns: cython.longlong) -> cython.bint:
        """Handle a status message for this publication; return False if it contradicts the stream (docs/protocols/aeron.md, 17).

        Only messages of known receivers are handled here. Flow control, in Python, decides whether to admit a new receiver, what
        its leaving means, and when to send a SETUP.
        """
        base = transport.base
        at: cython.longlong = transport.at
        flags: cython.int = get8(base, at + FRAME_FLAGS_OFFSET)
        term_id: cython.int = get32(base, at + SM_CONSUMPTION_TERM_ID_OFFSET)
        offset: cython.longlong = get32(base, at + SM_CONSUMPTION_TERM_OFFSET_OFFSET)
        window: cython.longlong = get32(base, at + SM_RECEIVER_WINDOW_OFFSET)
        position: cython.longlong
        distance: cython.longlong
        row: cython.int
        # A receiver that has data but no image asks for a SETUP; the rest of such a message does not refer to the stream.
        if flags & SM_FLAG_SEND_SETUP:
            self.report(EVENT_SETUP_ELICITED, transport, now_ns)
            return True
        # With a window of more than half a term, the sender could overwrite data that receivers have not consumed.
        if (
            offset >= self.term_length
            or window > self.term_length // 2
            or before_beginning(term_id, self.initial_term_id)
        ):
            return False
        position = self.position_of(term_id, offset)
        distance = position - self.sender_position
        # After padding that leads past the limit, the sender can be further from a slow receiver than any window.
        if self.sender_position > self.sender_limit and self.padding_position >= 0:
            distance = position - self.padding_position
        if 2 * distance > self.term_length or -2 * distance > self.term_length:
            # Half a term away from the sender, so from an earlier incarnation of the stream, or forged. Counted, not malformed.
            add_to_counter(self.cells, SYSTEM_STATUS_MESSAGES_REJECTED, 1)
            return True
        # The receiver leaves. Flow control decides whether the limit may rise without it.
        if flags & SM_FLAG_EOS:
            self.report(EVENT_RECEIVER_LEFT, transport, now_ns)
            return True
        row = self.table.find(get64(base, at + SM_RECEIVER_ID_OFFSET))
        # If the limit follows the minimum, a known receiver that does not count becomes a candidate again.
        if row < 0 or (self.tracks_minimum and not self.table.counts[row]):
            self.report(EVENT_NEW_RECEIVER, transport, now_ns)
        if row >= 0:
            self.follow_receiver(row, position + window, transport.source_key(), now_ns)
        return True

    def follow_receiver(
        self, row: cython.int, edge: cython.longlong, source: cython.longlong, now_ns: cython.longlong
    ) -> cython.void:
        """Refresh a known receiver that reports the ``edge`` up to which it accepts data, and move the limit (17)."""
        self.table.refresh(row, edge, source, now_ns)
        self.last_status_ns = now_ns
        self.has_initial_connection = True
        if self.limit_frozen:
            return
        # If no receiver counts, the group is empty, and any receiver lets the sender continue.
        if self.tracks_minimum:
            edge = self.table.lowest_edge(edge)
        if edge > self.sender_limit:
            self.set_sender_limit(edge)

    def expire_receivers(self, now_ns: cython.longlong) -> cython.void:
        i: cython.int
        # Only report them: the agent removes rows after the cycle, so the table does not change during this loop.
        for i in range(self.table.count):
            if now_ns - self.table.heard_ns[i] > self.receiver_timeout_ns:
                self.events.put(EVENT_RECEIVER_EXPIRED, self.endpoint.key, self.key, now_ns, self.table.ids[i])
        self.expiry_due_ns = now_ns + self.receiver_timeout_ns // EXPIRY_CHECKS

    def add_receiver(
        self, receiver_id: cython.longlong, edge: cython.longlong, now_ns: cython.longlong, counts: cython.bint = True
    ) -> bool:
        """Add a receiver that allows sending up to position ``edge``; return False if there are already MAX_RECEIVERS.

        ``counts`` is False for a receiver that is alive but has no influence on flow control.
        """
        assert edge >= 0, f"a receiver cannot allow sending up to position {edge}"
        row: cython.int = self.table.put(receiver_id, edge, counts)
        if row < 0:
            return False
        self.follow_receiver(row, edge, self.table.sources[row], now_ns)
        return True

    def remove_receiver(self, receiver_id: cython.longlong) -> bool:
        return self.table.remove(receiver_id)

    def discount_receiver(self, receiver_id: cython.longlong) -> bool:
        return self.table.discount(receiver_id)

    def receivers(self) -> list[tuple[int, int, int, bool]]:
        return self.table.rows()

    def clamp_limit(self, position: cython.longlong) -> None:
        assert position >= 0, f"a limit cannot be at position {position}"
        if position < self.publisher_limit:
            self.publisher_limit = position
            st64(self.cells, self.limit_at, position)

    def producer_position(self) -> int:
        return tail_position(self.base, self.meta, self.term_length, self.initial_term_id)

    def resend_range(self, position: cython.longlong, length: cython.longlong) -> cython.longlong:
        """Send a requested range again, from the log; return the bytes sent. Stop at the first incomplete frame."""
        offset: cython.longlong = position & (self.term_length - 1)
        window: cython.longlong = length
        sent: cython.longlong = 0
        accepted: cython.int
        i: cython.int
        # Only a forged NAK reaches beyond the sender's position. Unsent data is sent in its turn.
        if window > self.sender_position - position:
            window = self.sender_position - position
        while window > 0 and offset < self.term_length:
            if (
                scan_runs(
                    self.batch,
                    self.base,
                    self.term_at(position),
                    offset,
                    self.term_length,
                    window,
                    self.mtu,
                    self.max_runs,
                    self.endpoint.transport.max_segments,
                )
                == 0
            ):
                break
            # Send to all destinations, though one receiver asked: in a group others probably miss the same datagram.
            accepted = self.endpoint.send_batch(self.destination, self.base, self.batch)
            if accepted <= 0:
                add_to_counter(self.cells, SYSTEM_SHORT_SENDS, 1)
                break
            for i in range(accepted):
                sent += self.batch.length[i]
            offset += self.batch.advance[accepted - 1]
            window -= self.batch.advance[accepted - 1]
            # Do not retry: the socket's buffer is full, and the receiver requests again what is still missing.
            if accepted < self.batch.count:
                add_to_counter(self.cells, SYSTEM_SHORT_SENDS, 1)
                break
        return sent

    def on_nak(
        self,
        term_id: cython.int,
        offset: cython.longlong,
        length: cython.longlong,
        source: cython.longlong,
        now_ns: cython.longlong,
    ) -> cython.bint:
        """Handle a NAK: send the range again unless it is in flight already. Return False for a malformed request."""
        position: cython.longlong
        # The handler has its own count; add the difference to the system counter.
        overflows: cython.longlong = self.retransmit.overflows
        if offset < 0 or offset >= self.term_length or (offset & (FRAME_ALIGNMENT - 1)) != 0:
            return False
        if length < 0 or offset + length > self.term_length or before_beginning(term_id, self.initial_term_id):
            return False
        add_to_counter(self.cells, SYSTEM_NAKS_RECEIVED, 1)
        if self.naks_at >= 0:
            fadd64(self.cells, self.naks_at, 1)
        position = self.position_of(term_id, offset)
        # The handler refuses data that is in flight, and cuts the range to data that has been sent and not been cleaned.
        length = self.retransmit.ask(position, length, self.sender_position, now_ns, self.table.knows_source(source))
        if self.retransmit.overflows != overflows:
            add_to_counter(self.cells, SYSTEM_RETRANSMIT_OVERFLOW, 1)
        if length > 0:
            self.repeat(position, length)
        return True

    def repeat(self, position: cython.longlong, length: cython.longlong) -> cython.longlong:
        sent: cython.longlong = self.resend_range(position, length)
        if sent > 0:
            add_to_counter(self.cells, SYSTEM_RETRANSMITS_SENT, 1)
            add_to_counter(self.cells, SYSTEM_RETRANSMITTED_BYTES, sent)
            # This is the cycle's only use of the GIL: loss is rare, and only the event log sets the callback.
            if self.on_resend is not None:
                with cython.gil:
                    self.on_resend(position, length)
        return sent

    def repeat_delayed(self, now_ns: cython.longlong) -> cython.void:
        i: cython.int
        self.retransmit.expire(self.sender_position, now_ns)
        i = self.retransmit.next_due(0)
        while i >= 0:
            # The action stays in the handler: for the linger time it refuses the same range, which is in flight.
            self.repeat(self.retransmit.position[i], self.retransmit.length[i])
            i = self.retransmit.next_due(i + 1)

    def set_retransmit(self, retransmit: RetransmitHandler) -> None:
        assert retransmit is not None, "the path asks its handler for every NAK"
        self.retransmit = retransmit

    def set_nak_counter(self, counter_id: cython.longlong) -> None:
        self.counters.check(counter_id * COUNTER_VALUE_LENGTH, COUNTER_VALUE_LENGTH)
        self.naks_at = counter_id * COUNTER_VALUE_LENGTH

    def resend(self, position: cython.longlong, length: cython.longlong) -> int:
        """Send whole frames of a range again; return the bytes sent. Nothing at or behind the sender's position is sent."""
        sent: cython.longlong
        if position < 0 or length <= 0 or position >= self.sender_position:
            return 0
        with cython.nogil:
            sent = self.repeat(position, length)
        return sent

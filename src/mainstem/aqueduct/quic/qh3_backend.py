"""Connect qh3, whose core is compiled, to Aqueduct's engine.

The library cannot pause a single stream. Nor does it report which bytes were acknowledged, so that is deduced from its packets:
data is delivered once every packet up to the one that carried it has been acknowledged and none was lost meanwhile.

No private names of the library are used here; `qh3_connection` has them, and gives access to the core.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from qh3.quic import packet
from qh3.quic.configuration import QuicConfiguration
from qh3.quic.connection import QuicConnectionError
from qh3.quic.events import (
    DatagramFrameReceived,
    HandshakeCompleted,
    StopSendingReceived,
    StreamDataReceived,
    StreamReset,
)
from qh3.quic.logger import QuicLoggerTrace
from qh3.tls import CipherSuite, SessionTicket

from mainstem._core.aqueduct.ranges import RangeSet
from mainstem.aqueduct.events import (
    CloseConnection,
    PauseConnection,
    ResetStream,
    SendDatagram,
    SendStream,
    WatchDelivery,
)
from mainstem.aqueduct.frames import HANDLER_FAILED
from mainstem.aqueduct.halves import OPENED_BY_SERVER, UNIDIRECTIONAL
from mainstem.aqueduct.quic.configuration import configure, ticket_options
from mainstem.aqueduct.quic.lifecycle import DATAGRAM_BACKLOG, Lifecycle
from mainstem.aqueduct.quic.qh3_connection import with_stream_limits
from mainstem.aqueduct.quic.qh3_paths import Paths
from mainstem.aqueduct.quic.server_context import ServerContext
from mainstem.aqueduct.quic.tickets import ticket_name
from mainstem.errors import ConfigurationError, ConnectionLost

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mainstem.aqueduct.engine import AqueductEngine
    from mainstem.aqueduct.events import Command
    from mainstem.aqueduct.quic.qh3_connection import Qh3Connection
    from mainstem.aqueduct.quic.tickets import ServerTickets, SessionCache
    from mainstem.aqueduct.quic.udp import Address
    from mainstem.aqueduct.settings import Settings

BULK = 1 << 12
"""Minimum size in bytes of a write to a stream that counts as bulk, not as a short message."""

_UNUSED = frozenset(
    ("connection_credit", "stream_credit", "streams_available", "peer_blocked", "path_validated", "peer_migration")
)
"""Events of the core to ignore."""

# The library warns of every orderly close; errors are raised anyway.
logging.getLogger("quic").setLevel(logging.ERROR)


class Qh3Adapter:
    """A `QuicAdapter` for one connection of qh3."""

    library_errors: tuple[type[Exception], ...] = (RuntimeError, ValueError, AssertionError, QuicConnectionError)

    def __init__(self, quic: Qh3Connection, settings: Settings, *, is_client: bool) -> None:
        self.quic = quic
        self.lifecycle = Lifecycle(quic, settings, is_client=is_client)
        self.handle_timer, self.close = self.lifecycle.handle_timer, self.lifecycle.close
        self._is_client = is_client
        self._max_datagram_size = settings.max_datagram_size
        # With each watched stream, once all its data is in flight: the last packet then, and the count of losses.
        self.watched: dict[int, tuple[int, int] | None] = {}
        # The library's methods, until the handshake is complete.
        self._send_stream: Callable[[int, bytes, bool], None] = quic.send_stream_data
        self._send_datagram: Callable[[bytes], None] = quic.send_datagram_frame
        # Streams that the peer stopped reading, for which the engine may still issue commands.
        self._stopped: set[int] = set()
        # The stream of the last bulk write, and whether the last commands included a short message on another stream.
        self._bulk_stream: int | None = None
        self._has_short = False
        # The peer's streams that have ended, bidirectional and unidirectional. The library remembers only the last 1,024 ended
        # streams, so a late copy of a packet would open an older one again.
        self._ended = {0: RangeSet(), UNIDIRECTIONAL: RangeSet()}
        self.paths = Paths()
        # On a server, the client's address while `Paths` need not see its packets.
        self._home: Address | None = None

    @property
    def host_cid(self) -> bytes:
        return bytes(self.quic.host_cid)

    @property
    def has_ticket(self) -> bool:
        return self.quic.configuration.session_ticket is not None

    @property
    def has_begun(self) -> bool:
        core = self.quic.core
        return core is not None and bool(core.received_authenticated_packet)

    @property
    def peer_certificate(self) -> bytes | None:
        return self.quic.peer_certificate

    @property
    def round_trip(self) -> float | None:
        return self.quic.round_trip

    @property
    def is_in_flight(self) -> bool:
        core = self.quic.core
        return core is not None and bool(core.bytes_in_flight or core.get_send_buffer_size(None))

    # Datagrams and time.

    def connect(self, address: Address, now: float) -> None:
        self.quic.connect(address, now)

    def receive(self, datagrams: list[bytes], address: Address, now: float) -> None:
        quic, paths, lifecycle = self.quic, self.paths, self.lifecycle
        if lifecycle.closing:
            lifecycle.received(datagrams, now)
        elif not lifecycle.handshake_done:
            quic.receive_many_datagrams(datagrams, address, now)
        elif self._is_client or address == self._home:
            quic.receive_established(datagrams, address, now)
        elif paths.is_settled(address):
            quic.receive_established(datagrams, paths.name(address), now)
        else:
            self._receive_from_elsewhere(datagrams, address, now)
            self._home = None if paths.differ or not paths.is_settled(address) else address

    def _receive_from_elsewhere(self, datagrams: list[bytes], address: Address, now: float) -> None:
        """Process datagrams of a server's client whose address may have changed."""
        quic, paths = self.quic, self.paths
        name = paths.taken_from(address, now, quic.round_trip or 0.0)
        count, is_refused = quic.receive_established(datagrams, name, now), False
        if not count:
            # The packets may be authentic but come from one address more than the library accepts.
            count = quic.receive_established(datagrams, quic.active_address, now)
            is_refused = bool(count)
        if count:
            paths.came(count, address, name, active=quic.active_address, is_refused=is_refused, now=now)
            if paths.is_lost:
                self.lifecycle.error = ConnectionLost(
                    f"the client's address changed too often (to {address[0]}:{address[1]}): qh3 follows to three new addresses; "
                    "use the backend 'aioquic' to follow to any number"
                )
                self.close(HANDLER_FAILED, "the address changed too often for the server's QUIC library")
                # The close is sent to the new address.
                paths.detour = address

    def transmit(self, now: float) -> list[tuple[bytes, Address]]:
        quic, paths, lifecycle = self.quic, self.paths, self.lifecycle
        if self._has_short:
            self._has_short = False
            quic.share(now)
        datagrams = quic.datagrams_to_send(now) if lifecycle.is_open else lifecycle.transmit(now)
        if not datagrams or self._is_client or self._home is not None or not paths.differ:
            return datagrams
        detour, active = paths.detour, quic.active_address
        return [(data, paths.address(name) if detour is None or name != active else detour) for data, name in datagrams]

    def timer(self) -> float | None:
        return self.quic.get_timer() if self.lifecycle.is_open else self.lifecycle.timer()

    def ping(self) -> None:
        self.quic.send_ping(0)

    # From the library to the engine.

    def has_events(self) -> bool:
        # Before the handshake is complete, the library takes the core's events and makes its own of them.
        return not self.lifecycle.handshake_done or self.quic.core.has_events

    def deliver(self, engine: AqueductEngine, now_ns: int) -> bool:
        quic, lifecycle = self.quic, self.lifecycle
        if self.paths.is_lost and not engine.is_ended:
            engine.connection_lost(lifecycle.error, now_ns)
        has_events = not lifecycle.handshake_done and self._deliver_events(engine, now_ns)
        if (quic.is_paused or quic.is_queued or not lifecycle.handshake_done) and not quic.may_take:
            return has_events
        datagrams: list[bytes] = []
        # Consecutive events in which unidirectional streams ended.
        ends: list[int] = []
        pieces: list[bytes] = []
        next_event = quic.core.next_event
        # The first bit of the streams that this side opened, of which the library knows what is new.
        own = 0 if self._is_client else OPENED_BY_SERVER
        while (event := next_event()) is not None:
            has_events = True
            kind = event[0]
            if kind == "stream_data":
                stream_id = event[1]
                if event[3] and stream_id & UNIDIRECTIONAL:
                    ends.append(stream_id)
                    pieces.append(event[2])
                    continue
                if pieces:
                    self._hand_over_ends(engine, ends, pieces, now_ns)
                    ends, pieces = [], []
                if stream_id & OPENED_BY_SERVER == own or self._is_news(stream_id, event[3]):
                    engine.receive_stream(stream_id, event[2], event[3], now_ns)
            elif kind == "datagram":
                datagrams.append(event[1])
            elif kind == "stream_finished":
                quic.forget_stream(event[1])
            elif kind not in _UNUSED:
                if pieces:
                    self._hand_over_ends(engine, ends, pieces, now_ns)
                    ends, pieces = [], []
                quic.process(event)
                lifecycle.notice_end()
                self._deliver_events(engine, now_ns)
        if pieces:
            self._hand_over_ends(engine, ends, pieces, now_ns)
        if datagrams:
            engine.receive_datagrams(datagrams, now_ns)
        return has_events

    def _hand_over_ends(self, engine: AqueductEngine, stream_ids: list[int], pieces: list[bytes], now_ns: int) -> None:
        """Pass the last bytes of several unidirectional streams to the engine. Most of these streams carry nothing else."""
        first, last = stream_ids[0], stream_ids[-1]
        ended = self._ended[UNIDIRECTIONAL]
        in_order = last - first == 4 * (len(stream_ids) - 1) and stream_ids == list(range(first, last + 1, 4))
        if in_order and first >> 2 >= ended.top:
            ended.add_range(first >> 2, (last >> 2) + 1)
        else:
            news = [self._is_news(stream_id, True) for stream_id in stream_ids]
            stream_ids = [stream_id for stream_id, new in zip(stream_ids, news, strict=True) if new]
            pieces = [piece for piece, new in zip(pieces, news, strict=True) if new]
        if pieces:
            engine.receive_stream_ends(stream_ids, pieces, now_ns)

    def _deliver_events(self, engine: AqueductEngine, now_ns: int) -> bool:
        """Pass the events that the library has made of the core's to the engine; return False if there are none."""
        has_events = False
        datagrams: list[bytes] = []
        while (event := self.quic.next_event()) is not None:
            has_events = True
            if isinstance(event, StreamDataReceived):
                if self._is_news(event.stream_id, event.end_stream):
                    engine.receive_stream(event.stream_id, event.data, event.end_stream, now_ns)
            elif isinstance(event, DatagramFrameReceived):
                datagrams.append(event.data)
            elif isinstance(event, StreamReset):
                if self._is_news(event.stream_id, True):
                    engine.receive_reset(event.stream_id, event.error_code, now_ns)
            elif isinstance(event, StopSendingReceived):
                self._stopped.add(event.stream_id)
                engine.receive_stop_sending(event.stream_id, now_ns)
            else:
                if isinstance(event, HandshakeCompleted):
                    # Bypass the library's methods, whose other work only matters during the handshake.
                    core = self.quic.core
                    self._send_stream, self._send_datagram = core.send_stream, core.send_datagram
                self.lifecycle.handle(event, engine, now_ns)
        if datagrams:
            engine.receive_datagrams(datagrams, now_ns)
        return has_events

    def _is_news(self, stream_id: int, ends: bool) -> bool:
        """Return whether data on a stream is new; False if the stream had already ended. ``ends`` marks the stream as ended."""
        if bool(stream_id & OPENED_BY_SERVER) != self._is_client:
            return True
        ended = self._ended[stream_id & UNIDIRECTIONAL]
        return ended.add(stream_id >> 2) if ends else stream_id >> 2 not in ended

    # From the engine to the library.

    def update(self, engine: AqueductEngine) -> None:
        quic, core = self.quic, self.quic.core
        if core is None:
            self.lifecycle.report_room(engine, (0, 0), (0, 0), 0, None)
            return
        bidi_limit, uni_limit, bidi_opened, uni_opened = core.stream_limits
        if not self.lifecycle.handshake_done:
            bidi_opened = quic.get_next_available_stream_id() // 4
            uni_opened = quic.get_next_available_stream_id(is_unidirectional=True) // 4
        last_trip = core.latest_rtt
        if last_trip is not None and last_trip < quic.shortest_trip:
            quic.shortest_trip = last_trip
        # The core does not report how many datagrams are waiting in it, so estimate from the bytes in flight.
        datagrams = min(DATAGRAM_BACKLOG, max(0, (core.congestion_window - core.bytes_in_flight) // 64))
        limits, opened = (bidi_limit, uni_limit), (bidi_opened, uni_opened)
        self.lifecycle.report_room(engine, limits, opened, datagrams, core.smoothed_rtt)

    def execute(self, commands: Iterable[Command]) -> None:
        quic, lifecycle = self.quic, self.lifecycle
        send_stream, send_datagram = self._send_stream, self._send_datagram
        shorts, last_short = 0, -1
        for command in commands:
            if lifecycle.terminated or lifecycle.closing:
                return
            try:
                if isinstance(command, SendStream):
                    stream_id = command.stream_id
                    send_stream(stream_id, command.data, command.fin)
                    if len(command.data) >= BULK:
                        # The write before it on the same stream was the head of its message, not a short message.
                        shorts -= stream_id == last_short
                        self._bulk_stream = stream_id
                    elif stream_id != self._bulk_stream:
                        shorts += 1
                        last_short = stream_id
                elif isinstance(command, SendDatagram):
                    send_datagram(command.data)
                elif isinstance(command, ResetStream):
                    quic.reset_stream(command.stream_id, command.code)
                elif isinstance(command, WatchDelivery):
                    self.watched[command.stream_id] = None
                elif isinstance(command, PauseConnection):
                    quic.is_paused = command.paused
                elif isinstance(command, CloseConnection):
                    self.close(command.code, command.reason)
            except self.library_errors as error:
                if quic.has_ended:
                    # An event with the reason will follow.
                    return
                self.lifecycle.command_failed(command, self._stopped, error)
        self._stopped.clear()
        self._has_short = shorts > 0 and self._bulk_stream is not None

    def check_watched(self, engine: AqueductEngine, now_ns: int) -> bool:
        core, before = self.quic.core, len(self.watched)
        # Skip packets that contain only acknowledgments, because they are never acknowledged themselves.
        packets = [number for number, _, frames in core.outstanding_application_packets if frames]
        lost = core.loss_total
        has_room = core.congestion_window - core.bytes_in_flight >= self._max_datagram_size
        for stream_id, mark in list(self.watched.items()):
            if self.quic.get_send_buffer_size(stream_id):
                continue
            are_acknowledged = mark is not None and mark[1] == lost and (not packets or min(packets) > mark[0])
            if are_acknowledged or not (packets or core.bytes_in_flight):
                del self.watched[stream_id]
                engine.stream_delivered(stream_id, now_ns)
            elif packets and (mark is None or (mark[1] != lost and has_room)):
                # All the data is in flight, in these packets or earlier ones. After a loss this is true again once there is
                # room left over, because lost data is sent first.
                self.watched[stream_id] = (max(packets), lost)
        return len(self.watched) < before


def client(settings: Settings, *, server_name: str, sessions: SessionCache | None, origin: str) -> Qh3Adapter:
    server_name = settings.server_name or server_name
    configuration = QuicConfiguration(is_client=True, server_name=server_name)
    configure(configuration, settings, make_trace=QuicLoggerTrace)
    options: dict[str, Any] = {}
    if sessions is not None:
        name = ticket_name(settings, origin=origin, server_name=server_name)
        configuration.session_ticket = sessions.take(name, _make_ticket)
        options["session_ticket_handler"] = sessions.keeper(name)
    quic = with_stream_limits(settings.max_streams)(configuration=configuration, **options)
    return Qh3Adapter(quic, settings, is_client=True)


def server_context(settings: Settings, tickets: ServerTickets | None) -> ServerContext:
    if settings.client_ca is not None:
        raise ConfigurationError(
            "client_ca: the backend 'qh3', the default, cannot ask clients for certificates; set backend='aioquic'"
        )
    configuration = QuicConfiguration(is_client=False)
    configure(configuration, settings, make_trace=QuicLoggerTrace)
    make = partial(
        with_stream_limits(settings.max_streams),
        configuration=configuration,
        **ticket_options(settings, tickets, _make_ticket),
    )
    return ServerContext(
        configuration, packet, packet.Buffer, lambda **ids: Qh3Adapter(make(**ids), settings, is_client=False)
    )


def _make_ticket(**fields: Any) -> SessionTicket:
    return SessionTicket(**{**fields, "cipher_suite": CipherSuite(fields["cipher_suite"])})

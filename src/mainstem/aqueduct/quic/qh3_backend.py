"""The qh3 library, whose core is compiled (see also `qh3_connection`).

The library cannot pause a single stream. Nor does it report which bytes were acknowledged, so that is deduced from its packets:
data is delivered once every packet up to the one that carried it has been acknowledged and none was lost meanwhile.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from qh3 import _hazmat
from qh3.quic import connection as qh3_connection
from qh3.quic.packet import QuicPacketType

from mainstem._core.aqueduct.ranges import RangeSet
from mainstem.aqueduct.frames import HANDLER_FAILED
from mainstem.aqueduct.halves import OPENED_BY_SERVER, UNIDIRECTIONAL
from mainstem.aqueduct.quic.adapter import (
    DATAGRAM_BACKLOG,
    Address,
    Backend,
    PacketHeader,
    QuicAdapter,
)
from mainstem.aqueduct.quic.qh3_connection import with_stream_limits
from mainstem.aqueduct.quic.qh3_paths import Paths
from mainstem.aqueduct.settings import CID_LENGTH
from mainstem.errors import ConfigurationError, ConnectionLost

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainstem.aqueduct.engine import AqueductEngine
    from mainstem.aqueduct.quic.tickets import ServerTickets
    from mainstem.aqueduct.settings import Settings

_UNUSED = frozenset(
    ("connection_credit", "stream_credit", "streams_available", "peer_blocked", "path_validated", "peer_migration")
)
"""Events of the core to ignore."""

# The library warns of every orderly close; errors are raised anyway.
logging.getLogger("quic").setLevel(logging.ERROR)


class Qh3Adapter(QuicAdapter):
    library_errors = (*QuicAdapter.library_errors, qh3_connection.QuicConnectionError)

    def __init__(self, quic: Any, settings: Settings, *, is_client: bool) -> None:
        super().__init__(quic, settings, is_client=is_client)
        # The peer's streams that have ended, bidirectional and unidirectional. The library remembers only the last 1,024 ended
        # streams, so a late copy of a packet would open an older one again.
        self._ended = {0: RangeSet(), UNIDIRECTIONAL: RangeSet()}
        self._paths = Paths()
        # On a server, the client's address while `Paths` need not see its packets.
        self._home: Address | None = None

    def receive(self, datagrams: list[bytes], address: Address, now: float) -> None:
        quic, paths = self.quic, self._paths
        if self.closing:
            super().receive(datagrams, address, now)
        elif not self.handshake_done:
            quic.receive_many_datagrams(datagrams, address, now)
        elif self.is_client or address == self._home:
            quic.receive_established(datagrams, address, now)
        elif paths.is_settled(address):
            quic.receive_established(datagrams, paths.name(address), now)
        else:
            self._receive_from_elsewhere(datagrams, address, now)
            self._home = None if paths.differ or not paths.is_settled(address) else address

    def _receive_from_elsewhere(self, datagrams: list[bytes], address: Address, now: float) -> None:
        """Process datagrams of a server's client whose address may have changed."""
        quic, paths = self.quic, self._paths
        name = paths.taken_from(address, now, self.round_trip or 0.0)
        count, is_refused = quic.receive_established(datagrams, name, now), False
        if not count:
            # The packets may be authentic but come from one address more than the library accepts.
            count = quic.receive_established(datagrams, self.active_address, now)
            is_refused = bool(count)
        if count:
            paths.came(count, address, name, active=self.active_address, is_refused=is_refused, now=now)
            if paths.is_lost:
                self._error = ConnectionLost(
                    f"the client's address changed too often (to {address[0]}:{address[1]}): qh3 follows to three new addresses; "
                    "use the backend 'aioquic' to follow to any number"
                )
                self.close(HANDLER_FAILED, "the address changed too often for the server's QUIC library")
                # The close is sent to the new address.
                paths.detour = address

    def transmit(self, now: float) -> list[tuple[bytes, Address]]:
        quic, paths = self.quic, self._paths
        if self.closing or quic._close_event is not None:
            datagrams = super().transmit(now)
        else:
            if self.has_short:
                self.has_short = False
                quic.share(now)
            datagrams = quic.datagrams_to_send(now)
        if not datagrams or self.is_client or self._home is not None or not paths.differ:
            return datagrams
        detour, active = paths.detour, self.active_address
        return [(data, paths.address(name) if detour is None or name != active else detour) for data, name in datagrams]

    @property
    def peer_certificate(self) -> bytes | None:
        certificate = self.quic.get_peercert()
        return None if certificate is None else bytes(certificate.public_bytes())

    @property
    def peer_idle_timeout(self) -> float | None:
        parameters = self.quic._applied_transport_parameters
        return None if parameters is None else (parameters.max_idle_timeout or 0) / 1000

    def pause_connection(self, paused: bool) -> None:
        self.quic.is_paused = paused

    def has_events(self) -> bool:
        quic = self.quic
        return bool(quic._events) or self._paths.is_lost or (quic._core is not None and quic._core.has_events)

    def deliver(self, engine: AqueductEngine, now_ns: int) -> bool:
        if self._paths.is_lost and not engine.is_ended:
            engine.connection_lost(self._error, now_ns)
        quic = self.quic
        has_events = bool(quic._events) and super().deliver(engine, now_ns)
        if (quic.is_paused or quic.is_queued or not self.handshake_done) and not quic.may_take:
            return has_events
        datagrams: list[bytes] = []
        # Consecutive events in which unidirectional streams ended.
        ends: list[int] = []
        pieces: list[bytes] = []
        next_event = quic._core.next_event
        # The first bit of the streams that this side opened, of which the library knows what is new.
        own = 0 if self.is_client else OPENED_BY_SERVER
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
                quic._created_local_stream_ids.discard(event[1])
            elif kind not in _UNUSED:
                if pieces:
                    self._hand_over_ends(engine, ends, pieces, now_ns)
                    ends, pieces = [], []
                quic.process(event)
                super().deliver(engine, now_ns)
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

    def _hand_over(self, engine: AqueductEngine, stream_id: int, data: bytes, fin: bool, now_ns: int) -> None:
        if self._is_news(stream_id, fin):
            engine.receive_stream(stream_id, data, fin, now_ns)

    def _stream_reset(self, event: Any, engine: AqueductEngine, now_ns: int) -> None:
        if self._is_news(event.stream_id, True):
            super()._stream_reset(event, engine, now_ns)

    def _is_news(self, stream_id: int, ends: bool) -> bool:
        """Return whether data on a stream is new; False if the stream had already ended. ``ends`` marks the stream as ended."""
        if bool(stream_id & OPENED_BY_SERVER) != self.is_client:
            return True
        ended = self._ended[stream_id & UNIDIRECTIONAL]
        return ended.add(stream_id >> 2) if ends else stream_id >> 2 not in ended

    def _handshake_completed(self, event: Any, engine: AqueductEngine, now_ns: int) -> None:
        # Bypass the library's methods, whose other work only matters during the handshake.
        core = self.quic._core
        self.send_stream, self.send_datagram = core.send_stream, core.send_datagram
        super()._handshake_completed(event, engine, now_ns)

    @property
    def active_address(self) -> Address:
        return self.quic._core.active_path[2]  # type: ignore[no-any-return]

    @property
    def is_draining(self) -> bool:
        core = self.quic._core
        return core is not None and core.state == "draining"

    @property
    def reset_token(self) -> bytes | None:
        quic = self.quic
        if not self.is_client:
            return None if quic._tls is None else quic._tls.stateless_reset_token
        parameters = quic._applied_transport_parameters
        return None if parameters is None else parameters.stateless_reset_token

    @property
    def round_trip(self) -> float | None:
        core = self.quic._core
        return None if core is None else core.smoothed_rtt

    @property
    def has_begun(self) -> bool:
        core = self.quic._core
        return core is not None and bool(core.received_authenticated_packet)

    @property
    def is_in_flight(self) -> bool:
        core = self.quic._core
        return core is not None and bool(core.bytes_in_flight or core.get_send_buffer_size(None))

    def room(self) -> tuple[int, int, int, int, int, float | None]:
        quic, core = self.quic, self.quic._core
        if core is None:
            return 0, 0, 0, 0, 0, None
        bidi_limit, uni_limit, bidi_opened, uni_opened = core.stream_limits
        if not self.handshake_done:
            bidi_opened, uni_opened = quic._next_stream_id_bidi // 4, quic._next_stream_id_uni // 4
        last_trip = core.latest_rtt
        if last_trip is not None and last_trip < quic.shortest_trip:
            quic.shortest_trip = last_trip
        # The core does not report how many datagrams are waiting in it, so estimate from the bytes in flight.
        datagrams = min(DATAGRAM_BACKLOG, max(0, (core.congestion_window - core.bytes_in_flight) // 64))
        return bidi_limit, uni_limit, bidi_opened, uni_opened, datagrams, core.smoothed_rtt

    def check_watched(self, engine: AqueductEngine, now_ns: int) -> bool:
        core, before = self.quic._core, len(self.watched)
        # Skip packets that contain only acknowledgments, because they are never acknowledged themselves.
        packets = [number for number, _, frames in core.outstanding_application_packets if frames]
        lost = core.loss_total
        has_room = core.congestion_window - core.bytes_in_flight >= self.settings.max_datagram_size
        for stream_id, mark in list(self.watched.items()):
            if self.quic.get_send_buffer_size(stream_id):
                continue
            marked, losses = mark if isinstance(mark, tuple) else (None, None)
            if (not packets and not core.bytes_in_flight) or (
                losses == lost and (not packets or min(packets) > marked)
            ):
                del self.watched[stream_id]
                engine.stream_delivered(stream_id, now_ns)
            elif packets and (losses is None or (losses != lost and has_room)):
                # All the data is in flight, in these packets or earlier ones. After a loss this is true again once there is
                # room left over, because lost data is sent first.
                self.watched[stream_id] = (max(packets), lost)
        return len(self.watched) < before


class Qh3Backend(Backend):
    name = "qh3"
    adapter = Qh3Adapter

    def connection_class(self, settings: Settings) -> Callable[..., Any]:
        return with_stream_limits(settings.max_streams)

    def check_server(self, settings: Settings, tickets: ServerTickets | None) -> None:  # noqa: ARG002
        if settings.client_ca is not None:
            raise ConfigurationError(
                "client_ca: the backend 'qh3', the default, cannot ask clients for certificates; set backend='aioquic' "
                "(pip install 'mainstem[quic-aioquic]')"
            )

    def parse(self, data: bytes) -> PacketHeader | None:
        try:
            version, kind, _, *cids_and_token = _hazmat.pull_quic_header(data, 0, CID_LENGTH)[:6]
            kind = QuicPacketType(kind)
        except ValueError:
            return None
        is_initial, is_negotiation = kind == QuicPacketType.INITIAL, kind == QuicPacketType.VERSION_NEGOTIATION
        return PacketHeader(version, is_initial, is_negotiation, *cids_and_token)


BACKEND = Qh3Backend()

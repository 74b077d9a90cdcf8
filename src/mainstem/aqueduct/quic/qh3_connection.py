"""The connection of the qh3 library, with four changes, and with what Aqueduct has to know of it.

* The library hard-codes its stream limits; the two methods that pass them on run here with other values.
* `Qh3Adapter` takes events one by one, instead of all at once when packets arrive. The library extends flow control credit as
  events are taken, so not taking them pauses the connection.
* The library forgets a stream when the event of the stream's end is taken, and fails if a frame of that stream is still queued.
  Such a frame is a copy: after a probe timeout the library queues unacknowledged data again. If the congestion window then
  fills, the copy waits, and the acknowledgment of the original meanwhile ends the stream. So after a probe timeout, events are
  taken only while nothing is queued, until no copy can be left.
* Bulk data fills the buffers along the path as long as credit allows: a megabyte per stream, behind which a short message waits
  for milliseconds. While short messages share the connection with bulk data, packets are held back once `QUEUED_BYTES` more are
  in flight than the path itself holds. The library serves the streams in turn, so a short message is in the next packets.

Private names of the library stand in this file only. Its compiled core (``_core``, whose own names are public) has what the first
three changes and the adapter need, and no other way leads to it: ``_create_core``, ``_create_tls`` and ``_drain_core`` make it and
take its events, and ``_created_local_stream_ids`` lists its streams. The library does not say either what the peer's transport
parameters are (``_applied_transport_parameters``, ``_remote_max_datagram_frame_size``), by which token a server can be reset
(``_tls``), and whether the connection has ended (``_close_event``). The methods that run here instead of the library's own need
``_handshake_complete``, ``_configuration``, ``_quic_logger``, ``_log_datagram`` and ``_log_packets``.
"""

from __future__ import annotations

from types import FunctionType
from typing import TYPE_CHECKING, Any

from qh3.quic import connection as qh3_connection
from qh3.quic.packet import Buffer, pull_quic_transport_parameters, push_quic_transport_parameters

from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    from mainstem.aqueduct.quic.udp import Address

_LIBRARY_STREAM_LIMITS = [100, 103]
"""The limits that the library passes to its core. They are checked, to detect other versions of the library."""

_STREAM_LIMITS_AT = slice(21, 23)

_LARGEST_PACKET = 1472
"""The largest UDP payload that the library can discover for the path. It sends no congestion-controlled data while there is
room for less than one packet."""

QUEUED_BYTES = 64 << 10
"""Bytes in flight, beyond those the path holds, at which packets are held back while short messages share the connection."""

FASTEST = 100_000_000
"""Assumed rate of the path in bytes per second: times the round trip, what the path holds. Python reads hardly any faster."""

SHARED_SECONDS = 5.0
"""How long, in seconds, that limit applies to bulk data after a short message."""

_OPEN_STATES = ("first_flight", "connected")
"""States in which the core still sends queued data."""


class _OneEvent:
    """A stand-in for a core that has a single event, for the library's own code to process."""

    def __init__(self, core: Any, event: tuple[Any, ...]) -> None:
        self._core = core
        self._event: tuple[Any, ...] | None = event

    def next_event(self) -> tuple[Any, ...] | None:
        event, self._event = self._event, None
        return event

    def __getattr__(self, name: str) -> Any:
        return getattr(self._core, name)


class Qh3Connection(qh3_connection.QuicConnection):  # type: ignore[misc]
    """The library's connection. After the handshake it leaves the events of its core to `Qh3Adapter.deliver`.

    ``core`` is None until a client connects, or until a server has received the first packet.
    """

    core: Any = None
    _core: Any
    is_paused = False
    # While copies may be queued, the last packet that may have been copied and the loss count at that time.
    _copied: tuple[int, int] | None = None
    _probes = 0
    # Whether the core may hold frames that are queued and not sent.
    is_queued = False
    # Until this time, short messages share the connection with bulk data.
    _shared_until = 0.0
    shortest_trip = 1.0
    _is_held = False

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        # Forgets a stream that this side opened and that has ended.
        self.forget_stream = self._created_local_stream_ids.discard

    def share(self, now: float) -> None:
        """Note that a short message was sent beside bulk data."""
        self._shared_until = now + SHARED_SECONDS

    @property
    def may_take(self) -> bool:
        """Whether events can be taken now. Once the connection is closing, they always can."""
        if not self._handshake_complete:
            return False
        return not (self.is_paused or self.is_queued) or self._core.state not in _OPEN_STATES

    def receive_established(self, datagrams: list[bytes], address: Address, now: float) -> int:
        """Process datagrams after the handshake; return how many of their packets are authentic and new."""
        if self._quic_logger is not None:
            for data in datagrams:
                self._log_datagram("datagrams_received", data)
        return self._core.receive_many_datagrams(datagrams, address, now)[2]  # type: ignore[no-any-return]

    def process(self, event: tuple[Any, ...]) -> None:
        """Have the library process one event of its core."""
        core = self._core
        self._core = _OneEvent(core, event)
        try:
            super()._drain_core()
        finally:
            self._core = core

    def _drain_core(self) -> None:
        if not self._handshake_complete:
            super()._drain_core()

    def handle_timer(self, now: float) -> None:
        super().handle_timer(now)
        core = self._core
        if core is not None and core.pto_total != self._probes:
            self._probes = core.pto_total
            self._mark_copied(core)

    def _mark_copied(self, core: Any) -> None:
        """Note that data in flight may be queued a second time from now on."""
        packets = core.outstanding_application_packets
        if packets:
            self._copied = (max(packet[0] for packet in packets), core.loss_total)
            self.is_queued = True

    def datagrams_to_send(self, now: float) -> list[tuple[bytes, Address]]:
        datagrams: list[tuple[bytes, Address]] = []
        core = self._core
        if core is None:
            return datagrams
        is_empty, poll, limit = True, core.poll_transmit, 1 << 60
        if now < self._shared_until and self._copied is None:
            limit = QUEUED_BYTES + int(self.shortest_trip * FASTEST)
            if self._is_held and core.bytes_in_flight > limit // 2:
                # Send one packet, which carries acknowledgments. The next is sent when there is room for several.
                limit = 0
        self._is_held = False
        try:
            while (transmit := poll(now)) is not None:
                if self._quic_logger is not None:
                    self._log_datagram("datagrams_sent", transmit[0])
                    self._log_packets("packet_sent", transmit[0])
                datagrams.append((transmit[0], transmit[1]))
                if core.bytes_in_flight >= limit:
                    self._is_held, is_empty = True, False
                    break
        except RuntimeError:
            # A server gets this in the middle of a flight, if it must not send more before the client has proven its address.
            # The library itself would drop the packets it has already made.
            is_empty = False
        if self._copied is not None:
            room = core.congestion_window - core.bytes_in_flight
            # With this much room, the core would have sent everything that was queued.
            has_room = room >= max(_LARGEST_PACKET, self._configuration.max_datagram_size) or not core.bytes_in_flight
            self.is_queued = not (is_empty and has_room)
            if not self.is_queued:
                self._check_copies(core)
        return datagrams

    def _check_copies(self, core: Any) -> None:
        """Check whether copies can be left, now that nothing is queued: not once all copied packets were acknowledged or lost.

        A packet lost meanwhile may have been a copy. It is then sent again, and has to be waited for in turn.
        """
        assert self._copied is not None
        packets = core.outstanding_application_packets
        last, losses = self._copied
        if not packets:
            self._copied = None
        elif min(packet[0] for packet in packets) > last:
            self._copied = None
            if core.loss_total != losses:
                self._mark_copied(core)
                self.is_queued = False

    # What the library knows.

    @property
    def has_ended(self) -> bool:
        return self._close_event is not None

    @property
    def is_draining(self) -> bool:
        return self.core is not None and self.core.state == "draining"

    @property
    def active_address(self) -> Address:
        return self.core.active_path[2]  # type: ignore[no-any-return]

    @property
    def reset_token(self) -> bytes | None:
        if not self.configuration.is_client:
            return None if self._tls is None else self._tls.stateless_reset_token
        parameters = self._applied_transport_parameters
        return None if parameters is None else parameters.stateless_reset_token

    @property
    def round_trip(self) -> float | None:
        return None if self.core is None else self.core.smoothed_rtt

    @property
    def peer_certificate(self) -> bytes | None:
        certificate = self.get_peercert()
        return None if certificate is None else bytes(certificate.public_bytes())

    @property
    def peer_idle_timeout(self) -> float | None:
        parameters = self._applied_transport_parameters
        return None if parameters is None else (parameters.max_idle_timeout or 0) / 1000

    @property
    def max_datagram_frame(self) -> int:
        return self._remote_max_datagram_frame_size or 0


def with_stream_limits(limit: int) -> type[Qh3Connection]:
    """Return the connection class with other stream limits."""

    def make_core(*arguments: Any) -> Any:
        values = list(arguments)
        if values[_STREAM_LIMITS_AT] != _LIBRARY_STREAM_LIMITS:
            raise ConfigurationError("this version of qh3 is not supported: its stream limits are at another place")
        values[_STREAM_LIMITS_AT] = [limit, limit]
        return qh3_connection.QuicConnectionCore(*values)

    class Bridge(qh3_connection.QuicTlsBridge):  # type: ignore[misc]
        def serialize_transport_parameters(self) -> bytes:
            parameters = pull_quic_transport_parameters(Buffer(data=super().serialize_transport_parameters()))
            parameters.initial_max_streams_bidi = parameters.initial_max_streams_uni = limit
            buffer = Buffer(capacity=4096)
            push_quic_transport_parameters(buffer, parameters)
            return buffer.data  # type: ignore[no-any-return]

    # The library's two methods look these names up in their module's namespace. Give them a modified copy of it.
    names = {**vars(qh3_connection), "QuicConnectionCore": make_core, "QuicTlsBridge": Bridge}

    def bound(method: Any) -> FunctionType:
        return FunctionType(method.__code__, names, method.__name__, method.__defaults__, method.__closure__)

    create_core = bound(qh3_connection.QuicConnection._create_core)

    class Connection(Qh3Connection):
        _create_tls = bound(qh3_connection.QuicConnection._create_tls)

        def _create_core(self, remote_address: Address, initial_cid: bytes, now: float) -> None:
            create_core(self, remote_address, initial_cid, now)
            self.core = self._core

    return Connection

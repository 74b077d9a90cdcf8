"""The life of one QUIC connection: its handshake, its end, and the packets of its end.

Both libraries report the handshake and the end with the same events, and what these mean for Aqueduct does not depend on the
library. A `Lifecycle` belongs to an adapter, which passes it these events, and which lets it send and receive in the adapter's
place once either side has closed the connection:

    handshake ──HandshakeCompleted──► open ──close()──► closing: `Farewell` repeats the close ──┬──► terminated
                                        │                                                       │
                                        └──the peer closes──► drained: a server forgets it ─────┘

The library reports the end only after a closing or draining period, which takes seconds during the handshake. A drained
connection does not wait for it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Protocol

from mainstem.aqueduct.certificates import describe_invalid_time
from mainstem.aqueduct.events import ResetStream, SendStream
from mainstem.aqueduct.frames import EXPLICIT_CLOSE, HANDSHAKE_TIMED_OUT, NO_PLACE, PROTOCOL_ERROR, SERIALIZATION_ERROR
from mainstem.aqueduct.quic.farewell import Farewell, stateless_reset
from mainstem.errors import ConnectionLost, Delivery, RemoteProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from mainstem.aqueduct.engine import AqueductEngine
    from mainstem.aqueduct.events import Command
    from mainstem.aqueduct.quic.qlog import QlogFiles
    from mainstem.aqueduct.quic.udp import Address
    from mainstem.aqueduct.settings import Settings

EARLY_STREAMS = 16
"""Maximum streams of each kind that a client opens before it knows the server's limits."""

DATAGRAM_BACKLOG = 256
"""Maximum number of datagrams waiting in the library: more would only become stale."""

DATAGRAM_OVERHEAD = 30
"""Bytes of packet and frame around a datagram's payload: header, connection id, packet number, frame, authentication tag."""

KEEP_ALIVES_PER_TIMEOUT = 3
"""Minimum number of pings in the idle timeout that is in effect, the shorter one of both sides (RFC 9000, 10.1)."""

MIN_KEEP_ALIVE = 0.01
"""Minimum seconds between pings, however short the peer's idle timeout is."""

PEERS_COMPLAINT = "peer's complaint"
"""The ``rule`` of the error if the peer closed the connection because it detected a protocol error."""

SUCCESS_CODES = (0, EXPLICIT_CLOSE)
"""Close codes that are not errors."""

CRYPTO_ERROR = 0x100  # plus the TLS alert: QUIC's error codes for a failed handshake (RFC 9001, 4.8)
ALERTS = range(256)
CERTIFICATE_ALERTS = (42, 45, 46, 48)  # bad, expired or unknown certificate, unknown authority

REFUSALS = (SERIALIZATION_ERROR, HANDSHAKE_TIMED_OUT, NO_PLACE)
"""Close codes with which a peer ends a connection before its application has received anything."""


class LibraryConnection(Protocol):
    """A library's connection, as far as this file uses it. The methods are the library's, the properties its subclass's."""

    def close(self, error_code: int, *, reason_phrase: str) -> None: ...

    def datagrams_to_send(self, now: float) -> list[tuple[bytes, Address]]: ...

    def get_timer(self) -> float | None: ...

    def handle_timer(self, now: float) -> None: ...

    @property
    def configuration(self) -> Any: ...

    @property
    def has_ended(self) -> bool:
        """Whether either side has closed the connection, or it has failed."""
        ...

    @property
    def is_draining(self) -> bool:
        """Whether the peer has closed the connection."""
        ...

    @property
    def active_address(self) -> Address:
        """The address to which packets are sent, under the name that the library knows it by."""
        ...

    @property
    def reset_token(self) -> bytes | None:
        """The token of the server's stateless resets for this connection; None or empty if unknown."""
        ...

    @property
    def round_trip(self) -> float | None:
        """The smoothed round-trip time in seconds; None until it has been measured."""
        ...

    @property
    def peer_certificate(self) -> bytes | None:
        """The peer's certificate in DER form; None if it presented none."""
        ...

    @property
    def peer_idle_timeout(self) -> float | None:
        """The peer's idle timeout in seconds, once the handshake is complete; None or 0 if it has none."""
        ...

    @property
    def max_datagram_frame(self) -> int:
        """The largest datagram frame that the peer accepts; 0 if it accepts none or that is not known yet."""
        ...


class Lifecycle:
    """Whether a connection's handshake is complete, and whether and how it has ended.

    Make it right after ``quic``, because it takes the qlog trace that was started last.
    """

    def __init__(self, quic: LibraryConnection, settings: Settings, *, is_client: bool) -> None:
        self._quic = quic
        self._settings = settings
        self._is_client = is_client
        self.handshake_done = False
        self.early_data_accepted = False
        # Whether the handshake is complete and no end of the connection is known; see `notice_end`.
        self.is_open = False
        # Whether this side has closed the connection.
        self.closing = False
        # Whether the connection is over, and nothing is left to send.
        self.terminated = False
        # Whether either side ended the connection with a TLS alert.
        self.tls_failed = False
        # Why this side ended the connection.
        self.error: Exception | None = None
        # Seconds without a sent packet after which to send a ping; 0 for never.
        self.keep_alive = settings.keep_alive
        # Called with each connection id that this side issues, and with each that the peer retires.
        self.on_cid_issued: Callable[[bytes], None] = _ignore
        self.on_cid_retired: Callable[[bytes], None] = _ignore
        # The largest datagram payload, once the handshake is complete.
        self._max_datagram = 0
        # Set once this side's close has been sent.
        self._farewell: Farewell | None = None
        self._is_drained = False
        self._qlog: QlogFiles | None = quic.configuration.quic_logger
        self._trace = self._qlog and self._qlog.newest

    # Events of the library.

    def handle(self, event: Any, engine: AqueductEngine, now_ns: int) -> None:
        """Process an event of the library that concerns the connection, not a stream. Both name their events alike."""
        match type(event).__name__:
            case "HandshakeCompleted":
                self._handshake_completed(event, engine, now_ns)
            case "ConnectionIdIssued":
                self.on_cid_issued(event.connection_id)
            case "ConnectionIdRetired":
                self.on_cid_retired(event.connection_id)
            case "ConnectionTerminated":
                self.is_open = False
                self.terminated = True
                error = self._explain(event)
                engine.connection_lost(self.error or error, now_ns)

    def _handshake_completed(self, event: Any, engine: AqueductEngine, now_ns: int) -> None:
        quic, settings = self._quic, self._settings
        self.handshake_done = True
        self.is_open = not quic.has_ended
        self.early_data_accepted = bool(event.early_data_accepted)
        self._max_datagram = self._largest_datagram()
        if self.keep_alive:
            third = min(settings.idle_timeout, quic.peer_idle_timeout or math.inf) / KEEP_ALIVES_PER_TIMEOUT
            self.keep_alive = min(self.keep_alive, max(third, MIN_KEEP_ALIVE))
        if event.alpn_protocol != settings.alpn:
            message, rule = f"the peer does not speak {settings.alpn!r} (ALPN)", "application protocol"
        elif not quic.max_datagram_frame:
            message, rule = "the peer does not support QUIC datagrams, which Aqueduct requires", "datagrams required"
        else:
            engine.handshake_completed(now_ns)
            return
        self.error = RemoteProtocolError(message, rule=rule, code=PROTOCOL_ERROR)
        self.close(PROTOCOL_ERROR, message)
        engine.connection_lost(self.error, now_ns)

    def _explain(self, event: Any) -> Exception | None:
        """Return the error that the end of the connection means; None if it is an orderly close by the peer."""
        code, is_of_peer = event.error_code, event.frame_type is None
        reason = event.reason_phrase or "no reason given"
        if is_of_peer and code == PROTOCOL_ERROR:
            text = f"the peer closed the connection because of a protocol error: {event.reason_phrase}"
            return RemoteProtocolError(text, rule=PEERS_COMPLAINT, code=PROTOCOL_ERROR)
        if is_of_peer and code in SUCCESS_CODES:
            return None
        text, alert = f"the connection ended: {reason} ({code})", code - CRYPTO_ERROR
        if alert in ALERTS:
            self.tls_failed = True
            text = f"the TLS handshake failed: {reason} (alert {alert})"
            if self._is_client and alert in CERTIFICATE_ALERTS:
                # qh3 does not say whether a certificate has expired.
                der = None if is_of_peer else self._quic.peer_certificate
                fault = "" if der is None else describe_invalid_time(der)
                text += f"; it {fault}" if fault else "; ca= names the authority of the server's certificate"
        is_refused = is_of_peer and code in REFUSALS
        return ConnectionLost(text, delivery=Delivery.NONE if is_refused else Delivery.UNKNOWN)

    # What can be sent.

    def report_room(
        self,
        engine: AqueductEngine,
        limits: tuple[int, int],
        opened: tuple[int, int],
        datagrams: int,
        round_trip: float | None,
    ) -> None:
        """Tell the engine how much it can send.

        ``limits`` are those on bidirectional and unidirectional streams, and ``opened`` says how many of each were opened.
        ``datagrams`` more datagrams can wait in the library.
        """
        bidi_limit, uni_limit = limits
        largest = self._max_datagram
        if not self.handshake_done:
            bidi_limit = min(bidi_limit or EARLY_STREAMS, EARLY_STREAMS)
            uni_limit = min(uni_limit or EARLY_STREAMS, EARLY_STREAMS)
            largest = self._largest_datagram()
        engine.output.transport_state(
            bidi_limit - opened[0], uni_limit - opened[1], datagrams if largest else 0, largest
        )
        if round_trip:
            engine.context.rtt_ns = int(round_trip * 1e9)

    def _largest_datagram(self) -> int:
        frame = self._quic.max_datagram_frame
        return min(frame, self._settings.max_datagram_size) - DATAGRAM_OVERHEAD if frame else 0

    # The end.

    def notice_end(self) -> None:
        """Count the connection as open no longer if the library knows of its end. Called after it has processed packets."""
        self.is_open = self.is_open and not self._quic.has_ended

    def command_failed(self, command: Command, stopped: Container[int], error: Exception) -> None:
        """Raise ConnectionLost, unless the peer asked to stop the stream: the library does that before the engine is notified."""
        if not (isinstance(command, SendStream | ResetStream) and command.stream_id in stopped):
            raise ConnectionLost(f"the QUIC library failed: {error}") from error

    def close(self, code: int, reason: str) -> None:
        self.closing = True
        self.is_open = False
        self._quic.close(code, reason_phrase=reason[:200])

    # While the connection is not open, these stand in for the library's own methods.

    def received(self, datagrams: list[bytes], now: float) -> None:
        """Process datagrams that arrive after this side's close."""
        if self._farewell is not None:
            self._farewell.received(datagrams)
            self._end_farewell(now)

    def transmit(self, now: float) -> list[tuple[bytes, Address]]:
        quic = self._quic
        if self._farewell is not None:
            return self._farewell.take()
        datagrams = quic.datagrams_to_send(now)
        if self.closing:
            # Do not repeat the close to an unproven address.
            is_proven = self._is_client or self.handshake_done
            self._farewell = Farewell(
                datagrams if is_proven else [], now, quic.round_trip or 0.0, quic.reset_token or b""
            )
        was_drained, self._is_drained = self._is_drained, not datagrams and quic.has_ended
        if self._is_drained and not (was_drained or self._is_client) and quic.is_draining and quic.reset_token:
            # The peer has closed the connection. Once it learns that the connection is forgotten, it need not repeat the close.
            return [(stateless_reset(quic.reset_token), quic.active_address)]
        return datagrams

    def timer(self) -> float | None:
        if self.closing:
            return None if self._farewell is None else self._farewell.due
        return 0.0 if self._is_drained else self._quic.get_timer()

    def handle_timer(self, now: float) -> None:
        if not self.closing:
            self._quic.handle_timer(self._after_timer(now) if self._is_drained else now)
        elif self._farewell is not None:
            self._farewell.handle_timer(now)
            self._end_farewell(now)

    def _end_farewell(self, now: float) -> None:
        if self._farewell is not None and self._farewell.is_over and not self.terminated:
            # The library's own closing period may already have ended, because qh3 counts it from the last packet.
            self._quic.handle_timer(self._after_timer(now))
            self.terminated = True

    def _after_timer(self, now: float) -> float:
        """Return the time at which the library's timer is due, or now if that is later."""
        return max(now, self._quic.get_timer() or now)

    # The qlog file.

    def discard_trace(self) -> None:
        """Write no qlog file for a connection that has not begun."""
        if self._qlog is not None:
            self._qlog.discard(self._trace)

    def end_trace(self) -> None:
        """Write the qlog file, if there is one and the library has not written it."""
        if self._qlog is not None:
            self._qlog.end_trace(self._trace)


def _ignore(_: object) -> None:
    """The default of ``on_cid_issued`` and ``on_cid_retired``."""

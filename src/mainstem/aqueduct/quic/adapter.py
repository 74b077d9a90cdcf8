"""The QUIC code that both libraries share: their sans-I/O connections have the same shape.

A `QuicAdapter` owns one QUIC connection. It passes the content of datagrams to an `AqueductEngine`, carries out that engine's
commands, reports how much room there is, and handles the library's errors. Both libraries are used through undocumented
attributes. The subclasses implement what differs between them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from ssl import PROTOCOL_TLS_CLIENT, PROTOCOL_TLS_SERVER, SSLContext
from typing import TYPE_CHECKING, Any

from mainstem.aqueduct.certificates import describe_invalid_time
from mainstem.aqueduct.events import (
    CloseConnection,
    PauseConnection,
    PauseStream,
    ResetStream,
    SendDatagram,
    SendStream,
    WatchDelivery,
)
from mainstem.aqueduct.frames import EXPLICIT_CLOSE, HANDSHAKE_TIMED_OUT, NO_PLACE, PROTOCOL_ERROR, SERIALIZATION_ERROR
from mainstem.aqueduct.quic.farewell import Farewell, stateless_reset
from mainstem.aqueduct.quic.tickets import Promises, ticket_name
from mainstem.aqueduct.settings import CID_LENGTH
from mainstem.errors import ConfigurationError, ConnectionLost, Delivery, RemoteProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mainstem.aqueduct.engine import AqueductEngine
    from mainstem.aqueduct.events import Command
    from mainstem.aqueduct.quic.tickets import ServerTickets, SessionCache
    from mainstem.aqueduct.settings import Settings

Address = tuple[Any, ...]
"""A peer's address in the form that `socket` uses: host and port first."""

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

BULK = 1 << 12
"""Minimum size in bytes of a write to a stream that counts as bulk, not as a short message."""

NO_VERIFICATION = 0
"""`ssl.CERT_NONE`, which both libraries accept as a number."""

PEERS_COMPLAINT = "peer's complaint"
"""The ``rule`` of the error if the peer closed the connection because it detected a protocol error."""

SUCCESS_CODES = (0, EXPLICIT_CLOSE)
"""Close codes that are not errors."""

CRYPTO_ERROR = 0x100  # plus the TLS alert: QUIC's error codes for a failed handshake (RFC 9001, 4.8)
ALERTS = range(256)
CERTIFICATE_ALERTS = (42, 45, 46, 48)  # bad, expired or unknown certificate, unknown authority

REFUSALS = (SERIALIZATION_ERROR, HANDSHAKE_TIMED_OUT, NO_PLACE)
"""Close codes with which a peer ends a connection before its application has received anything."""


@dataclass(slots=True)
class PacketHeader:
    """The header of a packet, which a server reads before it knows which connection the packet belongs to."""

    version: int | None
    is_initial: bool
    is_negotiation: bool
    destination_cid: bytes
    source_cid: bytes
    token: bytes


def read_pem(path: str | Path | None, what: str) -> str:
    """Return the path of a PEM file as text. Raises ConfigurationError."""
    if path is None:
        raise ConfigurationError(f"a server needs a {what}; make one for development with `mainstem cert`")
    if not Path(path).is_file():
        raise ConfigurationError(f"{what} {str(path)!r} is not a file")
    return str(path)


def read_authority(path: str | Path | None, what: str) -> str:
    """Return the path of a file of authority certificates as text. Raises ConfigurationError."""
    text = read_pem(path, what)
    if not _has_certificates(Path(text).read_bytes()):
        raise ConfigurationError(f"{what} {text!r} has no certificate in PEM")
    return text


@lru_cache(maxsize=64)
def _has_certificates(pem: bytes) -> bool:
    """Return whether PEM text contains certificates. The result is cached, so that it is not parsed for each connection."""
    try:
        SSLContext(PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=pem.decode("ascii", "replace"))
    except (OSError, ValueError):
        return False
    return True


def read_chain(certificate: str | Path | None, key: str | Path | None) -> tuple[str, str]:
    """Return the paths of a certificate and its key as text. Raises ConfigurationError."""
    chain = read_pem(certificate, "certificate"), read_pem(key, "key")
    try:
        SSLContext(PROTOCOL_TLS_SERVER).load_cert_chain(*chain, password="")
    except OSError as error:
        raise ConfigurationError(f"certificate {chain[0]!r} with key {chain[1]!r} cannot be used: {error}") from error
    return chain


class QuicAdapter:
    """One QUIC connection. Subclasses implement what differs between the libraries."""

    library_errors: tuple[type[Exception], ...] = (RuntimeError, ValueError, AssertionError)

    def __init__(self, quic: Any, settings: Settings, *, is_client: bool) -> None:
        self.quic = quic
        self.settings = settings
        self.is_client = is_client
        self.handshake_done = False
        self.early_data_accepted = False
        # Whether either side ended the connection with a TLS alert.
        self.tls_failed = False
        # Seconds without a sent packet after which to send a ping; 0 for never.
        self.keep_alive = settings.keep_alive
        self.terminated = False
        self.closing = False
        # Called with each connection id that this side issues, and with each that the peer retires.
        self.on_cid_issued: Callable[[bytes], None] = _ignore
        self.on_cid_retired: Callable[[bytes], None] = _ignore
        # Streams for which the engine waits until their bytes are delivered; see `check_watched`.
        self.watched: dict[int, object] = {}
        # The stream of the last bulk write, and whether the last commands included a short message on another stream.
        self._bulk_stream: int | None = None
        self.has_short = False
        # Streams that the peer stopped reading, for which the engine may still issue commands.
        self._stopped: set[int] = set()
        self._error: Exception | None = None
        # The library's functions for sending stream data and datagrams.
        self.send_stream: Callable[[int, bytes, bool], None] = quic and quic.send_stream_data
        self.send_datagram: Callable[[bytes], None] = quic and quic.send_datagram_frame
        # Set once this side's close has been sent.
        self._farewell: Farewell | None = None
        self._is_drained = False
        self._handlers = {
            "StreamReset": self._stream_reset,
            "StopSendingReceived": self._stop_sending,
            "HandshakeCompleted": self._handshake_completed,
            "ConnectionIdIssued": lambda event, *_: self.on_cid_issued(event.connection_id),
            "ConnectionIdRetired": lambda event, *_: self.on_cid_retired(event.connection_id),
            "ConnectionTerminated": self._connection_terminated,
        }

    # Datagrams and time.

    def connect(self, address: Address, now: float) -> None:
        self.quic.connect(address, now=now)

    def receive(self, datagrams: list[bytes], address: Address, now: float) -> None:
        if self.closing:
            if self._farewell is not None:
                self._farewell.received(datagrams)
                self._end_farewell(now)
        else:
            for data in datagrams:
                self.quic.receive_datagram(data, address, now=now)

    def transmit(self, now: float) -> list[tuple[bytes, Address]]:
        if self._farewell is not None:
            return self._farewell.take()
        datagrams: list[tuple[bytes, Address]] = self.quic.datagrams_to_send(now=now)
        if self.closing:
            # Do not repeat the close to an unproven address.
            is_proven = self.is_client or self.handshake_done
            self._farewell = Farewell(
                datagrams if is_proven else [], now, self.round_trip or 0.0, self.reset_token or b""
            )
        # Note that the connection is closed and nothing is left to send. The library reports that only after its closing or
        # draining period, which takes seconds during the handshake.
        was_drained, self._is_drained = self._is_drained, not datagrams and self.quic._close_event is not None
        if self._is_drained and not (was_drained or self.is_client) and self.is_draining and self.reset_token:
            # The peer has closed the connection. Once it learns that the connection is forgotten, it need not repeat the close.
            return [(stateless_reset(self.reset_token), self.active_address)]
        return datagrams

    def timer(self) -> float | None:
        if self.closing:
            return None if self._farewell is None else self._farewell.due
        if self._is_drained:
            return 0.0
        return self.quic.get_timer()  # type: ignore[no-any-return]

    def handle_timer(self, now: float) -> None:
        if not self.closing:
            self.quic.handle_timer(now=max(now, self.quic.get_timer() or now) if self._is_drained else now)
        elif self._farewell is not None:
            self._farewell.handle_timer(now)
            self._end_farewell(now)

    def _end_farewell(self, now: float) -> None:
        if self._farewell is not None and self._farewell.is_over and not self.terminated:
            # The library's own closing period may already have ended, because qh3 counts it from the last packet.
            self.quic.handle_timer(now=max(now, self.quic.get_timer() or now))
            self.terminated = True

    def ping(self) -> None:
        self.quic.send_ping(0)

    def close(self, code: int, reason: str) -> None:
        self.closing = True
        self.quic.close(error_code=code, reason_phrase=reason[:200])

    @property
    def peer_certificate(self) -> bytes | None:
        """The peer's certificate in DER form; None if it presented none."""
        raise NotImplementedError

    @property
    def peer_idle_timeout(self) -> float | None:
        """The peer's idle timeout in seconds, once the handshake is complete; None or 0 if it has none."""
        raise NotImplementedError

    @property
    def active_address(self) -> Address:
        """The address to which packets are sent, under the name that the library knows it by."""
        raise NotImplementedError

    @property
    def is_draining(self) -> bool:
        """Whether the peer has closed the connection."""
        raise NotImplementedError

    @property
    def reset_token(self) -> bytes | None:
        """The token of the server's stateless resets for this connection; None or empty if unknown."""
        raise NotImplementedError

    @property
    def round_trip(self) -> float | None:
        """The smoothed round-trip time in seconds; None until it has been measured."""
        raise NotImplementedError

    @property
    def has_begun(self) -> bool:
        """Whether an authentic packet has arrived for this connection."""
        raise NotImplementedError

    def discard(self) -> None:
        """Discard a connection that has not begun, without writing a qlog file."""
        trace = self.quic._quic_logger
        if trace is not None:
            self.quic._quic_logger = None
            self.quic.configuration.quic_logger._traces.remove(trace)

    def end_trace(self) -> None:
        """Write the qlog file, if there is one and the library has not written it."""
        trace = self.quic._quic_logger
        if trace is not None:
            self.quic._quic_logger = None
            self.quic.configuration.quic_logger.end_trace(trace)

    # From the library to the engine.

    def has_events(self) -> bool:
        return bool(self.quic._events)

    def deliver(self, engine: AqueductEngine, now_ns: int) -> bool:
        """Pass all events of the library to the engine; return False if there are none."""
        events = self.quic._events
        if not events:
            return False
        # Each packet produces an event. Join consecutive bytes of one stream.
        stream_id, pieces, fin = -1, [], False
        datagrams: list[bytes] = []
        while events:
            event = events.popleft()
            name = type(event).__name__
            if name == "DatagramFrameReceived":
                datagrams.append(event.data)
                continue
            if name == "StreamDataReceived" and event.stream_id == stream_id and not fin:
                pieces.append(event.data)
                fin = event.end_stream
                continue
            if pieces:
                self._hand_over(engine, stream_id, b"".join(pieces), fin, now_ns)
                pieces = []
            if name == "StreamDataReceived":
                stream_id, pieces, fin = event.stream_id, [event.data], event.end_stream
            elif name in self._handlers:
                self._handlers[name](event, engine, now_ns)
        if pieces:
            self._hand_over(engine, stream_id, b"".join(pieces), fin, now_ns)
        if datagrams:
            engine.receive_datagrams(datagrams, now_ns)
        return True

    def _hand_over(self, engine: AqueductEngine, stream_id: int, data: bytes, fin: bool, now_ns: int) -> None:
        engine.receive_stream(stream_id, data, fin, now_ns)

    def _stream_reset(self, event: Any, engine: AqueductEngine, now_ns: int) -> None:
        engine.receive_reset(event.stream_id, event.error_code, now_ns)

    def _stop_sending(self, event: Any, engine: AqueductEngine, now_ns: int) -> None:
        self._stopped.add(event.stream_id)
        engine.receive_stop_sending(event.stream_id, now_ns)

    def _handshake_completed(self, event: Any, engine: AqueductEngine, now_ns: int) -> None:
        self.handshake_done = True
        self.early_data_accepted = bool(event.early_data_accepted)
        if self.keep_alive:
            third = min(self.settings.idle_timeout, self.peer_idle_timeout or math.inf) / KEEP_ALIVES_PER_TIMEOUT
            self.keep_alive = min(self.keep_alive, max(third, MIN_KEEP_ALIVE))
        if event.alpn_protocol != self.settings.alpn:
            message, rule = f"the peer does not speak {self.settings.alpn!r} (ALPN)", "application protocol"
        elif not self.quic._remote_max_datagram_frame_size:
            message, rule = "the peer does not support QUIC datagrams, which Aqueduct requires", "datagrams required"
        else:
            engine.handshake_completed(now_ns)
            return
        self._error = RemoteProtocolError(message, rule=rule, code=PROTOCOL_ERROR)
        self.close(PROTOCOL_ERROR, message)
        engine.connection_lost(self._error, now_ns)

    def _connection_terminated(self, event: Any, engine: AqueductEngine, now_ns: int) -> None:
        self.terminated = True
        code, is_of_peer = event.error_code, event.frame_type is None
        reason = event.reason_phrase or "no reason given"
        error: Exception | None = None
        if is_of_peer and code == PROTOCOL_ERROR:
            text = f"the peer closed the connection because of a protocol error: {event.reason_phrase}"
            error = RemoteProtocolError(text, rule=PEERS_COMPLAINT, code=PROTOCOL_ERROR)
        elif not (is_of_peer and code in SUCCESS_CODES):
            text, alert = f"the connection ended: {reason} ({code})", code - CRYPTO_ERROR
            if alert in ALERTS:
                self.tls_failed = True
                text = f"the TLS handshake failed: {reason} (alert {alert})"
                if self.is_client and alert in CERTIFICATE_ALERTS:
                    # qh3 does not say whether a certificate has expired.
                    der = None if is_of_peer else self.peer_certificate
                    fault = "" if der is None else describe_invalid_time(der)
                    text += f"; it {fault}" if fault else "; ca= names the authority of the server's certificate"
            is_refused = is_of_peer and code in REFUSALS
            error = ConnectionLost(text, delivery=Delivery.NONE if is_refused else Delivery.UNKNOWN)
        engine.connection_lost(self._error or error, now_ns)

    # From the engine to the library.

    def execute(self, commands: Iterable[Command]) -> None:
        quic, send_stream, send_datagram = self.quic, self.send_stream, self.send_datagram
        shorts, last_short = 0, -1
        for command in commands:
            if self.terminated or self.closing:
                return
            kind = type(command)
            try:
                if kind is SendStream:
                    send_stream(command.stream_id, command.data, command.fin)  # type: ignore[union-attr]
                    stream_id = command.stream_id  # type: ignore[union-attr]
                    if len(command.data) >= BULK:  # type: ignore[union-attr]
                        # The write before it on the same stream was the head of its message, not a short message.
                        shorts -= stream_id == last_short
                        self._bulk_stream = stream_id
                    elif stream_id != self._bulk_stream:
                        shorts += 1
                        last_short = stream_id
                elif kind is SendDatagram:
                    send_datagram(command.data)  # type: ignore[union-attr]
                elif kind is ResetStream:
                    quic.reset_stream(command.stream_id, command.code)  # type: ignore[union-attr]
                elif kind is WatchDelivery:
                    self.watched[command.stream_id] = None  # type: ignore[union-attr]
                elif kind is PauseStream:
                    self.pause_stream(command.stream_id, command.paused)  # type: ignore[union-attr]
                elif kind is PauseConnection:
                    self.pause_connection(command.paused)  # type: ignore[union-attr]
                elif kind is CloseConnection:
                    self.close(command.code, command.reason)  # type: ignore[union-attr]
            except self.library_errors as error:
                if self.quic._close_event is not None:
                    # The connection has ended, and an event with the reason will follow.
                    return
                # The peer asked the library to stop this stream, and the library did so before the engine was notified.
                if kind not in (SendStream, ResetStream) or command.stream_id not in self._stopped:  # type: ignore[union-attr]
                    raise ConnectionLost(f"the QUIC library failed: {error}") from error

        self._stopped.clear()
        self.has_short = shorts > 0 and self._bulk_stream is not None

    def room(self) -> tuple[int, int, int, int, int, float | None]:
        """Return room and round-trip time: bidirectional and unidirectional stream limits, streams opened of each, datagrams."""
        raise NotImplementedError

    def update(self, engine: AqueductEngine) -> None:
        bidi_limit, uni_limit, bidi_opened, uni_opened, datagrams, round_trip = self.room()
        if not self.handshake_done:
            bidi_limit = min(bidi_limit or EARLY_STREAMS, EARLY_STREAMS)
            uni_limit = min(uni_limit or EARLY_STREAMS, EARLY_STREAMS)
        # This is 0 if the peer accepts no datagrams or its parameters are not known yet.
        largest = self.quic._remote_max_datagram_frame_size or 0
        if largest:
            largest = min(largest, self.settings.max_datagram_size) - DATAGRAM_OVERHEAD
        engine.output.transport_state(
            bidi_limit - bidi_opened, uni_limit - uni_opened, datagrams if largest else 0, largest
        )
        if round_trip:
            engine.context.rtt_ns = int(round_trip * 1e9)

    def check_watched(self, engine: AqueductEngine, now_ns: int) -> bool:
        """Report to the engine the watched streams whose bytes have been delivered; return whether there were any.

        Called after sending.
        """
        raise NotImplementedError

    def pause_stream(self, stream_id: int, paused: bool) -> None:
        """Stop or resume granting credit to one stream, if the library can."""

    def pause_connection(self, paused: bool) -> None:
        """Stop or resume granting credit to the connection."""
        raise NotImplementedError

    @property
    def is_in_flight(self) -> bool:
        """Whether any data is unacknowledged or waiting to be sent, as far as the library reports it."""
        return False


class Backend:
    """One QUIC library. Both use the same module names and arguments; the subclasses implement what differs."""

    name: str
    adapter: type[QuicAdapter]
    has_address_tokens = False

    def connection_class(self, settings: Settings) -> Callable[..., Any]:
        """Return the class or factory of the library's connections with these settings."""
        raise NotImplementedError

    def parse(self, data: bytes) -> PacketHeader | None:
        """Return the header of a packet; None if ``data`` is not a packet."""
        raise NotImplementedError

    def check_server(self, settings: Settings, tickets: ServerTickets | None) -> None:
        """Check that the library supports a server with these settings. Raises ConfigurationError."""
        raise NotImplementedError

    def module(self, name: str) -> Any:
        return import_module(f"{self.name}.{name}")

    def make_ticket(self, **fields: Any) -> Any:
        tls = self.module("tls")
        return tls.SessionTicket(**{**fields, "cipher_suite": tls.CipherSuite(fields["cipher_suite"])})

    def configuration(self, settings: Settings, **options: Any) -> Any:
        """Return a configuration of the library, filled from the settings. Raises ConfigurationError."""
        configuration = self.module("quic.configuration").QuicConfiguration(**options)
        configuration.connection_id_length = CID_LENGTH
        configuration.alpn_protocols = [settings.alpn]
        configuration.idle_timeout = settings.idle_timeout
        configuration.max_datagram_frame_size = 65536
        configuration.max_data = settings.connection_window
        configuration.max_stream_data = settings.stream_window
        configuration.max_datagram_size = settings.max_datagram_size
        if settings.qlog_directory is not None:
            directory = Path(settings.qlog_directory)
            directory.mkdir(parents=True, exist_ok=True)
            configuration.quic_logger = self.module("quic.logger").QuicFileLogger(str(directory))
        if settings.secrets_log is not None:
            configuration.secrets_log_file = Path(settings.secrets_log).open("a")  # noqa: SIM115 - it lives as long as the library's configuration
        if configuration.is_client:
            if not settings.verify:
                configuration.verify_mode = NO_VERIFICATION
            elif settings.ca is not None:
                configuration.load_verify_locations(cafile=read_authority(settings.ca, "certificate authority"))
            if settings.client_ca is not None:
                raise ConfigurationError("client_ca is a server's setting; a client's authorities are ca")
        if settings.certificate is not None or not configuration.is_client:
            configuration.load_cert_chain(*read_chain(settings.certificate, settings.key))
        return configuration

    def client(
        self, settings: Settings, *, server_name: str, sessions: SessionCache | None, origin: str
    ) -> QuicAdapter:
        """Return a client's connection, which has not begun yet."""
        server_name = settings.server_name or server_name
        configuration = self.configuration(settings, is_client=True, server_name=server_name)
        options: dict[str, Any] = {}
        if sessions is not None:
            name = ticket_name(settings, origin=origin, server_name=server_name)
            configuration.session_ticket = sessions.take(name, self.make_ticket)
            options["session_ticket_handler"] = sessions.keeper(name)
            if self.has_address_tokens:
                configuration.token = sessions.take_token(origin)
                options["token_handler"] = sessions.token_keeper(origin)
        quic = self.connection_class(settings)(configuration=configuration, **options)
        return self.adapter(quic, settings, is_client=True)

    def server_context(self, settings: Settings, tickets: ServerTickets | None) -> ServerContext:
        """Return the context that all connections of one server share."""
        self.check_server(settings, tickets)
        return ServerContext(self, settings, tickets)


class ServerContext:
    """The configuration and tickets of a server, and its responses to first packets."""

    def __init__(self, backend: Backend, settings: Settings, tickets: ServerTickets | None) -> None:
        self._backend = backend
        self._settings = settings
        self._configuration = backend.configuration(settings, is_client=False)
        self._packets = backend.module("quic.packet")
        self._connection_class = backend.connection_class(settings)
        self._ticket_options: dict[str, Any] = {"session_ticket_fetcher": None, "session_ticket_handler": None}
        if tickets is not None:
            promises = Promises.of(settings)
            self._ticket_options["session_ticket_fetcher"] = tickets.fetcher(promises, backend.make_ticket)
            self._ticket_options["session_ticket_handler"] = tickets.keeper(promises)
        self.parse = backend.parse

    def negotiate(self, header: PacketHeader) -> bytes | None:
        """Return a version negotiation packet if the header's version is not supported, and None otherwise."""
        versions = self._configuration.supported_versions
        if header.version is None or header.version in versions or header.is_negotiation:
            return None
        return self._packets.encode_quic_version_negotiation(  # type: ignore[no-any-return]
            source_cid=header.destination_cid, destination_cid=header.source_cid, supported_versions=versions
        )

    def retry(self, header: PacketHeader, retried: bytes, token: bytes) -> bytes:
        """Return a Retry packet, which makes the client begin again with a token and another connection id."""
        return self._packets.encode_quic_retry(  # type: ignore[no-any-return]
            version=header.version,
            source_cid=retried,
            destination_cid=header.source_cid,
            original_destination_cid=header.destination_cid,
            retry_token=token,
        )

    def accept(self, header: PacketHeader, original: bytes | None = None) -> QuicAdapter:
        """Return a connection for a first packet; ``original`` is the connection id before a Retry, or None without one."""
        quic = self._connection_class(
            configuration=self._configuration,
            original_destination_connection_id=header.destination_cid if original is None else original,
            retry_source_connection_id=None if original is None else header.destination_cid,
            **self._ticket_options,
        )
        return self._backend.adapter(quic, self._settings, is_client=False)


def _ignore(_: object) -> None:
    """The default of ``on_cid_issued`` and ``on_cid_retired``."""

"""Connect aioquic to Aqueduct's engine. The library is written in Python, slower than qh3, and can pause single streams.

No private names of the library are used here; `aioquic_connection` has them.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from aioquic.buffer import Buffer
from aioquic.quic import packet
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnectionError
from aioquic.quic.events import DatagramFrameReceived, StopSendingReceived, StreamDataReceived, StreamReset
from aioquic.quic.logger import QuicLoggerTrace
from aioquic.tls import CipherSuite, SessionTicket

from mainstem.aqueduct.events import (
    CloseConnection,
    PauseConnection,
    PauseStream,
    ResetStream,
    SendDatagram,
    SendStream,
    WatchDelivery,
)
from mainstem.aqueduct.quic.aioquic_connection import AioquicConnection, MutualConnection
from mainstem.aqueduct.quic.configuration import configure, ticket_options
from mainstem.aqueduct.quic.lifecycle import Lifecycle
from mainstem.aqueduct.quic.server_context import ServerContext
from mainstem.aqueduct.quic.tickets import ticket_name
from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mainstem.aqueduct.engine import AqueductEngine
    from mainstem.aqueduct.events import Command
    from mainstem.aqueduct.quic.tickets import ServerTickets, SessionCache
    from mainstem.aqueduct.quic.udp import Address
    from mainstem.aqueduct.settings import Settings


class AioquicAdapter:
    """A `QuicAdapter` for one connection of aioquic."""

    library_errors: tuple[type[Exception], ...] = (RuntimeError, ValueError, AssertionError, QuicConnectionError)

    def __init__(self, quic: AioquicConnection, settings: Settings, *, is_client: bool) -> None:
        self.quic = quic
        self.lifecycle = lifecycle = Lifecycle(quic, settings, is_client=is_client)
        # Packets and timers need no more than what both libraries have.
        self.transmit, self.close = lifecycle.transmit, lifecycle.close
        self.timer, self.handle_timer = lifecycle.timer, lifecycle.handle_timer
        self.watched: dict[int, None] = {}
        # Streams that the peer stopped reading, for which the engine may still issue commands.
        self._stopped: set[int] = set()

    @property
    def host_cid(self) -> bytes:
        return bytes(self.quic.host_cid)

    @property
    def has_ticket(self) -> bool:
        return self.quic.configuration.session_ticket is not None

    @property
    def has_begun(self) -> bool:
        return self.quic.has_begun

    @property
    def peer_certificate(self) -> bytes | None:
        return self.quic.peer_certificate

    @property
    def round_trip(self) -> float | None:
        return self.quic.round_trip

    @property
    def is_in_flight(self) -> bool:
        return self.quic.is_in_flight

    # Datagrams and time.

    def connect(self, address: Address, now: float) -> None:
        self.quic.connect(address, now)

    def receive(self, datagrams: list[bytes], address: Address, now: float) -> None:
        if self.lifecycle.closing:
            self.lifecycle.received(datagrams, now)
            return
        for data in datagrams:
            self.quic.receive_datagram(data, address, now)

    def ping(self) -> None:
        self.quic.send_ping(0)

    # From the library to the engine.

    def has_events(self) -> bool:
        return bool(self.quic.events)

    def deliver(self, engine: AqueductEngine, now_ns: int) -> bool:
        events = self.quic.events
        if not events:
            return False
        # Each packet produces an event. Join consecutive bytes of one stream.
        stream_id, pieces, fin = -1, [], False
        datagrams: list[bytes] = []
        while events:
            event = events.popleft()
            if isinstance(event, DatagramFrameReceived):
                datagrams.append(event.data)
                continue
            is_data = isinstance(event, StreamDataReceived)
            if is_data and event.stream_id == stream_id and not fin:
                pieces.append(event.data)
                fin = event.end_stream
                continue
            if pieces:
                engine.receive_stream(stream_id, b"".join(pieces), fin, now_ns)
                pieces = []
            if is_data:
                stream_id, pieces, fin = event.stream_id, [event.data], event.end_stream
            elif isinstance(event, StreamReset):
                engine.receive_reset(event.stream_id, event.error_code, now_ns)
            elif isinstance(event, StopSendingReceived):
                self._stopped.add(event.stream_id)
                engine.receive_stop_sending(event.stream_id, now_ns)
            else:
                self.lifecycle.handle(event, engine, now_ns)
        if pieces:
            engine.receive_stream(stream_id, b"".join(pieces), fin, now_ns)
        if datagrams:
            engine.receive_datagrams(datagrams, now_ns)
        return True

    # From the engine to the library.

    def update(self, engine: AqueductEngine) -> None:
        self.lifecycle.report_room(engine, *self.quic.room())

    def execute(self, commands: Iterable[Command]) -> None:
        quic, lifecycle = self.quic, self.lifecycle
        for command in commands:
            if lifecycle.terminated or lifecycle.closing:
                return
            try:
                if isinstance(command, SendStream):
                    quic.send_stream_data(command.stream_id, command.data, command.fin)
                elif isinstance(command, SendDatagram):
                    quic.send_datagram_frame(command.data)
                elif isinstance(command, ResetStream):
                    quic.reset_stream(command.stream_id, command.code)
                elif isinstance(command, WatchDelivery):
                    self.watched[command.stream_id] = None
                elif isinstance(command, PauseStream):
                    change = quic.paused_streams.add if command.paused else quic.paused_streams.discard
                    change(command.stream_id)
                elif isinstance(command, PauseConnection):
                    quic.connection_window.paused = command.paused
                elif isinstance(command, CloseConnection):
                    lifecycle.close(command.code, command.reason)
            except self.library_errors as error:
                if quic.has_ended:
                    # An event with the reason will follow.
                    return
                lifecycle.command_failed(command, self._stopped, error)
        self._stopped.clear()

    def check_watched(self, engine: AqueductEngine, now_ns: int) -> bool:
        delivered = [stream_id for stream_id in self.watched if self.quic.is_delivered(stream_id)]
        for stream_id in delivered:
            del self.watched[stream_id]
            engine.stream_delivered(stream_id, now_ns)
        return bool(delivered)


def client(settings: Settings, *, server_name: str, sessions: SessionCache | None, origin: str) -> AioquicAdapter:
    server_name = settings.server_name or server_name
    configuration = QuicConfiguration(is_client=True, server_name=server_name)
    configure(configuration, settings, make_trace=QuicLoggerTrace)
    options: dict[str, Any] = {}
    if sessions is not None:
        name = ticket_name(settings, origin=origin, server_name=server_name)
        configuration.session_ticket = sessions.take(name, _make_ticket)
        configuration.token = sessions.take_token(origin)
        options["session_ticket_handler"] = sessions.keeper(name)
        options["token_handler"] = sessions.token_keeper(origin)
    quic = AioquicConnection(settings=settings, configuration=configuration, **options)
    return AioquicAdapter(quic, settings, is_client=True)


def server_context(settings: Settings, tickets: ServerTickets | None) -> ServerContext:
    if settings.client_ca is not None and tickets is not None:
        raise ConfigurationError("client_ca and tickets cannot be combined: a resumed session presents no certificate")
    configuration = QuicConfiguration(is_client=False)
    configure(configuration, settings, make_trace=QuicLoggerTrace)
    make = partial(
        AioquicConnection if settings.client_ca is None else MutualConnection,
        settings=settings,
        configuration=configuration,
        **ticket_options(settings, tickets, _make_ticket),
    )
    return ServerContext(
        configuration, packet, Buffer, lambda **ids: AioquicAdapter(make(**ids), settings, is_client=False)
    )


def _make_ticket(**fields: Any) -> SessionTicket:
    return SessionTicket(**{**fields, "cipher_suite": CipherSuite(fields["cipher_suite"])})

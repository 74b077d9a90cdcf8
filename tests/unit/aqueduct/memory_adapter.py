"""Two connections in one event loop, joined by in-memory adapters: everything of the API except QUIC and its socket."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from mainstem.aqueduct.aio import Connection
from mainstem.aqueduct.engine import AqueductEngine
from mainstem.aqueduct.events import (
    CloseConnection,
    Command,
    ResetStream,
    SendDatagram,
    SendStream,
    WatchDelivery,
)
from mainstem.aqueduct.limits import Limits
from mainstem.aqueduct.protocol import AqueductProtocol
from mainstem.aqueduct.quic.lifecycle import Lifecycle
from mainstem.aqueduct.serializers import RAW
from mainstem.aqueduct.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterable

ADDRESS = ("memory", 0)


NO_LIBRARY: Any = SimpleNamespace(configuration=SimpleNamespace(quic_logger=None))


class MemoryAdapter:
    """An adapter whose commands reach its peer in the next event loop iteration."""

    library_errors: tuple[type[Exception], ...] = ()
    host_cid = b""
    has_ticket = False
    has_begun = True
    peer_certificate = None
    round_trip = None
    is_in_flight = False
    peer: MemoryAdapter
    protocol: AqueductProtocol

    def __init__(self) -> None:
        self.lifecycle = Lifecycle(NO_LIBRARY, Settings(keep_alive=0), is_client=False)
        self.lifecycle.handshake_done = True
        self.watched: dict[int, None] = {}
        self.inbox: list[Command] = []
        self.lost: Exception | None = None

    def connect(self, address: Any, now: float) -> None: ...

    def receive(self, datagrams: list[bytes], address: Any, now: float) -> None: ...

    def transmit(self, now: float) -> list[Any]:
        return []

    def timer(self) -> float | None:
        return None

    def handle_timer(self, now: float) -> None: ...

    def ping(self) -> None: ...

    def close(self, code: int, reason: str) -> None:
        self.lifecycle.closing = self.lifecycle.terminated = True
        self.peer.inbox.append(CloseConnection(code, reason))
        self._nudge()

    def update(self, engine: AqueductEngine) -> None:
        engine.output.transport_state(datagrams=100, max_datagram=1000)

    def check_watched(self, engine: AqueductEngine, now_ns: int) -> bool:
        watched, self.watched = list(self.watched), {}
        for stream_id in watched:
            engine.stream_delivered(stream_id, now_ns)
        return bool(watched)

    def execute(self, commands: Iterable[Command]) -> None:
        for command in commands:
            if isinstance(command, WatchDelivery):
                self.watched[command.stream_id] = None
            elif isinstance(command, CloseConnection):
                self.close(command.code, command.reason)
            elif isinstance(command, SendStream | ResetStream | SendDatagram):
                self.peer.inbox.append(command)
        self._nudge()

    def _nudge(self) -> None:
        protocol = self.peer.protocol
        protocol.loop.call_soon(protocol.datagrams_received, [], ADDRESS)

    def has_events(self) -> bool:
        return bool(self.inbox)

    def deliver(self, engine: AqueductEngine, now_ns: int) -> bool:
        inbox, self.inbox = self.inbox, []
        for command in inbox:
            if isinstance(command, SendStream):
                engine.receive_stream(command.stream_id, command.data, command.fin, now_ns)
            elif isinstance(command, ResetStream):
                engine.receive_reset(command.stream_id, command.code, now_ns)
            elif isinstance(command, SendDatagram):
                engine.receive_datagram(command.data, now_ns)
            elif isinstance(command, CloseConnection):
                self.lifecycle.terminated = True
                engine.connection_lost(self.lost, now_ns)
        return bool(inbox)


class NoSocket:
    """The socket, which an in-memory adapter does not need."""

    def send(self, datagrams: list[Any]) -> None:
        assert not datagrams


def join(limits: Limits | None = None) -> tuple[Connection, Connection]:
    """Return a client's and a server's connection, which exchange headers within a few loop iterations."""
    protocols = []
    adapters = MemoryAdapter(), MemoryAdapter()
    for adapter, is_client in zip(adapters, (True, False), strict=True):
        engine = AqueductEngine(is_client=is_client, limits=limits or Limits(), peer="the other")
        adapter.protocol = AqueductProtocol(engine, adapter, NoSocket(), ADDRESS, serializer=RAW)  # type: ignore[arg-type]
        protocols.append(adapter.protocol)
    adapters[0].peer, adapters[1].peer = adapters[1], adapters[0]
    client, server = protocols
    server.on_headers = lambda headers: (server.engine.accept((), server.now_ns), server.wake())  # type: ignore[assignment,func-returns-value]
    client.engine.start(client.now_ns)
    client.flush()
    return Connection(client, is_client=True), Connection(server, is_client=False)


async def turns(count: int) -> None:
    """Let the event loop run `count` iterations."""
    for _ in range(count):
        await asyncio.sleep(0)

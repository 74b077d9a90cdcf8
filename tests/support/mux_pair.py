"""Two ends of a multiplexer in one event loop, over an in-memory transport."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from mainstem import bymux
from mainstem.jmux.aio_client import Client
from mainstem.jmux.aio_server import ServerProtocol
from mainstem.jmux.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from mainstem.jmux import aio as jmux
    from mainstem.mux.transports import Transport, TransportHandler


T = TypeVar("T")


class MemoryTransport:
    """Delivers bytes to the other end in the next turn of the event loop, in chunks of at most ``cut`` bytes."""

    def __init__(self, handler: TransportHandler, *, cut: int = 1 << 20, peer: str = "memory") -> None:
        self.handler = handler
        self.cut = cut
        self.peer = peer
        self.paused = False
        self.ended = False
        self.other: MemoryTransport | None = None
        self.sent = bytearray()
        self.loop = asyncio.get_running_loop()

    def get_extra_info(self, name: str) -> Any:
        return ("memory", 0) if name == "peername" else None

    def write(self, segments: list[bytes | memoryview]) -> None:
        data = b"".join(segments)
        self.sent += data
        for start in range(0, len(data), self.cut):
            self.loop.call_soon(self.deliver, data[start : start + self.cut])

    def deliver(self, data: bytes) -> None:
        if self.other is not None and not self.other.ended:
            self.other.handler.data_received(memoryview(data))

    def close(self) -> None:
        self.loop.call_soon(self.lose, None)

    def abort(self) -> None:
        self.loop.call_soon(self.lose, None)

    def lose(self, error: Exception | None) -> None:
        """Close this end, and the other one with it."""
        if not self.ended:
            self.ended = self.paused = True
            self.handler.transport_lost(error)
            if self.other is not None:
                self.loop.call_soon(self.other.lose, error)


def join(a: TransportHandler, b: TransportHandler, *, cut: int = 1 << 20) -> tuple[MemoryTransport, MemoryTransport]:
    """Connect two engines."""
    ends = MemoryTransport(a, cut=cut), MemoryTransport(b, cut=cut)
    ends[0].other, ends[1].other = ends[1], ends[0]
    for end in ends:
        end.handler.transport_ready(end)
    return ends


def bymux_pair(
    handler: Callable[[bymux.aio.Stream], Awaitable[object]] | None = None,
    *,
    settings: bymux.Settings | None = None,
    cut: int = 1 << 20,
) -> tuple[bymux.aio.Connection, bymux.aio.Connection]:
    """Return a proactive end, and a reactive one with ``handler``."""
    ends = (
        bymux.aio.Connection(bymux.Role.PROACTIVE, settings),
        bymux.aio.Connection(bymux.Role.REACTIVE, settings, handler=handler),
    )
    for end in ends:
        end._protocol.view = end  # as a server does, so that the test can drop the end
    join(ends[0]._protocol, ends[1]._protocol, cut=cut)
    return ends


class MemoryEndpoint:
    """Connects a Jmux client to an in-memory server; ``servers`` are the ends that it created."""

    def __init__(
        self,
        handler: Callable[[jmux.ServerSession], Awaitable[object]],
        settings: jmux.Settings | None,
        *,
        cut: int = 1 << 20,
    ) -> None:
        self.handler = handler
        self.settings = settings
        self.cut = cut
        self.servers: list[ServerProtocol] = []
        self.transports: list[Transport] = []

    async def connect(self, handler: TransportHandler, timeout: float) -> None:
        server = ServerProtocol(self.handler, self.settings, processes_at_once=True)
        self.servers.append(server)
        self.transports += join(handler, server, cut=self.cut)
        await asyncio.sleep(0)


def jmux_pair(
    handler: Callable[[jmux.ServerSession], Awaitable[object]],
    *,
    settings: jmux.Settings | None = None,
    max_connections: int = 1,
    cut: int = 1 << 20,
) -> tuple[Client, MemoryEndpoint]:
    """Return a client whose connections lead to servers with ``handler``."""
    endpoint = MemoryEndpoint(handler, settings, cut=cut)
    own = replace(settings or Settings(), max_connections=max_connections)
    client = Client.made(endpoint, settings=own, timeout=10.0)  # type: ignore[arg-type]
    return client, endpoint


async def awaited(opening: Awaitable[T]) -> T:
    """Await an opening as a coroutine, and return what it opens."""
    return await opening

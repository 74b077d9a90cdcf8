"""A UDP relay on loopback between one server and its clients, which drops datagrams at random with a seed."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from types import TracebackType

Address = tuple[Any, ...]


class LossyRelay:
    """Gives each client address its own socket toward the server; `rebind` replaces it, as a NAT does.

    The server sees clients at the address ``source``.
    """

    def __init__(self, server_port: int, *, loss: float = 0.0, seed: int = 0, source: str = "127.0.0.1") -> None:
        self._source = source
        self.loss = loss
        self.lost = 0
        self.port = 0
        self._server = ("127.0.0.1", server_port)
        self._random = random.Random(seed)
        self._front: asyncio.DatagramTransport | None = None
        self._behind: dict[Address, asyncio.DatagramTransport] = {}
        self._former: dict[Address, asyncio.DatagramTransport] = {}
        self._opening: dict[Address, list[bytes]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._front, _ = await loop.create_datagram_endpoint(lambda: _Front(self), local_addr=("127.0.0.1", 0))
        self.port = self._front.get_extra_info("sockname")[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        for transport in (self._front, *self._behind.values(), *self._former.values()):
            if transport is not None:
                transport.close()

    async def rebind(self) -> None:
        """Give every client another address at the server; datagrams sent to the previous addresses are lost."""
        for client, transport in list(self._behind.items()):
            await self._open(client)
            transport.close()

    async def swap(self) -> None:
        """Give every client back its previous address at the server; the first time, a new one."""
        for client, transport in list(self._behind.items()):
            former = self._former.get(client)
            if former is None:
                await self._open(client)
            else:
                self._behind[client] = former
            self._former[client] = transport

    async def _open(self, client: Address) -> None:
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_datagram_endpoint(
            lambda: _Behind(self, client), local_addr=(self._source, 0), remote_addr=self._server
        )
        self._behind[client] = transport
        for data in self._opening.pop(client, ()):
            transport.sendto(data)

    def from_client(self, data: bytes, client: Address) -> None:
        if self._is_lost():
            return
        transport = self._behind.get(client)
        if transport is not None:
            transport.sendto(data)
        elif client in self._opening:
            self._opening[client].append(data)
        else:
            self._opening[client] = [data]
            task = asyncio.get_running_loop().create_task(self._open(client))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def is_at(self, client: Address, transport: object) -> bool:
        """Return whether a client currently uses the address of a socket."""
        return self._behind.get(client) is transport

    def from_server(self, data: bytes, client: Address) -> None:
        if not self._is_lost() and self._front is not None:
            self._front.sendto(data, client)

    def _is_lost(self) -> bool:
        is_lost = self._random.random() < self.loss
        self.lost += is_lost
        return is_lost


class _Front(asyncio.DatagramProtocol):
    def __init__(self, relay: LossyRelay) -> None:
        self._relay = relay

    def datagram_received(self, data: bytes, addr: Address) -> None:
        self._relay.from_client(data, addr)


class _Behind(asyncio.DatagramProtocol):
    def __init__(self, relay: LossyRelay, client: Address) -> None:
        self._relay = relay
        self._client = client
        self._transport: asyncio.BaseTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, addr: Address) -> None:
        if self._relay.is_at(self._client, self._transport):
            self._relay.from_server(data, self._client)

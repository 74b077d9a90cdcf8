"""What a server listens on: a socket for each address of its host, all with one port, or a Unix path."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

from mainstem._internal.listening import BACKLOG, bind_sockets, find_listening_addresses
from mainstem._internal.unix_listening import UnixListener
from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable, Sequence

    Create = Callable[[socket.socket], Awaitable[asyncio.Server]]


class ListeningSockets:
    """The sockets of one server, from its start to its end."""

    def __init__(self) -> None:
        self.servers: list[asyncio.Server] = []
        self.address: Any = None  # the first, as its socket names it
        self._unix: UnixListener | None = None

    async def start(self, host: str | Sequence[str] | None, port: int, path: str | None, create: Create) -> None:
        """Begin to listen. ``create`` makes a server of asyncio, which does not accept yet, of a socket."""
        try:
            if path is not None:
                self._unix = UnixListener(path, backlog=BACKLOG)
                await self._add([self._unix.socket], create)
            else:
                addresses = await find_listening_addresses(host, port, socket.SOCK_STREAM)
                await self._add(bind_sockets(addresses, kind=socket.SOCK_STREAM), create)
            # Apart, since a task that is cancelled while asyncio starts what it has made leaves the socket open.
            self.address = self.servers[0].sockets[0].getsockname()
            for server in self.servers:
                await server.start_serving()
        except OSError as error:
            self.close()
            raise ConfigurationError(f"cannot listen on {path or f'{host}:{port}'}: {error}") from error
        except BaseException:
            self.close()
            raise

    async def _add(self, sockets: list[socket.socket], create: Create) -> None:
        try:
            while sockets:
                self.servers.append(await create(sockets[0]))
                del sockets[0]
        finally:
            for left in sockets:
                left.close()

    @property
    def name(self) -> str:
        """The first address, as a text."""
        address = self.address
        return f"{address[0]}:{address[1]}" if isinstance(address, tuple) else str(address)

    def close(self) -> None:
        """Stop listening, and remove the Unix path if it is still this server's. Calling it twice is fine."""
        if self._unix is not None:
            self._unix.remove()
        for server in self.servers:
            server.close()

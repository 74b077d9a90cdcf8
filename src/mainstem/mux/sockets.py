"""Listening sockets and dialled ones, the same for every multiplexer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from mainstem.errors import ConfigurationError, ConnectionLost, TimedOut
from mainstem.mux.transports import SocketCarrier

if TYPE_CHECKING:
    import ssl as ssl_module
    from collections.abc import Callable

    from mainstem.mux.engine import Engine

# Connections that one listener serves at once; each may hold its windows' worth of memory.
MAX_CONNECTIONS = 1024

E = TypeVar("E", bound="Engine")


async def dial(
    driver: Engine,
    host: str | None,
    port: int | None,
    *,
    path: str | None,
    ssl: ssl_module.SSLContext | None,
    server_hostname: str | None,
    timeout: float,
) -> None:
    """Connects ``driver`` over TCP or, with ``path``, over a Unix socket. Raises ``ConnectionLost`` or ``TimedOut``."""
    loop = asyncio.get_running_loop()
    where = path or f"{host}:{port}"
    try:
        async with asyncio.timeout(timeout):
            if path is not None:
                await loop.create_unix_connection(
                    lambda: SocketCarrier(driver), path, ssl=ssl, server_hostname=server_hostname
                )
            elif host is None or port is None:
                raise ConfigurationError("connecting needs a host and a port, or path= for a Unix socket")
            else:
                await loop.create_connection(
                    lambda: SocketCarrier(driver), host, port, ssl=ssl, server_hostname=server_hostname
                )
    except TimeoutError:
        raise TimedOut(f"{where} did not answer within {timeout:g} s", timeout=timeout) from None
    except OSError as error:
        raise ConnectionLost(f"{where} cannot be reached: {error}") from error


class Listener(Generic[E]):
    """A listening socket whose connections are engines of one kind. A context manager; closing twice is fine."""

    def __init__(self, make: Callable[[], E], *, max_connections: int = MAX_CONNECTIONS) -> None:
        self._make = make
        self._max = max_connections
        self._server: asyncio.Server | None = None
        self.connections: set[E] = set()
        self.refused = 0

    async def start(
        self,
        host: str | None,
        port: int | None,
        *,
        path: str | None,
        ssl: ssl_module.SSLContext | None,
    ) -> None:
        """Begins to listen; raises ``ConfigurationError`` when the address cannot be used."""
        loop = asyncio.get_running_loop()
        try:
            if path is not None:
                self._server = await loop.create_unix_server(self._accept, path, ssl=ssl)
            else:
                self._server = await loop.create_server(self._accept, host, port or 0, ssl=ssl, backlog=1024)
        except OSError as error:
            raise ConfigurationError(f"cannot listen on {path or f'{host}:{port}'}: {error}") from error

    def _accept(self) -> asyncio.BaseProtocol:
        if len(self.connections) >= self._max:
            self.refused += 1
            return _Refusal()
        engine = self._make()
        self.connections.add(engine)
        engine.on_ended(lambda: self.connections.discard(engine))
        return SocketCarrier(engine)

    @property
    def port(self) -> int:
        """The TCP port that is listened on."""
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    @property
    def address(self) -> Any:
        """What is listened on, as the socket names it."""
        assert self._server is not None
        return self._server.sockets[0].getsockname()

    def stop_listening(self) -> None:
        """No new connections; those that are there go on."""
        if self._server is not None:
            self._server.close()

    async def close(self) -> None:
        """Stops listening and ends every connection at once."""
        self.stop_listening()
        ending = list(self.connections)
        for engine in ending:
            engine.end(abort=True)
        for engine in ending:
            await engine.wait_ended()

    async def __aenter__(self) -> Listener[E]:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()


class _Refusal(asyncio.Protocol):
    """What a connection meets when there are too many."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()

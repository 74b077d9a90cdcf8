"""bymux for asyncio: the same names as in :mod:`mainstem.bymux`, but methods that wait are coroutines.

Example:
    >>> async def echo(stream):
    ...     async for data in stream:
    ...         stream.write(data)
    ...         await stream.drain()
    >>> async with bymux.aio.serve(echo, "127.0.0.1", 7000) as server:
    ...     await server.wait()
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mainstem._internal.endpoint_stats import EndpointStats
from mainstem._internal.opening import Opening
from mainstem._internal.overrides import apply_overrides
from mainstem.bymux.aio_connection import Connection, Stream, protocol_of
from mainstem.bymux.codec import INFINITE
from mainstem.bymux.engine import BymuxEngine
from mainstem.bymux.settings import InitialStream, Settings
from mainstem.bymux.state import HalfState, Role
from mainstem.mux.aio_stream import StreamStats
from mainstem.mux.sockets import CONNECT_TIMEOUT_S, Server, ServerAddress, start_server
from mainstem.mux.tls import client_context
from mainstem.mux.transports import Publication, PublicationTransport, StreamPairTransport, Subscription

if TYPE_CHECKING:
    import asyncio
    import socket
    import ssl as ssl_module
    from collections.abc import Awaitable, Callable, Sequence

    from mainstem.bymux.protocol import BymuxProtocol

    Handler = Callable[[Stream], Awaitable[object]]
    ConnectionHandler = Callable[[Connection], Awaitable[object]]

__all__ = [
    "INFINITE",
    "Connection",
    "EndpointStats",
    "HalfState",
    "InitialStream",
    "Role",
    "Server",
    "Settings",
    "Stream",
    "StreamStats",
    "attach",
    "connect",
    "over_publications",
    "serve",
]


def connect(
    host: str | None = None,
    port: int | None = None,
    *,
    path: str | None = None,
    ssl: ssl_module.SSLContext | bool | None = None,
    server_hostname: str | None = None,
    handler: Handler | None = None,
    timeout: float | None = CONNECT_TIMEOUT_S,
    settings: Settings | None = None,
    **overrides: Any,
) -> Opening[Connection]:
    """Connect; see :func:`mainstem.bymux.connect`. Await the result, or use it with ``async with``.

    ``handler`` is a coroutine function that runs in its own task.
    """
    settings = apply_overrides(Settings, settings, overrides)
    address = ServerAddress(host, port, path, client_context(ssl, settings), server_hostname)
    return Opening(lambda: open_connection(address, settings, handler, timeout), "bymux.aio.connect")


async def open_connection(
    address: ServerAddress, settings: Settings, handler: Handler | None, timeout: float | None
) -> Connection:
    """Connect to an address as the proactive end."""
    connection = Connection(Role.PROACTIVE, settings, handler=handler)
    try:
        await address.connect(protocol_of(connection), timeout)
    except BaseException:
        connection.abort()
        raise
    if address.ssl is None:
        protocol_of(connection).break_silence()
    return connection


def serve(
    handler: Handler,
    host: str | Sequence[str] | None = "127.0.0.1",
    port: int | None = None,
    *,
    path: str | None = None,
    sock: socket.socket | Sequence[socket.socket] | None = None,
    ssl: ssl_module.SSLContext | bool | None = None,
    on_connection: ConnectionHandler | None = None,
    settings: Settings | None = None,
    **overrides: Any,
) -> Opening[Server[Any]]:
    """Listen for connections; see :func:`mainstem.bymux.serve`. Await the result, or use it with ``async with``.

    ``handler`` and ``on_connection`` are coroutine functions; each call runs in its own task.
    """
    server = make_server(handler, on_connection, apply_overrides(Settings, settings, overrides), ssl)
    return Opening(lambda: start_server(server, host, port, path, sock), "bymux.aio.serve")


def make_server(
    handler: Handler,
    on_connection: ConnectionHandler | None,
    settings: Settings,
    ssl: ssl_module.SSLContext | bool | None,
) -> Server[Any]:
    """Make a server, which does not listen yet."""

    def accept() -> BymuxProtocol[Stream]:
        connection = Connection(Role.REACTIVE, settings, handler=handler, on_connection=on_connection)
        protocol = protocol_of(connection)
        protocol.view = connection
        return protocol

    return Server(accept, BymuxEngine.PROTOCOL, settings, ssl)


def attach(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    *,
    role: Role,
    handler: Handler | None = None,
    settings: Settings | None = None,
    **overrides: Any,
) -> Opening[Connection]:
    """Start a connection over any asyncio reader and writer. Await the result, or use it with ``async with``.

    The writer is closed with the connection. ``handler`` is a coroutine function that runs in its own task.
    """
    settings = apply_overrides(Settings, settings, overrides)

    async def open_connection() -> Connection:
        connection = Connection(role, settings, handler=handler)
        StreamPairTransport(protocol_of(connection), reader, writer).start()
        return connection

    return Opening(open_connection, "bymux.aio.attach")


def over_publications(
    publication: Publication,
    subscription: Subscription,
    *,
    role: Role,
    handler: Handler | None = None,
    message_limit: int = PublicationTransport.MESSAGE_LIMIT,
    settings: Settings | None = None,
    **overrides: Any,
) -> Opening[Connection]:
    """Start a connection over publications; see :func:`mainstem.bymux.over_publications`.

    Await the result, or use it with ``async with``. ``handler`` is a coroutine function that runs in its own task.
    """
    settings = apply_overrides(Settings, settings, overrides)

    async def open_connection() -> Connection:
        connection = Connection(role, settings, handler=handler)
        PublicationTransport(protocol_of(connection), publication, subscription, message_limit=message_limit).start()
        return connection

    return Opening(open_connection, "bymux.aio.over_publications")

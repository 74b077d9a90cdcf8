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

import warnings
from collections import deque
from typing import TYPE_CHECKING, Any, Self

from mainstem._internal.clock import SYSTEM_CLOCK
from mainstem._internal.endpoint_stats import EndpointStats
from mainstem._internal.opening import Opening
from mainstem._internal.overrides import apply_overrides
from mainstem._internal.tasks import within
from mainstem.bymux.aio_stream import PING_TIMEOUT_S, Stream
from mainstem.bymux.codec import INFINITE
from mainstem.bymux.engine import BymuxEngine
from mainstem.bymux.runner import Runner
from mainstem.bymux.settings import InitialStream, Settings
from mainstem.bymux.state import HalfState, Role
from mainstem.mux.aio_stream import StreamStats
from mainstem.mux.connection import connection_stats
from mainstem.mux.sockets import CONNECT_TIMEOUT_S, Server, ServerAddress
from mainstem.mux.tls import client_context
from mainstem.mux.transports import Publication, PublicationTransport, StreamPairTransport, Subscription

if TYPE_CHECKING:
    import asyncio
    import socket
    import ssl as ssl_module
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from mainstem._internal.clock import Clock
    from mainstem.errors import MainstemError

    Handler = Callable[[Stream], Awaitable[object]]
    ConnectionHandler = Callable[["Connection"], Awaitable[object]]

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


class Connection:
    """One end of a bymux connection. An ``async with`` block closes it at its end, or aborts it if the block raises."""

    def __init__(
        self,
        role: Role,
        settings: Settings | None = None,
        *,
        handler: Handler | None = None,
        on_connection: ConnectionHandler | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._runner = runner = Runner(self, role, settings or Settings(), handler, on_connection, clock)
        self._accepted: deque[Stream] = deque()
        self._initial = [runner.add_stream(state) for state in runner.open_streams]  # until they are requested

    def __del__(self) -> None:
        runner = getattr(self, "_runner", None)
        if runner is not None and runner.is_open and runner.call_soon(runner.abort):
            warnings.warn(f"{self!r} was dropped without being closed", ResourceWarning, stacklevel=2, source=self)

    @property
    def closed(self) -> bool:
        """Whether the connection has ended, by either side."""
        return self._runner.closed

    @property
    def error(self) -> MainstemError | None:
        """The error that ended the connection early; ``None`` while it is open, and after an orderly end or an end on this side."""
        return self._runner.error

    @property
    def peer_address(self) -> Any:
        """The peer's address in the form that its socket uses: host and port for TCP; ``None`` if there is none."""
        return self._runner.peer_address

    @property
    def peer_certificate(self) -> dict[str, Any] | None:
        """The peer's TLS certificate as :meth:`ssl.SSLSocket.getpeercert` returns it; ``None`` without TLS."""
        return self._runner.peer_certificate

    @property
    def ssl_object(self) -> Any:
        """The TLS connection as an :class:`ssl.SSLObject`; ``None`` without TLS."""
        return self._runner.ssl_object

    def __repr__(self) -> str:
        runner = self._runner
        state = f"{len(runner.open_streams)} streams" if not runner.over else f"closed: {runner.failure}"
        return f"<bymux Connection to {runner.peer_name}, {state}>"

    def stream(self, stream_id: int) -> Stream:
        """Return the active stream with an id, such as an initial stream."""
        return self._runner.stream(stream_id)

    def open_stream(self, *, timeout: float | None = None) -> Opening[Stream]:
        """Create a stream; see :meth:`mainstem.bymux.Connection.open_stream`. Await the result, or use it with ``async with``."""
        return Opening(lambda: within(timeout, self._runner.open_stream(), "open_stream"), "Connection.open_stream()")

    async def accept_stream(self, *, timeout: float | None = None) -> Stream | None:
        """Wait for the next stream that the peer creates, and return it. For connections without a handler."""
        return await within(timeout, self._runner.accept_stream(), "accept_stream")

    async def streams(self) -> AsyncIterator[Stream]:
        """Iterate over the streams that the peer creates, until it creates no more."""
        while (stream := await self.accept_stream()) is not None:
            yield stream

    def allow_streams(self, count: int) -> None:
        """Let the peer create more streams. This is needed if the settings' ``allow_at_start`` is off.

        From now on, streams are served even if the server's ``on_connection`` has not returned.

        Args:
            count: The number of additional streams.

        Raises:
            LocalProtocolError: The sum is out of range, or the connection is being closed.
            MainstemError: The error that ended the connection.
        """
        self._runner.allow_streams(count)

    async def ping(self, timeout: float | None = PING_TIMEOUT_S) -> float:
        """Measure the round trip to the peer, and return it in seconds.

        Args:
            timeout: Seconds to wait for the pong; ``None`` waits forever.

        Raises:
            Timeout: No pong arrived in time.
            MainstemError: The error that ended the connection.
        """
        return await self._runner.pings.ping(timeout)

    def stats(self) -> EndpointStats:
        """Return the connection's current state and counters. Can be called from any thread.

        The counters are shared by all connections of a server.
        """
        runner = self._runner
        role = "client" if runner.engine.role is Role.PROACTIVE else "server"
        return connection_stats((runner,), runner.traffic, protocol=BymuxEngine.PROTOCOL, role=role, closed=runner.over)

    async def wait_closed(self, timeout: float | None = None) -> None:
        """Wait until the connection has ended, by either side."""
        await within(timeout, self._runner.wait_ended(), "wait for the end of the connection")

    async def close(self, timeout: float | None = None) -> None:
        """Stop creating streams, wait for the active ones, then end the connection. Can be called more than once.

        Args:
            timeout: Seconds to wait for the active streams; the remaining ones are aborted. By default, waits for ``close_timeout``
                from the settings (10), and beyond that as long as streams that were finished here make progress at the peer (at
                most ``stall_timeout`` without progress).

        Raises:
            ClosedError: Streams that were not closed had ``unsent`` bytes that were not sent.
        """
        await self._runner.close(timeout)

    def abort(self) -> None:
        """End the connection and all its streams immediately, dropping unsent data."""
        self._runner.abort()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        if kind is not None:
            self.abort()
        await self.close()


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
        await address.connect(connection._runner, timeout)
    except BaseException:
        connection.abort()
        raise
    if address.ssl is None:
        connection._runner.break_silence()
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
    return Opening(lambda: server._started(host, port, path, sock), "bymux.aio.serve")


def make_server(
    handler: Handler,
    on_connection: ConnectionHandler | None,
    settings: Settings,
    ssl: ssl_module.SSLContext | bool | None,
) -> Server[Any]:
    """Make a server, which does not listen yet."""

    def accept() -> Runner:
        connection = Connection(Role.REACTIVE, settings, handler=handler, on_connection=on_connection)
        connection._runner.view = connection
        return connection._runner

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
        StreamPairTransport(connection._runner, reader, writer).start()
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
        PublicationTransport(connection._runner, publication, subscription, message_limit=message_limit).start()
        return connection

    return Opening(open_connection, "bymux.aio.over_publications")

"""The client under asyncio: requests over a pool of connections."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import TYPE_CHECKING

from mainstem.clock import SYSTEM_CLOCK
from mainstem.errors import ClosedError, MainstemError
from mainstem.mux.jmux.aio import JmuxEngine, SessionStream
from mainstem.mux.jmux.client import ClientConnection
from mainstem.mux.jmux.state import Acknowledgment, Delivery, Half
from mainstem.mux.sockets import CONNECT_TIMEOUT_S, Endpoint

if TYPE_CHECKING:
    import ssl as ssl_module
    from collections.abc import Callable, Generator
    from typing import Any

    from mainstem.clock import Clock
    from mainstem.mux.jmux import events
    from mainstem.mux.jmux.settings import Settings

# Connections of one client: 128 requests in flight on each.
MAX_CONNECTIONS = 8


class ClientSession(SessionStream):
    """One request and its response.

    As a context manager it is acknowledged (where the server asked for it) and ended at the end of the block; a block that
    raises, or that leaves the response unread, aborts it.

    Example:
        >>> async with client.request() as session:
        ...     session.write(b"a part")
        ...     session.finish()
        ...     print(await session.read(-1))
    """

    __slots__ = ()

    _engine: ClientEngine

    @property
    def delivery(self) -> Delivery:
        """Whether the server may have processed the request, by what is known now."""
        return self._handle.delivery

    @property
    def may_retry(self) -> bool:
        """Whether sending the request again cannot make the server execute it twice."""
        return self._handle.may_retry

    @property
    def acknowledgment_required(self) -> bool:
        """Whether the server asked for an acknowledgment once the response is processed."""
        return self._handle.ack is Acknowledgment.REQUESTED

    def finish(self) -> None:
        """Marks the request as complete. Twice is fine.

        Raises:
            MainstemError: What ended the session.

        Example:
            >>> session.write(b"whole request")
            >>> session.finish()
        """
        session = self._handle
        self._check_writable()
        if not session.eof_wanted and not session.ended and session.client < Half.FINISHED:
            self._engine.sans_io.finish(session)
            self._engine.schedule_flush()

    def acknowledge(self) -> None:
        """Reports to the server that the response was processed; the end of the block does the same.

        Raises:
            LocalProtocolError: The server did not ask for it, or it was sent already.

        Example:
            >>> if session.acknowledgment_required:
            ...     session.acknowledge()
        """
        self._engine.sans_io.acknowledge(self._handle)
        self._engine.schedule_flush()

    def abort(self, detail: str = "") -> None:
        """Gives the request up.

        Args:
            detail: A text for the server.

        Example:
            >>> session.abort("no longer needed")
        """
        session = self._handle
        if not session.ended and self._engine.failure is None and session.client is not Half.TERMINATED:
            self._engine.sans_io.abort(session, detail.encode())
            self._engine.dispatch()
            self._engine.schedule_flush()
        self._drop_buffer()
        self.set_exception(ClosedError(f"session {session.id} was aborted here"))
        self._write_failure = None

    def leave(self, *, in_order: bool = True) -> None:
        """Ends the session as the end of its block does.

        Args:
            in_order: Whether the block ended without an exception; else the session is aborted.

        Raises:
            MainstemError: What ended the session before its response was complete, unless a call raised it before.

        Example:
            >>> session = await client.request()
            >>> session.leave()
        """
        session = self._handle
        if in_order and session.response_complete:
            if session.ack is Acknowledgment.REQUESTED and not session.ended and not self._buffer.size:
                self.acknowledge()
            if session.ended or (session.client is Half.FINISHED and session.ack is not Acknowledgment.REQUESTED):
                return
        failure = None if self._reported or session.response_complete else self._write_failure
        if not session.ended:
            self.abort()
        if in_order and failure is not None:
            self._reported = True
            raise failure

    async def __aenter__(self) -> ClientSession:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        self.leave(in_order=kind is None)

    def _writing_ended(self) -> bool:
        return self._handle.response_complete

    def _delivery(self) -> str:
        if self._handle.may_retry:
            return "none"
        return "unknown" if self._handle.client >= Half.FINISHED and not self._unsent() else "partial"

    async def _wait_for_data(self) -> None:
        session = self._handle
        if session.client is Half.NONE and not session.ended and not session.flush_wanted and not session.eof_wanted:
            self._engine.sans_io.flush(session)
            self._engine.schedule_flush()
        await super()._wait_for_data()


class Request:
    """What :meth:`Client.request` returns: entering or awaiting it opens the session."""

    __slots__ = ("_client", "_session")

    def __init__(self, client: Client) -> None:
        self._client = client
        self._session: ClientSession | None = None

    def __await__(self) -> Generator[Any, None, ClientSession]:
        return self._client.open_session().__await__()

    async def __aenter__(self) -> ClientSession:
        self._session = await self._client.open_session()
        return self._session

    async def __aexit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        assert self._session is not None
        self._session.leave(in_order=kind is None)


class ClientEngine(JmuxEngine):
    """One connection of a client. ``on_free`` is called when a session id becomes free, ``on_lost`` at the end."""

    sans_io: ClientConnection

    def __init__(
        self,
        settings: Settings | None,
        clock: Clock,
        *,
        on_free: Callable[[], None],
        on_lost: Callable[[ClientEngine], None],
    ) -> None:
        super().__init__(ClientConnection(settings, now_ns=clock.monotonic_ns()), clock)
        self._on_free = on_free
        self._on_lost = on_lost

    def _on_session_ended(self, event: events.SessionEnded) -> None:
        super()._on_session_ended(event)
        self._on_free()

    def _on_over(self, error: MainstemError) -> None:
        super()._on_over(error)
        self._on_lost(self)


class Client:
    """Sends requests to one server, over as many connections as 128 requests each make necessary.

    A context manager; :func:`connect` returns it.

    Example:
        >>> async with await jmux.connect("127.0.0.1", 7001) as client:
        ...     print(await client.call(b"whole request"))
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        settings: Settings | None,
        max_connections: int,
        timeout: float,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._endpoint = endpoint
        self._settings = settings
        self._max = max_connections
        self._timeout = timeout
        self._clock = clock
        self._engines: list[ClientEngine] = []
        self._connecting = asyncio.Lock()
        self._waiters: deque[asyncio.Future[None]] = deque()
        self.closed = False

    @property
    def connections(self) -> int:
        """Connections that are open now."""
        return len(self._engines)

    def request(self) -> Request:
        """Opens a session for one request, on a connection that has one free; waits while all are busy.

        Returns:
            A context manager that yields the :class:`ClientSession` and ends it. Awaiting it instead returns the session
            without ending it.

        Example:
            >>> async with client.request() as session:
            ...     session.write(b"whole request")
            ...     session.finish()
            ...     print(await session.read(-1))
        """
        return Request(self)

    async def open_session(self) -> ClientSession:
        """Opens a session, connecting or waiting when all ids are busy.

        Returns:
            The session, which the caller must end (:meth:`ClientSession.leave`).

        Raises:
            ClosedError: The client is closed.
            ConnectionLost: The server cannot be reached.
            TimedOut: Connecting took too long.

        Example:
            >>> session = await client.open_session()
        """
        while True:
            if self.closed:
                raise ClosedError("the client is closed")
            for engine in self._engines:
                if engine.sans_io.can_open:
                    return ClientSession(engine, engine.sans_io.open_session())
            if len(self._engines) < self._max:
                await self.add_connection()
                continue
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if not waiter.cancelled():
                    self._on_free()  # the free session is for the next task
                raise

    async def call(self, data: bytes, *, attempts: int = 2) -> bytes:
        """Sends a whole request and waits for the whole response.

        The request is sent again only where the specification guarantees that the server processed nothing of it.

        Args:
            data: The request.
            attempts: How often the request is sent at most.

        Returns:
            The response.

        Raises:
            Cancelled: The server aborted the session.
            MainstemError: What ended the session or the connection.

        Example:
            >>> response = await client.call(b"whole request")
        """
        while True:
            attempts -= 1
            session = await self.open_session()
            try:
                session.write(data)
                session.finish()
                response = await session.read(-1)
                session.leave()
                return response
            except MainstemError:
                if attempts <= 0 or not session.may_retry:
                    raise
            except BaseException:
                session.leave(in_order=False)
                raise

    async def add_connection(self) -> None:
        """Connects once more, unless a session is free meanwhile or the limit of connections is reached.

        Raises:
            ConnectionLost: The server cannot be reached.
            TimedOut: Connecting took too long.

        Example:
            >>> await client.add_connection()
        """
        async with self._connecting:
            if self.closed or any(engine.sans_io.can_open for engine in self._engines):
                return
            if len(self._engines) >= self._max:
                return
            engine = ClientEngine(self._settings, self._clock, on_free=self._on_free, on_lost=self._on_lost)
            await self._endpoint.connect(engine, self._timeout)
            if engine.failure is None:
                self._engines.append(engine)

    def _on_free(self) -> None:
        """A session id is free: one waiting task may have it."""
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def _on_lost(self, engine: ClientEngine) -> None:
        """A connection is over: every waiting task tries again."""
        if engine in self._engines:
            self._engines.remove(engine)
        waiters, self._waiters = self._waiters, deque()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def close(self) -> None:
        """Ends every connection; requests that are not complete fail. Twice is fine.

        Example:
            >>> await client.close()
        """
        self.closed = True
        engines = list(self._engines)
        for engine in engines:
            engine.end()
        for engine in engines:
            with contextlib.suppress(MainstemError):
                await engine.wait_ended()
        self._on_free()

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()


async def connect(
    host: str | None = None,
    port: int | None = None,
    *,
    path: str | None = None,
    ssl: ssl_module.SSLContext | None = None,
    server_hostname: str | None = None,
    settings: Settings | None = None,
    max_connections: int = MAX_CONNECTIONS,
    timeout: float = CONNECT_TIMEOUT_S,
) -> Client:
    """Connects to a server over TCP, TLS or a Unix socket.

    Args:
        host: The server's address.
        port: Its TCP port.
        path: The path of a Unix socket, in place of host and port.
        ssl: A client-side context, for TLS.
        server_hostname: The name that the server's certificate must have; ``host`` by default.
        settings: The configuration of each connection.
        max_connections: Connections at once (8 by default), each with 128 sessions.
        timeout: Seconds for each connecting.

    Returns:
        A client with its first connection.

    Raises:
        ConnectionLost: The server cannot be reached.
        TimedOut: Connecting took too long.
        ConfigurationError: Neither host and port nor path.

    Example:
        >>> async with await jmux.connect("127.0.0.1", 7001) as client:
        ...     print(await client.call(b"whole request"))
    """
    endpoint = Endpoint(host, port, path, ssl, server_hostname)
    client = Client(endpoint, settings=settings, max_connections=max_connections, timeout=timeout)
    await client.add_connection()
    return client

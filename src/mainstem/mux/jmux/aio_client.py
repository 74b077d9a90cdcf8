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
from mainstem.mux.sockets import dial

if TYPE_CHECKING:
    import ssl as ssl_module
    from collections.abc import Generator
    from typing import Any

    from mainstem.mux.jmux import events
    from mainstem.mux.jmux.settings import Settings

CONNECT_TIMEOUT_S = 10.0
# Connections of one client: 128 requests in flight on each.
MAX_CONNECTIONS = 8


class ClientSession(SessionStream):
    """One request and its response. As a context manager it is acknowledged (where asked for) and ended at the end of the
    block; a block that raises, or that leaves the response unread, aborts it.
    """

    __slots__ = ()

    @property
    def delivery(self) -> Delivery:
        """Whether the server may have processed the request, by what is known now."""
        return self._session.delivery

    @property
    def may_retry(self) -> bool:
        """The request can be sent again without the danger of being executed twice."""
        return self._session.may_retry

    @property
    def acknowledgment_required(self) -> bool:
        """Whether the server asked to be told when the response has been processed."""
        return self._session.ack is Acknowledgment.REQUESTED

    def finish(self) -> None:
        """The request is complete. Twice is fine."""
        session = self._session
        if self._write_error is not None:
            raise self._write_error
        if not session.eof_wanted and not session.ended and session.client < Half.FINISHED:
            self._connection.finish(session)
            if not self._engine._flush_scheduled:
                self._engine.schedule_flush()

    def acknowledge(self) -> None:
        """Tells the server that the response was processed; done by itself at the end of the block."""
        self._connection.acknowledge(self._session)
        self._engine.schedule_flush()

    def abort(self, detail: str = "") -> None:
        """Gives the request up."""
        session = self._session
        if not session.ended and self._engine.failure is None and session.client is not Half.TERMINATED:
            self._connection.abort(session, detail.encode())
            self._engine._dispatch()
            self._engine.schedule_flush()
        self._buffer.clear()
        self._lost(ClosedError(f"session {session.id} was aborted here"))

    async def __aenter__(self) -> ClientSession:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        self._leave(kind is None)

    def _leave(self, in_order: bool) -> None:
        session = self._session
        if in_order and session.response_complete:
            if session.ack is Acknowledgment.REQUESTED and not session.ended and not self._buffer.size:
                self.acknowledge()
            if session.ended or (session.client is Half.FINISHED and session.ack is not Acknowledgment.REQUESTED):
                return
        if not session.ended:
            self.abort()

    @property
    def _connection(self) -> ClientConnection:
        connection = self._sans_io
        assert isinstance(connection, ClientConnection)
        return connection

    async def _wait_for_data(self) -> None:
        session = self._session
        if session.client is Half.NONE and not session.ended and not session.flush_wanted and not session.eof_wanted:
            self._connection.flush(session)
            self._engine.schedule_flush()
        await super()._wait_for_data()


class Request:
    """What :meth:`Client.request` returns: the session once it is entered or awaited."""

    __slots__ = ("_client", "_session")

    def __init__(self, client: Client) -> None:
        self._client = client
        self._session: ClientSession | None = None

    def __await__(self) -> Generator[Any, None, ClientSession]:
        return self._client._session().__await__()

    async def __aenter__(self) -> ClientSession:
        self._session = await self._client._session()
        return self._session

    async def __aexit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        assert self._session is not None
        self._session._leave(kind is None)


class ClientEngine(JmuxEngine):
    """One connection of a client."""

    def __init__(self, client: Client, settings: Settings | None) -> None:
        self.connection = ClientConnection(settings, now_ns=SYSTEM_CLOCK.monotonic_ns())
        super().__init__(self.connection)
        self._client = client

    def _on_session_ended(self, event: events.SessionEnded) -> None:
        super()._on_session_ended(event)
        self._client._wake()

    def _on_over(self, error: MainstemError) -> None:
        super()._on_over(error)
        self._client._lost(self)


class Client:
    """Sends requests to one server, over as many connections as 128 requests each make necessary.

    A context manager; made by :func:`connect`.
    """

    def __init__(
        self,
        host: str | None,
        port: int | None,
        *,
        path: str | None,
        ssl: ssl_module.SSLContext | None,
        server_hostname: str | None,
        settings: Settings | None,
        max_connections: int,
        timeout: float,
    ) -> None:
        self._where = (host, port, path, ssl, server_hostname, timeout)
        self._settings = settings
        self._max = max_connections
        self._engines: list[ClientEngine] = []
        self._dialling = asyncio.Lock()
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._closed = False

    @property
    def connections(self) -> int:
        """Connections that are open now."""
        return len(self._engines)

    def request(self) -> Request:
        """``async with client.request() as session``: a session for one request, on a connection that has one free.

        Waits where all are busy. Awaiting it instead yields the session without ending it.
        """
        return Request(self)

    async def _session(self) -> ClientSession:
        while True:
            if self._closed:
                raise ClosedError("the client is closed")
            for engine in self._engines:
                if engine.connection.can_open:
                    return ClientSession(engine, engine.connection.open_session())
            if len(self._engines) < self._max:
                await self._dial()
                continue
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter

    async def call(self, data: bytes, *, attempts: int = 2) -> bytes:
        """The whole response to a whole request.

        Sent again, at most ``attempts`` times in all, only where the specification says that nothing can have been processed.
        """
        while True:
            attempts -= 1
            session = await self._session()
            try:
                session.write(data)
                session.finish()
                response = await session.read(-1)
                session._leave(True)
                return response
            except MainstemError:
                if attempts <= 0 or not session.may_retry:
                    raise
            except BaseException:
                session._leave(False)
                raise

    async def _dial(self) -> None:
        async with self._dialling:
            if self._closed or any(engine.connection.can_open for engine in self._engines):
                return
            if len(self._engines) >= self._max:
                return
            host, port, path, ssl, name, timeout = self._where
            engine = ClientEngine(self, self._settings)
            await dial(engine, host, port, path=path, ssl=ssl, server_hostname=name, timeout=timeout)
            if engine.failure is None:
                self._engines.append(engine)

    def _wake(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def _lost(self, engine: ClientEngine) -> None:
        if engine in self._engines:
            self._engines.remove(engine)
        waiters, self._waiters = self._waiters, deque()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def close(self) -> None:
        """Ends every connection; requests that are not complete fail. Twice is fine."""
        self._closed = True
        engines = list(self._engines)
        for engine in engines:
            engine.end()
        for engine in engines:
            with contextlib.suppress(MainstemError):
                await engine.wait_ended()
        self._wake()

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
    """A client with its first connection, over TCP, TLS (``ssl``) or a Unix socket (``path``).

    Raises ``ConnectionLost`` or ``TimedOut`` when the server cannot be reached.
    """
    client = Client(
        host,
        port,
        path=path,
        ssl=ssl,
        server_hostname=server_hostname,
        settings=settings,
        max_connections=max_connections,
        timeout=timeout,
    )
    await client._dial()
    return client

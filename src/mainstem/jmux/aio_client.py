"""The client under asyncio: requests over a pool of connections."""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import TYPE_CHECKING

from mainstem.clock import SYSTEM_CLOCK
from mainstem.endpoint_stats import Traffic
from mainstem.errors import ConnectionLost, Delivery, MainstemError, Timeout
from mainstem.jmux.aio_pool import RETRY_FIRST_S, RETRY_MAX_S, ClientConnection, Pool
from mainstem.jmux.client_engine import ClientEngine
from mainstem.jmux.session_stream import SessionStream
from mainstem.jmux.state import Acknowledgment, Half
from mainstem.mux.engine import engine_stats
from mainstem.mux.sockets import CONNECT_TIMEOUT_S, Address

if TYPE_CHECKING:
    import ssl as ssl_module
    from collections.abc import Generator
    from typing import Any

    from mainstem.clock import Clock
    from mainstem.endpoint_stats import EndpointStats
    from mainstem.jmux.settings import Settings

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

    _engine: ClientConnection

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
        self._end_abruptly(session.client, lambda: self._engine.sans_io.abort(session, detail.encode()))

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

    async def close(self) -> None:
        """Ends the session as the end of its block does. Twice is fine.

        Raises:
            MainstemError: What ended the session before its response was complete, unless a call raised it before.

        Example:
            >>> session = await client.request()
            >>> await session.close()
        """
        self.leave()

    @property
    def connection(self) -> ClientConnection:
        """The connection that the session belongs to, with the server's address and certificate."""
        return self._engine

    async def __aenter__(self) -> ClientSession:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        self.leave(in_order=kind is None)

    def _writing_ended(self) -> bool:
        return self._handle.response_complete

    def _delivery(self) -> Delivery:
        if self._handle.may_retry:
            return Delivery.NONE
        return Delivery.UNKNOWN if self._handle.client >= Half.FINISHED and not self._unsent() else Delivery.PARTIAL

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


class _SafeToRetry(Exception):
    """An attempt failed, and the server has processed nothing of it."""


class Client:
    """Sends requests to one server, over as many connections as 128 requests each make necessary.

    A context manager; :func:`connect` returns it.

    Example:
        >>> async with await jmux.connect("127.0.0.1", 7001) as client:
        ...     print(await client.call(b"whole request"))
    """

    def __init__(
        self,
        endpoint: Address,
        *,
        settings: Settings | None,
        max_connections: int,
        timeout: float,
        clock: Clock = SYSTEM_CLOCK,
        entropy: random.Random | None = None,
    ) -> None:
        self._entropy = entropy or random.SystemRandom()
        self._traffic = Traffic()
        self._pool = Pool(
            endpoint,
            settings=settings,
            max_connections=max_connections,
            timeout=timeout,
            clock=clock,
            entropy=self._entropy,
            traffic=self._traffic,
        )

    @property
    def connections(self) -> int:
        """Connections that are open now."""
        return len(self._pool.engines)

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._pool.closed

    def stats(self) -> EndpointStats:
        """Returns what the client has now and what it has counted; may be called in any thread.

        Returns:
            The figures of all its connections, those that have ended among them.

        Example:
            >>> client.stats().streams_opened
            128
        """
        engines = tuple(self._pool.engines)
        protocol = ClientEngine.PROTOCOL
        return engine_stats(engines, self._traffic, protocol=protocol, role="client", is_over=self.closed)

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
        """Opens a session. While all are busy it waits for a free one, or for another connection.

        Returns:
            The session, which the caller must end (:meth:`ClientSession.leave`).

        Raises:
            ClosedError: The client is closed.
            ConnectionLost: There is no connection, and the server cannot be reached.
            Timeout: There is no connection, and connecting took too long.

        Example:
            >>> session = await client.open_session()
        """
        engine = await self._pool.free()
        self._traffic.streams_opened += 1
        return ClientSession(engine, engine.sans_io.open_session())

    async def call(self, data: bytes, *, attempts: int = 2, timeout: float | None = None) -> bytes:
        """Sends a whole request and waits for the whole response.

        The request is sent again only where the specification guarantees that the server processed nothing of it, or when the
        server could not be reached, after a pause that doubles with each attempt.

        Args:
            data: The request.
            attempts: How often the request is sent at most.
            timeout: Seconds for all attempts together, after which the session is aborted, which cancels its handler;
                ``None`` waits without a limit.

        Returns:
            The response.

        Raises:
            Timeout: The timeout passed.
            LimitExceeded: The response is longer than the settings' ``read_limit``.
            Aborted: The server aborted the session.
            ConnectionLost: The connection broke, or the server cannot be reached.
            MainstemError: What else ended the session or the connection.

        Example:
            >>> response = await client.call(b"whole request", timeout=5)
        """
        deadline = asyncio.timeout(timeout)
        try:
            async with deadline:
                pause = RETRY_FIRST_S
                for _ in range(attempts - 1):
                    with contextlib.suppress(_SafeToRetry):
                        return await self._attempt(data, may_retry=True)
                    await asyncio.sleep(pause * self._entropy.uniform(0.5, 1.0))
                    pause = min(pause * 2, RETRY_MAX_S)
                return await self._attempt(data, may_retry=False)
        except TimeoutError as error:
            if isinstance(error, MainstemError) or not deadline.expired():
                raise
            raise Timeout(f"no response within {timeout:g} s", timeout=timeout) from None

    async def _attempt(self, data: bytes, *, may_retry: bool) -> bytes:
        """Sends the request once. Raises ``_SafeToRetry`` where ``may_retry`` and nothing can have been processed."""
        session: ClientSession | None = None
        try:
            session = await self.open_session()
            session.write(data)
            session.finish()
            response = await session.read(-1)
            session.leave()
            return response
        except MainstemError as error:
            untouched = isinstance(error, ConnectionLost) if session is None else session.may_retry
            if session is not None:
                session.leave(in_order=False)
            if may_retry and untouched:
                raise _SafeToRetry from error
            raise
        except BaseException:
            if session is not None:
                session.leave(in_order=False)
            raise

    async def add_connection(self) -> None:
        """Connects once more, unless a session is free or the limit of connections is reached.

        Raises:
            ClosedError: The client is closed.
            ConnectionLost: The server cannot be reached.
            Timeout: Connecting took too long.

        Example:
            >>> await client.add_connection()
        """
        await self._pool.add()

    async def close(self) -> None:
        """Ends every connection, one that is being opened too; requests that are not complete fail. Twice is fine.

        Example:
            >>> await client.close()
        """
        await self._pool.close()

    def abort(self) -> None:
        """Ends every connection at once; requests that are not complete fail.

        Example:
            >>> client.abort()
        """
        self._pool.end(abort=True)

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
        timeout: Seconds for each connecting, the server's header included.

    Returns:
        A client with its first connection.

    Raises:
        ConnectionLost: The server cannot be reached.
        Timeout: Connecting took too long.
        RemoteProtocolError: The server does not speak Jmux.
        ConfigurationError: Neither host and port nor path.

    Example:
        >>> async with await jmux.connect("127.0.0.1", 7001) as client:
        ...     print(await client.call(b"whole request"))
    """
    endpoint = Address(host, port, path, ssl, server_hostname)
    client = Client(endpoint, settings=settings, max_connections=max_connections, timeout=timeout)
    try:
        await client.add_connection()
    except BaseException:
        await client.close()
        raise
    return client

"""The asyncio client: requests over a pool of connections."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

from mainstem._internal.clock import SYSTEM_CLOCK
from mainstem._internal.endpoint_stats import Traffic
from mainstem._internal.opening import Opening
from mainstem._internal.tasks import within
from mainstem.errors import ConnectionLost, Delivery, MainstemError, Timeout
from mainstem.jmux.aio_pool import RETRY_FIRST_S, RETRY_MAX_S, ClientConnection, Pool
from mainstem.jmux.client_engine import ClientEngine
from mainstem.jmux.session_stream import SessionStream
from mainstem.jmux.settings import Settings
from mainstem.jmux.state import Acknowledgment, Half
from mainstem.mux.engine import engine_stats
from mainstem.mux.sockets import CONNECT_TIMEOUT_S, Address
from mainstem.mux.tls import client_context

if TYPE_CHECKING:
    import ssl as ssl_module
    from typing import Self

    from mainstem._internal.clock import Clock
    from mainstem._internal.endpoint_stats import EndpointStats


class ClientSession(SessionStream):
    """One request and its response, as :class:`mainstem.jmux.ClientSession` for asyncio.

    Example:
        >>> async with client.open_session() as session:
        ...     session.write(b"a part")
        ...     session.finish()
        ...     print(await session.read(-1))
    """

    __slots__ = ()

    _engine: ClientConnection

    @property
    def delivery(self) -> Delivery:
        """How much of the request the server may have processed, by what is known now."""
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
        """Marks the request as complete. Twice is fine."""
        session = self._handle
        self._check_writable()
        if not session.eof_wanted and not session.ended and session.client < Half.FINISHED:
            self._engine.sans_io.finish(session)
            self._engine.schedule_flush()

    def acknowledge(self) -> None:
        """Reports to the server that the response was processed; :meth:`close` does the same."""
        self._engine.sans_io.acknowledge(self._handle)
        self._engine.schedule_flush()

    def abort(self, detail: str = "") -> None:
        """Gives the request up, with a text for the server. Twice is fine."""
        session = self._handle
        self._end_abruptly(session.client, lambda: self._engine.sans_io.abort(session, detail.encode()))

    async def close(self) -> None:
        """Ends the session: acknowledges a response that was read, and aborts without one. Twice is fine."""
        session = self._handle
        self._closed = True
        if session.response_complete:
            if session.ack is Acknowledgment.REQUESTED and not session.ended and not self._buffer.size:
                self.acknowledge()
            if session.ended or (session.client is Half.FINISHED and session.ack is not Acknowledgment.REQUESTED):
                return
        failure = None if self._reported or session.response_complete else self._write_failure
        if not session.ended:
            self.abort()
        if failure is not None:
            self._reported = True
            raise failure

    def _writing_ended(self) -> bool:
        return self._handle.response_complete

    def _delivery(self) -> Delivery:
        if self._handle.delivery is not Delivery.PARTIAL:
            return self._handle.delivery
        return Delivery.UNKNOWN if self._handle.client >= Half.FINISHED and not self._unsent() else Delivery.PARTIAL

    async def _wait_for_data(self) -> None:
        session = self._handle
        if session.client is Half.NONE and not session.ended and not session.flush_wanted and not session.eof_wanted:
            self._engine.sans_io.flush(session)
            self._engine.schedule_flush()
        await super()._wait_for_data()


class _Attempts:
    """What is known of a request while it is sent, perhaps more than once."""

    def __init__(self) -> None:
        self.session: ClientSession | None = None  # of the attempt that goes on, or was the last
        self.failure: MainstemError | None = None  # of the attempt before

    @property
    def delivery(self) -> Delivery:
        """How much of the request may have reached the server."""
        return Delivery.NONE if self.session is None else self.session._delivery()

    def timed_out(self, timeout: float) -> Timeout:
        """The error of a request whose time has passed."""
        why = "" if self.failure is None else f"; the attempt before failed: {self.failure}"
        error = Timeout(f"no response within {timeout:g} s{why}", timeout=timeout)
        error.delivery = self.delivery
        error.__cause__ = self.failure
        return error


class Client:
    """Sends requests to one server, as :class:`mainstem.jmux.Client` for asyncio. :func:`connect` returns it.

    Example:
        >>> async with aio.connect("127.0.0.1", 7001) as client:
        ...     print(await client.request(b"whole request"))
    """

    def __init__(
        self,
        address: Address,
        *,
        settings: Settings | None = None,
        timeout: float | None,
        clock: Clock = SYSTEM_CLOCK,
        entropy: random.Random | None = None,
    ) -> None:
        self._address = address
        self._entropy = entropy or random.SystemRandom()
        self._traffic = Traffic()
        self._pool = Pool(
            address,
            settings=settings or Settings(),
            timeout=timeout,
            clock=clock,
            entropy=self._entropy,
            traffic=self._traffic,
        )

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._pool.closed

    @property
    def error(self) -> MainstemError | None:
        """What ended it without ``close``; a client outlives its connections, so this is ``None``."""
        return None

    @property
    def peer_address(self) -> Any:
        """The server's address as the socket of the newest connection names it; ``None`` for a Unix socket's."""
        return None if self._pool.newest is None else self._pool.newest.peer_address

    @property
    def peer_certificate(self) -> dict[str, Any] | None:
        """The server's TLS certificate as :meth:`ssl.SSLSocket.getpeercert` returns it; ``None`` without TLS."""
        return None if self._pool.newest is None else self._pool.newest.peer_certificate

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{len(self._pool.engines)} connections"
        return f"<jmux Client of {self._address}, {state}>"

    def stats(self) -> EndpointStats:
        """Returns what the client has now and what it has counted; may be called in any thread."""
        engines = tuple(self._pool.engines)
        return engine_stats(engines, self._traffic, protocol=ClientEngine.PROTOCOL, role="client", closed=self.closed)

    def open_session(self, *, timeout: float | None = None) -> Opening[ClientSession]:
        """Opens a session for one request; await it, or use it with ``async with``."""
        return Opening(lambda: self._open_session(timeout), "Client.open_session()")

    async def _open_session(self, timeout: float | None = None) -> ClientSession:
        try:
            engine = await within(timeout, self._pool.free(), "open_session")
        except MainstemError as error:
            error.delivery = Delivery.NONE
            raise
        self._traffic.streams_opened += 1
        return ClientSession(engine, engine.sans_io.open_session())

    async def request(
        self, payload: bytes | bytearray | memoryview, timeout: float | None = None, *, attempts: int = 2
    ) -> bytes:
        """Sends a whole request and waits for the whole response. One that is cancelled may have been executed."""
        made = _Attempts()
        deadline = asyncio.timeout(timeout)
        try:
            async with deadline:
                pause = RETRY_FIRST_S
                for _ in range(attempts - 1):
                    try:
                        return await self._attempt(payload, made)
                    except MainstemError as error:
                        if not error.may_retry or (made.session is None and not isinstance(error, ConnectionLost)):
                            raise
                        made.failure = error
                    await asyncio.sleep(pause * self._entropy.uniform(0.5, 1.0))
                    pause = min(pause * 2, RETRY_MAX_S)
                return await self._attempt(payload, made)
        except TimeoutError as error:
            if isinstance(error, MainstemError) or timeout is None or not deadline.expired():
                raise
            raise made.timed_out(timeout) from made.failure

    async def _attempt(self, payload: bytes | bytearray | memoryview, made: _Attempts) -> bytes:
        """Sends the request once."""
        made.session = None
        made.session = session = await self._open_session()
        async with session:
            session.write(payload)
            session.finish()
            return await session.read(-1)

    async def _add_connection(self) -> None:
        """Connects once more, unless a session is free or the limit of connections is reached. Raises why it cannot."""
        await self._pool.add()

    async def close(self) -> None:
        """Ends every connection, one that is being opened too; requests that are not complete fail. Twice is fine."""
        await self._pool.close()

    def abort(self) -> None:
        """Ends every connection at once; requests that are not complete fail."""
        self._pool.end(abort=True)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()


def connect(
    host: str | None = None,
    port: int | None = None,
    *,
    path: str | None = None,
    ssl: ssl_module.SSLContext | None = None,
    server_hostname: str | None = None,
    settings: Settings | None = None,
    timeout: float | None = CONNECT_TIMEOUT_S,
    **overrides: Any,
) -> Opening[Client]:
    """Connects to a server, as :func:`mainstem.jmux.connect`; await it, or use it with ``async with``."""
    client_settings = Settings.of(settings, overrides)
    address = Address(host, port, path, client_context(ssl, client_settings), server_hostname)

    async def open_client() -> Client:
        client = Client(address, settings=client_settings, timeout=timeout)
        try:
            await client._add_connection()
        except BaseException:
            await client.close()
            raise
        return client

    return Opening(open_client, "jmux.aio.connect()")

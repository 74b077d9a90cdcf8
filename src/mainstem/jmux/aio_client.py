"""The asyncio client, which sends requests over a pool of connections."""

from __future__ import annotations

import asyncio
import random
import warnings
from typing import TYPE_CHECKING, Any

from mainstem._core.mux.queues import InBuffer
from mainstem._internal.clock import SYSTEM_CLOCK, timeout_of
from mainstem._internal.endpoint_stats import EndpointCounters
from mainstem._internal.made import Made
from mainstem._internal.opening import Opening
from mainstem._internal.overrides import apply_overrides
from mainstem._internal.tasks import within
from mainstem.errors import ConnectionLost, Delivery, MainstemError, Timeout
from mainstem.jmux.aio_pool import ClientProtocol, Pool, retry_pause
from mainstem.jmux.client_engine import ClientEngine
from mainstem.jmux.session_stream import SessionStream
from mainstem.jmux.settings import Settings
from mainstem.jmux.state import Acknowledgment, HalfState
from mainstem.mux.aio_stream import feed_eof, unread
from mainstem.mux.protocol import connection_stats, nobody
from mainstem.mux.sockets import CONNECT_TIMEOUT_S, ServerAddress
from mainstem.mux.tls import client_context

if TYPE_CHECKING:
    import ssl as ssl_module
    from typing import Self

    from mainstem._internal.clock import Clock
    from mainstem._internal.endpoint_stats import EndpointStats
    from mainstem._internal.pauses import GrowingPause
    from mainstem.jmux.session import Session


class ClientSession(SessionStream):
    """One request and its response: the asyncio variant of :class:`mainstem.jmux.ClientSession`.

    Example:
        >>> async with client.open_session() as session:
        ...     session.write(b"a part")
        ...     session.finish()
        ...     print(await session.read(-1))
    """

    _connection: ClientProtocol
    _engine: ClientEngine

    def __init__(self, client: Client, connection: ClientProtocol, session: Session) -> None:
        super().__init__(connection, session)
        self._client = client  # the client ends if nothing refers to it

    @property
    def delivery(self) -> Delivery:
        """How much of the request the server may have processed, as far as is known now."""
        return self._handle.delivery

    @property
    def may_retry(self) -> bool:
        """Whether it is certain that sending the request again does not make the server execute it twice."""
        return self._handle.may_retry

    @property
    def acknowledgment_required(self) -> bool:
        """Whether the server requested an acknowledgment that the response has been processed."""
        return self._handle.ack is Acknowledgment.REQUESTED

    def finish(self) -> None:
        """Mark the request as complete. Can be called more than once.

        Raises:
            MainstemError: The error that ended the session.
        """
        session = self._handle
        self._check_writable()
        if not session.eof_wanted and not session.ended and session.local < HalfState.FINISHED:
            self._engine.finish(session)
            self._connection.send_soon()

    def acknowledge(self) -> None:
        """Report to the server that the response has been processed. :meth:`close` does the same.

        Raises:
            LocalProtocolError: The server did not request an acknowledgment, or it was already sent.
        """
        self._connection.engine.acknowledge(self._handle)
        self._connection.schedule_flush()

    def abort(self, detail: str = "") -> None:
        """Give up the request, and send ``detail``, a text, to the server. Can be called more than once."""
        session = self._handle
        self._end_abruptly(lambda: self._engine.abort(session, detail.encode()))

    async def close(self) -> None:
        """End the session: acknowledge a response that was read, or abort without one. Can be called more than once.

        Raises:
            MainstemError: The error that ended the session before its response was complete, unless a call has already raised it.
        """
        session = self._handle
        self._closed = True
        if session.response_complete:
            if session.ack is Acknowledgment.REQUESTED and not session.ended and not self._buffer.size:
                self.acknowledge()
            if session.ended or (session.local is HalfState.FINISHED and session.ack is not Acknowledgment.REQUESTED):
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
        return Delivery.UNKNOWN if self._handle.local >= HalfState.FINISHED and not self._unsent() else Delivery.PARTIAL

    def _more(self) -> asyncio.Future[None]:
        session = self._handle
        if (
            session.local is HalfState.NONE
            and not session.ended
            and not session.flush_wanted
            and not session.eof_wanted
        ):
            self._engine.flush(session)
            self._connection.schedule_flush()
        return super()._more()

    async def _read_response(self) -> bytes:
        """Return the whole response, and end the session."""
        response = await self.read(-1)
        await self.close()
        return response


class _Call:
    """A whole request that is waiting for its response.

    It owns its session and collects the response until anything else arrives. It then makes a stream that takes over, and sets
    ``response`` to ``None``.
    """

    __slots__ = ("buffer", "client", "connection", "response", "session", "stream")

    def __init__(self, client: Client, connection: ClientProtocol) -> None:
        self.client = client
        self.connection = connection
        self.session = connection.engine.open_session()
        self.session.owner = self
        self.response: asyncio.Future[bytes | None] = connection.loop.create_future()
        self.stream: ClientSession | None = None
        self.buffer = InBuffer()

    def collect(self, part: bytes) -> None:
        """Keep a part of the response, and let the server send more."""
        session, engine = self.session, self.connection.engine
        self.buffer.append(part)
        if self.buffer.size > engine.settings.read_limit:
            self()  # its read raises the error
        elif 2 * session.inbound <= engine.settings.initial_ration:  # earlier, the engine would not restore the ration
            engine.consume(session, session.unconsumed)
            self.connection.schedule_flush()

    def respond(self, rest: bytes) -> None:
        """Complete the response with its last part."""
        if rest:
            self.buffer.append(rest)
        if self.buffer.size > self.connection.engine.settings.read_limit:
            feed_eof(self(), None)  # its read raises the error
            return
        self.session.owner = nobody
        if not self.response.done():
            self.response.set_result(self.buffer.read_all())

    def __call__(self) -> ClientSession:
        if self.stream is None:
            self.stream = ClientSession(self.client, self.connection, self.session)
            if self.buffer.size:
                unread(self.stream, self.buffer.read_all())
            if not self.response.done():
                self.response.set_result(None)
        return self.stream


MAY_BE_EXECUTED = "it may have been executed; send it again only if twice does no harm"


class _Attempts:
    """The state of a request while it is being sent, perhaps more than once."""

    call: _Call | None = None  # of the current or last attempt
    failure: MainstemError | None = None  # of the previous attempt
    count = 0

    @property
    def delivery(self) -> Delivery:
        """How much of the request may have reached the server."""
        return Delivery.NONE if self.call is None else self.call()._delivery()

    def explain(self, error: MainstemError) -> None:
        """If the last attempt's connection failed, add to its error what that means for the request."""
        if not isinstance(error, ConnectionLost | Timeout):
            return
        if error.may_retry:
            times = f" in {self.count} attempts" if self.count > 1 else ""
            error.args = (f"the request was not sent{times}: {error}",)
        else:
            error.args = (f"the request failed: {error}; it was not sent again, because {MAY_BE_EXECUTED}",)

    def timed_out(self, timeout: float, address: ServerAddress, *, connected: bool) -> Timeout:
        """Return the error of a request that timed out."""
        if self.delivery is not Delivery.NONE:
            what = MAY_BE_EXECUTED
        elif self.failure is not None:
            what = f"it was not sent, and the attempt before failed: {self.failure}"
        elif connected:
            what = "it was not sent, as all sessions were busy; allow more time, or more connections (max_connections)"
        else:
            what = "it was not sent, as there was no connection yet; the server is stopped or overloaded"
        error = Timeout(f"no response within {timeout:g} s from {address}: {what}", timeout=timeout)
        error.delivery = self.delivery
        error.__cause__ = self.failure
        return error


class Client(metaclass=Made, made_by="mainstem.jmux.aio.connect()"):
    """Sends requests to one server: the asyncio variant of :class:`mainstem.jmux.Client`. :func:`connect` returns it."""

    def __init__(
        self,
        address: ServerAddress,
        *,
        settings: Settings | None = None,
        timeout: float | None,
        clock: Clock = SYSTEM_CLOCK,
        entropy: random.Random | None = None,
    ) -> None:
        self._address = address
        self._entropy = entropy or random.SystemRandom()
        self._traffic = EndpointCounters()
        self._pool = Pool(
            address,
            settings=settings or Settings(),
            timeout=timeout,
            clock=clock,
            entropy=self._entropy,
            traffic=self._traffic,
        )

    def __del__(self) -> None:
        pool = getattr(self, "_pool", None)
        if pool is None or pool.closed or not pool.connections:
            return
        if pool.connections[0].call_soon(pool.abort):
            warnings.warn(f"{self!r} was dropped without being closed", ResourceWarning, stacklevel=2, source=self)

    @property
    def closed(self) -> bool:
        """Whether the client has been closed."""
        return self._pool.closed

    @property
    def error(self) -> MainstemError | None:
        """Always ``None``: a client outlives its connections, and only ``close`` and ``abort`` end it."""
        return None

    @property
    def peer_address(self) -> Any:
        """The server's address, in the form that the newest connection's socket uses; ``None`` if there is none."""
        return None if self._pool.newest is None else self._pool.newest.peer_address

    @property
    def peer_certificate(self) -> dict[str, Any] | None:
        """The server's TLS certificate as :meth:`ssl.SSLSocket.getpeercert` returns it; ``None`` without TLS."""
        return None if self._pool.newest is None else self._pool.newest.peer_certificate

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{len(self._pool.connections)} connections"
        return f"<jmux Client of {self._address}, {state}>"

    def stats(self) -> EndpointStats:
        """Return the current state and the counters, including ended connections. Can be called from any thread."""
        connections = tuple(self._pool.connections)
        return connection_stats(
            connections, self._traffic, protocol=ClientEngine.PROTOCOL, role="client", closed=self.closed
        )

    def open_session(self, *, timeout: float | None = None) -> Opening[ClientSession]:
        """Open a session for one request. Await the result, or use it with ``async with``."""
        return Opening(lambda: self._open_session(timeout), "Client.open_session()")

    async def _open_session(self, timeout: float | None = None) -> ClientSession:
        connection = self._pool.ready() if timeout is None else None
        connection = connection or await self._free_connection(timeout)
        self._traffic.streams_opened += 1
        return ClientSession(self, connection, connection.engine.open_session())

    async def _free_connection(self, timeout: float | None = None) -> ClientProtocol:
        try:
            return await within(timeout, self._pool.free(), "open_session")
        except MainstemError as error:
            error.delivery = Delivery.NONE
            raise

    async def request(
        self, payload: bytes | bytearray | memoryview, timeout: float | None = None, *, attempts: int = 2
    ) -> bytes:
        """Send a whole request and wait for the whole response. A cancelled request may have been executed.

        The request is sent again only if the specification guarantees that the server processed nothing of it, or if the server
        could not be reached, after a pause that doubles with each attempt. Every error has ``delivery`` and ``may_retry``.

        Args:
            payload: The request.
            timeout: Seconds for all attempts together, after which the session is aborted, which cancels its handler;
                ``None`` waits forever.
            attempts: Maximum number of times that the request is sent.

        Returns:
            The response.

        Raises:
            Timeout: The timeout passed.
            LimitExceeded: The response is longer than the settings' ``read_limit``.
            Aborted: The server aborted the session.
            ConnectionLost: The connection broke, or the server is unreachable.
            MainstemError: Another error ended the session or the connection.

        Example:
            >>> response = await client.request(b"whole request", timeout=5)
        """
        made = _Attempts()
        if timeout is None:
            return await self._send(payload, attempts, made)
        deadline = asyncio.timeout(timeout_of(timeout))
        try:
            async with deadline:
                return await self._send(payload, attempts, made)
        except TimeoutError as error:
            if isinstance(error, MainstemError) or not deadline.expired():
                raise
            failure = made.timed_out(timeout, self._address, connected=bool(self._pool.connections))
            raise failure from made.failure

    async def _send(self, payload: bytes | bytearray | memoryview, attempts: int, made: _Attempts) -> bytes:
        """Send a request until it gets a response or the attempts are used up."""
        pause: GrowingPause | None = None
        while True:
            made.count += 1
            made.call = None
            try:
                connection = self._pool.ready() or await self._free_connection()
                made.call = call = _Call(self, connection)
                self._traffic.streams_opened += 1
                try:
                    if not connection.sends_alone(call.session, payload):
                        connection.engine.request(call.session, payload)
                        connection.send_soon()
                    if (response := await call.response) is not None:
                        return response
                    return await call()._read_response()
                except BaseException:  # whatever the error, end the session
                    call().abort()
                    raise
            except MainstemError as error:
                is_repeated = error.may_retry and (made.call is not None or isinstance(error, ConnectionLost))
                if made.count >= attempts or not is_repeated:
                    made.explain(error)
                    raise
                made.failure = error
            pause = pause or retry_pause(self._entropy)
            await asyncio.sleep(pause.next_s())

    async def close(self) -> None:
        """End all connections, including one that is being opened. Incomplete requests fail. Can be called more than once."""
        await self._pool.close()

    def abort(self) -> None:
        """End all connections immediately. Incomplete requests fail."""
        self._pool.abort()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()


def connect(
    host: str | None = None,
    port: int | None = None,
    *,
    path: str | None = None,
    ssl: ssl_module.SSLContext | bool | None = None,
    server_hostname: str | None = None,
    settings: Settings | None = None,
    timeout: float | None = CONNECT_TIMEOUT_S,
    **overrides: Any,
) -> Opening[Client]:
    """Connect to a server; see :func:`mainstem.jmux.connect`. Await the result, or use it with ``async with``."""
    settings = apply_overrides(Settings, settings, overrides)
    address = ServerAddress(host, port, path, client_context(ssl, settings), server_hostname)
    return Opening(lambda: open_client(address, settings, timeout), "jmux.aio.connect()")


async def open_client(address: ServerAddress, settings: Settings, timeout: float | None) -> Client:
    """Return a client of the server at an address, with its first connection."""
    client = Client.made(address, settings=settings, timeout=timeout)
    try:
        await client._pool.free()
    except BaseException:
        await client.close()
        raise
    return client

"""bymux under asyncio: connections, streams with back pressure, listeners."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import TYPE_CHECKING

from mainstem._internal.callbacks import ends_connection_on_error
from mainstem.bymux import events
from mainstem.bymux.aio_stream import PING_TIMEOUT_S, BymuxStream, PingWaiters
from mainstem.bymux.engine import BymuxEngine
from mainstem.bymux.state import Half, Role
from mainstem.clock import SYSTEM_CLOCK
from mainstem.errors import ClosedError, ConnectionLost, LocalProtocolError, MainstemError, Timeout
from mainstem.mux.arrivals import HANDSHAKE_TIMEOUT_S, MAX_CONNECTIONS, MAX_CONNECTIONS_PER_ADDRESS
from mainstem.mux.engine import CLOSE_TIMEOUT_S, LINGER_S, Engine, cancel_and_wait, engine_stats, logger, wait_for_tasks
from mainstem.mux.sockets import CONNECT_TIMEOUT_S, Address, Server
from mainstem.mux.transports import Publication, PublicationTransport, StreamPairTransport, Subscription

if TYPE_CHECKING:
    import ssl as ssl_module
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from mainstem.bymux.settings import Settings
    from mainstem.bymux.stream import Stream
    from mainstem.clock import Clock
    from mainstem.endpoint_stats import EndpointStats
    from mainstem.mux.transports import Transport


class Connection(Engine):
    """One end of a bymux connection. As a context manager it is closed in order at the end.

    Example:
        >>> async with await bymux.connect("127.0.0.1", 7000) as connection:
        ...     print(await connection.ping())
    """

    def __init__(
        self,
        role: Role,
        settings: Settings | None = None,
        *,
        handler: Callable[[BymuxStream], Awaitable[object]] | None = None,
        on_connection: Callable[[Connection], Awaitable[object]] | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.sans_io = BymuxEngine(role, settings, now_ns=clock.monotonic_ns())
        self.sans_io.holds_streams = True
        super().__init__(self.sans_io, clock)
        self._handler = handler
        self._on_connection = on_connection
        self._accepts = True
        self._greeter: asyncio.Task[object] | None = None
        self._openers: deque[asyncio.Future[None]] = deque()
        self._accepted: deque[BymuxStream] = deque()
        self._accepters: deque[asyncio.Future[None]] = deque()
        self._pings = PingWaiters(self, None)
        self._streams: set[BymuxStream] = set()
        for stream in self.sans_io.streams.values():
            self._streams.add(BymuxStream(self, stream))
        self._handlers = {
            events.DataReceived: lambda event: event.stream.owner._feed_data(event.data),
            events.StreamOpened: self._on_opened,
            events.StreamFinished: self._on_stream_finished,
            events.StreamReadStopped: lambda event: event.stream.owner._read_stopped(event.lost),
            events.StreamDrained: lambda event: event.stream.owner._wake_writers(),
            events.StreamEnded: self._on_stream_ended,
            events.StreamTimedOut: self._on_stream_timed_out,
            events.PongReceived: self._on_pong,
            events.GlobalCreditReceived: lambda _: _wake(self._openers),
            events.CreationStopped: lambda _: _wake(self._openers),
            events.CreationClosed: lambda _: _wake(self._accepters),
            events.ConnectionFinished: self._on_connection_finished,
        }

    @ends_connection_on_error
    def transport_ready(self, transport: Transport) -> None:
        """The transport is connected: what is due is sent, and ``on_connection`` starts; called by the transport.

        Args:
            transport: The transport.

        Example:
            >>> connection.transport_ready(transport)
        """
        super().transport_ready(transport)
        if self._on_connection is not None:
            self._greeter = self.spawn(self._greet(self._on_connection))

    async def _greet(self, on_connection: Callable[[Connection], Awaitable[object]]) -> None:
        try:
            await on_connection(self)
        except BaseException as error:
            # Whatever it raises, a client that it did not accept must not be served.
            is_own = error is self.failure or any(stream._is_own(error) for stream in self._streams)
            if isinstance(error, MainstemError):
                self.end(error)
            elif is_own:
                self.end(ConnectionLost(f"{self.peer_name} ended a stream early: {error}"))
            else:
                self.end(MainstemError(f"on_connection failed: {error!r}"))
            if not is_own:
                raise

    # ---- streams

    def stream(self, stream_id: int) -> BymuxStream:
        """Returns the active stream of an id, such as one that exists from the start.

        Args:
            stream_id: The id on the wire.

        Returns:
            The stream.

        Raises:
            LocalProtocolError: No stream of that id is active.

        Example:
            >>> control = connection.stream(0)
        """
        stream = self.sans_io.streams.get(stream_id)
        if stream is None:
            raise LocalProtocolError(f"stream {stream_id} is not active", rule="inactive-stream")
        owner: BymuxStream = stream.owner
        return owner

    async def open_stream(self) -> BymuxStream:
        """Creates a stream, waiting for the peer's credit for streams when none is left.

        Returns:
            The stream.

        Raises:
            ClosedError: No more streams may be created.
            MainstemError: What ended the connection.

        Example:
            >>> async with await connection.open_stream() as stream:
            ...     stream.write(b"tide")
        """
        while self.failure is not None or not self.sans_io.can_open:
            if self.failure is not None:
                raise self.failure.with_traceback(None)
            if self.sans_io.own & Half.CLOSED:
                raise ClosedError(f"{self.sans_io.peer_name} allows no new streams any more")
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._openers.append(waiter)
            await waiter
        stream = BymuxStream(self, self.sans_io.open_stream(now_ns=self._clock.monotonic_ns()))
        self._streams.add(stream)
        self.traffic.streams_opened += 1
        self.schedule_flush()
        return stream

    async def accept_stream(self) -> BymuxStream | None:
        """Waits for the next stream that the peer creates; for connections without a handler.

        Returns:
            The stream; ``None`` once there will be no more.

        Raises:
            MainstemError: What broke the connection, unless it was closed.

        Example:
            >>> stream = await connection.accept_stream()
        """
        while not self._accepted:
            if self.failure is not None and not isinstance(self.failure, ClosedError):
                raise self.failure.with_traceback(None)
            if self.failure is not None or self.sans_io.peer & Half.CLOSED:
                return None
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._accepters.append(waiter)
            await waiter
        stream = self._accepted.popleft()
        stream._served()
        return stream

    def unaccept_stream(self, stream: BymuxStream) -> None:
        """Puts back a stream that was accepted: it is the next to be accepted.

        Args:
            stream: The stream.

        Example:
            >>> connection.unaccept_stream(stream)
        """
        self._accepted.appendleft(stream)
        _wake(self._accepters)

    async def streams(self) -> AsyncIterator[BymuxStream]:
        """Iterates over the streams that the peer creates, until it will create no more.

        Yields:
            Each stream.

        Example:
            >>> async for stream in connection.streams():
            ...     print(await stream.read(-1))
        """
        while (stream := await self.accept_stream()) is not None:
            yield stream

    async def ping(self, timeout: float = PING_TIMEOUT_S) -> float:
        """Measures the round trip to the peer.

        Args:
            timeout: Seconds to wait for the pong.

        Returns:
            Seconds.

        Raises:
            Timeout: No pong came.
            MainstemError: What ended the connection.

        Example:
            >>> print(f"{await connection.ping() * 1e3:.1f} ms")
        """
        return await self._pings.ping(timeout)

    def send_ping(self, stream: Stream | None = None) -> None:
        """Sends a ping without waiting for its pong.

        Args:
            stream: The stream to ping; ``None`` for the connection.

        Raises:
            LocalProtocolError: A ping is forbidden now, or too many are outstanding.
            MainstemError: What ended the connection.

        Example:
            >>> connection.send_ping()
        """
        if self.failure is not None:
            raise self.failure.with_traceback(None)
        self.sans_io.ping(stream, now_ns=self._clock.monotonic_ns())
        self.schedule_flush()

    def stats(self) -> EndpointStats:
        """Returns what the connection has now and what it has counted; may be called in any thread.

        A listener's connections count into one: theirs has what all of them counted.

        Returns:
            The figures.

        Example:
            >>> connection.stats().unsent_bytes
            0
        """
        role = "client" if self.sans_io.role is Role.PROACTIVE else "server"
        return engine_stats((self,), self.traffic, protocol=self.sans_io.PROTOCOL, role=role, is_over=self.over)

    @property
    def open_streams(self) -> list[Stream]:
        """The streams that are open now, as the protocol has them; a copy."""
        return list(self.sans_io.streams.values())

    # ---- the end

    async def shutdown(self, deadline: float) -> None:
        """Lets the handlers finish, then ends the connection.

        Args:
            deadline: The loop's time at which the handlers that are left are cancelled.
        """
        self._accepts = False
        if self.failure is None:
            self.sans_io.finish()
            self.dispatch()
            _wake(self._openers)
            self.schedule_flush()
        if await wait_for_tasks(self.tasks, deadline - self._loop.time()):
            for stream in list(self._streams):
                with contextlib.suppress(MainstemError):
                    await stream.flush(timeout=max(0.0, min(deadline - self._loop.time(), CLOSE_TIMEOUT_S)))
        else:
            for stream in list(self._streams):
                stream.abort()
            await cancel_and_wait(self.tasks, CLOSE_TIMEOUT_S)
        self.end(ClosedError("the server was shut down"))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LINGER_S):
                await self.wait_ended()
        self.abort()

    async def close(self, timeout: float | None = None) -> None:
        """Creates no new streams, waits for the active ones, then ends the connection. Twice is fine.

        Args:
            timeout: Seconds to wait for the active streams; those that are left are aborted. By default 10 seconds, or as long
                as streams that were closed here make progress at the peer: the settings' ``stall_timeout`` without any.

        Raises:
            ClosedError: Streams that were not closed had ``unsent`` bytes that were not sent.

        Example:
            >>> await connection.close(timeout=1)
        """
        unsent = 0
        if self.failure is None:
            self.sans_io.finish()
            self.dispatch()
            _wake(self._openers)
            self.schedule_flush()
            await self._wait_streams_ended(timeout)
            if self.failure is None:
                unsent = sum(stream.queued for stream in self._streams)
                logger.warning(
                    "the connection to %s was closed with %d streams active", self.peer_name, len(self._streams)
                )
            self.end(abort=True)
        await self.wait_ended()
        await cancel_and_wait(self.tasks, CLOSE_TIMEOUT_S if timeout is None else timeout)
        if unsent:
            error = ClosedError(f"the connection was closed here; {unsent} bytes of its streams were not sent")
            error.unsent = unsent
            raise error

    async def _wait_streams_ended(self, timeout: float | None) -> None:
        """Waits for the orderly end of the connection, at most as long as :meth:`close` says."""
        if await self._ends_within(CLOSE_TIMEOUT_S if timeout is None else timeout) or timeout is not None:
            return
        progress, since = self._progress(), self._loop.time()
        # A peer that pauses may not have read yet what was written and closed here.
        while any(stream.own & Half.CLOSED for stream in self.open_streams):
            if await self._ends_within(CLOSE_TIMEOUT_S) or self._loop.time() - since >= self.stall_timeout:
                return
            if self._progress() != progress:
                progress, since = self._progress(), self._loop.time()

    async def _ends_within(self, timeout: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self.wait_ended()
        return self.over

    def _progress(self) -> tuple[int, int]:
        streams = self.open_streams
        return len(streams), sum(stream.sent for stream in streams)

    def abort(self) -> None:
        """Ends the connection at once.

        Example:
            >>> connection.abort()
        """
        self.end(abort=True)

    async def __aenter__(self) -> Connection:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        if kind is not None:
            self.abort()
        await self.close()

    # ---- events

    def _on_opened(self, event: events.StreamOpened) -> None:
        stream = BymuxStream(self, event.stream)
        self._streams.add(stream)
        self.traffic.streams_opened += 1
        if not self._accepts:
            stream.abort()
        elif self._handler is not None:
            task = self.spawn(self._handle(stream, self._handler))
            task.add_done_callback(lambda _: stream._served())
            stream._attach_handler(task)
        else:
            self._accepted.append(stream)
            _wake(self._accepters)

    async def _handle(self, stream: BymuxStream, handler: Callable[[BymuxStream], Awaitable[object]]) -> None:
        try:
            async with stream:
                await handler(stream)
            stream.stop_read()
        except Exception as error:
            if not stream._is_own(error):
                raise
            logger.debug("stream %d of %s ended under its handler: %s", stream.id, self.peer_name, error)

    def _on_stream_finished(self, event: events.StreamFinished) -> None:
        if event.aborted:
            event.stream.owner._aborted()
        else:
            event.stream.owner._feed_eof()

    def _on_stream_ended(self, event: events.StreamEnded) -> None:
        stream: BymuxStream = event.stream.owner
        self._streams.discard(stream)
        stream._ended()

    def _on_stream_timed_out(self, event: events.StreamTimedOut) -> None:
        seconds = self.sans_io.settings.stream_ping_timeout
        event.stream.owner._set_exception(Timeout(f"stream {event.stream.id} showed no sign of life", timeout=seconds))

    def _on_pong(self, event: events.PongReceived) -> None:
        if event.stream is None:
            self._pings.received(event.rtt_ns)
        else:
            event.stream.owner._pong_received(event.rtt_ns)

    def _on_connection_finished(self, _: events.ConnectionFinished) -> None:
        self._loop.call_soon(self._on_finished)  # after the last responses have left

    @ends_connection_on_error
    def _on_finished(self) -> None:
        if not self.over:
            self._fail(ClosedError("the connection has ended: both ends are done with it"))

    def _on_over(self, error: MainstemError) -> None:
        self.sans_io.fail(error)
        for stream in list(self._streams):
            stream._set_exception(error)
        self._streams.clear()
        self._pings.fail(error)
        if self._greeter is not None and self._greeter is not asyncio.current_task(self._loop):
            self._greeter.cancel()
        _wake(self._openers)
        _wake(self._accepters)


def _wake(waiters: deque[asyncio.Future[None]]) -> None:
    while waiters:
        waiter = waiters.popleft()
        if not waiter.done():
            waiter.set_result(None)


async def connect(
    host: str | None = None,
    port: int | None = None,
    *,
    path: str | None = None,
    ssl: ssl_module.SSLContext | None = None,
    server_hostname: str | None = None,
    settings: Settings | None = None,
    handler: Callable[[BymuxStream], Awaitable[object]] | None = None,
    timeout: float = CONNECT_TIMEOUT_S,
) -> Connection:
    """Connects over TCP, TLS or a Unix socket, as the proactive end.

    Args:
        host: The peer's address.
        port: Its TCP port.
        path: The path of a Unix socket, in place of host and port.
        ssl: A client-side context, for TLS.
        server_hostname: The name that the peer's certificate must have; ``host`` by default.
        settings: The connection's configuration; the defaults are vanilla bymux.
        handler: Called, in a task of its own each time, with the streams that the peer creates. Without a handler they
            wait for :meth:`Connection.accept_stream`.
        timeout: Seconds for connecting.

    Returns:
        The connection.

    Raises:
        ConnectionLost: The peer cannot be reached.
        Timeout: Connecting took too long.
        ConfigurationError: Neither host and port nor path.

    Example:
        >>> async with await bymux.connect("127.0.0.1", 7000) as connection:
        ...     stream = await connection.open_stream()
    """
    connection = Connection(Role.PROACTIVE, settings, handler=handler)
    await Address(host, port, path, ssl, server_hostname).connect(connection, timeout)
    return connection


async def serve(
    handler: Callable[[BymuxStream], Awaitable[object]],
    host: str | Sequence[str] | None = None,
    port: int | None = None,
    *,
    path: str | None = None,
    ssl: ssl_module.SSLContext | None = None,
    settings: Settings | None = None,
    max_connections: int = MAX_CONNECTIONS,
    max_connections_per_address: int = MAX_CONNECTIONS_PER_ADDRESS,
    handshake_timeout: float | None = HANDSHAKE_TIMEOUT_S,
    on_connection: Callable[[Connection], Awaitable[object]] | None = None,
) -> Server[Connection]:
    """Listens over TCP, TLS or a Unix socket, as the reactive end.

    Args:
        handler: Called with each stream that a peer creates, in a task of its own.
        host: The address or name to listen on, or several; ``None`` for all interfaces.
        port: The TCP port of every address; 0 or ``None`` for one that the system chooses.
        path: The path of a Unix socket, in place of host and port. The file of a server that was killed is replaced.
        ssl: A server-side context, for TLS.
        settings: The configuration of each connection; the defaults are vanilla bymux.
        max_connections: Connections at once (1024 by default), with those that are gone and whose handlers still run. A further
            one replaces a connection that has sent nothing yet, or is closed if there is no such connection.
        max_connections_per_address: Of these, from one IPv4 address or IPv6 /64 network (256 by default); raise it where
            clients come through a proxy.
        handshake_timeout: Seconds for TLS and for the peer's first byte (15 by default); ``None`` for no limit.
        on_connection: Called with each connection. Whatever it raises ends that connection and counts as a failed handler; to
            refuse a peer, it calls ``connection.end(error)``. Streams are served meanwhile, unless ``allow_at_start`` is off.

    Returns:
        The listener, which is a context manager.

    Raises:
        ConfigurationError: The address cannot be listened on, or another server listens on the path.

    Example:
        >>> async with await bymux.serve(echo, "127.0.0.1", 7000) as listener:
        ...     await asyncio.Event().wait()
    """
    listener = Server(
        lambda: Connection(Role.REACTIVE, settings, handler=handler, on_connection=on_connection),
        protocol=BymuxEngine.PROTOCOL,
        max_connections=max_connections,
        max_connections_per_address=max_connections_per_address,
        handshake_timeout=handshake_timeout,
    )
    await listener._start(host, port, path=path, ssl=ssl)
    return listener


async def attach(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    *,
    role: Role,
    settings: Settings | None = None,
    handler: Callable[[BymuxStream], Awaitable[object]] | None = None,
) -> Connection:
    """Starts a connection over any asyncio reader and writer.

    Args:
        reader: The bytes from the peer.
        writer: The bytes to the peer.
        role: This end's role; the peer has the other one.
        settings: The connection's configuration; the defaults are vanilla bymux.
        handler: Called with each stream that the peer creates, in a task of its own.

    Returns:
        The connection.

    Example:
        >>> reader, writer = await asyncio.open_connection("127.0.0.1", 7000)
        >>> connection = await bymux.attach(reader, writer, role=bymux.Role.PROACTIVE)
    """
    connection = Connection(role, settings, handler=handler)
    StreamPairTransport(connection, reader, writer).start()
    return connection


async def over_publications(
    publication: Publication,
    subscription: Subscription,
    *,
    role: Role,
    settings: Settings | None = None,
    handler: Callable[[BymuxStream], Awaitable[object]] | None = None,
    message_limit: int = PublicationTransport.MESSAGE_LIMIT,
) -> Connection:
    """Starts a connection over a publication to the peer and a subscription from it, such as Aeron's.

    Both belong to the caller and must stay open while the connection does.

    Args:
        publication: The bytes to the peer.
        subscription: The bytes from the peer.
        role: This end's role; the peer has the other one.
        settings: The connection's configuration; the defaults are vanilla bymux.
        handler: Called with each stream that the peer creates, in a task of its own.
        message_limit: Bytes of one message, at most what one fragment holds (``publication.max_payload_length``).

    Returns:
        The connection.

    Example:
        >>> connection = await bymux.over_publications(publication, subscription, role=bymux.Role.PROACTIVE)
    """
    connection = Connection(role, settings, handler=handler)
    PublicationTransport(connection, publication, subscription, message_limit=message_limit).start()
    return connection


__all__ = ["BymuxStream", "Connection", "attach", "connect", "over_publications", "serve"]

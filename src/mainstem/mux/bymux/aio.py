"""bymux under asyncio: connections, streams with back pressure, listeners."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import TYPE_CHECKING

from mainstem.clock import SYSTEM_CLOCK
from mainstem.errors import ClosedError, LocalProtocolError, MainstemError, TimedOut
from mainstem.mux.async_stream import WRITE_LIMIT, Halves
from mainstem.mux.bymux import events
from mainstem.mux.bymux.connection import BymuxConnection
from mainstem.mux.bymux.state import Half, Role
from mainstem.mux.engine import Engine, gather_quietly
from mainstem.mux.sockets import MAX_CONNECTIONS, Listener, dial
from mainstem.mux.transports import PairCarrier, Publication, PublicationsCarrier, Subscription

if TYPE_CHECKING:
    import ssl as ssl_module
    from collections.abc import AsyncIterator, Awaitable, Callable

    from mainstem.mux.bymux.settings import Settings
    from mainstem.mux.bymux.stream import Stream
    from mainstem.mux.transports import Carrier

CONNECT_TIMEOUT_S = 10.0
CLOSE_TIMEOUT_S = 10.0
# A write past this many queued bytes is handed to the carrier at once instead of at the end of the loop's turn.
EAGER_BYTES = 64 * 1024


class BymuxStream(Halves):
    """One stream. As a context manager it is closed at the end, and aborted when the block raises."""

    __slots__ = ("_closing", "_connection", "_engine", "_pongs", "_sans_io", "_stopped", "_stream", "_tap")

    def __init__(self, connection: Connection, stream: Stream) -> None:
        super().__init__()
        self._engine = connection
        self._connection = connection
        self._sans_io = connection.sans_io
        self._stream = stream
        self._closing = False
        self._stopped: ClosedError | None = None
        self._tap: Callable[[bytes], None] | None = None
        self._pongs: deque[asyncio.Future[float]] = deque()
        stream.owner = self

    @property
    def id(self) -> int:
        """The stream's id on the wire."""
        return self._stream.id

    @property
    def connection(self) -> Connection:
        """The connection that the stream belongs to."""
        return self._connection

    @property
    def queued(self) -> int:
        """Bytes written that wait for credit or for their turn."""
        return self._stream.queue.size

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Queues bytes; ``drain`` is where back pressure is felt. Raises what ended the stream, if something did."""
        if self._write_error is not None:
            raise self._write_error
        if self._stopped is not None:
            raise self._stopped
        stream = self._stream
        self._sans_io.write(stream, data)
        engine = self._engine
        if stream.queue.size >= EAGER_BYTES and stream.send_credit:
            engine.flush()
        elif not engine._flush_scheduled:
            engine.schedule_flush()

    async def drain(self) -> None:
        """Returns once little enough is queued: at once, or when the peer has given credit and the line has room."""
        if self._write_error is not None:
            raise self._write_error
        stream = self._stream
        if stream.queue.size > WRITE_LIMIT:
            self._engine.flush()
            if stream.queue.size > WRITE_LIMIT:
                stream.notify_below = max(stream.notify_below, WRITE_LIMIT // 2)
                await self._wait_drained()

    async def flush(self) -> None:
        """Returns once everything written has been handed to the carrier."""
        while self._stream.queue.size:
            self._engine.flush()
            if self._stream.queue.size:
                if self._write_error is not None:
                    raise self._write_error
                self._stream.notify_below = max(self._stream.notify_below, 0)
                await self._wait_drained()

    async def close(self) -> None:
        """Ends the writing half after everything written; returns when it has left. Closing twice is fine."""
        stream = self._stream
        self._closing = True
        if self._write_error is None and not stream.close_wanted and not stream.own & Half.CLOSED:
            self._sans_io.close(stream)
            self._engine.schedule_flush()
        await self.flush()

    def stop_read(self) -> None:
        """Gives no more credit: what still arrives is dropped, and the peer is told to stop. Twice is fine."""
        self._drop_unread()
        if self._engine.failure is None and not self._stream.own & Half.STOPPED:
            self._sans_io.stop_read(self._stream)
            self._engine.schedule_flush()

    def abort(self) -> None:
        """Ends both halves now; what was queued is dropped. bymux cannot tell the peer that this was no orderly end."""
        stream = self._stream
        if self._engine.failure is None and not stream.own & Half.CLOSED:
            if stream.close_wanted:
                stream.queue.truncate(0)
                self._sans_io._ready.add(stream)
            else:
                self._sans_io.close(stream, discard=True)
        self._write_failed(ClosedError(f"stream {stream.id} was aborted here"))
        self.stop_read()

    def deliver_to(self, call: Callable[[bytes], None]) -> None:
        """From now on hands what arrives to ``call`` instead of a reader, in its place among what happens on other streams."""
        self._tap = call
        if data := self._buffer.read_all():
            self._consumed(len(data))
            call(data)

    async def ping(self, timeout: float = 10.0) -> float:
        """The round-trip time to the peer on this stream, in seconds. Raises ``TimedOut``."""
        return await self._connection._ping(self._stream, self._pongs, timeout)

    async def __aenter__(self) -> BymuxStream:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        if kind is not None:
            self.abort()
            return
        with contextlib.suppress(MainstemError):
            await self.close()
        if not self._eof:
            self.stop_read()
        else:
            self._drop_unread()

    def _drop_unread(self) -> None:
        self._buffer.clear()
        if self._engine.failure is None:
            self._sans_io.discard(self._stream)
        self._eof = True
        self._feed_end()

    def _consumed(self, count: int) -> None:
        stream = self._stream
        self._sans_io.consume(stream, count)
        if (stream.grant_due or stream.ended) and not self._engine._flush_scheduled:
            self._engine.schedule_flush()

    def _lost(self, error: MainstemError) -> None:
        self._feed_end(error)
        self._write_failed(error)
        for future in self._pongs:
            if not future.done():
                future.set_exception(error)
        self._pongs.clear()


class Connection(Engine):
    """One end of a bymux connection. As a context manager it is closed in order at the end."""

    def __init__(
        self,
        role: Role,
        settings: Settings | None = None,
        *,
        handler: Callable[[BymuxStream], Awaitable[object]] | None = None,
        on_connection: Callable[[Connection], Awaitable[object]] | None = None,
    ) -> None:
        self.sans_io = BymuxConnection(role, settings, now_ns=SYSTEM_CLOCK.monotonic_ns())
        super().__init__(self.sans_io)
        self._handler = handler
        self._on_connection = on_connection
        self._openers: deque[asyncio.Future[None]] = deque()
        self._accepted: deque[BymuxStream] = deque()
        self._accepters: deque[asyncio.Future[None]] = deque()
        self._pongs: deque[asyncio.Future[float]] = deque()
        self._streams: set[BymuxStream] = set()
        for stream in self.sans_io.streams.values():
            self._streams.add(BymuxStream(self, stream))
        self._handlers = {
            events.DataReceived: self._on_data,
            events.StreamOpened: self._on_opened,
            events.StreamFinished: lambda event: event.stream.owner._feed_end(),
            events.StreamReadStopped: self._on_read_stopped,
            events.StreamDrained: lambda event: event.stream.owner._drained(),
            events.StreamEnded: self._on_stream_ended,
            events.StreamTimedOut: self._on_stream_timed_out,
            events.PongReceived: self._on_pong,
            events.GlobalCreditReceived: lambda _: self._wake_openers(),
            events.CreationStopped: lambda _: self._wake_openers(),
            events.CreationClosed: lambda _: self._wake_accepters(),
            events.ConnectionFinished: self._on_connection_finished,
        }

    def carrier_ready(self, carrier: Carrier) -> None:
        """The carrier is connected: what is due goes out, and ``on_connection`` has its turn."""
        super().carrier_ready(carrier)
        if self._on_connection is not None:
            self.spawn(self._greet(self._on_connection))

    async def _greet(self, on_connection: Callable[[Connection], Awaitable[object]]) -> None:
        try:
            await on_connection(self)
        except MainstemError as error:
            self.end(error)

    # ---- streams

    def stream(self, stream_id: int) -> BymuxStream:
        """The active stream of that id (one that exists from the start, say)."""
        found = self.sans_io.streams.get(stream_id)
        if found is None:
            raise LocalProtocolError(f"stream {stream_id} is not active", rule="inactive-stream")
        owner: BymuxStream = found.owner
        return owner

    def active(self, stream_id: int) -> BymuxStream | None:
        """The stream of that id whose end has not been told yet."""
        return next((stream for stream in self._streams if stream.id == stream_id), None)

    async def open_stream(self) -> BymuxStream:
        """Creates a stream, waiting for the peer's leave where none is left. Raises ``ClosedError`` when it will give none."""
        while not self.sans_io.can_open:
            if self.failure is not None:
                raise self.failure
            if self.sans_io.own & Half.CLOSED:
                raise ClosedError(f"{self.sans_io.peer_name} allows no new streams any more")
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._openers.append(waiter)
            await waiter
        stream = BymuxStream(self, self.sans_io.open_stream(now_ns=SYSTEM_CLOCK.monotonic_ns()))
        self._streams.add(stream)
        self.schedule_flush()
        return stream

    async def accept_stream(self) -> BymuxStream | None:
        """The next stream that the peer created, where no handler takes them; ``None`` once there will be none."""
        while not self._accepted:
            if self.failure is not None or self.sans_io.peer & Half.CLOSED:
                return None
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._accepters.append(waiter)
            await waiter
        return self._accepted.popleft()

    async def streams(self) -> AsyncIterator[BymuxStream]:
        """The streams that the peer creates, until it will create no more."""
        while (stream := await self.accept_stream()) is not None:
            yield stream

    async def ping(self, timeout: float = 10.0) -> float:
        """The round-trip time to the peer, in seconds. Raises ``TimedOut``."""
        return await self._ping(None, self._pongs, timeout)

    # ---- the end

    async def close(self, timeout: float = CLOSE_TIMEOUT_S) -> None:
        """No new streams; waits for the active ones at most ``timeout`` seconds, then ends the connection. Twice is fine."""
        if self.failure is None:
            self.sans_io.finish()
            self._dispatch()
            self._wake_openers()
            self.schedule_flush()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    await self.wait_ended()
            self.end(abort=True)
        await self.wait_ended()
        for task in list(self._tasks):
            if task is not asyncio.current_task():
                task.cancel()
        await gather_quietly(self._tasks - {asyncio.current_task()}, timeout)

    def abort(self) -> None:
        """Ends the connection at once."""
        self.end(abort=True)

    async def __aenter__(self) -> Connection:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        if kind is not None:
            self.abort()
        await self.close()

    # ---- events

    def _on_data(self, event: events.DataReceived) -> None:
        stream: BymuxStream = event.stream.owner
        if stream._tap is None:
            stream._feed(event.data)
        else:
            stream._consumed(len(event.data))
            stream._tap(event.data)

    def _on_opened(self, event: events.StreamOpened) -> None:
        stream = BymuxStream(self, event.stream)
        self._streams.add(stream)
        if self._handler is not None:
            self.spawn(self._handle(stream, self._handler))
        else:
            self._accepted.append(stream)
            self._wake_accepters()

    async def _handle(self, stream: BymuxStream, handler: Callable[[BymuxStream], Awaitable[object]]) -> None:
        async with stream:
            try:
                await handler(stream)
            except MainstemError:
                # A stream that broke under its handler is no fault of the handler's.
                if stream._read_error is None and stream._write_error is None and stream._stopped is None:
                    raise
                stream.abort()

    def _on_read_stopped(self, event: events.StreamReadStopped) -> None:
        stream: BymuxStream = event.stream.owner
        if event.lost:
            stream._write_failed(
                ClosedError(f"the peer stopped reading stream {stream.id}: {event.lost} bytes were not sent")
            )
        elif not stream._closing:
            stream._stopped = ClosedError(f"the peer stopped reading stream {stream.id}")

    def _on_stream_ended(self, event: events.StreamEnded) -> None:
        stream: BymuxStream = event.stream.owner
        self._streams.discard(stream)
        if stream._write_error is None:
            stream._write_error = ClosedError(f"stream {stream.id} has ended")
        stream._drained()

    def _on_stream_timed_out(self, event: events.StreamTimedOut) -> None:
        seconds = self.sans_io.settings.stream_ping_timeout_ns / 1e9
        event.stream.owner._lost(TimedOut(f"stream {event.stream.id} showed no sign of life", timeout=seconds))

    def _on_pong(self, event: events.PongReceived) -> None:
        waiting = self._pongs if event.stream is None else event.stream.owner._pongs
        if event.rtt_ns >= 0 and waiting:
            future = waiting.popleft()
            if not future.done():
                future.set_result(event.rtt_ns / 1e9)

    def _on_connection_finished(self, _: events.ConnectionFinished) -> None:
        self._loop.call_soon(self._on_finished)  # what was answered last leaves before

    def _on_finished(self) -> None:
        if not self._over:
            self._fail(ClosedError("the connection has ended: both ends are done with it"))

    async def _ping(self, stream: Stream | None, waiting: deque[asyncio.Future[float]], timeout: float) -> float:
        self.sans_io.ping(stream, now_ns=SYSTEM_CLOCK.monotonic_ns())
        future: asyncio.Future[float] = self._loop.create_future()
        waiting.append(future)
        self.schedule_flush()
        try:
            async with asyncio.timeout(timeout):
                return await future
        except TimeoutError:
            raise TimedOut(f"no pong within {timeout:g} s", timeout=timeout) from None

    def _wake_openers(self) -> None:
        self._wake(self._openers)

    def _wake_accepters(self) -> None:
        self._wake(self._accepters)

    @staticmethod
    def _wake(waiters: deque[asyncio.Future[None]]) -> None:
        while waiters:
            waiter = waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)

    def _on_over(self, error: MainstemError) -> None:
        for stream in list(self._streams):
            stream._lost(error)
        self._streams.clear()
        for future in self._pongs:
            if not future.done():
                future.set_exception(error)
        self._wake_openers()
        self._wake_accepters()


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
    """Connects over TCP, TLS (``ssl``) or a Unix socket (``path``), as the proactive end.

    ``handler`` is called, each time in a task of its own, with the streams that the peer creates; without one they wait for
    :meth:`Connection.accept_stream`. Raises ``ConnectionLost`` or ``TimedOut``.
    """
    connection = Connection(Role.PROACTIVE, settings, handler=handler)
    await dial(connection, host, port, path=path, ssl=ssl, server_hostname=server_hostname, timeout=timeout)
    return connection


async def serve(
    handler: Callable[[BymuxStream], Awaitable[object]],
    host: str | None = None,
    port: int | None = None,
    *,
    path: str | None = None,
    ssl: ssl_module.SSLContext | None = None,
    settings: Settings | None = None,
    max_connections: int = MAX_CONNECTIONS,
    on_connection: Callable[[Connection], Awaitable[object]] | None = None,
) -> Listener[Connection]:
    """Listens, as the reactive end; ``handler`` is called with each stream that a peer creates, in a task of its own.

    ``on_connection`` is called with each connection; what it raises ends that connection.
    """
    listener = Listener(
        lambda: Connection(Role.REACTIVE, settings, handler=handler, on_connection=on_connection),
        max_connections=max_connections,
    )
    await listener.start(host, port, path=path, ssl=ssl)
    return listener


async def attach(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    *,
    role: Role,
    settings: Settings | None = None,
    handler: Callable[[BymuxStream], Awaitable[object]] | None = None,
) -> Connection:
    """A connection over any asyncio reader and writer; which end is which must be agreed on."""
    connection = Connection(role, settings, handler=handler)
    PairCarrier(connection, reader, writer).start()
    return connection


async def over_publications(
    publication: Publication,
    subscription: Subscription,
    *,
    role: Role,
    settings: Settings | None = None,
    handler: Callable[[BymuxStream], Awaitable[object]] | None = None,
    message_limit: int = PublicationsCarrier.MESSAGE_LIMIT,
) -> Connection:
    """A connection over a publication to the peer and a subscription from it, such as Aeron's.

    Both must stay open while the connection does; they belong to the caller. ``message_limit`` must not exceed what one
    fragment holds (``publication.max_payload_length``).
    """
    connection = Connection(role, settings, handler=handler)
    PublicationsCarrier(connection, publication, subscription, message_limit=message_limit).start()
    return connection


__all__ = ["BymuxStream", "Connection", "attach", "connect", "over_publications", "serve"]

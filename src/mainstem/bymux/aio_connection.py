"""bymux streams and connections for asyncio."""

from __future__ import annotations

import functools
import warnings
from collections import deque
from typing import TYPE_CHECKING, Any

from mainstem._internal.clock import SYSTEM_CLOCK
from mainstem._internal.opening import Opening
from mainstem._internal.tasks import as_coroutine_function, within
from mainstem.bymux import events
from mainstem.bymux.engine import BymuxEngine
from mainstem.bymux.pings import PING_TIMEOUT_S
from mainstem.bymux.protocol import BymuxProtocol
from mainstem.bymux.settings import Settings
from mainstem.bymux.state import HalfState, Role
from mainstem.errors import Aborted, ClosedError, MainstemError, Timeout
from mainstem.mux.aio_stream import BaseStream, reports_own_end, wake_writers
from mainstem.mux.protocol import connection_stats, logger

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from typing import Self

    from mainstem._internal.clock import Clock
    from mainstem._internal.endpoint_stats import EndpointStats
    from mainstem.bymux.stream import StreamState


class Stream(BaseStream):
    """One stream: the asyncio variant of :class:`mainstem.bymux.Stream`.

    Example:
        >>> async with connection.open_stream() as stream:
        ...     stream.write(b"tide")
        ...     print(await stream.read())
    """

    _connection: BymuxProtocol[Stream]
    _handle: StreamState
    _engine: BymuxEngine
    _closing = False  # this end writes nothing more
    _left = False  # nothing reads data that still arrives
    _stopped: ClosedError | None = None

    def __init__(self, protocol: BymuxProtocol[Stream], state: StreamState) -> None:
        super().__init__(protocol, state)
        self._view: Connection = protocol.connection  # the connection ends if nothing refers to it

    @property
    def connection(self) -> Connection:
        """The connection that the stream belongs to."""
        return self._view

    @property
    def _broken(self) -> bool:
        return super()._broken or self._stopped is not None

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Queue bytes. Use :meth:`drain` to wait for the peer's credit.

        Args:
            data: The bytes. Mutable objects are copied.

        Raises:
            ClosedError: The stream was aborted, or the peer stopped reading it.
            LocalProtocolError: The stream was closed here.
            MainstemError: The error that ended the connection.
        """
        if self._write_error is not None:
            self._check_writable()
        if self._stopped is not None:
            raise self._stopped
        connection = self._connection
        connection.writes += 1
        if not connection.sends_at_once:
            self._engine.write(self._handle, data)
            self._written(self._handle.send_credit)
            return
        connection.sends_at_once = False
        transport = connection.transport
        if transport is not None and not transport.paused and (packet := self._engine.packet_of(self._handle, data)):
            connection.traffic.bytes_sent += len(packet)
            transport.write([packet])
        else:
            self._engine.write(self._handle, data)
            connection.flush()

    def finish(self) -> None:
        """End the writing half after all written data. The peer can continue writing. Can be called more than once.

        Raises:
            MainstemError: The error that ended the writing half before everything had been sent; ``unsent`` bytes were not.

        Example:
            >>> stream.write(b"the whole request")
            >>> stream.finish()
            >>> response = await stream.read(-1)
        """
        self._finish()
        self._check_written()

    def _finish(self) -> None:
        stream = self._handle
        self._closing = True
        if self._write_error is None and not stream.close_wanted and not stream.local & HalfState.CLOSED:
            self._engine.close(stream)
            self._connection.schedule_flush()

    async def close(self, timeout: float | None = None) -> None:
        """End both halves once all written data has been sent. Can be called more than once."""
        if self._closed:
            return
        self._finish()
        try:
            await self._flush_in_time(timeout)
        except Timeout as error:
            if error is self._write_error and self._connection.failure is None:
                self.abort()
            raise
        except MainstemError:
            self._leave()
            raise
        self._leave()

    def _leave(self) -> None:
        """Stop reading. Ask the peer to stop if it has sent unread data, or if it can send nothing without more credit."""
        self._closed = True
        if self._eof or self._buffer.size or not self._handle.receive_credit:
            is_complete = self._eof
            self._drop_unread(ClosedError(f"stream {self.id} was closed here"))
            if not is_complete:
                self._send_stop_read()
        else:
            self._drop_buffer(ClosedError(f"stream {self.id} was closed here"))
            self._wake_reader()
            self._left = True

    def stop_read(self) -> None:
        """Ask the peer to stop, give it no more credit, and drop data that still arrives. Can be called more than once."""
        self._drop_unread()
        self._send_stop_read()

    def _send_stop_read(self) -> None:
        if self._connection.failure is None and not self._handle.local & HalfState.STOPPED:
            self._engine.stop_read(self._handle)
            self._connection.schedule_flush()

    def abort(self) -> None:
        """End both halves immediately, dropping queued data. Can be called more than once."""
        stream = self._handle
        self._closed = True
        error = ClosedError(f"stream {stream.id} was aborted here")
        self._drop_unread(error)
        self._send_stop_read()
        if self._connection.failure is None and not stream.local & HalfState.CLOSED:
            self._engine.close(stream, discard=True)
        self._fail_writes(error)
        self._write_failure = None

    async def ping(self, timeout: float | None = PING_TIMEOUT_S) -> float:
        """Measure the round trip to the peer on this stream, and return it in seconds.

        Args:
            timeout: Seconds to wait for the pong; ``None`` waits forever.

        Raises:
            Timeout: No pong arrived in time.
            LocalProtocolError: Both halves of the stream have ended.
            MainstemError: The error that ended the stream or the connection first.
        """
        return await self._connection.pings.ping(self._handle, timeout)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        if kind is not None:
            self.abort()
            return
        reported = self._reported
        try:
            await self.close()
        except MainstemError:
            if not reported:
                raise
        except BaseException:
            self.abort()
            raise

    def _drop_unread(self, error: MainstemError | None = None) -> None:
        """Drop unread data. From now on reads return the end of data, or raise ``error`` or an earlier error."""
        self._drop_buffer(error)
        if self._connection.failure is None:
            self._engine.discard(self._handle)
            self._connection.schedule_flush()  # the freed data may give the peer credit for another stream
        self._feed_eof()

    def _writing_ended(self) -> bool:
        return bool(self._handle.local & HalfState.CLOSED)

    def _consumed(self, count: int) -> None:
        stream = self._handle
        self._engine.consume(stream, count)
        if (stream.grant_due or stream.ended) and not self._connection.flush_scheduled:
            self._connection.schedule_flush()

    # ---- called by the connection

    def _on_data(self, event: events.DataReceived) -> None:
        if self._left:
            self.stop_read()
            return
        self._buffer.append(event.data)
        if self._reader is not None:
            self._wake_reader()

    def _feed_eof(self) -> None:
        super()._feed_eof()
        if self._handle.peer is HalfState.DONE:
            self._peer_done()

    def _on_finished(self, event: events.StreamFinished) -> None:
        if not event.aborted:
            self._feed_eof()
            return
        if not self._eof and self._read_error is None:
            self._read_error = Aborted(f"stream {self.id} was aborted by {self._connection.peer_name}")
        self._wake_reader()
        if not self._closing:
            self._cancel_handler()

    def _endings(self) -> tuple[BaseException | None, ...]:
        return (*super()._endings(), self._stopped)

    def _peer_done(self) -> None:
        """Cancel a handler that serves nobody, because the peer neither reads nor writes any more.

        Handlers that have ended their own half are not cancelled. Nor are handlers that may still have to read, because the peer's
        data is complete. If a peer stops reading and then closes without having written in between, it has given up the stream.
        """
        if not self._closing and (self._handle.abandoned or self._eof_seen):
            self._cancel_handler()

    def _on_read_stopped(self, event: events.StreamReadStopped) -> None:
        if self._handle.peer is HalfState.DONE:
            self._peer_done()
        if event.lost:
            error = ClosedError(f"the peer stopped reading stream {self.id}: {event.lost} bytes were not sent")
            error.unsent = event.lost
            self._fail_writes(error)
        elif not self._closing:
            self._stopped = ClosedError(f"the peer stopped reading stream {self.id}")

    def _on_ended(self, _: events.StreamEnded) -> None:
        self._connection.streams.discard(self)
        if self._write_error is None:
            self._write_error = ClosedError(f"stream {self.id} has ended")
        self._wake_writers()
        self._fail_pings(self._write_error)

    def _on_timed_out(self, _: events.StreamTimedOut) -> None:
        seconds = self._connection.settings.stream_ping_timeout
        self._set_exception(Timeout(f"stream {self.id} showed no sign of life", timeout=seconds))

    def _set_exception(self, error: MainstemError) -> None:
        super()._set_exception(error)
        self._fail_pings(error)

    def _fail_pings(self, error: MainstemError) -> None:
        if self._handle.pings is not None:
            self._connection.pings.fail(self._handle, error)


STREAM_HANDLERS: dict[type, Callable[[Any, Any], object]] = {
    events.DataReceived: Stream._on_data,
    events.StreamFinished: Stream._on_finished,
    events.StreamReadStopped: Stream._on_read_stopped,
    events.StreamDrained: wake_writers,
    events.StreamEnded: Stream._on_ended,
    events.StreamTimedOut: Stream._on_timed_out,
}


class Connection:
    """One end of a bymux connection. An ``async with`` block closes it at its end, or aborts it if the block raises."""

    def __init__(
        self,
        role: Role,
        settings: Settings | None = None,
        *,
        handler: Callable[[Stream], Awaitable[object]] | None = None,
        on_connection: Callable[[Connection], Awaitable[object]] | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._accepted: deque[Stream] = deque()
        self._protocol = protocol = BymuxProtocol(
            self,
            role,
            settings or Settings(),
            clock,
            make_stream=Stream,
            stream_handlers=STREAM_HANDLERS,
            serve_stream=None if handler is None else functools.partial(_serve, as_coroutine_function(handler)),
            on_connection=None if on_connection is None else as_coroutine_function(on_connection),
            accepted=self._accepted,
        )
        self._initial = [protocol.add_stream(state) for state in protocol.open_streams]  # until they are requested

    def __del__(self) -> None:
        protocol = getattr(self, "_protocol", None)
        if protocol is not None and protocol.is_open and protocol.call_soon(protocol.abort):
            warnings.warn(f"{self!r} was dropped without being closed", ResourceWarning, stacklevel=2, source=self)

    @property
    def closed(self) -> bool:
        """Whether the connection has ended, by either side."""
        return self._protocol.closed

    @property
    def error(self) -> MainstemError | None:
        """The error that ended the connection early; ``None`` while it is open, and after an orderly end or an end on this side."""
        return self._protocol.error

    @property
    def peer_address(self) -> Any:
        """The peer's address in the form that its socket uses: host and port for TCP; ``None`` if there is none."""
        return self._protocol.peer_address

    @property
    def peer_certificate(self) -> dict[str, Any] | None:
        """The peer's TLS certificate as :meth:`ssl.SSLSocket.getpeercert` returns it; ``None`` without TLS."""
        return self._protocol.peer_certificate

    @property
    def ssl_object(self) -> Any:
        """The TLS connection as an :class:`ssl.SSLObject`; ``None`` without TLS."""
        return self._protocol.ssl_object

    def __repr__(self) -> str:
        protocol = self._protocol
        state = f"{len(protocol.open_streams)} streams" if not protocol.over else f"closed: {protocol.failure}"
        return f"<bymux Connection to {protocol.peer_name}, {state}>"

    def stream(self, stream_id: int) -> Stream:
        """Return the active stream with an id, such as an initial stream."""
        return self._protocol.stream(stream_id)

    def open_stream(self, *, timeout: float | None = None) -> Opening[Stream]:
        """Create a stream; see :meth:`mainstem.bymux.Connection.open_stream`. Await the result, or use it with ``async with``."""
        return Opening(lambda: within(timeout, self._protocol.open_stream(), "open_stream"), "Connection.open_stream()")

    async def accept_stream(self, *, timeout: float | None = None) -> Stream | None:
        """Wait for the next stream that the peer creates, and return it. For connections without a handler."""
        return await within(timeout, self._protocol.accept_stream(), "accept_stream")

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
        self._protocol.allow_streams(count)

    async def ping(self, timeout: float | None = PING_TIMEOUT_S) -> float:
        """Measure the round trip to the peer, and return it in seconds.

        Args:
            timeout: Seconds to wait for the pong; ``None`` waits forever.

        Raises:
            Timeout: No pong arrived in time.
            MainstemError: The error that ended the connection.
        """
        return await self._protocol.pings.ping(None, timeout)

    def stats(self) -> EndpointStats:
        """Return the connection's current state and counters. Can be called from any thread.

        The counters are shared by all connections of a server.
        """
        protocol = self._protocol
        role = "client" if protocol.engine.role is Role.PROACTIVE else "server"
        return connection_stats(
            (protocol,), protocol.traffic, protocol=BymuxEngine.PROTOCOL, role=role, closed=protocol.over
        )

    async def wait_closed(self, timeout: float | None = None) -> None:
        """Wait until the connection has ended, by either side.

        Args:
            timeout: Seconds to wait; ``None`` waits forever.

        Raises:
            Timeout: The timeout passed; the connection stays open.
        """
        await within(timeout, self._protocol.wait_ended(), "wait for the end of the connection")

    async def close(self, timeout: float | None = None) -> None:
        """Stop creating streams, wait for the active ones, then end the connection. Can be called more than once.

        Args:
            timeout: Seconds to wait for the active streams; the remaining ones are aborted. By default, waits for ``close_timeout``
                from the settings (10), and beyond that as long as streams that were finished here make progress at the peer (at
                most ``stall_timeout`` without progress).

        Raises:
            ClosedError: Streams that were not closed had ``unsent`` bytes that were not sent.
        """
        await self._protocol.close(timeout)

    def abort(self) -> None:
        """End the connection and all its streams immediately, dropping unsent data."""
        self._protocol.abort()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        if kind is not None:
            self.abort()
        await self.close()


def protocol_of(connection: Connection) -> BymuxProtocol[Stream]:
    """Return what runs the engine of a connection."""
    return connection._protocol


async def _serve(handler: Callable[[Stream], Awaitable[object]], stream: Stream) -> None:
    """Run the handler of a stream. Raises the handler's error, unless it reports the end of the stream."""
    try:
        async with stream:
            await handler(stream)
        stream.stop_read()
    except Exception as error:
        if not reports_own_end(stream, error):
            raise
        logger.debug("stream %d of %s ended under its handler: %s", stream.id, stream._connection.peer_name, error)

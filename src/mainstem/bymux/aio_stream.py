"""bymux streams for asyncio."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

from mainstem._internal.tasks import within
from mainstem.bymux import events
from mainstem.bymux.state import HalfState
from mainstem.errors import Aborted, ClosedError, MainstemError, Timeout
from mainstem.mux.aio_stream import BaseStream

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from mainstem.bymux.aio import Connection
    from mainstem.bymux.engine import BymuxEngine
    from mainstem.bymux.runner import Runner
    from mainstem.bymux.stream import StreamState

PING_TIMEOUT_S = 10.0


class Stream(BaseStream):
    """One stream: the asyncio variant of :class:`mainstem.bymux.Stream`.

    Example:
        >>> async with connection.open_stream() as stream:
        ...     stream.write(b"tide")
        ...     print(await stream.read())
    """

    _connection: Runner
    _handle: StreamState
    _engine: BymuxEngine
    _closing = False  # this end writes nothing more
    _left = False  # nothing reads data that still arrives
    _stopped: ClosedError | None = None

    def __init__(self, runner: Runner, state: StreamState) -> None:
        super().__init__(runner, state)
        self._view = runner.connection  # the connection ends if nothing refers to it
        self._pings = PingWaiters(runner, state)

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
            MainstemError: The error that ended the connection.
        """
        return await self._pings.ping(timeout)

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

    def _feed_data(self, data: bytes) -> None:
        if self._left:
            self.stop_read()
            return
        self._buffer.append(data)
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

    def _served(self) -> None:
        """Let the peer create another stream in place of this one once this one has ended.

        Until then, a stream that has not been accepted, or whose handler is running, counts against ``peer_streams``.
        """
        self._engine.release(self._handle)
        self._connection.schedule_flush()

    def _on_timed_out(self, _: events.StreamTimedOut) -> None:
        seconds = self._connection.settings.stream_ping_timeout
        self._set_exception(Timeout(f"stream {self.id} showed no sign of life", timeout=seconds))

    def _set_exception(self, error: MainstemError) -> None:
        super()._set_exception(error)
        self._pings.fail(error)


STREAM_HANDLERS: dict[type, Callable[[Any, Any], object]] = {
    events.StreamFinished: Stream._on_finished,
    events.StreamReadStopped: Stream._on_read_stopped,
    events.StreamDrained: lambda stream, _: stream._wake_writers(),
    events.StreamEnded: Stream._on_ended,
    events.StreamTimedOut: Stream._on_timed_out,
}


class PingWaiters:
    """The tasks that wait for pongs on a stream, or on the connection (``stream=None``), in the order of their pings."""

    __slots__ = ("_runner", "_stream", "_waiters")

    def __init__(self, runner: Runner, stream: StreamState | None) -> None:
        self._runner = runner
        self._stream = stream
        self._waiters: deque[asyncio.Future[float | MainstemError]] = deque()

    async def ping(self, timeout: float | None) -> float:
        """Send a ping and wait for its pong; return the round trip in seconds."""
        self._runner.send_ping(self._stream)
        future: asyncio.Future[float | MainstemError] = asyncio.get_running_loop().create_future()
        self._waiters.append(future)
        result = await within(timeout, future, "ping")
        if isinstance(result, MainstemError):
            raise result
        return result

    def received(self, rtt_ns: int) -> None:
        """Complete the oldest ping. A negative round trip marks an unsolicited pong."""
        if rtt_ns >= 0 and self._waiters:
            future = self._waiters.popleft()
            if not future.done():
                future.set_result(rtt_ns / 1e9)

    def fail(self, error: MainstemError) -> None:
        waiters, self._waiters = self._waiters, deque()
        for future in waiters:
            if not future.done():
                future.set_result(error)

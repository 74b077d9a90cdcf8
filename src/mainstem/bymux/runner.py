"""Run a bymux connection in an event loop: its streams, its handlers, and its end.

Users see it as :class:`mainstem.bymux.aio.Connection`.
"""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from typing import TYPE_CHECKING

from mainstem._internal.clock import timeout_of
from mainstem._internal.tasks import as_coroutine_function, ends_connection_on_error
from mainstem.bymux import events
from mainstem.bymux.aio_stream import STREAM_HANDLERS, PingWaiters, Stream
from mainstem.bymux.engine import BymuxEngine
from mainstem.bymux.state import HalfState
from mainstem.errors import ClosedError, ConnectionLost, LocalProtocolError, MainstemError
from mainstem.mux.connection import BaseConnection, cancel_and_wait, logger, nobody, wait_for_tasks

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from mainstem._internal.clock import Clock
    from mainstem.bymux.aio import Connection
    from mainstem.bymux.settings import Settings
    from mainstem.bymux.state import Role
    from mainstem.bymux.stream import StreamState
    from mainstem.mux.transports import Transport


class Runner(BaseConnection):
    """The implementation of ``connection``, the object that users see."""

    engine: BymuxEngine
    settings: Settings
    _stream_handlers = STREAM_HANDLERS

    def __init__(
        self,
        connection: Connection,
        role: Role,
        settings: Settings,
        handler: Callable[[Stream], Awaitable[object]] | None,
        on_connection: Callable[[Connection], Awaitable[object]] | None,
        clock: Clock,
    ) -> None:
        # The reference is weak, to detect connections that the application drops without closing. A server sets ``view``.
        self._view = weakref.ref(connection)
        self.view: Connection | None = None
        super().__init__(BymuxEngine(role, settings, now_ns=clock.monotonic_ns()), settings, clock)
        self.engine.holds_streams = True
        self._handler = None if handler is None else as_coroutine_function(handler)
        self._on_connection = None if on_connection is None else as_coroutine_function(on_connection)
        self._accepts = True
        self._greeter: asyncio.Task[object] | None = None
        # The peer's streams that wait until ``on_connection`` has accepted the connection.
        self._is_accepted = on_connection is None
        self._unserved: list[Stream] = []
        # Tasks that wait to open or accept a stream; see `_wake`.
        self.openers = asyncio.Event()
        self.accepters = asyncio.Event()
        self.pings = PingWaiters(self, None)
        self.streams: weakref.WeakSet[Stream] = weakref.WeakSet()
        self._handlers = {
            events.DataReceived: self._on_data,
            events.StreamOpened: self._on_opened,
            events.PongReceived: self._on_pong,
            events.GlobalCreditReceived: lambda _: _wake(self.openers),
            events.CreationStopped: lambda _: _wake(self.openers),
            events.CreationClosed: lambda _: _wake(self.accepters),
            events.ConnectionFinished: lambda _: self._fail_soon(
                ClosedError("the connection has ended: both ends are done with it")
            ),
        }

    def break_silence(self) -> None:
        """Ping a peer that this end has sent nothing yet, so that a server that expects TLS can tell."""
        if self.is_open and not self.traffic.bytes_sent:
            with contextlib.suppress(LocalProtocolError):  # a connection without global packets may not begin with one
                self.engine.ping(now_ns=self._clock.monotonic_ns())
            self.flush()

    @property
    def connection(self) -> Connection:
        """The object that users see."""
        connection = self._view()
        assert connection is not None
        return connection

    @ends_connection_on_error
    def transport_ready(self, transport: Transport) -> None:
        super().transport_ready(transport)
        if self._on_connection is not None:
            self._greeter = self.spawn(self._greet(self._on_connection))

    async def _greet(self, on_connection: Callable[[Connection], Awaitable[object]]) -> None:
        try:
            await on_connection(self.connection)
        except BaseException as error:
            # Whatever the exception, a client that ``on_connection`` did not accept must not be served.
            is_own = error is self.failure or any(stream._is_own(error) for stream in self.streams)
            if isinstance(error, MainstemError):
                self.end(error)
            elif is_own:
                self.end(ConnectionLost(f"{self.peer_name} ended a stream early: {error}"))
            else:
                self.end(MainstemError(f"on_connection failed: {error!r}"))
            if not is_own:
                raise
        else:
            self._accept()

    def _accept(self) -> None:
        """Serve the streams that waited for ``on_connection``, and later ones as they come."""
        self._is_accepted = True
        waiting, self._unserved = self._unserved, []
        for stream in waiting:
            self._serve(stream)

    def _refuse_unserved(self) -> None:
        """Abort the streams that wait for ``on_connection``, because the connection is closed from this side."""
        waiting, self._unserved = self._unserved, []
        for stream in waiting:
            stream.abort()

    # ---- streams

    def stream(self, stream_id: int) -> Stream:
        stream = self.engine.streams.get(stream_id)
        if stream is None:
            raise LocalProtocolError(f"stream {stream_id} is not active", rule="inactive-stream")
        owner: Stream | None = stream.owner()
        if owner is None:
            raise LocalProtocolError(f"stream {stream_id} was dropped here", rule="inactive-stream")
        return owner

    def add_stream(self, state: StreamState) -> Stream:
        """Make the object that users see for a stream. The caller must keep it: an unreferenced stream is aborted."""
        stream = Stream(self, state)
        self.streams.add(stream)
        return stream

    def stream_dropped(self, handle: StreamState) -> None:
        if self.failure is None and not handle.ended:
            self._refuse_data(handle)
            if not handle.local & HalfState.CLOSED and not handle.close_wanted:
                self.engine.close(handle, discard=True)
            self.schedule_flush()

    def _refuse_data(self, state: StreamState) -> None:
        """Drop received data and data that still arrives, and ask the peer to stop."""
        self.engine.discard(state)
        if not state.local & HalfState.STOPPED:
            self.engine.stop_read(state)
            self.schedule_flush()

    async def open_stream(self) -> Stream:
        while self.failure is not None or not self.engine.can_open:
            self._check_open()
            if self.engine.local & HalfState.CLOSED:
                raise ClosedError(f"{self.engine.peer_name} allows no new streams any more")
            await self.openers.wait()
        stream = self.add_stream(self.engine.open_stream(now_ns=self._clock.monotonic_ns()))
        self.traffic.streams_opened += 1
        self.schedule_flush()
        return stream

    async def accept_stream(self) -> Stream | None:
        accepted = self.connection._accepted
        while not accepted:
            if self.error is not None:
                raise self.error.with_traceback(None)
            if self.over or self.engine.peer & HalfState.CLOSED:
                return None
            await self.accepters.wait()
        stream = accepted.popleft()
        stream._served()
        return stream

    def unaccept_stream(self, stream: Stream) -> None:
        """Put back an accepted stream, so that it is the next one to be accepted."""
        self.connection._accepted.appendleft(stream)
        _wake(self.accepters)

    def send_ping(self, stream: StreamState | None) -> None:
        self._check_open()
        self.engine.ping(stream, now_ns=self._clock.monotonic_ns())
        self.schedule_flush()

    def allow_streams(self, count: int) -> None:
        self._check_open()
        self.engine.allow_streams(count)
        self._accept()
        self.schedule_flush()

    def _check_open(self) -> None:
        if self.failure is not None:
            raise self.failure.with_traceback(None)

    @property
    def open_streams(self) -> list[StreamState]:
        return list(self.engine.streams.values())

    # ---- the end

    def finish(self) -> None:
        """Stop the creation of streams by both ends."""
        if self.failure is None:
            self.engine.finish()
            self.dispatch()
            _wake(self.openers)
            self.schedule_flush()

    async def close(self, timeout: float | None) -> None:
        unsent = 0
        if self.failure is None:
            self._refuse_unserved()
            self.finish()
            await self._wait_streams_ended(timeout)
            if self.failure is None:
                active = self.open_streams
                unsent = sum(stream.queued for stream in active)
                logger.warning("the connection to %s was closed with %d streams active", self.peer_name, len(active))
            self.end(abort=True)
        await self.wait_ended()
        await cancel_and_wait(self.tasks, self.settings.close_timeout if timeout is None else timeout)
        if unsent:
            error = ClosedError(f"the connection was closed here; {unsent} bytes of its streams were not sent")
            error.unsent = unsent
            raise error

    async def _wait_streams_ended(self, timeout: float | None) -> None:
        """Wait for the orderly end of the connection, at most as long as documented for :meth:`close`."""
        if await self._ends_within(self.settings.close_timeout if timeout is None else timeout) or timeout is not None:
            return
        progress, since = self._progress(), self.loop.time()
        # A peer that has paused may not have read yet the data of streams that were closed here.
        while any(stream.local & HalfState.CLOSED for stream in self.open_streams):
            if await self._ends_within(self.settings.close_timeout) or self.loop.time() - since >= self.stall_timeout:
                return
            if self._progress() != progress:
                progress, since = self._progress(), self.loop.time()

    async def _ends_within(self, timeout: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_of(timeout)):
                await self.wait_ended()
        return self.over

    def _progress(self) -> tuple[int, int]:
        streams = self.open_streams
        return len(streams), sum(stream.sent for stream in streams)

    async def shutdown(self, deadline: float) -> None:
        self._accepts = False
        self._refuse_unserved()
        self.finish()
        if await wait_for_tasks(self.tasks, deadline - self.loop.time()):
            for state in self.open_streams:
                if self.over:
                    break
                stream = state.owner() or Stream(self, state)
                with contextlib.suppress(MainstemError):
                    await stream.flush(timeout=max(0.0, min(deadline - self.loop.time(), self.settings.close_timeout)))
        else:
            for stream in list(self.streams):
                stream.abort()
            await cancel_and_wait(self.tasks, self.settings.close_timeout)
        self.end(ClosedError("the server was shut down"))
        await self.wait_ended()

    # ---- events

    def _on_opened(self, event: events.StreamOpened) -> None:
        self.traffic.streams_opened += 1
        connection = self._view()
        if not self._accepts or connection is None:
            event.stream.owner = nobody
            self.stream_dropped(event.stream)
            return
        stream = self.add_stream(event.stream)
        if self._handler is None:
            connection._accepted.append(stream)
            _wake(self.accepters)
        elif self._is_accepted:
            self._serve(stream)
        else:
            self._unserved.append(stream)

    def _serve(self, stream: Stream) -> None:
        """Run the handler of a stream."""
        assert self._handler is not None
        task = self.spawn(self._handle(stream, self._handler))
        task.add_done_callback(lambda _: stream._served())
        stream._task = task

    async def _handle(self, stream: Stream, handler: Callable[[Stream], Awaitable[object]]) -> None:
        try:
            async with stream:
                await handler(stream)
            stream.stop_read()
        except Exception as error:
            if not stream._is_own(error):
                raise
            logger.debug("stream %d of %s ended under its handler: %s", stream.id, self.peer_name, error)

    def _on_data(self, event: events.DataReceived) -> None:
        if (stream := event.stream.owner()) is not None:
            stream._feed_data(event.data)
        else:  # the stream was closed and then dropped
            self._refuse_data(event.stream)

    def _on_pong(self, event: events.PongReceived) -> None:
        if event.stream is None:
            self.pings.received(event.rtt_ns)
        elif (stream := event.stream.owner()) is not None:
            stream._pings.received(event.rtt_ns)

    def _on_over(self, error: MainstemError) -> None:
        self.engine.fail(error)
        for stream in list(self.streams):
            stream._set_exception(error)
        self.streams.clear()
        self._unserved.clear()
        self.pings.fail(error)
        if self._greeter is not None and self._greeter is not asyncio.current_task(self.loop):
            self._greeter.cancel()
        _wake(self.openers)
        _wake(self.accepters)


def _wake(waiting: asyncio.Event) -> None:
    """Wake the tasks that wait now, in order of arrival."""
    waiting.set()
    waiting.clear()

"""The protocol object of a bymux connection: its streams, their handlers, and its end.

It knows neither class that users see (:mod:`mainstem.bymux.aio_connection`), and is told how to make, feed and serve a stream.
"""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from mainstem._internal.clock import timeout_of
from mainstem._internal.tasks import ends_connection_on_error
from mainstem.bymux import events
from mainstem.bymux.engine import BymuxEngine
from mainstem.bymux.pings import PingWaiters
from mainstem.bymux.state import HalfState
from mainstem.errors import ClosedError, ConnectionLost, LocalProtocolError, MainstemError
from mainstem.mux.aio_stream import BaseStream, fail_stream, handle_of, reports_own_end, set_handler
from mainstem.mux.protocol import BaseProtocol, cancel_and_wait, logger, nobody, wait_for_tasks

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Awaitable, Callable, Coroutine, Mapping

    from mainstem._internal.clock import Clock
    from mainstem.bymux.settings import Settings
    from mainstem.bymux.state import Role
    from mainstem.bymux.stream import StreamState
    from mainstem.mux.transports import Transport

S = TypeVar("S", bound=BaseStream)


class BymuxProtocol(BaseProtocol, Generic[S]):
    """Runs the engine of ``connection``, the object that users see.

    ``make_stream`` makes the object that users see for a stream, ``stream_handlers`` feed it with events, and ``serve_stream`` runs
    its handler. Without a handler, the peer's streams wait in ``accepted``, which the connection must keep.
    """

    engine: BymuxEngine
    settings: Settings

    def __init__(
        self,
        connection: Any,
        role: Role,
        settings: Settings,
        clock: Clock,
        *,
        make_stream: Callable[[BymuxProtocol[S], StreamState], S],
        stream_handlers: Mapping[type, Callable[[Any, Any], object]],
        serve_stream: Callable[[S], Coroutine[Any, Any, None]] | None,
        on_connection: Callable[[Any], Awaitable[object]] | None,
        accepted: deque[S],
    ) -> None:
        # The references are weak, to detect connections that the application drops without closing. A server sets ``view``.
        self._view = weakref.ref(connection)
        self._accepted = weakref.ref(accepted)
        self.view: Any = None
        super().__init__(BymuxEngine(role, settings, now_ns=clock.monotonic_ns()), settings, clock)
        self.engine.holds_streams = True
        self._make_stream = make_stream
        self._serve_stream = serve_stream
        self._on_connection = on_connection
        self._accepts = True
        self._greeter: asyncio.Task[object] | None = None
        # The peer's streams that wait until ``on_connection`` has accepted the connection.
        self._is_accepted = on_connection is None
        self._unserved: list[S] = []
        # Tasks that wait to open or accept a stream; see `_wake`.
        self.openers = asyncio.Event()
        self.accepters = asyncio.Event()
        self.pings = PingWaiters(self._send_ping)
        self.streams: weakref.WeakSet[S] = weakref.WeakSet()
        self._stream_handlers = stream_handlers
        self._handlers = {
            events.DataReceived: self._on_data,
            events.StreamOpened: self._on_opened,
            events.PongReceived: lambda event: self.pings.received(event.stream, event.rtt_ns),
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
    def connection(self) -> Any:
        """The object that users see."""
        connection = self._view()
        assert connection is not None
        return connection

    @ends_connection_on_error
    def transport_ready(self, transport: Transport) -> None:
        super().transport_ready(transport)
        if self._on_connection is not None:
            self._greeter = self.spawn(self._greet(self._on_connection))

    async def _greet(self, on_connection: Callable[[Any], Awaitable[object]]) -> None:
        try:
            await on_connection(self.connection)
        except BaseException as error:
            # Whatever the exception, a client that ``on_connection`` did not accept must not be served.
            is_own = error is self.failure or any(reports_own_end(stream, error) for stream in self.streams)
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

    def stream(self, stream_id: int) -> S:
        """Return the active stream with an id."""
        stream = self.engine.streams.get(stream_id)
        if stream is None:
            raise LocalProtocolError(f"stream {stream_id} is not active", rule="inactive-stream")
        owner: S | None = stream.owner()
        if owner is None:
            raise LocalProtocolError(f"stream {stream_id} was dropped here", rule="inactive-stream")
        return owner

    def add_stream(self, state: StreamState) -> S:
        """Make the object that users see for a stream. The caller must keep it: an unreferenced stream is aborted."""
        stream = self._make_stream(self, state)
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

    async def open_stream(self) -> S:
        """Create a stream, once the peer's credit allows it."""
        while self.failure is not None or not self.engine.can_open:
            self._check_open()
            if self.engine.local & HalfState.CLOSED:
                raise ClosedError(f"{self.engine.peer_name} allows no new streams any more")
            await self.openers.wait()
        stream = self.add_stream(self.engine.open_stream(now_ns=self._clock.monotonic_ns()))
        self.traffic.streams_opened += 1
        self.schedule_flush()
        return stream

    async def accept_stream(self) -> S | None:
        """Wait for a stream that the peer creates; return ``None`` once there will be no more."""
        accepted = self._accepted()
        assert accepted is not None
        while not accepted:
            if self.error is not None:
                raise self.error.with_traceback(None)
            if self.over or self.engine.peer & HalfState.CLOSED:
                return None
            await self.accepters.wait()
        stream = accepted.popleft()
        self._release(handle_of(stream))
        return stream

    def unaccept_stream(self, stream: S) -> None:
        """Put back an accepted stream, so that it is the next one to be accepted."""
        if (accepted := self._accepted()) is not None:
            accepted.appendleft(stream)
            _wake(self.accepters)

    def _release(self, state: StreamState) -> None:
        """Let the peer create another stream in place of this one once this one has ended.

        Until then, a stream that has not been accepted, or whose handler is running, counts against ``peer_streams``.
        """
        self.engine.release(state)
        self.schedule_flush()

    def _send_ping(self, stream: StreamState | None) -> None:
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
                stream = state.owner() or self._make_stream(self, state)
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
        accepted = self._accepted()
        if not self._accepts or accepted is None:
            event.stream.owner = nobody
            self.stream_dropped(event.stream)
            return
        stream = self.add_stream(event.stream)
        if self._serve_stream is None:
            accepted.append(stream)
            _wake(self.accepters)
        elif self._is_accepted:
            self._serve(stream)
        else:
            self._unserved.append(stream)

    def _serve(self, stream: S) -> None:
        """Run the handler of a stream."""
        assert self._serve_stream is not None
        task = self.spawn(self._serve_stream(stream))
        task.add_done_callback(lambda _: self._release(handle_of(stream)))
        set_handler(stream, task)

    def _on_data(self, event: events.DataReceived) -> None:
        if (stream := event.stream.owner()) is not None:
            self._stream_handlers[events.DataReceived](stream, event)
        else:  # the stream was closed and then dropped
            self._refuse_data(event.stream)

    def _on_over(self, error: MainstemError) -> None:
        self.engine.fail(error)
        for stream in list(self.streams):
            fail_stream(stream, error)
        self.streams.clear()
        self._unserved.clear()
        self.pings.fail(None, error)
        if self._greeter is not None and self._greeter is not asyncio.current_task(self.loop):
            self._greeter.cancel()
        _wake(self.openers)
        _wake(self.accepters)


def _wake(waiting: asyncio.Event) -> None:
    """Wake the tasks that wait now, in order of arrival."""
    waiting.set()
    waiting.clear()

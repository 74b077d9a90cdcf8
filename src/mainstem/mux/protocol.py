"""The protocol object of a connection, in asyncio's sense: it runs an engine, which does no I/O, over a transport.

These call a :class:`BaseProtocol`, all in the thread of one event loop:

* the transport (:mod:`mainstem.mux.transports`), through ``transport_ready``, ``data_received``, ``writing_resumed`` and
  ``transport_lost``;
* its streams, through ``schedule_flush``, ``flush`` and ``dispatch``;
* the event loop, for the timer and for a scheduled flush.

So there are no locks. Time comes from the ``Clock`` passed to the constructor. The event loop's timers only determine when the
clock is read again.

Every step has three parts: a call to the engine, then ``dispatch`` (passes each event to its method in ``_handlers``, or to the
stream's in ``_stream_handlers``), then ``flush`` (passes its bytes to the transport). Event handlers are plain functions that
never wait, and a task that one wakes runs only after the step is complete.

How bytes are sent. A write puts bytes into the engine's queue and schedules one flush for the end of the loop's turn, so that all
writes of a turn are sent together. A flush takes batches of 64 KiB from the engine while the transport is not paused. A pong or
another stream's packet can overtake bytes still in the engine, but not bytes that the transport has. After eight batches, other
tasks get a turn.

A lone write is flushed immediately, which saves a turn of the loop. This is typical of peers that have one request or response in
flight. The first write after a burst of the peer's bytes, or after a stream was flushed, is expected to be alone
(``sends_at_once``) if the previous such write was. So if an application writes a message in two parts, or many messages, its
writes are gathered from the second time on.

Tasks. ``spawn`` starts the handlers of streams and of the connection, and the connection owns them. A handler is cancelled when
its stream breaks (:meth:`BaseStream._set_exception`), as every remaining stream does when the connection ends. A handler whose
stream ended gracefully can run to completion. ``cancel_tasks`` (used to close a connection or server) cancels those too.

How a connection ends. ``_fail`` runs once, whatever the cause (a lost transport, a protocol error, a timeout, ``end`` on this
side). It records ``failure``, sends pending data (such as an Error or Shutdown message), ends every stream through ``_on_over``,
and closes the transport, which has ``LINGER_S`` seconds to send its queue. ``_finish`` runs once the transport is gone and
completes ``wait_ended``. Handlers that clean up can keep running, and ``on_done`` functions are called after the last of them.
After ``_fail``, no event is dispatched and no byte is taken from the engine. An unexpected exception in a callback is logged and
ends the connection (``ends_connection_on_error``).

Invariants: ``failure`` is ``None`` exactly while ``over`` is false; ``_fail`` precedes ``_finish``; a timer is pending only while
the connection has not ended; ``flush_scheduled`` is true exactly while a flush is queued in the loop.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar

from mainstem._internal.clock import SYSTEM_CLOCK
from mainstem._internal.endpoint_stats import EndpointCounters, EndpointStats, add_counters, counters
from mainstem._internal.tasks import HANDLER_TASK, ends_connection_on_error, start_task
from mainstem.errors import ClosedError, ConnectionLost, MainstemError, RemoteProtocolError
from mainstem.mux.tls import NO_TLS_HERE, describe

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping

    from mainstem._internal.clock import Clock
    from mainstem.mux.engine import BaseEngine
    from mainstem.mux.settings import ConnectionSettings
    from mainstem.mux.transports import Transport

logger = logging.getLogger("mainstem.mux")

# Number of bytes taken from the engine at a time. Data that becomes urgent meanwhile is sent before the next batch.
FLUSH_BATCH = 64 * 1024
# Number of batches written to a transport before other tasks get a turn.
FLUSH_BATCHES = 8
# Seconds to wait for a peer to read the last bytes before the transport is aborted.
LINGER_S = 2.0


class BaseProtocol:
    """Base class of what runs one end of a connection.

    A subclass fills ``_handlers`` and ``_stream_handlers``, and implements ``_on_over``.
    """

    engine: BaseEngine[Any]
    # How to get the engine's handle for a stream from an event.
    _handle_of: ClassVar[attrgetter[Any]] = attrgetter("stream")

    def __init__(self, engine: BaseEngine[Any], settings: ConnectionSettings, clock: Clock = SYSTEM_CLOCK) -> None:
        self.loop = asyncio.get_running_loop()
        self._pid = os.getpid()
        self._clock = clock
        self.engine = engine
        self.settings = settings
        # What to call with the event, by event class; and with the stream and the event, if the application still has the stream.
        self._handlers: dict[type, Callable[[Any], object]] = {}
        self._stream_handlers: Mapping[type, Callable[[Any, Any], object]] = {}
        self.transport: Transport | None = None
        self.peer_address: Any = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due_ns = 0
        self._linger: asyncio.TimerHandle | None = None
        self._ended: asyncio.Future[None] = self.loop.create_future()
        self._done: asyncio.Future[None] = self.loop.create_future()
        self.tasks: set[asyncio.Task[Any]] = set()
        self.traffic = EndpointCounters()
        self.flush_scheduled = False
        # Whether the next write is sent immediately; the number of writes since the peer's last bytes or the last flush of a
        # stream; and whether there was only one write in the period before.
        self.sends_at_once = True
        self.writes = 0
        self.is_alone = True
        self._started_handler = False
        self.over = False
        self.failure: MainstemError | None = None

    @property
    def peer_certificate(self) -> dict[str, Any] | None:
        return None if self.transport is None else self.transport.get_extra_info("peercert")

    @property
    def closed(self) -> bool:
        return self.over

    @property
    def is_open(self) -> bool:
        return self.transport is not None and not self.over

    @property
    def error(self) -> MainstemError | None:
        """The error that ended the connection early; ``None`` while it is open, and after an orderly end or an end on this side."""
        return None if isinstance(self.failure, ClosedError) else self.failure

    @property
    def ssl_object(self) -> Any:
        return None if self.transport is None else self.transport.get_extra_info("ssl_object")

    @property
    def stall_timeout(self) -> float:
        """Seconds without progress after which a stream that is being closed is given up; ``inf`` means no limit."""
        return self.settings.stall_timeout or math.inf

    @property
    def peer_name(self) -> str:
        """The peer's name in error texts and logs: host and port, or the path of a Unix socket."""
        return self.engine.peer_name

    # ---- called by the transport

    @ends_connection_on_error
    def transport_ready(self, transport: Transport) -> None:
        self.transport = transport
        self.peer_address = transport.get_extra_info("peername")
        self.engine.peer_name = transport.peer
        self.traffic.connections_opened += 1
        self.flush()

    def data_received(self, data: memoryview) -> None:
        if self.over:
            return
        engine = self.engine
        try:
            self.traffic.bytes_received += len(data)
            if self.writes:
                self.is_alone = self.writes == 1
                self.writes = 0
            self.sends_at_once = self.is_alone
            try:
                engine.receive_data(data, self._clock.monotonic_ns())
            except MainstemError as error:
                self.dispatch()
                self._fail(error)
                return
            if engine.events:
                self.dispatch()
            if engine.wants_to_send or engine.timeout_moved:
                self.flush()
            if self._started_handler:  # handlers take their first step in the next turn of the loop
                self._started_handler = False
                self.schedule_flush()
        except Exception as error:  # like `ends_connection_on_error`, but without an extra call for each burst of bytes
            self._fail_internally(error)

    @ends_connection_on_error
    def writing_resumed(self) -> None:
        self.flush()

    @ends_connection_on_error
    def transport_lost(self, error: Exception | None) -> None:
        if self.over:
            self._finish()
            return
        cause: MainstemError
        if error is None:
            try:
                self.engine.receive_eof(self._clock.monotonic_ns())
                self.dispatch()
                cause = self.engine.failure or ConnectionLost(f"{self.engine.peer_name} ended the connection")
            except MainstemError as violation:
                cause = ConnectionLost(f"{self.engine.peer_name} ended the connection inside a message")
                cause.__cause__ = violation
        else:
            cause = ConnectionLost(f"the connection to {self.engine.peer_name} broke: {describe(error)}")
            cause.__cause__ = error
        try:
            self._fail(cause)
        finally:
            self._finish()

    # ---- called by streams

    def schedule_flush(self) -> None:
        """Schedule a flush for the end of this turn of the event loop, so that everything queued in the turn is sent together."""
        if not self.flush_scheduled:
            self.flush_scheduled = True
            self.loop.call_soon(self._on_turn)

    def send_soon(self) -> None:
        """Flush data that was just queued: immediately if it is alone, else at the end of this turn of the event loop."""
        self.writes += 1
        if self.sends_at_once:
            self.sends_at_once = False
            self.flush()
        elif not self.flush_scheduled:
            self.schedule_flush()

    def flush(self) -> None:
        """Write as much to the transport as it accepts now."""
        transport = self.transport
        if transport is None or self.over:
            return
        engine = self.engine
        batches = 0
        while not transport.paused and (segments := engine.segments_to_send(FLUSH_BATCH)):
            size = sum(map(len, segments))
            self.traffic.bytes_sent += size
            transport.write(segments)
            if size < FLUSH_BATCH:
                break
            batches += 1
            if batches == FLUSH_BATCHES:
                self.schedule_flush()
                break
        if engine.events:
            self.dispatch()
        if engine.timeout_moved:
            self._set_timer()

    def dispatch(self) -> None:
        events = self.engine.events
        handlers = self._handlers
        while events:
            event = events.popleft()
            kind = type(event)
            if (handler := handlers.get(kind)) is not None:
                handler(event)
            elif (of_stream := self._stream_handlers.get(kind)) is not None:
                stream = self._handle_of(event).owner()
                if stream is not None:
                    of_stream(stream, event)

    def call_soon(self, call: Callable[..., object], *arguments: Any) -> bool:
        """Schedule a function in the event loop, from any thread; return False if the loop is closed or the parent's."""
        if self._pid != os.getpid():
            return False
        try:
            self.loop.call_soon_threadsafe(call, *arguments)
        except RuntimeError:
            return False
        return True

    def stream_dropped(self, handle: Any) -> None:
        """Abort a stream that the application dropped without closing it."""
        raise NotImplementedError

    # ---- statistics

    def count_into(self, traffic: EndpointCounters) -> None:
        """Count into ``traffic``, the counters of the owning endpoint, from now on, and add everything counted so far to it."""
        add_counters(traffic, self.traffic)
        self.traffic = traffic

    @property
    def open_streams(self) -> Iterable[Any]:
        """A copy of the collection of streams or sessions that are open."""
        raise NotImplementedError

    # ---- lifecycle

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Start a task that the connection owns. If it raises an exception, the exception is logged."""
        task = start_task(work, self.loop)
        self.tasks.add(task)
        task.add_done_callback(self._task_done)
        return task

    def end(self, error: MainstemError | None = None, *, abort: bool = False) -> None:
        """End the connection from this side. Its streams raise ``error``; ``abort`` drops unsent data."""
        self._fail(error or ClosedError("the connection was closed here"), abort=abort)

    def abort(self) -> None:
        """End the connection from this side immediately, dropping unsent data, also if its transport is closing already."""
        self.end(abort=True)
        # TLS waits for the peer's close_notify, which may never come.
        if self.transport is not None and not self._ended.done():
            self.transport.abort()

    async def shutdown(self, deadline: float) -> None:
        """Let the handlers finish until ``deadline`` (in loop time), then end the connection."""
        raise NotImplementedError

    async def wait_ended(self) -> None:
        await asyncio.shield(self._ended)

    def on_ended(self, call: Callable[[], object]) -> None:
        """Register a function to call when the transport ends."""
        self._ended.add_done_callback(lambda _: call())

    def on_done(self, call: Callable[[], object]) -> None:
        """Register a function to call when the transport and the last task have ended."""
        self._done.add_done_callback(lambda _: call())

    # ---- internals

    def _check_done(self) -> None:
        if self._ended.done() and not self.tasks and not self._done.done():
            self._done.set_result(None)

    def _task_done(self, task: asyncio.Task[Any]) -> None:
        self.tasks.discard(task)
        self._check_done()
        error: BaseException | None
        if not task.cancelled():
            error = task.exception()
        elif task.cancelling():
            error = None
        else:  # nobody cancelled the handler: it awaited something that was cancelled, and let the exception through
            error = asyncio.CancelledError("the handler awaited something that was cancelled")
        if error is not None:
            self.traffic.handlers_failed += 1
            logger.error("a handler for %s failed", self.peer_name, exc_info=error)

    def _on_turn(self) -> None:
        # Reset only here, so that a caller that flushes after each message does not fill the loop with empty calls.
        self.flush_scheduled = False
        try:
            if not self.over and (self.engine.wants_to_send or self.engine.timeout_moved):
                self.flush()
        except Exception as error:  # as in `data_received`
            self._fail_internally(error)

    def _set_timer(self) -> None:
        self.engine.timeout_moved = False
        due_ns = self.engine.next_timeout_ns()
        if due_ns is None:
            return
        if self._timer is not None:
            if self._timer_due_ns <= due_ns:
                return  # it fires early and is then set again
            self._timer.cancel()
        self._timer_due_ns = due_ns
        delay = max(0, due_ns - self._clock.monotonic_ns()) / 1e9
        self._timer = self.loop.call_later(delay, self._on_timer)

    @ends_connection_on_error
    def _on_timer(self) -> None:
        self._timer = None
        if self.over:
            return
        try:
            self.engine.handle_timeout(self._clock.monotonic_ns())
        except MainstemError as error:
            self.dispatch()
            self._fail(error)
            return
        self.engine.timeout_moved = True  # set the timer again, whatever is due next
        self.dispatch()
        self.flush()

    def _fail_soon(self, error: MainstemError) -> None:
        """End the connection once the last bytes of this turn have been sent."""
        self.loop.call_soon(self._fail_now, error)

    @ends_connection_on_error
    def _fail_now(self, error: MainstemError) -> None:
        self._fail(error)

    def _fail_internally(self, error: Exception) -> None:
        """End the connection because of an exception that is not a protocol error but a bug on this side."""
        peer = self.engine.peer_name
        logger.error("the connection to %s is ended: a callback failed", peer, exc_info=error)
        failure = ConnectionLost(f"the connection to {peer} failed on this side: {type(error).__name__}: {error}")
        failure.__cause__ = error
        self._fail(failure, abort=True)

    def _fail(self, error: MainstemError, *, abort: bool = False) -> None:
        if self.over:
            return
        assert self.failure is None
        transport = self.transport
        if isinstance(error, RemoteProtocolError | ConnectionLost) and transport is not None:
            hint = transport.get_extra_info("tls_hint")
            if hint:
                if not transport.paused and isinstance(error, RemoteProtocolError):
                    transport.write([NO_TLS_HERE])
                error = RemoteProtocolError(f"{self.peer_name} {hint}", rule="tls", peer=self.peer_name)
        self.failure = error
        if transport is not None and not abort:
            # Send an Error or Shutdown message, or pending responses.
            while not transport.paused and (segments := self.engine.segments_to_send(FLUSH_BATCH)):
                self.traffic.bytes_sent += sum(map(len, segments))
                transport.write(segments)
            # A paused transport takes the packets about the end, without data: the peer must not see a lost connection instead.
            if segments := self.engine.segments_to_send(0):
                self.traffic.bytes_sent += sum(map(len, segments))
                transport.write(segments)
        if transport is not None:
            self.traffic.connection_ended(error)
        self.over = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        try:
            self._on_over(error)
        finally:
            self._end_transport(transport, abort=abort)

    def _end_transport(self, transport: Transport | None, *, abort: bool) -> None:
        if transport is None:
            self._finish()
        elif abort:
            transport.abort()
        else:
            self._linger = self.loop.call_later(LINGER_S, transport.abort)
            transport.close()

    def _on_over(self, error: MainstemError) -> None:
        """End every stream with ``error``."""
        raise NotImplementedError

    def _finish(self) -> None:
        assert self.over
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None
        if not self._ended.done():
            self._ended.set_result(None)
        self._check_done()


def nobody() -> None:
    """Stand in for the owner of a stream that the application never saw."""


def connection_stats(
    connections: Iterable[BaseProtocol], traffic: EndpointCounters, *, protocol: str, role: str, closed: bool
) -> EndpointStats:
    """Return the statistics of an endpoint with these connections."""
    connections = [connection for connection in connections if not connection.over]
    streams = [stream for connection in connections for stream in connection.open_streams]
    return EndpointStats(
        protocol=protocol,
        role=role,
        closed=closed,
        connections=len(connections),
        streams=len(streams),
        unsent_bytes=sum(stream.queue.size for stream in streams),
        unread_bytes=sum(stream.unconsumed for stream in streams),
        **counters(traffic),
    )


async def wait_for_tasks(tasks: set[asyncio.Task[Any]], timeout: float) -> bool:
    """Wait at most ``timeout`` seconds for tasks, except the caller's own; return whether all have ended."""
    tasks = tasks - {asyncio.current_task(), HANDLER_TASK.get()}
    if not tasks:
        return True
    _, pending = await asyncio.wait(tasks, timeout=None if timeout == math.inf else max(0.0, timeout))
    return not pending


def cancel_tasks(tasks: set[asyncio.Task[Any]]) -> None:
    """Cancel tasks, except the caller's own.

    A task that is already being cancelled is not cancelled again, because that would interrupt its cleanup.
    """
    for task in tasks - {asyncio.current_task(), HANDLER_TASK.get()}:
        if not task.cancelling():
            task.cancel()


async def cancel_and_wait(tasks: set[asyncio.Task[Any]], timeout: float) -> None:
    """Cancel tasks, except the caller's own, and wait at most ``timeout`` seconds for them to end."""
    cancel_tasks(tasks)
    if not await wait_for_tasks(tasks, timeout):
        logger.warning("%d handlers did not end within %g s after they were cancelled", len(tasks), timeout)

"""Drives a sans-IO connection over a carrier: bytes in, events to a face, bytes out, timers. One event loop, no locks."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Protocol

from mainstem.clock import SYSTEM_CLOCK
from mainstem.errors import ClosedError, ConnectionLost, MainstemError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from mainstem.mux.transports import Carrier

logger = logging.getLogger("mainstem.mux")

# Bytes asked of a connection at a time; whatever becomes urgent meanwhile goes before the next batch.
FLUSH_BATCH = 64 * 1024
# Batches handed to a carrier before other tasks get a turn.
FLUSH_BATCHES = 8
# How long the last bytes may take to leave for a peer that does not read them; then the carrier ends without them.
LINGER_S = 2.0

_now_ns = SYSTEM_CLOCK.monotonic_ns


class SansIo(Protocol):
    """The verbs of a protocol without input and output."""

    peer_name: str
    failure: MainstemError | None

    def receive_data(self, data: memoryview, now_ns: int) -> None: ...
    def receive_eof(self, now_ns: int) -> None: ...
    def next_event(self) -> Any: ...
    @property
    def wants_to_send(self) -> bool: ...
    def segments_to_send(self, limit: int) -> list[bytes | memoryview]: ...
    def next_timeout_ns(self) -> int | None: ...
    def handle_timeout(self, now_ns: int) -> None: ...


class Engine:
    """The base of a connection's asyncio face.

    A subclass fills ``_handlers`` (event class to method) and says what happens when the connection is over.
    """

    def __init__(self, connection: SansIo) -> None:
        self._loop = asyncio.get_running_loop()
        self._sans_io = connection
        self._handlers: dict[type, Callable[[Any], None]] = {}
        self._carrier: Carrier | None = None
        self._flush_scheduled = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due_ns = 0
        self._linger: asyncio.TimerHandle | None = None
        self._over = False
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._tasks: set[asyncio.Task[Any]] = set()
        self.failure: MainstemError | None = None

    # ---- the carrier's side

    def carrier_ready(self, carrier: Carrier) -> None:
        """The carrier is connected: what is due goes out."""
        self._carrier = carrier
        self._sans_io.peer_name = carrier.peer
        self._flush()

    def carrier_received(self, data: memoryview) -> None:
        """Bytes came in."""
        if not self._over:
            self._advance(self._sans_io.receive_data, data, _now_ns())

    def carrier_resumed(self) -> None:
        """The carrier has room again."""
        self._flush()

    def carrier_lost(self, error: Exception | None) -> None:
        """The carrier ended."""
        if self._over:
            self._finish()
            return
        cause: MainstemError
        if error is None:
            try:
                self._sans_io.receive_eof(_now_ns())
                self._dispatch()
                cause = ConnectionLost(f"{self._sans_io.peer_name} ended the connection")
            except MainstemError as found:
                cause = found
        else:
            cause = ConnectionLost(f"the connection to {self._sans_io.peer_name} broke: {error}")
            cause.__cause__ = error
        self._fail(cause)
        self._finish()

    # ---- the face's side

    def schedule_flush(self) -> None:
        """Lets what was queued leave in this turn of the event loop, together with what else is queued in it."""
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self._loop.call_soon(self._on_turn)

    def flush(self) -> None:
        """Hands the carrier what it takes now."""
        self._flush()

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """A task that ends with the connection."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_done)
        return task

    def end(self, error: MainstemError | None = None, *, abort: bool = False) -> None:
        """Ends the connection from this side."""
        self._fail(error or ClosedError("the connection was closed here"), abort=abort)

    async def wait_ended(self) -> None:
        """Returns once the carrier is gone."""
        await asyncio.shield(self._ended)

    def on_ended(self, call: Callable[[], object]) -> None:
        """``call`` is called once the carrier is gone."""
        self._ended.add_done_callback(lambda _: call())

    # ---- inside

    def _task_done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("a handler for %s failed", self._sans_io.peer_name, exc_info=error)

    def _advance(self, verb: Callable[..., None], *arguments: Any) -> bool:
        """Lets the connection take something in, and does what follows; false when that ended it."""
        try:
            verb(*arguments)
        except MainstemError as error:
            self._dispatch()
            self._fail(error)
            return False
        self._dispatch()
        self._flush()
        return True

    def _dispatch(self) -> None:
        next_event = self._sans_io.next_event
        handlers = self._handlers
        while (event := next_event()) is not None:
            handler = handlers.get(type(event))
            if handler is not None:
                handler(event)

    def _on_turn(self) -> None:
        # Cleared here only: who flushes by hand, message by message, must not fill the loop with calls that find nothing.
        self._flush_scheduled = False
        self._flush()

    def _flush(self) -> None:
        carrier = self._carrier
        if carrier is None or self._over:
            return
        sans_io = self._sans_io
        batches = 0
        while sans_io.wants_to_send and not carrier.paused:
            segments = sans_io.segments_to_send(FLUSH_BATCH)
            if not segments:
                break
            carrier.write(segments)
            batches += 1
            if batches == FLUSH_BATCHES:
                self.schedule_flush()
                break
        if batches:
            self._dispatch()
        self._set_timer()

    def _set_timer(self) -> None:
        due_ns = self._sans_io.next_timeout_ns()
        if due_ns is None:
            return
        if self._timer is not None:
            if self._timer_due_ns <= due_ns:
                return  # it will find out for itself when it fires early
            self._timer.cancel()
        self._timer_due_ns = due_ns
        delay = max(0, due_ns - _now_ns()) / 1e9
        self._timer = self._loop.call_later(delay, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if not self._over and self._advance(self._sans_io.handle_timeout, _now_ns()):
            self._set_timer()

    def _fail(self, error: MainstemError, *, abort: bool = False) -> None:
        if self._over:
            return
        self.failure = error
        carrier = self._carrier
        if carrier is not None and not abort:
            # An Error or Shutdown message, or answers that were still due.
            while not carrier.paused and (segments := self._sans_io.segments_to_send(FLUSH_BATCH)):
                carrier.write(segments)
        self._over = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._on_over(error)
        if carrier is None:
            self._finish()
        elif abort:
            carrier.abort()
        else:
            self._linger = self._loop.call_later(LINGER_S, carrier.abort)
            carrier.close()

    def _on_over(self, error: MainstemError) -> None:
        """Every stream learns that the connection is over."""
        raise NotImplementedError

    def _finish(self) -> None:
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None
        if not self._ended.done():
            self._ended.set_result(None)


async def gather_quietly(tasks: set[asyncio.Task[Any]], timeout: float) -> bool:
    """Waits for tasks; whether all ended in time."""
    if not tasks:
        return True
    _, pending = await asyncio.wait(tasks, timeout=timeout)
    return not pending

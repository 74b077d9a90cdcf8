"""The connections of a Jmux client, their free sessions, and the calls that wait for one.

Theory of operation
-------------------
A request takes a free session. If there is none, it waits, and the pool opens another connection, one at a time and up to
``max_connections``. The pool owns the connection being opened, not the call. A session that becomes free meanwhile serves the
call, and a call that is cancelled leaves the connection to the other waiting calls. When the last of them is cancelled, or on
``close``, opening the connection is cancelled.

If a connection cannot be opened, calls fail only if there is no other connection. A server may accept no more connections than
there are. Then the calls wait for a free session, and the pool tries again after a pause, as long as a call is waiting.

Each waiter is woken by exactly one of these: a session that became free (wakes one waiter); a connection that was opened or lost,
or the close of the pool (each wakes all, with ``None``); a connection that could not be opened (wakes all, with the error).
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import TYPE_CHECKING
from weakref import ReferenceType

from mainstem._internal.clock import timeout_of
from mainstem._internal.pauses import GrowingPause
from mainstem._internal.tasks import start_task
from mainstem.errors import ClosedError, Delivery, MainstemError, Timeout
from mainstem.jmux import events
from mainstem.jmux.client_engine import ClientEngine
from mainstem.jmux.session_stream import JmuxProtocol, with_delivery
from mainstem.mux.aio_stream import feed_data, feed_eof, wake_writers
from mainstem.mux.protocol import logger

if TYPE_CHECKING:
    import random

    from mainstem._internal.clock import Clock
    from mainstem._internal.endpoint_stats import EndpointCounters
    from mainstem.jmux.settings import Settings
    from mainstem.mux.sockets import ServerAddress

# Seconds between attempts. The pause doubles each time, up to the maximum, and is multiplied by a random number in 0.5..1.
RETRY_FIRST_S = 0.05
RETRY_MAX_S = 1.0
# Maximum number of connections of one client, each with up to 128 requests in flight.
MAX_CONNECTIONS = 8


class ClientProtocol(JmuxProtocol):
    """Runs the engine of a client's connection. It tells the pool when a waiting call can have a session, and when it ends."""

    engine: ClientEngine

    def __init__(self, pool: Pool, settings: Settings, clock: Clock) -> None:
        super().__init__(ClientEngine(settings, now_ns=clock.monotonic_ns()), clock)
        self._pool = pool
        self._header_or_end = self.loop.create_future()
        self._handlers[events.ConnectionEstablished] = lambda _: self._settle()
        self._handlers[events.DataReceived] = self._on_data
        self._handlers[events.ResponseReceived] = self._on_response
        self._handlers[events.SessionEnded] = self._on_session_ended

    async def established(self) -> None:
        """Wait for the server's header. If the connection ends first, raise its error."""
        await asyncio.shield(self._header_or_end)
        if self.failure is not None:
            raise with_delivery(self.failure, Delivery.NONE)

    def _settle(self) -> None:
        if not self._header_or_end.done():
            self._header_or_end.set_result(None)

    def _on_data(self, event: events.DataReceived) -> None:
        owner = event.session.owner
        if not isinstance(owner, ReferenceType):
            owner.collect(event.data)
        elif (stream := owner()) is not None:
            feed_data(stream, event)

    def _on_response(self, event: events.ResponseReceived) -> None:
        owner = event.session.owner
        if not isinstance(owner, ReferenceType):
            owner.respond(event.data)
        elif (stream := owner()) is not None:
            if event.data:
                feed_data(stream, event)
            feed_eof(stream, event)
        if self._pool.waiters:
            self._pool.wake_one()

    def _on_session_ended(self, event: events.SessionEnded) -> None:
        if (stream := event.session.owner()) is not None:
            wake_writers(stream, event)
        if self._pool.waiters:
            self._pool.wake_one()

    def _on_over(self, error: MainstemError) -> None:
        super()._on_over(error)
        self._settle()
        self._pool.lost(self)


def retry_pause(entropy: random.Random) -> GrowingPause:
    return GrowingPause(RETRY_FIRST_S, RETRY_MAX_S, entropy)


class Pool:
    """The connections of one client."""

    def __init__(
        self,
        endpoint: ServerAddress,
        *,
        settings: Settings,
        timeout: float | None,
        clock: Clock,
        entropy: random.Random,
        traffic: EndpointCounters,
    ) -> None:
        self._endpoint = endpoint
        self._settings = settings
        self._max = settings.max_connections or MAX_CONNECTIONS
        self._timeout = timeout
        self._clock = clock
        self._traffic = traffic
        self._opening: asyncio.Task[None] | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._pause = retry_pause(entropy)
        self.connections: list[ClientProtocol] = []
        self._lingering: set[ClientProtocol] = set()  # connections that have ended, until their transports have
        self.newest: ClientProtocol | None = None  # the connection that was opened last, even if it has ended
        self.waiters: OrderedDict[asyncio.Future[Exception | None], None] = OrderedDict()  # oldest first
        self.closed = False

    def ready(self) -> ClientProtocol | None:
        """Return a connection with a free session, or ``None``. The caller must take the session before it waits for anything."""
        for connection in self.connections:
            if connection.engine.can_open:
                return connection
        return None

    async def free(self) -> ClientProtocol:
        """Wait for a connection with a free session. The caller must take the session before it waits for anything.

        Raises ``ClosedError``, or the error with which the only connection could not be opened.
        """
        while True:
            self._check_open()
            if (connection := self.ready()) is not None:
                return connection
            if self._retry is None or not self.connections:
                self._open_another()
            waiter: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
            self.waiters[waiter] = None
            try:
                error = await waiter
            except asyncio.CancelledError:
                self.waiters.pop(waiter, None)
                if not waiter.cancelled():
                    self.wake_one()  # pass the free session on to the next task
                self._give_up_opening()
                raise
            if error is not None:
                raise _copy(error)

    def end(self, *, abort: bool = False) -> None:
        """End all connections, including one that is being opened. Can be called more than once."""
        self.closed = True
        self._stop_pausing()
        for connection in (*self.connections, *self._lingering):
            if abort:
                connection.abort()
            else:
                connection.end()
        if self._opening is not None:
            self._opening.cancel()
        self._wake_all(None)

    def abort(self) -> None:
        """End all connections immediately, including one that is being opened."""
        self.end(abort=True)

    async def close(self) -> None:
        """End all connections, and wait until they have ended. Can be called more than once."""
        connections = (*self.connections, *self._lingering)
        self.end()
        if self._opening is not None:
            await asyncio.wait({self._opening})
        for connection in connections:
            await connection.wait_ended()

    def _check_open(self) -> None:
        if self.closed:
            raise ClosedError("the client is closed")

    # ---- another connection

    def _open_another(self) -> None:
        """Start opening a connection, unless one is being opened or the limit is reached."""
        if (self._opening is None or self._opening.done()) and len(self.connections) < self._max:
            self._stop_pausing()
            self._opening = start_task(self._open(), asyncio.get_running_loop())
            self._opening.add_done_callback(self._on_opened)

    def _give_up_opening(self) -> None:
        """Cancel the connection that is being opened, if nobody waits for it."""
        if self._opening is not None and not self.waiters:
            self._opening.cancel()

    def _on_opened(self, opening: asyncio.Task[None]) -> None:
        if opening.cancelled():
            self._wake_all(None)  # wake the calls that arrived after it was given up

    async def _open(self) -> None:
        """Open one connection, and wake the waiting calls."""
        try:
            self.newest = await self._connect()
            self.connections.append(self.newest)
        except Exception as error:
            self._traffic.connections_unreached += 1
            if self.connections:
                self._try_later(error)
            else:
                self._wake_all(error)
            return
        self._pause.reset()
        self._wake_all(None)

    async def _connect(self) -> ClientProtocol:
        connection = ClientProtocol(self, self._settings, self._clock)
        connection.count_into(self._traffic)
        deadline = asyncio.timeout(timeout_of(self._timeout))
        try:
            async with deadline:
                await self._endpoint.connect(connection, self._timeout)
                await connection.established()
        except BaseException as error:
            connection.abort()
            await connection.wait_ended()
            if isinstance(error, TimeoutError) and deadline.expired():
                text = (
                    f"cannot connect to {self._endpoint}: no Jmux header came over the connection within {self._timeout:g} s; "
                    "the server is stopped or overloaded, or does not speak Jmux"
                )
                raise Timeout(text, timeout=self._timeout) from None
            raise
        return connection

    def _try_later(self, error: Exception) -> None:
        if self._pause.is_first:
            logger.info("no further connection to %s: %s", self._endpoint, error)
        self._retry = asyncio.get_running_loop().call_later(self._pause.next_s(), self._try_again)

    def _try_again(self) -> None:
        self._retry = None
        if self.waiters:
            self._open_another()
        else:
            self._pause.reset()

    def _stop_pausing(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None

    # ---- called by the connections

    def wake_one(self) -> None:
        """Wake one waiting task, because a session id is free."""
        while self.waiters:
            waiter, _ = self.waiters.popitem(last=False)
            if not waiter.done():
                waiter.set_result(None)
                return

    def lost(self, connection: ClientProtocol) -> None:
        """Wake all waiting tasks to try again, because a connection has ended."""
        if connection in self.connections:
            self.connections.remove(connection)
            self._lingering.add(connection)
            connection.on_ended(lambda: self._lingering.discard(connection))
            self._wake_all(None)

    def _wake_all(self, error: Exception | None) -> None:
        waiters, self.waiters = self.waiters, OrderedDict()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(error)


def _copy(error: Exception) -> Exception:
    """Copy an error for each call that raises it, so that each has its own traceback. None of their requests was sent."""
    if not isinstance(error, MainstemError):
        return error
    return with_delivery(error, Delivery.NONE)

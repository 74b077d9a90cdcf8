"""Run a connection in asyncio: its engine, QUIC adapter, timers and handles.

Everything runs in the event loop's thread, except `drop_later` and `close_unused`, which finalizers call from any thread, and
``leave_to_parent``, which ends everything in a forked child without sending a packet: keys, packet numbers and sockets are the
parent's. One round goes as
follows: datagrams go into the adapter; the adapter's events go into the engine; the engine's events wake handles
(``_deliver``). The tasks that use the handles run in the loop's next turn. At its end `flush` carries out the engine's commands,
sends packets and sets the timer. So a message gets its response within two turns, and everything the application sends in one
turn goes out together.

Handles never wait inside the engine. They wait on futures of their own, which events complete, and then reread the engine's
state. So a task can be cancelled at any wait without losing a message.

A connection ends in steps. The engine ends first (``ended``: every handle has its error). The QUIC connection ends some time
later (``over``: it has notified the peer and forgotten the connection). Only then is the socket released. ``error`` is the
first error that occurred.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections import deque
from typing import TYPE_CHECKING, Any

from mainstem._internal.endpoint_stats import EndpointCounters
from mainstem._internal.exit_cleanup import INHERITED
from mainstem._internal.log_throttle import LogThrottle, kind_of
from mainstem.aqueduct.events import (
    Acknowledged,
    ConnectionEnded,
    Lost,
    PeerHeaders,
    SendProgress,
    Writable,
)
from mainstem.aqueduct.frames import EXPLICIT_CLOSE, HANDLER_FAILED, HANDSHAKE_TIMED_OUT
from mainstem.aqueduct.state import ReceiverState
from mainstem.errors import ClosedError, ConnectionLost, Delivery, LostInTransit, Timeout

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainstem.aqueduct.engine import AqueductEngine
    from mainstem.aqueduct.events import Event
    from mainstem.aqueduct.frames import Headers
    from mainstem.aqueduct.halves import Half, Owner
    from mainstem.aqueduct.quic.adapter import QuicAdapter
    from mainstem.aqueduct.quic.udp import Address, UdpSocket
    from mainstem.aqueduct.serializers import Serializer

logger = logging.getLogger("mainstem.aqueduct")

MAX_UNDELIVERED = 64
"""Maximum number of senders with undelivered messages that are remembered until a call raises their error."""

TIMER_GRANULARITY = 0.001
"""Seconds by which a timer can fire early, because event loops such as uvloop count in milliseconds (RFC 9002, 6.1.2)."""

FLUSH_TIME = 1.0
"""Lower bound, in seconds, of the limit on how long a close waits for the peer to acknowledge earlier data. A close overtakes
data that is paced or lost. There is a limit because a peer that is gone does not respond."""

FLUSH_ROUND_TRIPS = 20
"""Lower bound, in round trips, of the same limit: QUIC needs about that many to deliver data that was lost three times."""


class AqueductProtocol:
    """The state that a connection's handles share. Its methods run in the event loop's thread, except those that say otherwise."""

    def __init__(
        self, engine: AqueductEngine, adapter: QuicAdapter, udp: UdpSocket, address: Address, *, serializer: Serializer
    ) -> None:
        self.engine = engine
        self.adapter = adapter
        self._lifecycle = adapter.lifecycle
        self.serializer = serializer
        self.address = address
        self.loop = asyncio.get_running_loop()
        self.error: Exception | None = None
        self.reason = "the connection ended"
        self.peer_headers: asyncio.Future[Headers] = self.loop.create_future()
        self.ended: asyncio.Future[None] = self.loop.create_future()
        # The futures of messages whose sender waits for an acknowledgment.
        self.outcomes: set[asyncio.Future[None]] = set()
        # The futures of messages that were never sent.
        self._unsent: frozenset[object] = frozenset()
        self.over: asyncio.Future[None] = self.loop.create_future()
        self.established: asyncio.Future[None] = self.loop.create_future()
        # Senders with undelivered messages, until a call has raised their error.
        self._undelivered: dict[Owner, None] = {}
        self._handshake_timer: asyncio.TimerHandle | None = None
        self.traffic = EndpointCounters()
        self.warnings = LogThrottle(logger)
        self._is_faulty = False
        # Whether the application has dropped the connection without closing it.
        self._is_unused = False
        # Whether this side's `Connection` was closed or aborted, or its handler has returned.
        self.closed_here = False
        # Whether this is the copy of a connection in a forked child.
        self.is_left = False
        self.on_headers: Callable[[Headers], object] = lambda _: None
        self.on_over: Callable[[], None] = lambda: None
        # Makes the handle of a half that arrived in a message, and converts it into the object that the application receives.
        self.make_handle: Callable[[AqueductProtocol, Half], Any]
        self.present: Callable[[Any], Any] | None = None
        self._udp = udp
        self._scheduled = False
        self._changed: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = 0.0
        self._timer_came_for = 0.0
        self._dropped: deque[Half] = deque()
        self._last_sent = self.loop.time()
        engine.call_on_output(self.wake)

    # Time and the network.

    @property
    def now_ns(self) -> int:
        return int(self._now() * 1e9)

    def _now(self) -> float:
        """Return the loop's time, but never a time before that of the last timer."""
        return max(self.loop.time(), self._timer_came_for)

    def datagrams_received(self, datagrams: list[bytes], address: Address) -> None:
        try:
            self.address = address
            self.traffic.bytes_received += sum(map(len, datagrams))
            now = max(self.loop.time(), self._timer_came_for)
            try:
                self.adapter.receive(datagrams, address, now)
            except self.adapter.library_errors as error:
                self._library_failed(error)
            self._deliver(int(now * 1e9))
            if not self._scheduled:
                self._scheduled = True
                self.loop.call_soon(self.flush)
        except Exception as error:
            self._fail_internally(error)

    def wake(self) -> None:
        """Schedule `flush` for the end of this turn of the event loop."""
        if not self._scheduled:
            self._scheduled = True
            self.loop.call_soon(self.flush)

    def flush(self) -> None:
        """Carry out the engine's commands, send packets, and set the timer."""
        self._scheduled = False
        if self._changed is not None:
            # Waiting tasks check again when this turn is over.
            self._changed.set_result(None)
            self._changed = None
        if self._is_faulty and self.over.done():
            return
        try:
            while self._dropped:
                self.engine.drop(self._dropped.popleft())
            if self._is_unused and not (self.engine.live_halves or self.engine.is_ended):
                self.engine.close(reason="")
            adapter, engine = self.adapter, self.engine
            now = max(self.loop.time(), self._timer_came_for)
            now_ns = int(now * 1e9)
            if engine.has_output:
                adapter.update(engine)
                commands = engine.data_to_send(now_ns)
                if commands:
                    try:
                        adapter.execute(commands)
                    except ConnectionLost as error:
                        self.fail(error)
            try:
                datagrams = adapter.transmit(now)
            except adapter.library_errors as error:
                self._library_failed(error)
                datagrams = []
            if datagrams:
                self._last_sent = now
                for data, _ in datagrams:
                    self.traffic.bytes_sent += len(data)
                self._udp.send(datagrams)
            # Output that is waiting for room must not keep the loop awake while a stream is watched.
            if (
                adapter.watched
                and not self._lifecycle.terminated
                and adapter.check_watched(engine, now_ns)
                and engine.has_output
            ):
                self.wake()
            if (adapter.has_events() or engine.events or self._lifecycle.terminated) and self._deliver(now_ns):
                # The engine may have to respond.
                self.wake()
            self._set_timer()
            if engine.is_ended and engine.has_output:
                self.wake()
        except Exception as error:
            self._fail_internally(error)

    def _deliver(self, now_ns: int) -> bool:
        """Pass the library's events to the engine and the engine's events to the handles; return False if the library had none."""
        has_events = self.adapter.deliver(self.engine, now_ns)
        if self._lifecycle.handshake_done and not self.established.done():
            self.established.set_result(None)
            self.traffic.connections_opened += 1
        events = self.engine.events
        while events:
            self._handle(events.popleft())
        if self._lifecycle.terminated:
            self.give_up()
        return has_events

    def _set_timer(self) -> None:
        lifecycle, engine_ns = self._lifecycle, self.engine.next_timeout_ns()
        due = self.adapter.timer()
        if due is None:
            due = math.inf
        if engine_ns is not None and engine_ns < due * 1e9:
            due = engine_ns / 1e9
        keep_alive = lifecycle.keep_alive
        if keep_alive and self._last_sent + keep_alive < due and lifecycle.handshake_done and not self.engine.is_ended:
            due = self._last_sent + keep_alive
        if self._timer is not None:
            if self._timer_due <= due < math.inf:
                # The due time moves with every packet. A timer that fires too early costs less than setting many timers.
                return
            self._timer.cancel()
            self._timer = None
        if due < math.inf and not lifecycle.terminated:
            # Store the time here, because in uvloop a timer that is due immediately does not have one.
            self._timer_due = due
            self._timer = self.loop.call_at(due, self._on_timer)

    def _on_timer(self) -> None:
        try:
            self._timer = None
            came_for = min(self._timer_due, self.loop.time() + TIMER_GRANULARITY)
            self._timer_came_for = max(came_for, self._timer_came_for)
            now, adapter = self._now(), self.adapter
            adapter_due = adapter.timer()
            if adapter_due is not None and adapter_due <= now:
                try:
                    adapter.handle_timer(now)
                except adapter.library_errors as error:
                    self._library_failed(error)
            self.engine.handle_timeout(int(now * 1e9))
            keep_alive = self._lifecycle.keep_alive
            if keep_alive and self._lifecycle.handshake_done and now - self._last_sent >= keep_alive:
                self._last_sent = now
                with contextlib.suppress(Exception):
                    adapter.ping()
            self._deliver(int(now * 1e9))
            self.flush()
        except Exception as error:
            self._fail_internally(error)

    # Events.

    def _handle(self, event: Event) -> None:
        if isinstance(event, Writable):
            if event.owner is not None:
                event.owner.writable()
        elif isinstance(event, Acknowledged | Lost):
            lost = None
            if isinstance(event, Lost):
                lost = LostInTransit("the message was lost in transit")
                lost.delivery = Delivery.NONE
            _resolve(event.tag, lost)
        elif isinstance(event, PeerHeaders):
            if self._handshake_timer is not None:
                self._handshake_timer.cancel()
            # Call this first: it can refuse the headers, and then connecting fails.
            self.on_headers(event.headers)
            if not self.peer_headers.done():
                self.peer_headers.set_result(event.headers)
        elif isinstance(event, ConnectionEnded):
            self._unsent = event.unsent
            self._ended(event.error, event.progress)

    @property
    def is_open(self) -> bool:
        return self.established.done() and not self.engine.is_ended

    @property
    def has_all(self) -> bool:
        """Whether the client has finished the entrypoint and all of it has arrived, on a server."""
        return self.engine.channels.entrypoint.state is ReceiverState.FINISHED

    @property
    def is_untouched(self) -> bool:
        """Whether the connection was lost before the peer could have processed anything from this side."""
        return isinstance(self.error, ConnectionLost) and self.error.delivery is Delivery.NONE

    def _ended(self, error: Exception | None, progress: SendProgress) -> None:
        self.error = self.error or error
        if self.established.done():
            self.traffic.connection_ended(self.error)
        else:
            self.traffic.connections_unreached += 1
        if self.error is not None:
            self.reason = str(self.error)
        if isinstance(self.error, ConnectionLost) and not self.is_untouched:
            self.error.delivery = progress.delivery
        failure = self.error or ConnectionLost("the connection was closed", delivery=progress.delivery)
        for future in (self.peer_headers, self.established):
            _resolve(future, failure)
        for outcome in list(self.outcomes):
            _resolve(outcome, self._lost_message(outcome))
        if self._handshake_timer is not None:
            self._handshake_timer.cancel()
        _resolve(self.ended)
        self.wake()

    def _lost_message(self, outcome: asyncio.Future[None]) -> ConnectionLost:
        if outcome in self._unsent or self.is_untouched:
            return ConnectionLost(f"the message was not sent: {self.reason}", delivery=Delivery.NONE)
        return ConnectionLost(f"the message may or may not have been delivered: {self.reason}")

    def give_up(self) -> None:
        """Stop running the connection: the QUIC connection has ended, or nobody waits for it any longer."""
        _resolve(self.over)
        self._lifecycle.end_trace()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.on_over()

    # Methods that handles call.

    def drop_later(self, half: Half) -> None:
        """Drop a half whose handle was garbage-collected. Finalizers call this from any thread."""
        if self.is_left:
            return
        half.owner = None
        self._dropped.append(half)
        self._wake_from_any_thread()

    def close_unused(self) -> None:
        """Close the connection, whose object was dropped, once no channel is left. Finalizers call this from any thread."""
        self._is_unused = True
        self._wake_from_any_thread()

    def _wake_from_any_thread(self) -> None:
        with contextlib.suppress(RuntimeError):
            # Only another thread has to wake the loop through its self-pipe.
            if _running_loop() is self.loop:
                self.wake()
            else:
                self.loop.call_soon_threadsafe(self.wake)

    def log_error(self, text: str) -> None:
        logger.error("%s: %s", self.address, text)

    # The end.

    def not_delivered(self, sender: Owner) -> None:
        """Remember a sender with undelivered messages, so that the application is notified."""
        if len(self._undelivered) < MAX_UNDELIVERED:
            self._undelivered[sender] = None

    def reported(self, sender: Owner) -> None:
        """Forget a sender, because a call has raised its error."""
        self._undelivered.pop(sender, None)

    async def flush_messages(self, timeout: float | None) -> None:
        """Wait until every reliable message is acknowledged.

        Raises the error of a sender whose messages were not delivered, unless a call has raised it already, and Timeout after
        ``timeout`` seconds.
        """
        if not await self._wait_until(lambda: not self.engine.unacknowledged[0], timeout):
            messages, size = self.engine.unacknowledged
            raise Timeout(
                f"{messages} messages of {size} bytes were not acknowledged within {timeout:g} s", timeout=timeout
            )
        for sender in self._undelivered:
            sender.check()

    def look_again(self) -> None:
        if self._changed is not None:
            self.wake()

    async def _wait_until(self, is_done: Callable[[], bool], timeout: float | None) -> bool:
        """Wait until ``is_done`` or the connection has ended; return False after ``timeout`` seconds.

        The state of the engine and of the QUIC connection changes in rounds, each of which ends with `flush`.
        """
        until = math.inf if timeout is None else self.loop.time() + timeout
        while not (is_done() or self.engine.is_ended):
            left = until - self.loop.time()
            if left <= 0:
                return False
            changed = self._changed = self._changed or self.loop.create_future()
            await asyncio.wait([changed], timeout=None if left == math.inf else left)
        return True

    def expect_headers(self, timeout: float) -> None:
        self._handshake_timer = self.loop.call_later(timeout, self._headers_are_due, timeout)

    def _headers_are_due(self, timeout: float) -> None:
        if not self.peer_headers.done() and not self.engine.is_ended:
            text = f"timed out after {timeout:g} s waiting for the peer's connection headers"
            self.fail(ConnectionLost(text), code=HANDSHAKE_TIMED_OUT)

    def close(self, reason: str = "") -> None:
        """Close the connection. Unacknowledged messages may be lost."""
        if not self.engine.is_ended:
            # First send waiting messages and acknowledgments, which the close would overtake.
            self.engine.acknowledge_taken()
            self.flush()
            self.engine.close(reason=reason)
            self.flush()

    @property
    def flush_time(self) -> float:
        """Seconds that a close waits for earlier data to be acknowledged."""
        return max(FLUSH_TIME, FLUSH_ROUND_TRIPS * (self.adapter.round_trip or 0.0))

    async def wait_channels_closed(self, timeout: float | None) -> None:
        """Wait until no channel is left or ``timeout`` has passed, and then until the peer has everything that was sent."""
        until = math.inf if timeout is None else self.loop.time() + timeout
        await self._wait_until(lambda: not self.engine.live_halves, timeout)
        await self.hand_over(until - self.loop.time())

    async def hand_over(self, timeout: float = math.inf) -> None:
        """Acknowledge the messages the application has taken, and wait until the peer has received everything that was sent.

        Waits for at most ``timeout`` seconds, and no longer than `flush_time`.
        """
        self.engine.acknowledge_taken()
        left = min(timeout, self.flush_time)
        await self._wait_until(lambda: not (self._scheduled or self.adapter.is_in_flight), left)

    def _library_failed(self, error: Exception) -> None:
        """End this connection, and no other, because the QUIC library failed."""
        if not self.engine.is_ended:
            self.fail(ConnectionLost(f"the QUIC library failed: {error}"))

    def _fail_internally(self, error: Exception) -> None:
        """End the connection because of a bug on this side: in an orderly way at first, abruptly if that fails too."""
        host, port, *_ = self.address
        text = f"the connection to {host}:{port} failed: {type(error).__name__}: {error}"
        self.warnings.log(logging.ERROR, kind_of(error), text, self.now_ns, error=error)
        failure = ConnectionLost(f"the connection failed on this side: {type(error).__name__}: {error}")
        failure.__cause__ = error
        was_faulty, self._is_faulty = self._is_faulty, True
        try:
            if not was_faulty:
                self.fail(failure, code=HANDLER_FAILED)
                return
        except Exception:
            logger.exception("the connection to %s:%s cannot be closed in order", host, port)
        if not self.ended.done():
            self._ended(failure, SendProgress(sent=1))
        with contextlib.suppress(Exception):
            # Notify the peer if the QUIC connection can still send.
            self._udp.send(self.adapter.transmit(self._now()))
        self.give_up()

    def fail(self, error: Exception, *, code: int = EXPLICIT_CLOSE) -> None:
        self.error = self.error or error
        with contextlib.suppress(*self.adapter.library_errors):
            self.adapter.close(code, str(error))
        self.engine.connection_lost(error, self.now_ns)
        self._deliver(self.now_ns)
        self.wake()

    def leave_to_parent(self) -> None:
        """End the connection in a forked child, where every call raises ClosedError. Sends nothing."""
        self.is_left = self._is_faulty = self._scheduled = True
        if self.engine.is_ended:
            return
        self.error = self.error or ClosedError(INHERITED)
        # The fork may have interrupted the loop's thread in the middle of a step, or the loop's debug mode may refuse this thread.
        with contextlib.suppress(Exception):
            self.engine.connection_lost(self.error, self.now_ns)
            while self.engine.events:
                self._handle(self.engine.events.popleft())
        with contextlib.suppress(Exception):
            _resolve(self.over)
        if self._timer is not None:
            self._timer.cancel()

    async def wait_over(self, timeout: float) -> None:
        """Wait until the QUIC connection is closed and forgotten on this side, for at most ``timeout`` seconds."""
        await asyncio.wait([self.over], timeout=timeout)
        self.give_up()


def _running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the event loop that runs in this thread; None if there is none."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _resolve(future: Any, error: Exception | None = None) -> None:
    """Set the result or exception of a future unless it is done. It may be that no task waits for it."""
    if not future.done():
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)
            # Mark it as retrieved, because it is raised elsewhere too.
            future.exception()

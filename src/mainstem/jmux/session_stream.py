"""The base of asyncio sessions and of protocol objects of Jmux, which both ends share."""

from __future__ import annotations

import copy
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

from mainstem.errors import Aborted, ClosedError, Delivery, MainstemError
from mainstem.jmux import events
from mainstem.jmux.state import HalfState
from mainstem.mux.aio_stream import BaseStream, feed_data, feed_eof, wake_writers
from mainstem.mux.protocol import BaseProtocol

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from mainstem._internal.clock import Clock
    from mainstem.jmux.client_engine import ClientEngine
    from mainstem.jmux.server_engine import ServerEngine
    from mainstem.jmux.session import Session

E = TypeVar("E", bound=MainstemError)


def with_delivery(error: E, delivery: Delivery) -> E:
    """Copy an error that other calls may raise too, and set the delivery of one request in it."""
    own = copy.copy(error)
    own.__cause__ = error.__cause__
    own.delivery = delivery
    return own


class SessionStream(BaseStream):
    """One session as a stream for reading and writing."""

    _KIND = "session"

    _handle: Session
    _engine: ClientEngine | ServerEngine

    async def close(self) -> None:
        raise NotImplementedError

    def abort(self, detail: str = "") -> None:
        """End the session immediately. The request may have been partly processed. Can be called more than once.

        Args:
            detail: A text for the peer.
        """
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        if kind is None:
            await self.close()
        else:
            self.abort()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Queue bytes. Use :meth:`drain` to wait for the peer's ration.

        If the server has closed the session early, further bytes of the request are dropped, as the specification requires.
        """
        if self._write_error is not None:
            self._check_writable()
        session = self._handle
        if self._closed:
            raise ClosedError(f"session {session.id} is closed")
        is_early = session.response_complete and session.local is not HalfState.FINISHED
        if is_early and (session.ended or session.local is HalfState.TERMINATED):
            return  # nobody wants the rest of the request
        self._engine.write(session, data)
        self._written(session.outbound)

    def _set_exception(self, error: MainstemError) -> None:
        """End both halves with an error, which says how much of the written data may have reached the peer."""
        known = isinstance(error, Aborted)
        super()._set_exception(error if known else with_delivery(error, self._delivery()))

    def _end_abruptly(self, abort: Callable[[], None]) -> None:
        """End the session by calling ``abort``, unless this end's half has terminated, and drop unread data."""
        self._closed = True
        if (
            not self._handle.ended
            and self._handle.local is not HalfState.TERMINATED
            and self._connection.failure is None
        ):
            abort()
            self._connection.dispatch()
            self._connection.schedule_flush()
        error = ClosedError(f"session {self.id} was aborted here")
        self._drop_buffer(error)
        self._set_exception(error)
        self._write_failure = None

    def _unsent(self) -> int:
        return self._handle.queue.size + self._handle.unsent

    def _consumed(self, count: int) -> None:
        session = self._handle
        if session.unconsumed and not session.ended:
            self._engine.consume(session, min(count, session.unconsumed))
            if session.increment_due and not self._connection.flush_scheduled:
                self._connection.schedule_flush()

    def _on_aborted(self, event: events.SessionAborted) -> None:
        how = "after it may have been processed" if event.partial else "before any of it was processed"
        reason = event.detail.decode("utf-8", "replace")
        error = Aborted(f"session {self.id} was aborted by the peer {how}" + (f": {reason}" if reason else ""))
        error.delivery = Delivery.PARTIAL if event.partial else Delivery.NONE
        self._set_exception(error)

    def _on_failed(self, _: events.SessionFailed) -> None:
        error = self._connection.failure or self._engine.failure
        assert error is not None
        self._set_exception(error)


STREAM_HANDLERS: dict[type, Callable[[Any, Any], object]] = {
    events.DataReceived: feed_data,
    events.DataFinished: feed_eof,
    events.SessionDrained: wake_writers,
    events.SessionAborted: SessionStream._on_aborted,
    events.SessionFailed: SessionStream._on_failed,
    events.SessionEnded: wake_writers,
}


class JmuxProtocol(BaseProtocol):
    """Base class of what runs a client's and a server's engine."""

    engine: ClientEngine | ServerEngine
    _handle_of = attrgetter("session")

    def __init__(self, engine: ClientEngine | ServerEngine, clock: Clock) -> None:
        super().__init__(engine, engine.settings, clock)
        engine.joins_events = True
        self._stream_handlers = STREAM_HANDLERS
        self._handlers = {
            events.ShutDown: self._on_last_message,
            events.ErrorReceived: self._on_last_message,
        }

    @property
    def open_streams(self) -> list[Session]:
        return self.engine.open_sessions

    def stream_dropped(self, handle: Session) -> None:
        if self.failure is None and not handle.ended and handle.local is not HalfState.TERMINATED:
            self.engine.abort(handle)
            self.dispatch()
            self.schedule_flush()

    def sends_alone(self, *message: Any) -> bool:
        """Send a whole request or response immediately, if it is alone like in :meth:`send_soon`; return whether it was sent."""
        transport = self.transport
        if not self.sends_at_once or transport is None or transport.paused:
            return False
        if not (encoded := self.engine.message_of(*message)):
            return False
        self.sends_at_once = False
        self.writes += 1
        self.traffic.bytes_sent += len(encoded)
        transport.write([encoded])
        return True

    def _on_last_message(self, _: object) -> None:
        assert self.engine.failure is not None
        self._fail_soon(self.engine.failure)

    def _on_over(self, error: MainstemError) -> None:
        self.engine.fail(error)
        self.dispatch()

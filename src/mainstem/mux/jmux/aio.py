"""Jmux under asyncio: what both ends share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.errors import Cancelled, MainstemError
from mainstem.mux.async_stream import WRITE_LIMIT, Halves
from mainstem.mux.engine import Engine
from mainstem.mux.jmux import events
from mainstem.mux.jmux.state import Half

if TYPE_CHECKING:
    from mainstem.mux.jmux.client import ClientConnection
    from mainstem.mux.jmux.server import ServerConnection
    from mainstem.mux.jmux.session import Session

# A write past this many queued bytes is handed to the carrier at once instead of at the end of the loop's turn.
EAGER_BYTES = 64 * 1024


class SessionStream(Halves):
    """One session as a stream that is written and read."""

    __slots__ = ("_engine", "_sans_io", "_session")

    def __init__(self, engine: JmuxEngine, session: Session) -> None:
        super().__init__()
        self._engine = engine
        self._sans_io = engine.sans_io
        self._session = session
        session.owner = self

    @property
    def id(self) -> int:
        """The session's id on the wire."""
        return self._session.id

    @property
    def queued(self) -> int:
        """Bytes written that wait for a ration or for their turn."""
        return self._session.queue.size

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Queues bytes; ``drain`` is where back pressure is felt. Raises what ended the session, if something did.

        Where the server closed the session early, what a client still writes is dropped, as the specification wants it.
        """
        if self._write_error is not None:
            raise self._write_error
        session = self._session
        if session.response_complete and (session.ended or session.client is Half.TERMINATED):
            return
        self._sans_io.write(session, data)
        if session.queue.size >= EAGER_BYTES and session.outbound:
            self._engine.flush()
        elif not self._engine._flush_scheduled:
            self._engine.schedule_flush()

    async def drain(self) -> None:
        """Returns once little enough is queued: at once, or when the peer has raised the ration and the line has room."""
        if self._write_error is not None:
            raise self._write_error
        await self._drain_to(WRITE_LIMIT, WRITE_LIMIT // 2)

    async def _drain_to(self, limit: int, level: int) -> None:
        session = self._session
        while session.queue.size > limit:
            self._engine.flush()
            if session.queue.size > limit:
                if self._write_error is not None:
                    raise self._write_error
                session.notify_below = max(session.notify_below, level)
                await self._wait_drained()

    def _consumed(self, count: int) -> None:
        session = self._session
        if session.unconsumed:
            self._sans_io.consume(session, min(count, session.unconsumed))
            if session.increment_due and not self._engine._flush_scheduled:
                self._engine.schedule_flush()

    def _lost(self, error: MainstemError) -> None:
        self._feed_end(error)
        self._write_failed(error)


class JmuxEngine(Engine):
    """What a client's and a server's connection have in common under asyncio."""

    def __init__(self, connection: ClientConnection | ServerConnection) -> None:
        self.sans_io = connection
        super().__init__(connection)
        self._handlers = {
            events.DataReceived: self._on_data,
            events.DataFinished: self._on_data_finished,
            events.SessionDrained: self._on_drained,
            events.SessionAborted: self._on_aborted,
            events.SessionFailed: self._on_failed,
            events.SessionEnded: self._on_session_ended,
            events.ShutDown: self._on_connection_over,
            events.ErrorReceived: self._on_connection_over,
        }

    def _on_data(self, event: events.DataReceived) -> None:
        if event.session.owner is not None:
            event.session.owner._feed(event.data)

    def _on_data_finished(self, event: events.DataFinished) -> None:
        if event.session.owner is not None:
            event.session.owner._feed_end()

    def _on_drained(self, event: events.SessionDrained) -> None:
        if event.session.owner is not None:
            event.session.owner._drained()

    def _on_aborted(self, event: events.SessionAborted) -> None:
        if event.session.owner is not None:
            how = "after it may have been processed" if event.partial else "before any of it was processed"
            reason = event.detail.decode("utf-8", "replace")
            message = f"session {event.session.id} was aborted by the peer {how}" + (f": {reason}" if reason else "")
            event.session.owner._lost(Cancelled(message))

    def _on_failed(self, event: events.SessionFailed) -> None:
        if event.session.owner is not None:
            error = self.sans_io.failure
            assert error is not None
            event.session.owner._lost(error)

    def _on_session_ended(self, event: events.SessionEnded) -> None:
        if event.session.owner is not None:
            event.session.owner._drained()

    def _on_connection_over(self, _: object) -> None:
        self._loop.call_soon(self._after_last_message)

    def _after_last_message(self) -> None:
        if self.sans_io.failure is not None and not self._over:
            self._fail(self.sans_io.failure)

    def _on_over(self, error: MainstemError) -> None:
        self.sans_io.fail(error)
        self._dispatch()

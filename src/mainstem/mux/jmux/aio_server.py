"""The server under asyncio: a handler for each session, and graceful shutdown."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from mainstem.clock import SYSTEM_CLOCK
from mainstem.errors import ClosedError, MainstemError
from mainstem.mux.engine import gather_quietly
from mainstem.mux.jmux import events
from mainstem.mux.jmux.aio import JmuxEngine, SessionStream
from mainstem.mux.jmux.server import ServerConnection
from mainstem.mux.jmux.state import Half
from mainstem.mux.sockets import MAX_CONNECTIONS, Listener

if TYPE_CHECKING:
    import ssl as ssl_module
    from collections.abc import Awaitable, Callable

    from mainstem.mux.jmux.session import Session
    from mainstem.mux.jmux.settings import Settings

SHUTDOWN_TIMEOUT_S = 10.0


class ServerSession(SessionStream):
    """One request and the response to it.

    When the handler returns, a response that was begun is finished; a handler that returns without an answer, or raises,
    aborts the session.
    """

    __slots__ = ("_acknowledged", "_answered", "_read_any")

    def __init__(self, engine: JmuxEngine, session: Session) -> None:
        super().__init__(engine, session)
        self._acknowledged: asyncio.Future[bool] | None = None
        self._answered = False
        self._read_any = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Queues bytes of the response; ``drain`` is where back pressure is felt. Raises what ended the session."""
        self._answered = True
        super().write(data)

    def finish(self, *, ack_required: bool = False) -> None:
        """The response is complete; with ``ack_required``, :meth:`acknowledged` will tell. Twice is fine."""
        session = self._session
        if self._write_error is not None:
            raise self._write_error
        if session.eof_wanted or session.ended or session.server >= Half.FINISHED:
            return
        if ack_required:
            self._acknowledged = asyncio.get_running_loop().create_future()
        self._connection.finish(session, ack_required=ack_required)
        if not self._engine._flush_scheduled:
            self._engine.schedule_flush()

    async def acknowledged(self) -> bool:
        """Whether the client has finished processing the response; ``False`` once it never will say so."""
        if self._acknowledged is None:
            return False
        return await asyncio.shield(self._acknowledged)

    def reject(self, detail: str = "") -> None:
        """Ends the session and promises that nothing was processed, so that the client may retry.

        Raises ``LocalProtocolError`` when some of the request was read already.
        """
        self._session.processing = self._read_any
        self._end(detail, partial=False)

    def abort(self, detail: str = "") -> None:
        """Ends the session abruptly; the request may have been processed in part."""
        self._end(detail, partial=True)

    def _consumed(self, count: int) -> None:
        self._read_any = True
        super()._consumed(count)

    def _end(self, detail: str, *, partial: bool) -> None:
        session = self._session
        if not session.ended and session.server is not Half.TERMINATED and self._engine.failure is None:
            self._connection.abort(session, detail.encode(), partial=partial)
            self._engine._dispatch()
            self._engine.schedule_flush()
        self._buffer.clear()
        self._lost(ClosedError(f"session {session.id} was aborted here"))

    async def _finish_handler(self) -> None:
        """What follows a handler that returned."""
        session = self._session
        if self._write_error is not None or session.ended:
            return
        if not session.eof_wanted and session.server is Half.OPEN:
            if self._answered:
                self.finish()
            else:
                self.abort("the handler returned without an answer")
                return
        await self._drain_to(0, 0)
        if session.client is Half.OPEN and self._engine.failure is None:
            self._connection.close(session)
            self._engine.schedule_flush()

    @property
    def _connection(self) -> ServerConnection:
        connection = self._sans_io
        assert isinstance(connection, ServerConnection)
        return connection


class ServerEngine(JmuxEngine):
    """One connection of a server."""

    def __init__(self, handler: Callable[[ServerSession], Awaitable[object]], settings: Settings | None) -> None:
        self.connection = ServerConnection(settings, now_ns=SYSTEM_CLOCK.monotonic_ns())
        super().__init__(self.connection)
        self._handler = handler
        self._draining = False
        self._handlers[events.SessionOpened] = self._on_opened
        self._handlers[events.Acknowledged] = self._on_acknowledged

    async def shut_down(self, deadline: float) -> None:
        """Lets what is being processed finish until ``deadline`` (loop time), then says Shutdown and ends the connection."""
        self._draining = True
        if not await gather_quietly(self._tasks, max(0.0, deadline - self._loop.time())):
            for session in list(self.connection.sessions.values()):
                if session.owner is not None and session.processing and session.server is not Half.TERMINATED:
                    session.owner.abort("shutting down")
            for task in list(self._tasks):
                task.cancel()
        if self.failure is None:
            if self.connection.established:
                self.connection.shut_down(b"shutting down")
                self._dispatch()
            self.end(ClosedError("the server was shut down"))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.1, deadline - self._loop.time())):
                await self.wait_ended()
        if self._carrier is not None:
            self._carrier.abort()

    def _on_opened(self, event: events.SessionOpened) -> None:
        stream = ServerSession(self, event.session)
        if not self._draining:
            event.session.processing = True
            self.spawn(self._handle(stream))

    def _on_acknowledged(self, event: events.Acknowledged) -> None:
        future = event.session.owner._acknowledged
        if future is not None and not future.done():
            future.set_result(event.positive)

    async def _handle(self, stream: ServerSession) -> None:
        try:
            await self._handler(stream)
            await stream._finish_handler()
        except MainstemError:
            broken = stream._read_error is not None or stream._write_error is not None
            stream.abort("the handler failed")
            if not broken:
                raise
        except BaseException:
            stream.abort("the handler failed")
            raise


class JmuxListener(Listener[ServerEngine]):
    """A listening server."""

    async def shut_down(self, timeout: float = SHUTDOWN_TIMEOUT_S) -> None:
        """Stops listening, lets running handlers finish within ``timeout`` seconds, and tells clients what may be retried.

        Sessions that came in meanwhile were not handed to a handler: Shutdown tells their clients so.
        """
        self.stop_listening()
        deadline = asyncio.get_running_loop().time() + timeout
        await asyncio.gather(*(engine.shut_down(deadline) for engine in list(self.connections)))


async def serve(
    handler: Callable[[ServerSession], Awaitable[object]],
    host: str | None = None,
    port: int | None = None,
    *,
    path: str | None = None,
    ssl: ssl_module.SSLContext | None = None,
    settings: Settings | None = None,
    max_connections: int = MAX_CONNECTIONS,
) -> JmuxListener:
    """Listens over TCP, TLS (``ssl``) or a Unix socket (``path``); ``handler`` is called with each session in its own task."""
    listener = JmuxListener(lambda: ServerEngine(handler, settings), max_connections=max_connections)
    await listener.start(host, port, path=path, ssl=ssl)
    return listener

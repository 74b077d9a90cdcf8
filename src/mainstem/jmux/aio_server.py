"""The asyncio server, which runs a handler for each session and shuts down gracefully."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import TYPE_CHECKING, Any

from mainstem._internal.clock import SYSTEM_CLOCK
from mainstem._internal.opening import Opening
from mainstem._internal.overrides import apply_overrides
from mainstem._internal.tasks import as_coroutine_function, start_task, within
from mainstem.errors import ClosedError
from mainstem.jmux import events
from mainstem.jmux.codec import MAX_SESSIONS
from mainstem.jmux.server_engine import ServerEngine
from mainstem.jmux.session_stream import STREAM_HANDLERS, JmuxProtocol, SessionStream
from mainstem.jmux.settings import Settings
from mainstem.jmux.state import HalfState
from mainstem.mux.protocol import cancel_and_wait, logger, nobody, wait_for_tasks
from mainstem.mux.sockets import Server, start_server

if TYPE_CHECKING:
    import socket
    import ssl as ssl_module
    from collections.abc import Awaitable, Callable, Sequence

    from mainstem._internal.clock import Clock

# Maximum number of handlers that run at once for one connection: as many as it has session ids. A client that aborts a session
# can reuse its id while the handler is still running. The new session then waits, and its ration limits how much it can send.
MAX_HANDLERS = MAX_SESSIONS


class ServerSession(SessionStream):
    """One request and its response: the asyncio variant of :class:`mainstem.jmux.ServerSession`."""

    _connection: ServerProtocol
    _engine: ServerEngine

    _acknowledged: asyncio.Future[bool] | None = None

    def finish(self, *, ack_required: bool = False) -> None:
        """Mark the response as complete. Can be called more than once.

        Args:
            ack_required: Whether to ask the client to acknowledge that it has processed the response (see :meth:`acknowledged`).

        Raises:
            MainstemError: The error that ended the session.
        """
        session = self._handle
        if self._write_error is not None:
            self._check_writable()
        if session.eof_wanted or session.ended or session.local >= HalfState.FINISHED:
            return
        if ack_required:
            self._acknowledged = self._connection.loop.create_future()
        if ack_required or not self._connection.sends_alone(session):
            self._engine.finish(session, ack_required=ack_required)
            self._connection.send_soon()

    @property
    def caller_waiting(self) -> bool:
        """Whether the client is still waiting for the response; see :attr:`mainstem.jmux.ServerSession.caller_waiting`."""
        return not self._broken and self._connection.failure is None and self._handle.local is HalfState.OPEN

    async def acknowledged(self, *, timeout: float | None = None) -> bool:
        """Wait until the client has acknowledged the response.

        Args:
            timeout: Seconds to wait; ``None`` waits forever.

        Returns:
            Whether the client did; ``False`` as soon as the acknowledgment can no longer arrive, or if it was not requested.

        Raises:
            Timeout: The timeout passed.

        Example:
            >>> session.finish(ack_required=True)
            >>> if not await session.acknowledged():
            ...     print("the client may not have processed the response")
        """
        if self._acknowledged is None:
            return False
        return await within(timeout, _wait(self._acknowledged), "acknowledged")

    def reject(self, detail: str = "") -> None:
        """End the session and guarantee that nothing was processed, so that the client can retry.

        A client's ``request`` sends the request again. After its last attempt, it raises ``Aborted`` with a true ``may_retry``.

        Args:
            detail: A text for the client.

        Raises:
            LocalProtocolError: Some of the request has already been read.
        """
        self._handle.processing = self._any_read
        self._end(detail, partial=False)

    def abort(self, detail: str = "") -> None:
        """End the session immediately. The request may have been partly processed. Can be called more than once."""
        self._end(detail, partial=True)

    def _end(self, detail: str, *, partial: bool) -> None:
        session = self._handle
        self._end_abruptly(lambda: self._engine.abort(session, detail.encode(), partial=partial))

    def _writing_ended(self) -> bool:
        return self._handle.response_sent

    def _ends_handler(self) -> bool:
        # Once the whole response is sent, the handler may still wait for the acknowledgment, which may have just arrived.
        return not self._handle.response_sent

    async def close(self) -> None:
        """Complete the response and wait until it has been sent. When the handler returns, the same happens.

        This can be called more than once.

        Raises:
            Timeout: The client took nothing for ``stall_timeout`` seconds (see the settings); ``unsent`` bytes were not sent.
            MainstemError: The error that ended the session before the response had been sent, unless a call has already raised it.
        """
        session = self._handle
        self._closed = True
        if (
            self._write_error is None
            and not session.ended
            and not session.eof_wanted
            and session.local is HalfState.OPEN
        ):
            self.finish()
            if self._connection.flush_scheduled and self._is_unsent():
                await asyncio.sleep(0)  # the responses of one turn are sent together
        if session.queue.size or session.local is HalfState.OPEN:
            await self._flush_in_time()
        if self._write_failure is not None:
            self._check_written()
        if session.peer is HalfState.OPEN and session.eof_wanted and self._connection.failure is None:
            self._connection.engine.close(session)
            self._connection.schedule_flush()

    def _is_unsent(self) -> bool:
        session = self._handle
        if session.queue.size:
            return True
        # Until the end is sent, the response is not complete, even if it is empty.
        return session.eof_wanted and session.local is HalfState.OPEN and not session.ended

    # ---- called by the connection

    def _on_acknowledged(self, event: events.Acknowledged) -> None:
        if self._acknowledged is not None and not self._acknowledged.done():
            self._acknowledged.set_result(event.positive)

    def _start(
        self, handler: Callable[[ServerSession], Awaitable[object]], *, processes_at_once: bool
    ) -> asyncio.Task[None]:
        """Run a handler in a task, which ends with the session."""
        self._task = task = start_task(self._run(handler, processes_at_once), self._connection.loop)
        return task

    async def _run(self, handler: Callable[[ServerSession], Awaitable[object]], processes_at_once: bool) -> None:
        """Run a handler, and end the session according to its outcome. Raises the handler's error, unless its session had ended."""
        try:
            if processes_at_once:
                begin(self)
            await handler(self)
            await self.close()
            self._connection._handler_ended(self._task)
        except BaseException as error:
            is_own = self._is_own(error)
            if self._handle.processing:
                self.abort("the handler failed")
            else:  # the handler never began
                self._end("no handler was free", partial=False)
            if not is_own:
                raise
            logger.debug("session %d of %s ended under its handler: %s", self.id, self._connection.peer_name, error)


def begin(session: ServerSession) -> None:
    """Give up the guarantee that nothing of the request was processed, because the application is about to see it."""
    session._handle.processing = True


async def _wait(future: asyncio.Future[bool]) -> bool:
    return await asyncio.shield(future)


class ServerProtocol(JmuxProtocol):
    """Runs the engine of one connection of a server, and a handler for each session."""

    engine: ServerEngine

    def __init__(
        self,
        handler: Callable[[ServerSession], Awaitable[object]],
        settings: Settings | None = None,
        clock: Clock = SYSTEM_CLOCK,
        *,
        processes_at_once: bool = False,
    ) -> None:
        super().__init__(ServerEngine(settings, now_ns=clock.monotonic_ns()), clock)
        self._handler = handler
        self._processes_at_once = processes_at_once
        self._draining = False
        self._running = 0
        self._waiting: deque[ServerSession] = deque()
        self._stream_handlers = {**STREAM_HANDLERS, events.Acknowledged: ServerSession._on_acknowledged}
        self._handlers[events.SessionOpened] = self._on_opened
        self._handlers[events.RequestReceived] = self._on_request

    async def shutdown(self, deadline: float) -> None:
        """Let running handlers finish until ``deadline`` (in loop time), then send Shutdown and end the connection."""
        self._draining = True
        if not await wait_for_tasks(self.tasks, max(0.0, deadline - self.loop.time())):
            self._abort_processing()
            await cancel_and_wait(self.tasks, self.settings.close_timeout)
        if self.failure is None:
            if self.engine.established:
                self._abort_processing()  # if a handler called this, its session is still open
                self.engine.shut_down(b"shutting down")
                self.dispatch()
            self.end(ClosedError("the server was shut down"))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.1, min(deadline - self.loop.time(), self.settings.close_timeout))):
                await self.wait_ended()
        if self.transport is not None:
            self.transport.abort()

    def _abort_processing(self) -> None:
        """Abort the sessions whose requests may have been processed and have no complete response."""
        for session in list(self.engine.sessions.values()):
            stream = session.owner()
            if stream is not None and session.processing and session.local is HalfState.OPEN:
                stream.abort("shutting down")

    def _on_opened(self, event: events.SessionOpened) -> None:
        self.traffic.streams_opened += 1
        if self._draining:
            event.session.owner = nobody
        else:
            self._serve(ServerSession(self, event.session))

    def _on_request(self, event: events.RequestReceived) -> None:
        self.traffic.streams_opened += 1
        if self._draining:
            event.session.owner = nobody
            return
        self._serve(ServerSession(self, event.session, event.data))

    def _serve(self, session: ServerSession) -> None:
        """Start the session's handler, or queue the session until another handler ends."""
        if self._running == MAX_HANDLERS:
            if len(self._waiting) >= MAX_HANDLERS:  # some of them were aborted, because at most this many are open
                self._waiting = deque(waiting for waiting in self._waiting if waiting.caller_waiting)
            self._waiting.append(session)
            return
        self._running += 1
        task = session._start(self._handler, processes_at_once=self._processes_at_once)
        self.tasks.add(task)
        task.add_done_callback(self._on_handler_done)
        # A handler in a thread writes later.
        self._started_handler |= self._processes_at_once

    def _on_handler_done(self, task: asyncio.Task[None]) -> None:
        self._task_done(task)
        self._running -= 1
        if self._waiting:
            self._serve_waiting()

    def _handler_ended(self, task: asyncio.Task[None] | None) -> None:
        """Do the work due at the end of a handler's task, from the task itself: a callback would cost another turn of the loop."""
        assert task is not None
        task.remove_done_callback(self._on_handler_done)
        self.tasks.discard(task)
        if self.over:
            self._check_done()
        self._running -= 1
        if self._waiting:
            self._serve_waiting()

    def _serve_waiting(self) -> None:
        """Start the handler of the session that has waited longest and whose client still waits."""
        while self._waiting and not self._draining and not self.over:
            session = self._waiting.popleft()
            if session.caller_waiting:
                self._serve(session)
                return


def serve(
    handler: Callable[[ServerSession], Awaitable[object]],
    host: str | Sequence[str] | None = "127.0.0.1",
    port: int | None = None,
    *,
    path: str | None = None,
    sock: socket.socket | Sequence[socket.socket] | None = None,
    ssl: ssl_module.SSLContext | bool | None = None,
    settings: Settings | None = None,
    **overrides: Any,
) -> Opening[Server[Any]]:
    """Listen for requests; see :func:`mainstem.jmux.serve`. Await the result, or use it with ``async with``.

    ``handler`` is a coroutine function that runs in its own task. It is cancelled if the client aborts the session, if the
    connection ends, or if the server closes.
    """
    server = make_server(
        as_coroutine_function(handler), apply_overrides(Settings, settings, overrides), ssl, processes_at_once=True
    )
    return Opening(lambda: start_server(server, host, port, path, sock), "jmux.aio.serve()")


def make_server(
    handler: Callable[[ServerSession], Awaitable[object]],
    settings: Settings,
    ssl: ssl_module.SSLContext | bool | None,
    *,
    processes_at_once: bool = False,
) -> Server[ServerProtocol]:
    """Make a server that calls ``handler`` with each session. The handler calls ``begin``, unless ``processes_at_once``."""
    return Server(
        lambda: ServerProtocol(handler, settings, processes_at_once=processes_at_once),
        ServerEngine.PROTOCOL,
        settings,
        ssl,
    )

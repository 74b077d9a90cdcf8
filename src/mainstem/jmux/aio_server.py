"""The server under asyncio: a handler for each session, and graceful shutdown."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import TYPE_CHECKING

from mainstem.clock import SYSTEM_CLOCK
from mainstem.errors import ClosedError
from mainstem.jmux import events
from mainstem.jmux.codec import MAX_SESSIONS
from mainstem.jmux.server_engine import ServerEngine
from mainstem.jmux.session_stream import JmuxConnection, SessionStream
from mainstem.jmux.state import Half
from mainstem.mux.arrivals import HANDSHAKE_TIMEOUT_S, MAX_CONNECTIONS, MAX_CONNECTIONS_PER_ADDRESS
from mainstem.mux.engine import CLOSE_TIMEOUT_S, cancel_and_wait, logger, wait_for_tasks
from mainstem.mux.sockets import Server

if TYPE_CHECKING:
    import ssl as ssl_module
    from collections.abc import Awaitable, Callable, Sequence

    from mainstem.clock import Clock
    from mainstem.jmux.session import Session
    from mainstem.jmux.settings import Settings

# Handlers of one connection that run at once: as many as it has session ids. A client that aborts a session may use its id
# again while the handler still runs; the new session waits then, and what it may send is bounded by its ration.
MAX_HANDLERS = MAX_SESSIONS


class ServerSession(SessionStream):
    """One request and the response to it.

    When the handler returns, the response is complete; it may be empty. A handler that raises, or is cancelled, aborts the
    session. It is cancelled when the client aborts, when the connection ends, and when the listener closes.

    Example:
        >>> async def handler(session):
        ...     session.write(await session.read(-1))
    """

    __slots__ = ("_acknowledged",)

    _engine: ServerConnection

    def __init__(self, engine: ServerConnection, session: Session) -> None:
        super().__init__(engine, session)
        self._acknowledged: asyncio.Future[bool] | None = None

    def finish(self, *, ack_required: bool = False) -> None:
        """Marks the response as complete. Twice is fine.

        Args:
            ack_required: Whether the client is asked to acknowledge that it processed the response
                (:meth:`acknowledged`).

        Raises:
            MainstemError: What ended the session.

        Example:
            >>> session.write(b"whole response")
            >>> session.finish()
        """
        session = self._handle
        self._check_writable()
        if session.eof_wanted or session.ended or session.server >= Half.FINISHED:
            return
        if ack_required:
            self._acknowledged = asyncio.get_running_loop().create_future()
        self._engine.sans_io.finish(session, ack_required=ack_required)
        self._engine.schedule_flush()

    @property
    def connection(self) -> ServerConnection:
        """The connection that the session belongs to, with the client's address and certificate."""
        return self._engine

    @property
    def caller_waiting(self) -> bool:
        """Whether the client still waits for the response; may be read in any thread.

        False once the client aborted the session, the connection ended, or the response is complete. A handler that waits for
        something is cancelled then anyway; one that computes can ask.
        """
        return not self._broken and self._engine.failure is None and self._handle.server is Half.OPEN

    async def acknowledged(self) -> bool:
        """Waits until the client has acknowledged the response.

        Returns:
            Whether it did; ``False`` as soon as the acknowledgment can no longer come, or was not asked for.

        Example:
            >>> session.finish(ack_required=True)
            >>> if not await session.acknowledged():
            ...     print("the client may not have processed the response")
        """
        if self._acknowledged is None:
            return False
        return await asyncio.shield(self._acknowledged)

    def reject(self, detail: str = "") -> None:
        """Ends the session and guarantees that nothing was processed, so that the client may retry.

        Args:
            detail: A text for the client.

        Raises:
            LocalProtocolError: Some of the request was read already.

        Example:
            >>> session.reject("too busy")
        """
        self._handle.processing = self._any_read
        self._end(detail, partial=False)

    def abort(self, detail: str = "") -> None:
        """Ends the session abruptly; the request may have been processed in part.

        Args:
            detail: A text for the client.

        Example:
            >>> session.abort("out of memory")
        """
        self._end(detail, partial=True)

    def _end(self, detail: str, *, partial: bool) -> None:
        session = self._handle
        self._end_abruptly(
            session.server, lambda: self._engine.sans_io.abort(session, detail.encode(), partial=partial)
        )

    def _writing_ended(self) -> bool:
        return self._handle.server >= Half.FINISHED

    # ---- called by the connection

    def acknowledgment_received(self, positive: bool) -> None:
        """Completes :meth:`acknowledged`; called by the connection.

        Args:
            positive: Whether the client acknowledged the response.

        Example:
            >>> session.acknowledgment_received(True)
        """
        if self._acknowledged is not None and not self._acknowledged.done():
            self._acknowledged.set_result(positive)

    def mark_processing(self) -> None:
        """Ends the guarantee that nothing of the request was processed; called by the connection.

        Example:
            >>> session.mark_processing()
        """
        self._handle.processing = True

    async def run(self, handler: Callable[[ServerSession], Awaitable[object]]) -> None:
        """Runs a handler and ends the session as its outcome requires; called by the connection.

        Args:
            handler: The handler.

        Raises:
            Exception: What the handler raised, unless it reports the end of this session.

        Example:
            >>> task = asyncio.create_task(session.run(handler))
        """
        try:
            await handler(self)
            await self._complete()
        except BaseException as error:
            is_own = self._is_own(error)
            self.abort("the handler failed")
            if not is_own:
                raise
            logger.debug("session %d of %s ended under its handler: %s", self.id, self._engine.peer_name, error)

    async def _complete(self) -> None:
        """Ends the session after a handler that returned."""
        session = self._handle
        if self._write_error is not None or session.ended:
            return
        if not session.eof_wanted and session.server is Half.OPEN:
            self.finish()
        await self._flush_in_time()
        if session.client is Half.OPEN and self._engine.failure is None:
            self._engine.sans_io.close(session)
            self._engine.schedule_flush()


class ServerConnection(JmuxConnection):
    """One connection of a server."""

    sans_io: ServerEngine

    def __init__(
        self,
        handler: Callable[[ServerSession], Awaitable[object]],
        settings: Settings | None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        super().__init__(ServerEngine(settings, now_ns=clock.monotonic_ns()), clock)
        self._handler = handler
        self._draining = False
        self._running = 0
        self._waiting: deque[ServerSession] = deque()
        self._handlers[events.SessionOpened] = self._on_opened
        self._handlers[events.Acknowledged] = self._on_acknowledged

    async def shutdown(self, deadline: float) -> None:
        """Lets running handlers finish until ``deadline`` (loop time), then sends Shutdown and ends the connection."""
        self._draining = True
        if not await wait_for_tasks(self.tasks, max(0.0, deadline - self._loop.time())):
            for session in list(self.sans_io.sessions.values()):
                if session.owner is not None and session.processing and session.server is not Half.TERMINATED:
                    session.owner.abort("shutting down")
            await cancel_and_wait(self.tasks, CLOSE_TIMEOUT_S)
        if self.failure is None:
            if self.sans_io.established:
                self.sans_io.shut_down(b"shutting down")
                self.dispatch()
            self.end(ClosedError("the server was shut down"))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.1, min(deadline - self._loop.time(), CLOSE_TIMEOUT_S))):
                await self.wait_ended()
        if self._transport is not None:
            self._transport.abort()

    def _on_opened(self, event: events.SessionOpened) -> None:
        session = ServerSession(self, event.session)
        self.traffic.streams_opened += 1
        if self._draining:
            return
        if self._running < MAX_HANDLERS:
            self._start_handler(session)
            return
        if len(self._waiting) >= MAX_HANDLERS:  # some of them were aborted: no more than this are open
            self._waiting = deque(waiting for waiting in self._waiting if not waiting._broken)
        self._waiting.append(session)

    def _start_handler(self, session: ServerSession) -> None:
        self._running += 1
        session.mark_processing()
        task = self.spawn(session.run(self._handler))
        session._attach_handler(task)
        task.add_done_callback(lambda _: self._on_handler_ended())

    def _on_handler_ended(self) -> None:
        self._running -= 1
        while self._waiting and not self._draining and not self.over:
            session = self._waiting.popleft()
            if not session._broken:
                self._start_handler(session)
                return

    def _on_acknowledged(self, event: events.Acknowledged) -> None:
        event.session.owner.acknowledgment_received(event.positive)


class JmuxListener(Server[ServerConnection]):
    """A listening server. A context manager; :func:`serve` returns it.

    Example:
        >>> async with await jmux.serve(handler, "127.0.0.1", 7001) as listener:
        ...     print(listener.port)
    """


async def serve(
    handler: Callable[[ServerSession], Awaitable[object]],
    host: str | Sequence[str] | None = None,
    port: int | None = None,
    *,
    path: str | None = None,
    ssl: ssl_module.SSLContext | None = None,
    settings: Settings | None = None,
    max_connections: int = MAX_CONNECTIONS,
    max_connections_per_address: int = MAX_CONNECTIONS_PER_ADDRESS,
    handshake_timeout: float | None = HANDSHAKE_TIMEOUT_S,
) -> JmuxListener:
    """Listens over TCP, TLS or a Unix socket.

    Args:
        handler: Called with each session, in a task of its own.
        host: The address or name to listen on, or several; ``None`` for all interfaces.
        port: The TCP port of every address; 0 or ``None`` for one that the system chooses.
        path: The path of a Unix socket, in place of host and port. The file of a server that was killed is replaced.
        ssl: A server-side context, for TLS.
        settings: The configuration of each connection.
        max_connections: Connections at once (1024 by default), with those that are gone and whose handlers still run. A further
            one replaces a connection that has sent nothing yet, or is closed if there is no such connection.
        max_connections_per_address: Of these, from one IPv4 address or IPv6 /64 network (256 by default); raise it where
            clients come through a proxy.
        handshake_timeout: Seconds for TLS and for the peer's first byte (15 by default); ``None`` for no limit.

    Returns:
        The listener, which is a context manager.

    Raises:
        ConfigurationError: The address cannot be listened on, or another server listens on the path.

    Example:
        >>> async with await jmux.serve(handler, "127.0.0.1", 7001) as listener:
        ...     await asyncio.Event().wait()
    """
    listener = JmuxListener(
        lambda: ServerConnection(handler, settings),
        protocol=ServerEngine.PROTOCOL,
        max_connections=max_connections,
        max_connections_per_address=max_connections_per_address,
        handshake_timeout=handshake_timeout,
    )
    await listener._start(host, port, path=path, ssl=ssl)
    return listener

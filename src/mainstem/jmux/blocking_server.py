"""The server whose handlers block: the asyncio server, run by a thread, with a thread for each handler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mainstem._internal.handler_threads import HandlerThreads
from mainstem._internal.loop_thread import LoopThread
from mainstem.jmux import aio_server
from mainstem.jmux.blocking_session import Session
from mainstem.jmux.settings import Settings
from mainstem.mux.blocking import Server

if TYPE_CHECKING:
    import ssl as ssl_module
    from collections.abc import Callable, Sequence


class ServerSession(Session[aio_server.ServerSession]):
    """One request and the response to it. Each call that waits takes ``timeout`` in seconds and raises ``Timeout``.

    When the handler returns, the response is complete; it may be empty. A handler that raises aborts the session.

    Example:
        >>> def handler(session):
        ...     session.write(session.read(-1))
    """

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
        self._thread.call(lambda: self._inner.finish(ack_required=ack_required))

    @property
    def caller_waiting(self) -> bool:
        """Whether the client still waits for the response.

        False once the client aborted the session, the connection ended, or the response is complete. What a handler waits for
        ends then with an error; a handler that computes can ask.
        """
        return self._inner.caller_waiting

    def acknowledged(self, *, timeout: float | None = None) -> bool:
        """Waits until the client has acknowledged the response.

        Args:
            timeout: Seconds to wait; ``None`` waits without a limit.

        Returns:
            Whether it did; ``False`` as soon as the acknowledgment can no longer come, or was not asked for.

        Raises:
            Timeout: The timeout passed.

        Example:
            >>> session.finish(ack_required=True)
            >>> if not session.acknowledged():
            ...     print("the client may not have processed the response")
        """
        return self._thread.run(self._inner.acknowledged(timeout=timeout))

    def reject(self, detail: str = "") -> None:
        """Ends the session and guarantees that nothing was processed, so that the client may retry.

        Args:
            detail: A text for the client.

        Raises:
            LocalProtocolError: Some of the request was read already.

        Example:
            >>> session.reject("too busy")
        """
        self._thread.call(self._inner.reject, detail)

    def close(self) -> None:
        """Completes the response and waits until it has left; the return of the handler does the same. Twice is fine.

        Raises:
            Timeout: The client took nothing for the settings' ``stall_timeout``; ``unsent`` bytes were not sent.
            MainstemError: What ended the session before the response had left, unless a call raised it before.

        Example:
            >>> session.write(b"whole response")
            >>> session.close()
        """
        self._thread.run(self._inner.close)


def serve(
    handler: Callable[[ServerSession], object],
    host: str | Sequence[str] | None = "127.0.0.1",
    port: int | None = None,
    *,
    path: str | None = None,
    ssl: ssl_module.SSLContext | None = None,
    settings: Settings | None = None,
    **overrides: Any,
) -> Server:
    """Listens for requests over TCP, TLS or a Unix socket.

    What a handler raises aborts its session, is logged and counted (``stats().handlers_failed``), unless it is the error with
    which its own session or connection ended.

    Args:
        handler: Called with each session, in a thread of its own. Once the client aborts the session, the connection ends or the
            server closes, what the handler waits for on the session raises.
        host: The address or name to listen on, or several. The default is reachable from this machine only; ``None`` listens on
            all interfaces.
        port: The TCP port of every address; 0 or ``None`` for one that the system chooses.
        path: The path of a Unix socket, in place of host and port. The file of a server that was killed is replaced.
        ssl: A server-side context, for TLS; or give the settings' ``certificate`` and ``key``.
        settings: The limits and times of the server and its connections.
        overrides: Fields of :class:`Settings`, in place of those of ``settings``.

    Returns:
        The server, which is a context manager.

    Raises:
        ConfigurationError: The address cannot be listened on, or another server listens on the path.

    Example:
        >>> with jmux.serve(handler, "127.0.0.1", 7001) as server:
        ...     server.wait()
    """
    made = Settings.of(settings, overrides)
    threads = HandlerThreads(made.max_handlers, made.max_handlers_per_address)

    async def start(thread: LoopThread) -> Server:
        def view(session: aio_server.ServerSession) -> ServerSession:
            session._begin()
            return ServerSession(thread, session)

        adapted = threads.adapt(handler, view)
        return Server(thread, await aio_server.start_server(adapted, host, port, path=path, ssl=ssl, settings=made))

    def undo(outcome: Server | BaseException) -> None:
        if isinstance(outcome, Server):
            outcome._inner.abort()

    return LoopThread.running(start, undo)

"""The blocking server, which has its own thread, and a thread for each handler."""

from __future__ import annotations

import logging
import threading
import warnings
from typing import TYPE_CHECKING, Any, Self, TypeVar

from mainstem._internal.exit_cleanup import INHERITED, close_at_exit
from mainstem._internal.made import Made
from mainstem._internal.overrides import apply_overrides
from mainstem.aeron.agent import AgentRunner
from mainstem.aeron.client.waiting import Waiting, run
from mainstem.aeron.idle import BackoffIdle
from mainstem.duologue.channels import HOST, PORT, ServerChannels
from mainstem.duologue.ends import CLOSE_TIMEOUT, BlockingEnd, DuologueEnd
from mainstem.duologue.messages import INTERNAL_ERROR
from mainstem.duologue.server_agent import HANDLER_TIMEOUT, ServerAgent, ServerEnd, reason_after
from mainstem.duologue.settings import Settings
from mainstem.errors import ClosedError, Timeout

if TYPE_CHECKING:
    import os
    from collections.abc import Callable
    from types import TracebackType

    from mainstem.aeron.client.client import Aeron
    from mainstem.aeron.client.waiting import Steps
    from mainstem.duologue.crypto import ServerKey
    from mainstem.duologue.session import Session

T = TypeVar("T")

logger = logging.getLogger("mainstem.duologue")


class Duologue(DuologueEnd, BlockingEnd):
    """One client's duologue, for its handler. Iterating yields messages until the client leaves.

    Any thread may use it.

    Example:
        >>> def handler(duologue: Duologue) -> None:
        ...     for message in duologue:
        ...         duologue.send(message)
    """

    @property
    def _lock(self) -> threading.Condition:
        assert isinstance(self._session.changed, threading.Condition)
        return self._session.changed

    def _run(self, steps: Steps[T]) -> T:
        changed = self._lock
        with changed:
            return run(steps, lambda wait: changed.wait(wait and wait.left))

    def close(self, error: str = "", timeout: float | None = CLOSE_TIMEOUT) -> None:
        """End the duologue once everything has been sent. Idempotent.

        Args:
            error: A reason for the client, whose calls raise ConnectRefused. Without one, the duologue ends in order.
            timeout: Seconds to wait for the end; None waits forever. After a timeout, the duologue ends anyway.

        Raises:
            Timeout: The duologue did not end in time.
            MainstemError: The error that ended the duologue before, if no other call has raised it.
        """
        self._run(self._closing(error, timeout))


class _Handlers:
    def __init__(self, handler: Callable[[Duologue], object]) -> None:
        self._handler = handler
        self._ended = threading.Condition()
        self._threads: set[threading.Thread] = set()

    def start(self, session: Session) -> None:
        """Start the handler for a client that joined. The server's thread calls this."""
        thread = threading.Thread(
            target=self._run, args=(session,), name=f"mainstem-duologue-{session.session_id}", daemon=True
        )
        session.has_handler = True
        with self._ended:
            self._threads.add(thread)
        try:
            thread.start()
        except RuntimeError as error:
            logger.error("[%d] no thread for the handler: %s", session.session_id, error)
            session.close(INTERNAL_ERROR)
            self._end(session, thread)

    def _run(self, session: Session) -> None:
        failure: BaseException | None = None
        try:
            self._handler(Duologue(session))
        except BaseException as error:
            failure = error
        with session.changed:
            session.close(reason_after(failure, session))
        self._end(session, threading.current_thread())

    def _end(self, session: Session, thread: threading.Thread) -> None:
        session.has_handler = False
        with self._ended:
            self._threads.discard(thread)
            self._ended.notify_all()

    def wait(self, timeout: float | None) -> int:
        """Wait until all handlers except the caller have ended. Returns how many have not."""
        me = threading.current_thread()
        with self._ended:
            self._ended.wait_for(lambda: not self._threads - {me}, timeout)
            return len(self._threads - {me})


class Server(ServerEnd, metaclass=Made, made_by="mainstem.duologue.serve()"):
    """A server of duologues with its own thread, which runs until it is closed. Start it with `serve`. It is a context manager.

    Example:
        >>> with serve(echo, "192.0.2.1", max_clients=64) as server:
        ...     server.wait()
    """

    def __init__(
        self,
        handler: Callable[[Duologue], object],
        channels: ServerChannels,
        **more: Any,
    ) -> None:
        self._closed = True
        self._is_left = False
        self._handlers = _Handlers(handler)
        self._agent = ServerAgent(channels, self._handlers.start, threading.Condition, **more)
        self._agent.connect()
        self._runner = AgentRunner(self._agent, BackoffIdle())
        self._runner.start()
        self._closed = False
        close_at_exit(self)

    @property
    def closed(self) -> bool:
        """Whether the server is closed."""
        return self._closed

    def wait(self, timeout: float | None = None) -> None:
        """Wait until the server has ended, because of `close` or an error, which is then in ``error``.

        Args:
            timeout: Seconds to wait; None waits forever.

        Raises:
            Timeout: The server did not end in time. It continues.
        """
        if self._is_left:
            raise ClosedError(INHERITED)
        if not self._runner.join(timeout):
            raise Timeout(f"wait for the end of the server: timed out after {timeout:g} s", timeout=timeout)

    def shutdown(self, timeout: float | None = None) -> None:
        """Refuse new clients, wait until all handlers have returned, and close.

        Args:
            timeout: Seconds after which handlers that still run lose their duologues; None waits forever.
        """
        if not self._closed:
            self._agent.core.stop_accepting()
            self._handlers.wait(timeout)
            self.close()

    def close(self) -> None:
        """End every duologue, the server, and the driver if this server started it. Idempotent.

        Messages that were already sent still reach the clients. Handlers can receive messages that arrived before the close; after
        that, their calls raise ClosedError. The server waits up to 10 s for the handlers to end.
        """
        self._close(waits=True)

    def abort(self) -> None:
        """End at once, without waiting for handlers. Clients learn that their duologues were aborted."""
        if not self._is_left:
            self._agent.is_aborted = True
            self._close(waits=False)

    def _close(self, *, waits: bool) -> None:
        if self._closed:
            return
        self._closed = True
        try:
            self._runner.close()
            if waits:
                if left := self._handlers.wait(HANDLER_TIMEOUT):
                    logger.warning("%d handlers go on %g s after their duologues ended", left, HANDLER_TIMEOUT)
                run(self._agent.releasing(), Waiting())
            self._agent.disconnect()
        except BaseException:
            # A signal handler raised during the wait, so let the next call close the rest.
            self._closed = False
            raise

    def _leave_to_parent(self) -> None:
        """Give up ownership in a forked child: the threads, the driver and the clients belong to the parent."""
        self._closed = self._is_left = True
        self._agent.leave_to_parent()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if not getattr(self, "_closed", True):
            try:
                warnings.warn(
                    f"a duologue server on {self._agent.channels.name} was not closed", ResourceWarning, stacklevel=2
                )
            finally:
                self.abort()


def serve(
    handler: Callable[[Duologue], object],
    host: str = HOST,
    port: int = PORT,
    *,
    key: ServerKey | None = None,
    settings: Settings | None = None,
    aeron: Aeron | None = None,
    directory: str | os.PathLike[str] | None = None,
    **overrides: Any,
) -> Server:
    """Start a server of duologues.

    Args:
        handler: A function that handles one duologue. It is called in its own thread for each client that joins. When it returns,
            the duologue ends.
        host: The local IP address to listen on.
        port: The port of the all-clients channel. Unless the settings say otherwise, the control port is the next one, and each
            duologue uses two ports from ``port + 10`` on.
        key: The server's key pair, which turns encryption on.
        settings: Limits and timeouts.
        aeron: A media driver client to use.
        directory: The directory of a media driver to connect to. Without it and ``aeron``, a driver is started.
        **overrides: Fields of `Settings` that override those in ``settings``.

    Returns:
        The running server, a context manager.

    Raises:
        ConfigurationError: A setting is invalid.
        RegistrationError: The driver cannot bind an address.

    Example:
        >>> def echo(duologue):
        ...     for message in duologue:
        ...         duologue.send(message)
        >>> with serve(echo, "192.0.2.1", max_clients=64) as server:
        ...     server.wait()
    """
    channels = ServerChannels(host, port, apply_overrides(Settings, settings, overrides))
    return Server.made(handler, channels, aeron=aeron, directory=directory, key=key)

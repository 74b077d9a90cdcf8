"""Server: the server in a thread of its own."""

from __future__ import annotations

import warnings
from concurrent.futures import Future
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self, TypeVar

from mainstem.aeron.agent import AgentRunner
from mainstem.aeron.idle import BackoffIdle
from mainstem.duologue.handler import Handler
from mainstem.duologue.lifecycle import ServerLife
from mainstem.duologue.limits import checked_message
from mainstem.duologue.settings import ServerSettings, server_settings
from mainstem.unclosed import finalise_at_exit

if TYPE_CHECKING:
    import os
    from collections.abc import Callable
    from types import TracebackType

    from mainstem.aeron.client.client import Aeron
    from mainstem.duologue.crypto import ServerKey
    from mainstem.duologue.server_core import ServerCore
    from mainstem.duologue.session import Duologue
    from mainstem.duologue.stats import ServerStats
    from mainstem.errors import MainstemError

T = TypeVar("T")


class _Function(Handler):
    """A handler that is one function."""

    def __init__(self, function: Callable[[Duologue, bytes], object]) -> None:
        self._function = function

    def on_message(self, duologue: Duologue, message: bytes) -> None:
        """Call it."""
        self._function(duologue, message)


class Server:
    """A server of duologues, started by `serve`, in a thread of its own until it is closed. A context manager.

    Args:
        handler: A `Handler`, or a function that is called with a duologue and a message. Both run in the server's one
            thread and must not block it.
        settings: The settings.
        aeron: A client of a media driver to use.
        directory: The directory of a media driver to connect to; without it and ``aeron``, a driver is started.
        key: The server's key pair, which switches encryption on.

    Raises:
        ConfigurationError: A setting cannot be used.
        RegistrationError: The driver cannot bind an address.

    Example:
        >>> with serve(Echo(), "192.0.2.1", max_clients=64) as server:
        ...     server.wait()
    """

    def __init__(
        self,
        handler: Handler | Callable[[Duologue, bytes], object],
        settings: ServerSettings,
        *,
        aeron: Aeron | None = None,
        directory: str | os.PathLike[str] | None = None,
        key: ServerKey | None = None,
    ) -> None:
        self._closed = True
        self.settings = settings
        self._life = ServerLife(handler if isinstance(handler, Handler) else _Function(handler), self.settings)
        self._core = self._life.connect(aeron, directory, key)
        self._runner = AgentRunner(self._life, BackoffIdle(), on_start=self._life.confinement)
        self._runner.start()
        self._closed = False
        finalise_at_exit(self)

    @property
    def closed(self) -> bool:
        """Whether it is closed."""
        return self._closed

    @property
    def error(self) -> MainstemError | None:
        """The error that ended the server, if one did: its driver has ended."""
        return self._life.failure

    def call(self, function: Callable[[ServerCore], T]) -> Future[T]:
        """Run a function in the server's thread, where duologues may be used.

        Args:
            function: Called with the server's core.

        Returns:
            A future of the function's result. What is called before the server ends is run; one that is cancelled is not.

        Raises:
            ClosedError: The server has ended.

        Example:
            >>> clients = server.call(lambda core: len(core.duologues)).result(timeout=1)
        """
        future: Future[T] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(function(self._core))
            except Exception as error:
                future.set_exception(error)

        self._core.call_soon(run)
        return future

    def stats(self) -> ServerStats:
        """Read the server's counts.

        Returns:
            A copy: the counts since the start.

        Example:
            >>> server.stats().duologues_opened
        """
        return replace(self._core.stats)

    def broadcast(self, message: bytes | str) -> None:
        """Send a message to every client that is there; one whose queue is full is left out, and is about to be ended.

        Args:
            message: At most ``max_message_length`` bytes of the core; text is encoded as UTF-8.

        Raises:
            ValueError: The message is too long.
            TypeError: The message is neither text nor a bytes-like object.
            ClosedError: The server has ended.

        Example:
            >>> server.broadcast("the server ends at noon")
        """
        # Checked here: what is raised in the server's thread would reach no caller.
        data = checked_message(message, self._core.max_message_length)
        self.call(lambda core: core.broadcast(data))

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the server has ended.

        Args:
            timeout: Seconds to wait at most; None waits for ever.

        Returns:
            Whether it has ended.

        Example:
            >>> server.wait(timeout=60)
        """
        return self._runner.join(timeout)

    def close(self) -> None:
        """End every duologue, the server, and the driver that was started for it. May be called again.

        Example:
            >>> server.close()
        """
        if not self._closed:
            self._closed = True
            try:
                self._runner.close()
                self._life.disconnect()
            except BaseException:
                # A signal handler raised while this waited: the next call closes the rest.
                self._closed = False
                raise

    def _leave_to_parent(self) -> None:
        """In a forked child: threads, driver and clients are the parent's."""
        self._closed = True

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
                    f"a duologue server on {self.settings.address} was not closed", ResourceWarning, stacklevel=2
                )
            finally:
                self.close()


def serve(
    handler: Handler | Callable[[Duologue, bytes], object],
    host: str | None = None,
    port: int | None = None,
    *,
    settings: ServerSettings | None = None,
    aeron: Aeron | None = None,
    directory: str | os.PathLike[str] | None = None,
    key: ServerKey | None = None,
    **overrides: Any,
) -> Server:
    """Start a server of duologues.

    Args:
        handler: A `Handler`, or a function that is called with a duologue and a message. Both run in the server's one
            thread and must not block it.
        host: The address of this machine to bind: the setting ``address``.
        port: The port of the all-clients channel: the setting ``initial_port``. The control port is the next one, unless
            ``initial_control_port`` is given.
        settings: The settings; the other arguments override them.
        aeron: A client of a media driver to use.
        directory: The directory of a media driver to connect to; without it and ``aeron``, a driver is started.
        key: The server's key pair, which switches encryption on.
        **overrides: Settings by name, as `ServerSettings` has them.

    Returns:
        The running server, a context manager.

    Raises:
        ConfigurationError: A setting cannot be used.
        RegistrationError: The driver cannot bind an address.
        TypeError: A setting is given twice or does not exist, or there is no address.

    Example:
        >>> with serve(Echo(), "192.0.2.1", max_clients=64) as server:
        ...     server.wait()
    """
    return Server(handler, server_settings(settings, host, port, overrides), aeron=aeron, directory=directory, key=key)

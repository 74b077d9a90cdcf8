"""Client: a duologue that works in the thread of its caller."""

from __future__ import annotations

import warnings
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self, TypeVar

from mainstem.aeron.idle import BackoffIdle
from mainstem.duologue.environment import Confinement
from mainstem.duologue.lifecycle import ClientLife
from mainstem.duologue.settings import ClientSettings, client_settings
from mainstem.errors import ClosedError, MainstemError
from mainstem.unclosed import finalise_at_exit

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator
    from types import TracebackType

    from mainstem.aeron.client.client import Aeron
    from mainstem.duologue.client_core import Step
    from mainstem.duologue.lifecycle import Steps

T = TypeVar("T")


class Client:
    """A duologue with a server, opened by `connect`. A context manager.

    It has no thread: its duty cycles run inside `send`, `receive` and `poll`, always in the same thread.

    Args:
        settings: Where the server is, and what this side does.
        aeron: A client of a media driver to use.
        directory: The directory of a media driver to connect to; without it and ``aeron``, a driver is started.

    Example:
        >>> with connect("192.0.2.1") as duologue:
        ...     duologue.send("ECHO tide")
        ...     print(duologue.receive(timeout=5))
    """

    def __init__(
        self,
        settings: ClientSettings,
        *,
        aeron: Aeron | None = None,
        directory: str | os.PathLike[str] | None = None,
    ) -> None:
        self._closed = True
        self.settings = settings
        self._assert_thread = Confinement("a duologue client")
        self._idle = BackoffIdle()
        self._life = ClientLife(settings)
        self._life.connect(aeron, directory)
        self._life.start()
        self._closed = False
        finalise_at_exit(self)

    @property
    def closed(self) -> bool:
        """Whether it is closed."""
        return self._closed

    @property
    def session_id(self) -> int:
        """The session of both streams of the duologue."""
        return self._life.core.duologue_session

    @property
    def is_encrypted(self) -> bool:
        """Whether messages are encrypted."""
        return bool(self.settings.server_key)

    @property
    def max_message_length(self) -> int:
        """The longest message that can be sent, in bytes."""
        return self._life.core.max_message_length

    @property
    def step(self) -> Step:
        """The step of connecting that the client is at, or what came of it."""
        return self._life.core.step

    def _run(self, steps: Steps[T]) -> T:
        """Run a procedure to its end; idles this thread between its duty cycles."""
        while True:
            try:
                work = next(steps)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            self._idle.idle(work)

    def _check_open(self) -> None:
        """Raise where another thread calls, or the client is closed."""
        self._assert_thread()
        if self._closed:
            raise ClosedError("the duologue client is closed")

    def send(self, message: bytes | str) -> None:
        """Send a message; returns once the stream has accepted it.

        Args:
            message: At most ``max_message_length`` bytes; text is encoded as UTF-8.

        Raises:
            BackPressured: The server did not make room for 500 ms.
            NotConnected: The server was not connected for 500 ms.
            ConnectRefused: The server ended the duologue with a reason.
            ClosedError: The server ended the duologue, or this client is closed.
            ValueError: The message is too long.
            TypeError: The message is neither text nor a bytes-like object.

        Example:
            >>> duologue.send("ECHO tide")
        """
        self._check_open()
        self._run(self._life.sending(message))

    def receive(self, timeout: float | None = None) -> bytes:
        """Receive the next message.

        Args:
            timeout: Seconds to wait at most; None waits for ever.

        Returns:
            The message, decrypted where the duologue is encrypted.

        Raises:
            Timeout: No message came in time. None is lost: the next call receives it.
            ConnectRefused: The server ended the duologue with a reason.
            ClosedError: The server ended the duologue, or this client is closed.

        Example:
            >>> message = duologue.receive(timeout=5)
        """
        self._assert_thread()
        return self._run(self._life.receiving(timeout))

    def poll(self) -> bytes | None:
        """Receive the next message if one is there; never waits.

        Returns:
            The message; None where there is none now.

        Raises:
            ConnectRefused: The server ended the duologue with a reason.
            ClosedError: The server ended the duologue, or this client is closed.

        Example:
            >>> if (message := duologue.poll()) is not None:
            ...     print(message)
        """
        self._check_open()
        core = self._life.core
        message = core.receive()
        if message is None:
            self._life.work()
            message = core.receive()
        return message

    def __iter__(self) -> Iterator[bytes]:
        """Iterate over messages until the server ends the duologue. Raises ConnectRefused where it gave a reason."""
        while True:
            try:
                yield self.receive()
            except ClosedError:
                return

    def close(self) -> None:
        """Leave the duologue, and end the driver that was started for it. May be called again.

        Example:
            >>> duologue.close()
        """
        if self._closed:
            return
        self._closed = True
        try:
            self._run(self._life.closing())
        finally:
            self._life.disconnect()

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
                    f"a duologue client of {self.settings.server} was not closed", ResourceWarning, stacklevel=2
                )
            finally:
                with suppress(MainstemError):
                    self.close()


def connect(
    host: str | None = None,
    port: int | None = None,
    *,
    settings: ClientSettings | None = None,
    aeron: Aeron | None = None,
    directory: str | os.PathLike[str] | None = None,
    **overrides: Any,
) -> Client:
    """Open a duologue with a server.

    Args:
        host: The server's address: the setting ``server``.
        port: The port of the server's all-clients channel: the setting ``initial_port``. The control port is the next one,
            unless ``initial_control_port`` is given.
        settings: The settings; the other arguments override them.
        aeron: A client of a media driver to use.
        directory: The directory of a media driver to connect to; without it and ``aeron``, a driver is started.
        **overrides: Settings by name, as `ClientSettings` has them.

    Returns:
        The open client, a context manager.

    Raises:
        ConnectTimeout: A step of connecting took too long; the error names the step.
        ConnectRefused: The server refused this client, with its reason.
        RegistrationError: The driver refused a channel.
        ConfigurationError: A setting cannot be used.
        TypeError: A setting is given twice or does not exist, or there is no server.

    Example:
        >>> with connect("192.0.2.1", timeout=2) as duologue:
        ...     duologue.send("ECHO tide")
    """
    client = Client(client_settings(settings, host, port, overrides), aeron=aeron, directory=directory)
    try:
        client._run(client._life.opening())
    except BaseException:
        client.close()
        raise
    return client

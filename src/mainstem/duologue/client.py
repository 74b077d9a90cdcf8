"""The blocking client, whose duologue runs in the caller's thread."""

from __future__ import annotations

import threading
import warnings
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from mainstem._internal.exit_cleanup import close_at_exit
from mainstem._internal.made import Made
from mainstem._internal.overrides import apply_overrides
from mainstem.aeron.client.waiting import Waiting, run
from mainstem.duologue.channels import PORT, ClientChannels
from mainstem.duologue.ends import CLOSE_TIMEOUT, STEP_TIMEOUT, BlockingEnd, ClientEnd
from mainstem.duologue.settings import Settings
from mainstem.errors import MainstemError

if TYPE_CHECKING:
    import os
    from contextlib import AbstractContextManager

    from mainstem.aeron.client.client import Aeron
    from mainstem.aeron.client.waiting import Steps

T = TypeVar("T")


class Client(ClientEnd, BlockingEnd, metaclass=Made, made_by="mainstem.duologue.connect()"):
    """A duologue with a server. Open it with `connect`. It is a context manager.

    It has no thread: its duty cycles run inside `send`, `receive` and `poll` (`ends.BlockingEnd`). Any number of threads may call
    them. `ends.ClientEnd` has what it shares with the client for asyncio: connecting, closing, aborting.

    Example:
        >>> with connect("192.0.2.1") as duologue:
        ...     duologue.send("ECHO tide")
        ...     print(duologue.receive(timeout=5))
    """

    def __init__(self, channels: ClientChannels, **more: Any) -> None:
        super().__init__(channels, **more)
        # Reentrant, because a signal handler may make a call in the middle of a step.
        self._rlock = threading.RLock()
        self._connect()
        close_at_exit(self)

    @property
    def _lock(self) -> AbstractContextManager[object]:
        return self._rlock

    def _run(self, steps: Steps[T]) -> T:
        return run(steps, Waiting(), lambda: self._rlock)

    def close(self, timeout: float | None = CLOSE_TIMEOUT) -> None:
        """Leave the duologue once the server has received everything, and end the driver if this client started it. Idempotent.

        Messages from the server that were not received yet are dropped.

        Args:
            timeout: Seconds to wait for the server; None waits forever.

        Raises:
            Aborted: The server's handler returned without reading all messages.
            ConnectionLost: The server did not confirm in time that it has received everything, or sent no heartbeat.
            MainstemError: The error that ended the duologue, if no call has raised it.
        """
        if self._is_over:
            return
        self._is_over = True
        try:
            failure = self._run(self._closing(timeout))
        finally:
            self._disconnect()
        if failure is not None:
            raise failure

    def abort(self) -> None:
        """End the duologue at once. The server learns of the abort. Messages that it has not received are lost."""
        if self._is_left:
            return
        with self._lock:
            self._abort()
        self._disconnect()

    def _leave_to_parent(self) -> None:
        super()._leave_to_parent()
        # Another thread of the parent may have held the lock.
        self._rlock = threading.RLock()

    def __del__(self) -> None:
        if getattr(self, "_connection", None) is not None and not self._is_over:
            try:
                warnings.warn(
                    f"a duologue client of {self._channels.name} was not closed", ResourceWarning, stacklevel=2
                )
            finally:
                with suppress(MainstemError):
                    self.abort()


def connect(
    host: str,
    port: int = PORT,
    *,
    timeout: float | None = STEP_TIMEOUT,
    server_key: bytes = b"",
    local_address: str = "",
    settings: Settings | None = None,
    aeron: Aeron | None = None,
    directory: str | os.PathLike[str] | None = None,
    **overrides: Any,
) -> Client:
    """Open a duologue with a server.

    Args:
        host: The server's address.
        port: The port of the server's all-clients channel.
        timeout: Seconds for each step of connecting; None waits forever.
        server_key: The server's public key (`ServerKey.public`), which turns encryption on.
        local_address: The local address to use; empty for any.
        settings: Limits and timeouts.
        aeron: A media driver client to use.
        directory: The directory of a media driver to connect to. Without it and ``aeron``, a driver is started.
        **overrides: Fields of `Settings` that override those in ``settings``.

    Returns:
        The open client, a context manager.

    Raises:
        ConnectTimeout: A step of connecting took too long. The error names the step.
        ConnectRefused: The server refused this client, for the reason in the error.
        RegistrationError: The driver refused a channel.
        ConfigurationError: A setting is invalid.

    Example:
        >>> with connect("192.0.2.1", timeout=2) as duologue:
        ...     duologue.send("ECHO tide")
    """
    client = Client.made(
        ClientChannels(host, port, apply_overrides(Settings, settings, overrides), local_address),
        timeout=timeout,
        server_key=server_key,
        aeron=aeron,
        directory=directory,
    )
    try:
        client._run(client._opening())
    except BaseException:
        client.close()
        raise
    return client

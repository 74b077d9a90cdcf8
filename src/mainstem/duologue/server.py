"""DuologueServer: the server in a thread of its own."""

from __future__ import annotations

import logging
import warnings
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Self, TypeVar

from mainstem.aeron.agent import AgentRunner, AgentTerminated
from mainstem.aeron.idle import BackoffIdle
from mainstem.duologue.environment import Confinement, Connection, secure_random
from mainstem.duologue.handler import Handler
from mainstem.duologue.server_core import ServerCore
from mainstem.duologue.settings import ServerSettings
from mainstem.errors import MainstemError

if TYPE_CHECKING:
    import os
    from collections.abc import Callable
    from types import TracebackType

    from mainstem.aeron.client.client import Aeron
    from mainstem.duologue.crypto import ServerKey
    from mainstem.duologue.session import Duologue

T = TypeVar("T")
logger = logging.getLogger("mainstem.duologue.server")


class _Function(Handler):
    """A handler that is one function."""

    def __init__(self, function: Callable[[Duologue, bytes], object]) -> None:
        self._function = function

    def on_message(self, duologue: Duologue, message: bytes) -> None:
        """Calls it."""
        self._function(duologue, message)


class _Agent:
    """The core as an agent that ends itself when its driver has gone."""

    role_name = "mainstem-duologue-server"

    def __init__(self, core: ServerCore) -> None:
        self.core = core
        self.failure: MainstemError | None = None

    def do_work(self, now_ns: int) -> int:
        try:
            return self.core.do_work(now_ns)
        except MainstemError as error:
            self.failure = error
            logger.error("the server ends: %s", error)
            raise AgentTerminated from error

    def on_close(self) -> None:
        self.core.close()


class DuologueServer:
    """Serves duologues until it is closed. A context manager; ``close`` may be called twice.

    ``handler`` is a ``Handler``, or a function that is called with a duologue and a message; both run in the server's one
    thread, which must not be held up. ``aeron`` is a client to use, ``directory`` that of a driver to connect to; with neither,
    the server starts a driver of its own. ``key`` switches encryption on. ``overrides`` are settings by name.

    Raises ConfigurationError for settings that cannot be, RegistrationError when the driver cannot bind their addresses.
    """

    def __init__(
        self,
        handler: Handler | Callable[[Duologue, bytes], object],
        settings: ServerSettings | None = None,
        *,
        aeron: Aeron | None = None,
        directory: str | os.PathLike[str] | None = None,
        key: ServerKey | None = None,
        **overrides: Any,
    ) -> None:
        self._closed = True
        self.settings = ServerSettings(**overrides) if settings is None else settings
        made = handler if isinstance(handler, Handler) else _Function(handler)
        self._connection = Connection(
            aeron=aeron,
            directory=directory,
            driver_settings=self.settings.driver_settings(),
            name="mainstem duologue server",
        )
        confinement = Confinement("the server's state")
        try:
            self._core = ServerCore(
                self._connection.aeron,
                self.settings,
                made,
                chance=secure_random(),
                key=key,
                assert_thread=confinement,
            )
        except BaseException:
            self._connection.close()
            raise
        self._agent = _Agent(self._core)
        self._runner = AgentRunner(self._agent, BackoffIdle(), on_start=confinement)
        self._runner.start()
        self._closed = False

    @property
    def failure(self) -> MainstemError | None:
        """Why the server ended by itself, if it did: its driver has gone."""
        return self._agent.failure

    def call(self, function: Callable[[ServerCore], T]) -> Future[T]:
        """Runs a function in the server's thread, where duologues may be used; its result comes in the future."""
        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(function(self._core))
            except Exception as error:
                future.set_exception(error)

        self._core.call_soon(run)
        return future

    def statistics(self) -> dict[str, int]:
        """What has been counted so far."""
        return self._core.statistics.as_dict()

    def broadcast(self, message: bytes | str) -> None:
        """Sends to everybody who is there; one who does not keep up loses its own duologue, and nothing else."""
        self.call(lambda core: core.broadcast(message))

    def wait(self, timeout: float | None = None) -> bool:
        """Until the server has ended; false when ``timeout`` seconds were not enough."""
        return self._runner.join(timeout)

    def close(self) -> None:
        """Ends every duologue, the server, and the driver that it started. May be called twice."""
        if not self._closed:
            self._closed = True
            self._runner.close()
            self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if not getattr(self, "_closed", True):
            warnings.warn(f"a duologue server on {self.settings.address} was not closed", ResourceWarning, stacklevel=2)
            self.close()

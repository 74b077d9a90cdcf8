"""The life cycle of a duologue server and of a client, written once for threads and for asyncio.

A life opens a client of the media driver (and the driver, where none was named), runs a core, and closes both in the
reverse order. What has to wait on the way is a generator that yields between two duty cycles how much work the last one
did. Who runs the generator decides how to wait: `Client` idles its thread, `aio.Client` awaits a pause
of the event loop. A generator that is abandoned between two yields has taken no message, so a receive may be cancelled.

``connect`` and ``disconnect`` may block for as long as a driver takes to start and to end; asyncio runs them in a thread.
"""

from __future__ import annotations

import logging
from collections.abc import Generator
from typing import TYPE_CHECKING, TypeVar

from mainstem.aeron.agent import AgentTerminated
from mainstem.clock import NS_PER_SECOND, seconds_ns
from mainstem.duologue.client_core import ClientCore
from mainstem.duologue.environment import Confinement, DriverConnection, secure_random
from mainstem.duologue.server_core import ServerCore
from mainstem.errors import ClosedError, MainstemError, Timeout

if TYPE_CHECKING:
    import os

    from mainstem.aeron.client.client import Aeron
    from mainstem.clock import Clock
    from mainstem.duologue.crypto import ServerKey
    from mainstem.duologue.handler import Handler
    from mainstem.duologue.settings import ClientSettings, ServerSettings

T = TypeVar("T")
Steps = Generator[int, None, T]
"""A procedure that waits: it yields how much work was done, and returns its result."""

logger = logging.getLogger("mainstem.duologue.server")

CLOSE_NS = 2 * NS_PER_SECOND
"""How long a closing client waits for the driver's last responses."""


class ServerLife:
    """A server from its first connection to the driver until the last; an agent, for whatever runs its duty cycles."""

    role_name = "mainstem-duologue-server"

    def __init__(self, handler: Handler, settings: ServerSettings) -> None:
        self.failure: MainstemError | None = None
        self.confinement = Confinement("the server's state")
        self._handler = handler
        self._settings = settings
        self._connection: DriverConnection | None = None
        self._core: ServerCore | None = None

    def connect(
        self, aeron: Aeron | None, directory: str | os.PathLike[str] | None, key: ServerKey | None
    ) -> ServerCore:
        """Open the all-clients channel. Raises what `serve` raises; nothing is left open then."""
        assert self._connection is None, "a server is opened once at a time"
        self._connection = DriverConnection(
            aeron=aeron,
            directory=directory,
            driver_settings=self._settings.driver_settings(),
            name="mainstem duologue server",
        )
        try:
            self._core = ServerCore(
                self._connection.aeron,
                self._settings,
                self._handler,
                chance=secure_random(),
                key=key,
                assert_thread=self.confinement,
            )
        except BaseException:
            self.disconnect()
            raise
        return self._core

    @property
    def core(self) -> ServerCore:
        """The server itself, also once it has ended. Raises ClosedError before it was opened."""
        if self._core is None:
            raise ClosedError("the server is not running")
        return self._core

    @property
    def is_connected(self) -> bool:
        """Whether it has been opened, and not closed."""
        return self._connection is not None

    @property
    def clock(self) -> Clock:
        """The clock of the client of the driver."""
        assert self._connection is not None
        return self._connection.aeron.context.clock

    def do_work(self, now_ns: int) -> int:
        """One duty cycle. Raises AgentTerminated where the server cannot go on, and sets ``failure``."""
        try:
            return self.core.do_work(now_ns)
        except MainstemError as error:
            self.failure = error
            logger.error("the server ends: %s", error)
            raise AgentTerminated from error

    def on_close(self) -> None:
        """End every duologue, with ``failure`` as the reason where there is one. May be called again."""
        if self._core is not None:
            self._core.close("the server was closed" if self.failure is None else str(self.failure))

    def disconnect(self) -> None:
        """Close the client of the driver, and the driver that was started here. May be called again."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


class ClientLife:
    """A client from its first connection to the driver until the last."""

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._connection: DriverConnection | None = None
        self._core: ClientCore | None = None

    def connect(self, aeron: Aeron | None, directory: str | os.PathLike[str] | None) -> None:
        """Connect to the driver, or start one."""
        assert self._connection is None, "a client is opened once at a time"
        self._connection = DriverConnection(
            aeron=aeron,
            directory=directory,
            driver_settings=self._settings.driver_settings(),
            name="mainstem duologue client",
        )

    @property
    def core(self) -> ClientCore:
        """The client itself, also once it is closed. Raises ClosedError before it was opened."""
        if self._core is None:
            raise ClosedError("the duologue client is closed")
        return self._core

    @property
    def is_connected(self) -> bool:
        """Whether it has been opened, and not closed."""
        return self._connection is not None

    @property
    def clock(self) -> Clock:
        """The clock of the client of the driver. Raises ClosedError while it is not open."""
        if self._connection is None:
            raise ClosedError("the duologue client is closed")
        return self._connection.aeron.context.clock

    def work(self) -> int:
        """One duty cycle. Raises what `ClientCore.do_work` raises."""
        return self.core.do_work(self.clock.monotonic_ns())

    def start(self) -> None:
        """Begin to open the duologue; `opening` goes on. Where it fails, nothing is left open."""
        assert self._connection is not None, "connect first"
        try:
            self._core = ClientCore(
                self._connection.aeron, self._settings, chance=secure_random(), now_ns=self.clock.monotonic_ns()
            )
        except BaseException:
            self.disconnect()
            raise

    def opening(self) -> Steps[None]:
        """Take every step until the duologue is open."""
        while not self.core.is_open:
            yield self.work()

    def sending(self, message: bytes | str) -> Steps[None]:
        """Send a message, until the stream has accepted it."""
        core = self.core
        core.send(message, self.clock.monotonic_ns())
        while core.queued:
            yield self.work()

    def receiving(self, timeout: float | None) -> Steps[bytes]:
        """Receive a message, for ``timeout`` seconds at most."""
        core = self.core
        # What came before the close can still be received after it.
        message = core.receive()
        if message is None:
            clock = self.clock
            deadline_ns = None if timeout is None else clock.monotonic_ns() + seconds_ns(timeout)
            work = self.work()
            while (message := core.receive()) is None:
                if deadline_ns is not None and clock.monotonic_ns() >= deadline_ns:
                    raise Timeout(f"no message came within {timeout:g} s", timeout=timeout)
                yield work
                work = self.work()
        return message

    def closing(self) -> Steps[None]:
        """Leave the duologue: until the driver has responded to every command, two seconds at most."""
        if self._core is None or self._connection is None:
            return
        aeron, clock = self._connection.aeron, self.clock
        deadline_ns = clock.monotonic_ns() + CLOSE_NS
        while not self._core.close() and not aeron.closed and clock.monotonic_ns() < deadline_ns:
            aeron.invoke()
            yield 0

    def disconnect(self) -> None:
        """Close the client of the driver, and the driver that was started here. May be called again."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

"""Duologues for asyncio: the same server and client, run by the event loop. The door to asyncio.

async def talk(duologue):
    async for message in duologue:
        await duologue.send(message)

async with aio.serve(talk, address="127.0.0.1"): ...
async with aio.connect("127.0.0.1") as duologue: ...
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

from mainstem.aeron.aio import Pause
from mainstem.clock import NS_PER_SECOND
from mainstem.duologue.client_core import ClientCore
from mainstem.duologue.environment import Confinement, Connection, secure_random
from mainstem.duologue.handler import BadMessage, Handler
from mainstem.duologue.messages import BAD_MESSAGE, INTERNAL_ERROR
from mainstem.duologue.server_core import ServerCore
from mainstem.duologue.settings import ClientSettings, ServerSettings
from mainstem.errors import ClosedError, MainstemError, TimedOut

if TYPE_CHECKING:
    import os
    from collections.abc import AsyncIterator, Awaitable, Callable
    from types import TracebackType

    from mainstem.aeron.client.client import Aeron
    from mainstem.duologue.crypto import ServerKey
    from mainstem.duologue.session import Duologue

__all__ = ["AsyncDuologue", "AsyncDuologueClient", "AsyncDuologueServer", "connect", "serve"]

logger = logging.getLogger("mainstem.duologue.server")

MAX_UNREAD = 256  # messages of one client that its task has not taken; then the client feels back pressure
CLOSE_SECONDS = 2.0  # how long a close waits for the driver's last answer


class AsyncDuologue:
    """One client's duologue, for the task that serves it. Iterating gives its messages until it has gone."""

    def __init__(self, inner: Duologue) -> None:
        self.inner = inner
        self._unread: deque[bytes] = deque()
        self._changed = asyncio.Event()
        self._reason: str | None = None

    @property
    def reason(self) -> str | None:
        """Why it ended; None while it goes on."""
        return self._reason

    async def send(self, message: bytes | str) -> None:
        """Sends, after what waits already has gone. Raises ClosedError when the client has gone, ValueError when too long."""
        while self.inner.is_open and self.inner.queued:
            await asyncio.sleep(0.0005)
        self.inner.send(message)

    def close(self, error: str = "") -> None:
        """Ends it; ``error`` is told to the client before."""
        self.inner.close(error)

    async def receive(self) -> bytes:
        """The next message. Raises ClosedError when the client has gone."""
        while not self._unread:
            if self._reason is not None:
                raise ClosedError(f"duologue {self.inner.session_id} ended: {self._reason}")
            self._changed.clear()
            await self._changed.wait()
        message = self._unread.popleft()
        self.inner.paused = len(self._unread) >= MAX_UNREAD
        return message

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            try:
                yield await self.receive()
            except ClosedError:
                return

    def put(self, message: bytes) -> None:
        """For the server: a message came."""
        self._unread.append(message)
        self.inner.paused = len(self._unread) >= MAX_UNREAD
        self._changed.set()

    def end(self, reason: str) -> None:
        """For the server: the duologue has ended."""
        self._reason = reason
        self._changed.set()


class _Tasks(Handler):
    """Gives every duologue a task."""

    def __init__(self, talk: Callable[[AsyncDuologue], Awaitable[object]]) -> None:
        self._talk = talk
        self.tasks: set[asyncio.Task[None]] = set()

    def on_open(self, duologue: Duologue) -> None:
        """Starts its task."""
        face = AsyncDuologue(duologue)
        duologue.user = face
        task = asyncio.get_running_loop().create_task(self._run(face))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def on_message(self, duologue: Duologue, message: bytes) -> None:
        """Hands it over."""
        if isinstance(duologue.user, AsyncDuologue):
            duologue.user.put(message)

    def on_close(self, duologue: Duologue, reason: str) -> None:
        """Ends its iteration."""
        if isinstance(duologue.user, AsyncDuologue):
            duologue.user.end(reason)

    async def _run(self, face: AsyncDuologue) -> None:
        try:
            await self._talk(face)
        except BadMessage:
            face.close(BAD_MESSAGE)
        except ClosedError:
            face.close()
        except Exception:
            logger.exception("[%d] its task failed", face.inner.session_id)
            face.close(INTERNAL_ERROR)
        else:
            face.close()


class AsyncDuologueServer:
    """A server that the event loop runs; ``async with``, or ``await start()`` and ``await close()``."""

    def __init__(
        self,
        handler: Handler | Callable[[AsyncDuologue], Awaitable[object]],
        settings: ServerSettings,
        *,
        aeron: Aeron | None,
        directory: str | os.PathLike[str] | None,
        key: ServerKey | None,
    ) -> None:
        self.settings = settings
        self.failure: MainstemError | None = None
        self._handler = handler if isinstance(handler, Handler) else _Tasks(handler)
        self._aeron = aeron
        self._directory = directory
        self._key = key
        self._connection: Connection | None = None
        self._core: ServerCore | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> Self:
        """Opens the all-clients channel. Raises what ``DuologueServer`` raises."""

        def open_core() -> ServerCore:
            self._connection = Connection(
                aeron=self._aeron,
                directory=self._directory,
                driver_settings=self.settings.driver_settings(),
                name="mainstem duologue server",
            )
            return ServerCore(
                self._connection.aeron,
                self.settings,
                self._handler,
                chance=secure_random(),
                key=self._key,
                assert_thread=Confinement("the server's state"),
            )

        try:
            # Starting a driver takes a moment, and the loop may have other things to do.
            self._core = await asyncio.to_thread(open_core)
        except BaseException:
            await self._disconnect()
            raise
        self._task = asyncio.get_running_loop().create_task(self._run(self._core))
        return self

    @property
    def core(self) -> ServerCore:
        """The server itself, to be used in the loop's thread. Raises ClosedError while it is not running."""
        if self._core is None:
            raise ClosedError("the server is not running")
        return self._core

    def broadcast(self, message: bytes | str) -> None:
        """Sends to everybody who is there."""
        self.core.broadcast(message)

    async def _run(self, core: ServerCore) -> None:
        assert self._connection is not None
        clock = self._connection.aeron.context.clock
        pause = Pause(clock, None)
        while True:
            try:
                work = core.do_work(clock.monotonic_ns())
            except MainstemError as error:
                self.failure = error
                logger.error("the server ends: %s", error)
                return
            if work:
                pause.restart()
            await pause.step()

    async def close(self) -> None:
        """Ends every duologue and the server. May be called twice."""
        core, self._core = self._core, None
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        if core is not None:
            core.close()
        if isinstance(self._handler, _Tasks):
            for task in list(self._handler.tasks):
                task.cancel()
            await asyncio.gather(*self._handler.tasks, return_exceptions=True)
        await self._disconnect()

    async def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await asyncio.to_thread(connection.close)

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class AsyncDuologueClient:
    """A duologue with a server; ``async with connect(...)``, or ``await open()`` and ``await close()``."""

    def __init__(
        self, settings: ClientSettings, *, aeron: Aeron | None, directory: str | os.PathLike[str] | None
    ) -> None:
        self.settings = settings
        self._aeron = aeron
        self._directory = directory
        self._connection: Connection | None = None
        self._core: ClientCore | None = None

    async def open(self) -> Self:
        """Gets the duologue. Raises StepTimedOut, Refused, RegistrationError."""
        try:
            self._connection = await asyncio.to_thread(
                lambda: Connection(
                    aeron=self._aeron,
                    directory=self._directory,
                    driver_settings=self.settings.driver_settings(),
                    name="mainstem duologue client",
                )
            )
            clock = self._connection.aeron.context.clock
            self._core = ClientCore(
                self._connection.aeron, self.settings, chance=secure_random(), now_ns=clock.monotonic_ns()
            )
            pause = Pause(clock, None)
            while not self._core.is_open:
                if self._core.do_work(clock.monotonic_ns()):
                    pause.restart()
                await pause.step()
        except BaseException:
            await self.close()
            raise
        return self

    @property
    def core(self) -> ClientCore:
        """The client itself. Raises ClosedError while it is not open."""
        if self._core is None:
            raise ClosedError("the duologue client is closed")
        return self._core

    def _work(self) -> int:
        assert self._connection is not None
        return self.core.do_work(self._connection.aeron.context.clock.monotonic_ns())

    async def send(self, message: bytes | str) -> None:
        """Sends; returns once the stream has taken it. Raises as ``DuologueClient.send``."""
        data = message.encode() if isinstance(message, str) else bytes(message)
        core = self.core
        assert self._connection is not None
        clock = self._connection.aeron.context.clock
        core.send(data, clock.monotonic_ns())
        pause = Pause(clock, None)
        while core.queued:
            self._work()
            await pause.step()

    async def receive(self, *, timeout: float | None = None) -> bytes:
        """The next message. Raises TimedOut, Refused or ClosedError."""
        core = self.core
        assert self._connection is not None
        pause = Pause(self._connection.aeron.context.clock, timeout)
        while (message := core.receive()) is None:
            self._work()
            message = core.receive()
            if message is not None:
                break
            if not await pause.step():
                raise TimedOut(f"no message came within {timeout:g} s", timeout=timeout)
        return message

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            try:
                yield await self.receive()
            except ClosedError:
                return

    async def close(self) -> None:
        """Leaves the duologue. May be called twice."""
        core, self._core = self._core, None
        connection, self._connection = self._connection, None
        if connection is None:
            return
        if core is not None:
            clock = connection.aeron.context.clock
            deadline_ns = clock.monotonic_ns() + round(CLOSE_SECONDS * NS_PER_SECOND)
            while not core.close() and not connection.aeron.closed and clock.monotonic_ns() < deadline_ns:
                connection.aeron.invoke()
                await asyncio.sleep(0.001)
        await asyncio.to_thread(connection.close)

    async def __aenter__(self) -> Self:
        return await self.open() if self._core is None else self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def serve(
    handler: Handler | Callable[[AsyncDuologue], Awaitable[object]],
    settings: ServerSettings | None = None,
    *,
    aeron: Aeron | None = None,
    directory: str | os.PathLike[str] | None = None,
    key: ServerKey | None = None,
    **overrides: Any,
) -> AsyncDuologueServer:
    """A server for ``async with``. ``handler`` is an asynchronous function that serves one duologue, or a ``Handler``."""
    made = ServerSettings(**overrides) if settings is None else settings
    return AsyncDuologueServer(handler, made, aeron=aeron, directory=directory, key=key)


def connect(
    server: str | None = None,
    *,
    settings: ClientSettings | None = None,
    aeron: Aeron | None = None,
    directory: str | os.PathLike[str] | None = None,
    **overrides: Any,
) -> AsyncDuologueClient:
    """A client for ``async with``; the parameters are those of ``DuologueClient.connect``."""
    made = ClientSettings(server=server or "", **overrides) if settings is None else settings
    return AsyncDuologueClient(made, aeron=aeron, directory=directory)

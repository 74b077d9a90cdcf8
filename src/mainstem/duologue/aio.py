"""Duologues for asyncio: the API of `mainstem.duologue`, with coroutine handlers that each run in their own task.

``connect`` and ``serve`` return an object that you can await or use with ``async with``.

Example:
    >>> async def echo(duologue):
    ...     async for message in duologue:
    ...         await duologue.send(message)
    >>> async with aio.serve(echo):
    ...     async with aio.connect("127.0.0.1") as duologue:
    ...         await duologue.send("ECHO tide")

Everything except starting and ending a media driver runs in the event loop's thread. A server's duty cycles run in one task. A
client's run while it opens, sends, receives or closes.
"""

from __future__ import annotations

import asyncio
import logging
from abc import abstractmethod
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self, TypeVar

from mainstem._internal.address_prefixes import AddressPrefixes
from mainstem._internal.clock import SYSTEM_CLOCK, timeout_of
from mainstem._internal.exit_cleanup import INHERITED, leave_at_fork
from mainstem._internal.lazy import lazy_names
from mainstem._internal.made import Made
from mainstem._internal.opening import Opening
from mainstem._internal.overrides import apply_overrides
from mainstem._internal.tasks import as_coroutine_function, start_task, within
from mainstem.aeron.agent import AgentTerminated
from mainstem.aeron.aio.waiting import Pause, run
from mainstem.duologue.channels import HOST, PORT, ClientChannels, ServerChannels
from mainstem.duologue.ends import CLOSE_TIMEOUT, STEP_TIMEOUT, ClientEnd, DuologueEnd, End
from mainstem.duologue.server_agent import HANDLER_TIMEOUT, ServerAgent, ServerEnd, reason_after
from mainstem.duologue.session import Unlocked
from mainstem.duologue.settings import Settings
from mainstem.duologue.stats import DuologueStats, ServerStats
from mainstem.errors import ClosedError

if TYPE_CHECKING:
    import os
    from collections.abc import AsyncIterator, Awaitable, Callable
    from types import TracebackType

    from mainstem.aeron.client.client import Aeron
    from mainstem.aeron.client.waiting import Steps
    from mainstem.duologue.crypto import ServerKey
    from mainstem.duologue.session import Session
    from mainstem.errors import MainstemError

T = TypeVar("T")

__all__ = [
    "AddressPrefixes",
    "Client",
    "Duologue",
    "DuologueStats",
    "Server",
    "ServerKey",
    "ServerStats",
    "Settings",
    "connect",
    "serve",
]

# Loaded lazily, because only this name needs the extra for encryption.
__getattr__, __dir__ = lazy_names(__name__, {"ServerKey": "mainstem.duologue.crypto"})

logger = logging.getLogger("mainstem.duologue")


class _Changed(Unlocked):
    """The condition of a session that is used only in the event loop, so it needs no lock."""

    def __init__(self) -> None:
        super().__init__()
        self._event = asyncio.Event()

    def notify_all(self) -> None:
        self._event.set()

    async def wait(self, timeout: float | None) -> None:
        self._event.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_of(timeout)):
                await self._event.wait()


async def _in_thread(open_it: Callable[[], object], close_it: Callable[[], object]) -> None:
    """Open something in a thread. If this call is cancelled, close it again."""
    opening = asyncio.ensure_future(asyncio.to_thread(open_it))
    try:
        await asyncio.shield(opening)
    except asyncio.CancelledError:
        await asyncio.wait([opening])
        if not opening.exception():
            await asyncio.to_thread(close_it)
        raise


async def _to_the_end(function: Callable[[], object]) -> None:
    """Run a function in a thread until it ends, even if this call is cancelled."""
    running = asyncio.ensure_future(asyncio.to_thread(function))
    while not running.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait([running])
    running.result()


async def _join(task: asyncio.Task[None]) -> None:
    """Wait for a task that shuts something down. If this call is cancelled, the task is too, and then finishes at once."""
    try:
        await asyncio.wait([task])
    except asyncio.CancelledError:
        task.cancel()
        while not task.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([task])
        raise
    if not task.cancelled():
        task.result()


class _AsyncEnd(End):
    """An end that sends and receives in the event loop."""

    @abstractmethod
    async def _run(self, steps: Steps[T]) -> T:
        """Run a procedure, and wait between its steps."""

    @abstractmethod
    async def close(self) -> None: ...

    @abstractmethod
    def abort(self) -> None: ...

    async def send(self, message: bytes | str, timeout: float | None = None) -> None:
        """Send a message. If this call is cancelled, it has sent nothing."""
        await self._run(self._sending(message, timeout))

    async def receive(self, timeout: float | None = None) -> bytes:
        """Receive the next message. If this call is cancelled, it has received nothing."""
        return await self._run(self._receiving(timeout))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.abort()
        await self.close()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            try:
                yield await self.receive()
            except ClosedError:
                if self.error is not None or self._is_left:
                    raise
                return


class Duologue(DuologueEnd, _AsyncEnd):
    """One client's duologue, for the coroutine that handles it. Iterating yields messages until the client leaves.

    Example:
        >>> async def handler(duologue: Duologue) -> None:
        ...     async for message in duologue:
        ...         await duologue.send(message)
    """

    async def _run(self, steps: Steps[T]) -> T:
        changed = self._session.changed
        assert isinstance(changed, _Changed)
        return await run(steps, lambda wait: changed.wait(wait and wait.left))

    async def close(self, error: str = "", timeout: float | None = CLOSE_TIMEOUT) -> None:
        """End the duologue once everything has been sent. It ends even if this call is cancelled."""
        await self._run(self._closing(error, timeout))


class _Handlers:
    def __init__(self, handler: Callable[[Duologue], Awaitable[object]]) -> None:
        self._handler = as_coroutine_function(handler)
        self.tasks: set[asyncio.Task[None]] = set()

    def start(self, session: Session) -> None:
        """Start the handler for a client that joined. If it outlives its duologue by ``HANDLER_TIMEOUT``, it is cancelled."""
        loop = asyncio.get_running_loop()
        session.has_handler = True
        task = start_task(self._run(session), loop)
        self.tasks.add(task)

        def on_done(task: asyncio.Task[None]) -> None:
            session.has_handler = False
            self.tasks.discard(task)
            if cancelling:
                cancelling.pop().cancel()
            if task.cancelled():
                session.close()

        def on_end() -> None:
            if not task.done():
                cancelling.append(loop.call_later(HANDLER_TIMEOUT, task.cancel))

        cancelling: list[asyncio.TimerHandle] = []
        task.add_done_callback(on_done)
        session.on_end = on_end

    async def _run(self, session: Session) -> None:
        failure: Exception | None = None
        try:
            await self._handler(Duologue(session))
        except Exception as error:
            failure = error
        session.close(reason_after(failure, session))

    async def wait(self, timeout: float | None) -> set[asyncio.Task[None]]:
        tasks = self.tasks - {asyncio.current_task()}
        if not tasks:
            return set()
        _, left = await asyncio.wait(tasks, timeout=timeout)
        return left


class Server(ServerEnd, metaclass=Made, made_by="mainstem.duologue.aio.serve()"):
    """A server of duologues that the event loop runs. Start it with `serve`. It is an asynchronous context manager.

    Example:
        >>> async with aio.serve(echo, "192.0.2.1") as server:
        ...     await server.wait()
    """

    def __init__(self, handler: Callable[[Duologue], Awaitable[object]], channels: ServerChannels, **more: Any) -> None:
        self._handlers = _Handlers(handler)
        self._agent = ServerAgent(channels, self._handlers.start, _Changed, **more)
        self._task: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._is_left = False
        leave_at_fork(self)

    def _leave_to_parent(self) -> None:
        self._is_left = True
        self._agent.leave_to_parent()

    async def _open(self) -> Self:
        # Starting a driver takes a moment. Use a thread, so that the event loop can run other tasks.
        await _in_thread(self._agent.connect, self._agent.disconnect)
        self._task = asyncio.get_running_loop().create_task(self._run())
        return self

    @property
    def closed(self) -> bool:
        """Whether the server is closed."""
        return self._is_left or self._agent.is_aborted or not self._agent.is_connected

    async def _run(self) -> None:
        agent = self._agent
        pause = Pause()
        with suppress(AgentTerminated):
            while True:
                if agent.do_work(SYSTEM_CLOCK.monotonic_ns()):
                    pause.restart()
                await pause()
        # Nothing arrives any more. Wake the tasks that wait for their duologues now, not only at ``close``.
        agent.on_close()

    async def wait(self, timeout: float | None = None) -> None:
        """Wait until the server has ended, because of `close` or an error, which is then in ``error``."""
        if self._is_left:
            raise ClosedError(INHERITED)
        if self._task is not None:
            # Do not await the task directly, or cancelling this call would cancel the task.
            await within(timeout, asyncio.wait([self._task]), "wait for the end of the server")

    async def shutdown(self, timeout: float | None = None) -> None:
        """Refuse new clients, wait until all handlers have returned, and close."""
        if not self.closed:
            self._agent.core.stop_accepting()
            await self._handlers.wait(timeout)
            await self.close()

    async def close(self) -> None:
        """End every duologue, cancel the handlers, and end the server. If this call is cancelled, it ends them without waiting."""
        if self._task is None or self._is_left:
            return
        if self._closing is None:
            self._task.cancel()
            self._closing = asyncio.get_running_loop().create_task(self._finish(waits=True))
        if asyncio.current_task() not in self._handlers.tasks:
            await _join(self._closing)

    def abort(self) -> None:
        """End at once. Clients learn that their duologues were aborted. Handlers are cancelled, without waiting for them."""
        if self._is_left:
            return
        self._agent.is_aborted = True
        if self._task is not None and self._closing is None:
            self._task.cancel()
            self._agent.on_close()
            self._closing = asyncio.get_running_loop().create_task(self._finish(waits=False))

    async def _finish(self, *, waits: bool) -> None:
        try:
            await self.wait()
            self._agent.on_close()
            for serving in self._handlers.tasks:
                serving.cancel()
            if waits:
                if left := await self._handlers.wait(HANDLER_TIMEOUT):
                    logger.warning("%d tasks go on %g s after they were cancelled", len(left), HANDLER_TIMEOUT)
                await run(self._agent.releasing(), Pause())
        finally:
            await _to_the_end(self._agent.disconnect)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class Client(ClientEnd, _AsyncEnd, metaclass=Made, made_by="mainstem.duologue.aio.connect()"):
    """A duologue with a server. Open it with `connect`. It is an asynchronous context manager.

    Example:
        >>> async with aio.connect("192.0.2.1") as duologue:
        ...     await duologue.send("ECHO tide")
        ...     print(await duologue.receive(timeout=5))
    """

    def __init__(self, channels: ClientChannels, **more: Any) -> None:
        super().__init__(channels, **more)
        self._ending: asyncio.Task[None] | None = None
        self._failure: MainstemError | None = None
        leave_at_fork(self)

    async def _open(self) -> Self:
        try:
            await _in_thread(self._connect, self._disconnect)
            await self._run(self._opening())
        except BaseException:
            self.abort()
            await self.close()
            raise
        return self

    async def _run(self, steps: Steps[T]) -> T:
        return await run(steps, Pause())

    async def close(self, timeout: float | None = CLOSE_TIMEOUT) -> None:
        """Leave the duologue once the server has received everything. If this call is cancelled, it aborts."""
        if self._is_left:
            return
        if self._ending is None and self._connection is not None:
            self._is_over = True
            self._ending = asyncio.get_running_loop().create_task(self._finish(timeout))
        if self._ending is not None:
            await _join(self._ending)
            # Raise the error once, in the first call that waits.
            failure, self._failure = self._failure, None
            if failure is not None:
                raise failure

    async def _finish(self, timeout: float | None, *, aborts: bool = False) -> None:
        try:
            if not aborts:
                self._failure = await self._run(self._closing(timeout))
        finally:
            self._abort()
            await _to_the_end(self._disconnect)

    def abort(self) -> None:
        """End the duologue at once, without waiting for the server."""
        if self._is_left:
            return
        self._abort()
        if self._ending is None:
            self._ending = asyncio.get_running_loop().create_task(self._finish(None, aborts=True))


def serve(
    handler: Callable[[Duologue], Awaitable[object]],
    host: str = HOST,
    port: int = PORT,
    *,
    key: ServerKey | None = None,
    settings: Settings | None = None,
    aeron: Aeron | None = None,
    directory: str | os.PathLike[str] | None = None,
    **overrides: Any,
) -> Opening[Server]:
    """Start a server. Use ``async with``, or ``await`` and later ``await server.close()``. Either raises failures to start."""
    channels = ServerChannels(host, port, apply_overrides(Settings, settings, overrides))
    server = Server.made(handler, channels, aeron=aeron, directory=directory, key=key)
    return Opening(server._open, "duologue.aio.serve()")


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
) -> Opening[Client]:
    """Open a duologue. Use ``async with``, or ``await`` and later ``await duologue.close()``. Either raises failures to open."""
    client = Client.made(
        ClientChannels(host, port, apply_overrides(Settings, settings, overrides), local_address),
        timeout=timeout,
        server_key=server_key,
        aeron=aeron,
        directory=directory,
    )
    return Opening(client._open, "duologue.aio.connect()")

"""Duologues for asyncio: the API of `mainstem.duologue`, whose waiting is the event loop's.

Example:
    >>> async def echo(duologue):
    ...     async for message in duologue:
    ...         await duologue.send(message)
    >>> async with aio.serve(echo, "127.0.0.1"):
    ...     async with aio.connect("127.0.0.1") as duologue:
    ...         await duologue.send("ECHO tide")

Everything but the start and the end of a media driver runs in the event loop's thread: the duty cycles of a server are one
task, those of a client run while it opens, sends, receives or closes. The handler of each duologue is a task of its own.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self, TypeVar

from mainstem._internal.clock import SYSTEM_CLOCK
from mainstem._internal.opening import Opening
from mainstem._internal.tasks import start_task
from mainstem.aeron.agent import AgentTerminated
from mainstem.aeron.aio.waiting import Pause
from mainstem.duologue.ends import CLOSE_TIMEOUT, ClientEnd, DuologueEnd, End
from mainstem.duologue.server_life import HANDLER_TIMEOUT, ServerEnd, ServerLife, reason_after
from mainstem.duologue.settings import ClientSettings, ServerSettings, client_settings, server_settings
from mainstem.errors import ClosedError

if TYPE_CHECKING:
    import os
    from collections.abc import AsyncIterator, Awaitable, Callable
    from types import TracebackType

    from mainstem.aeron.client.client import Aeron
    from mainstem.duologue.crypto import ServerKey
    from mainstem.duologue.ends import Steps
    from mainstem.duologue.session import Session
    from mainstem.errors import MainstemError

T = TypeVar("T")

__all__ = ["Client", "Duologue", "Server", "connect", "serve"]

logger = logging.getLogger("mainstem.duologue.server")


class _Changed:
    """The condition of a session in the event loop, whose one thread needs no lock."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def notify_all(self) -> None:
        self._event.set()

    async def wait(self, timeout: float | None) -> None:
        """Wait for a change that comes after this call."""
        self._event.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._event.wait()


async def _in_thread(open_it: Callable[[], object], close_it: Callable[[], object]) -> None:
    """Open something in a thread; where that is cancelled, nothing stays open."""
    opening = asyncio.ensure_future(asyncio.to_thread(open_it))
    try:
        await asyncio.shield(opening)
    except asyncio.CancelledError:
        await asyncio.wait([opening])
        if not opening.exception():
            await asyncio.to_thread(close_it)
        raise


async def _to_the_end(function: Callable[[], object]) -> None:
    """Run a function in a thread, and return when it has ended, whatever cancels this meanwhile."""
    running = asyncio.ensure_future(asyncio.to_thread(function))
    while not running.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait([running])
    running.result()


async def _join(task: asyncio.Task[None]) -> None:
    """Wait for a task that ends something; where this is cancelled, so is the task, which then ends it at once."""
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


class _Talk(End):
    """Sends and receives, in the event loop."""

    async def _run(self, steps: Steps[T]) -> T:
        """Run a procedure to its end; waits between its steps."""
        raise NotImplementedError

    async def send(self, message: bytes | str, timeout: float | None = None) -> None:
        """Send a message; returns once the stream has accepted it. A call that fails or is cancelled has sent nothing.

        Args:
            message: At most ``max_message_length`` bytes; text is encoded as UTF-8.
            timeout: Seconds to wait for room, at most; None waits forever.

        Raises:
            Timeout: The peer made no room in time.
            ConnectRefused: The server ended the duologue with a reason.
            ConnectionLost: Nothing was heard from the peer for ``heartbeat_timeout``.
            Aborted: The peer aborted the duologue.
            ClosedError: The peer has left, or this end is closed.
            ValueError: The message is too long.
            TypeError: The message is neither text nor a bytes-like object.

        Example:
            >>> await duologue.send("ECHO tide")
        """
        await self._run(self._sending(message, timeout))

    async def receive(self, timeout: float | None = None) -> bytes:
        """Receive the next message. A call that is cancelled has taken none.

        Args:
            timeout: Seconds to wait at most; None waits forever.

        Returns:
            The message, decrypted where the duologue is encrypted.

        Raises:
            Timeout: No message came in time. At a server also: the client sent nothing for ``idle_timeout``.
            ConnectRefused: The server ended the duologue with a reason.
            ConnectionLost: Nothing was heard from the peer for ``heartbeat_timeout``.
            Aborted: The peer aborted the duologue.
            ClosedError: The peer has left, or this end is closed. What came before was received.

        Example:
            >>> message = await duologue.receive(timeout=5)
        """
        return await self._run(self._receiving(timeout))

    async def close(self) -> None:
        """End it in order."""
        raise NotImplementedError

    def abort(self) -> None:
        """End it at once."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.abort()
        await self.close()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Iterate over messages until the peer leaves. Raises what `receive` raises for any other end."""
        while True:
            try:
                yield await self.receive()
            except ClosedError:
                return


class Duologue(DuologueEnd, _Talk):
    """As the blocking `mainstem.duologue.Duologue`, for the task that serves it.

    Example:
        >>> async def handler(duologue: Duologue) -> None:
        ...     async for message in duologue:
        ...         await duologue.send(message)
    """

    async def _run(self, steps: Steps[T]) -> T:
        changed = self._session.changed
        assert isinstance(changed, _Changed)
        while True:
            try:
                left = next(steps)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            await changed.wait(left)

    async def close(self, error: str = "", timeout: float | None = CLOSE_TIMEOUT) -> None:
        """End the duologue, after what was sent has gone out. May be called again; it ends also if this is cancelled.

        Args:
            error: A reason that the client receives: its calls raise ConnectRefused. Without one the duologue ends in order.
            timeout: Seconds to wait for the end, at most; None waits forever. It comes without that, too.

        Raises:
            Timeout: The duologue did not end in time.
            MainstemError: What ended the duologue before, if no call has raised it.

        Example:
            >>> await duologue.close("see you tomorrow")
        """
        await self._run(self._closing(error, timeout))


class _Handlers:
    """Runs the handler of each duologue in a task."""

    def __init__(self, handler: Callable[[Duologue], Awaitable[object]]) -> None:
        self._handler = handler
        self.tasks: set[asyncio.Task[None]] = set()

    def start(self, session: Session) -> None:
        """Start the handler of a client that joined. If it outlives its duologue, it is cancelled after a while."""
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
        """Wait until all have ended, but for the caller; returns those that have not."""
        tasks = self.tasks - {asyncio.current_task()}
        if not tasks:
            return set()
        _, left = await asyncio.wait(tasks, timeout=timeout)
        return left


class Server(ServerEnd):
    """As the blocking `mainstem.duologue.Server`, run by the event loop. An asynchronous context manager.

    Example:
        >>> async with aio.serve(echo, "192.0.2.1") as server:
        ...     await server.wait()
    """

    def __init__(
        self,
        handler: Callable[[Duologue], Awaitable[object]],
        settings: ServerSettings,
        *,
        aeron: Aeron | None = None,
        directory: str | os.PathLike[str] | None = None,
        key: ServerKey | None = None,
    ) -> None:
        self.settings = settings
        self._handlers = _Handlers(handler)
        self._life = ServerLife(settings, self._handlers.start, _Changed)
        self._resources = (aeron, directory, key)
        self._task: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None

    async def _open(self) -> Self:
        """Open the all-clients channel."""
        # Starting a driver takes a moment, in which the event loop may have other things to do.
        await _in_thread(lambda: self._life.connect(*self._resources), self._life.disconnect)
        self._task = asyncio.get_running_loop().create_task(self._run())
        return self

    @property
    def closed(self) -> bool:
        """Whether it is closed."""
        return not self._life.is_connected

    async def _run(self) -> None:
        life = self._life
        pause = Pause(SYSTEM_CLOCK, None)
        with suppress(AgentTerminated):
            while True:
                if life.do_work(SYSTEM_CLOCK.monotonic_ns()):
                    pause.restart()
                await pause.step()
        # Nothing arrives any more: the tasks of duologues, which wait for it, end now and not at ``close``.
        life.on_close()

    async def wait(self, timeout: float | None = None) -> bool:
        """Wait until the server has ended: by `close`, or by an error, which is its ``error`` then.

        Args:
            timeout: Seconds to wait at most; None waits forever.

        Returns:
            Whether it has ended; at once if it was not started.

        Example:
            >>> await server.wait()
        """
        if self._task is not None:
            # Not awaited as such: a cancellation of this call is not the task's.
            await asyncio.wait([self._task], timeout=timeout)
        return self._task is None or self._task.done()

    async def shutdown(self, timeout: float | None = None) -> None:
        """Refuse new clients, wait until the handlers have returned, and close.

        Args:
            timeout: Seconds after which handlers that still run lose their duologues; None waits forever.

        Example:
            >>> await server.shutdown(timeout=30)
        """
        if not self.closed:
            self._life.core.stop_accepting()
            await self._handlers.wait(timeout)
            await self.close()

    async def close(self) -> None:
        """End every duologue, cancel its handler, and end the server and the driver that was started for it. May be called again.

        Messages that were sent still reach the clients. Handlers are waited for, 10 s at most. A close that is cancelled ends
        everything without waiting.

        Example:
            >>> await server.close()
        """
        if self._task is None:
            return
        if self._closing is None:
            self._task.cancel()
            self._closing = asyncio.get_running_loop().create_task(self._finish(waits=True))
        if asyncio.current_task() not in self._handlers.tasks:
            await _join(self._closing)

    def abort(self) -> None:
        """End at once: the clients learn that their duologues were aborted, and no handler is waited for.

        Example:
            >>> server.abort()
        """
        self._life.is_aborted = True
        if self._task is not None and self._closing is None:
            self._task.cancel()
            self._life.on_close()
            self._closing = asyncio.get_running_loop().create_task(self._finish(waits=False))

    async def _finish(self, *, waits: bool) -> None:
        try:
            await self.wait()
            self._life.on_close()
            for serving in self._handlers.tasks:
                serving.cancel()
            if waits:
                if left := await self._handlers.wait(HANDLER_TIMEOUT):
                    logger.warning("%d tasks go on %g s after they were cancelled", len(left), HANDLER_TIMEOUT)
                pause = Pause(SYSTEM_CLOCK, None)
                while not self._life.has_released():
                    await pause.step()
        finally:
            await _to_the_end(self._life.disconnect)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class Client(ClientEnd, _Talk):
    """As the blocking `mainstem.duologue.Client`, opened by `connect`. An asynchronous context manager.

    Example:
        >>> async with aio.connect("192.0.2.1") as duologue:
        ...     await duologue.send("ECHO tide")
        ...     print(await duologue.receive(timeout=5))
    """

    def __init__(
        self, settings: ClientSettings, *, aeron: Aeron | None = None, directory: str | os.PathLike[str] | None = None
    ) -> None:
        super().__init__(settings, aeron=aeron, directory=directory)
        self._ending: asyncio.Task[None] | None = None
        self._failure: MainstemError | None = None

    @property
    def _has_ended(self) -> bool:
        return self._ending is not None or self._connection is None

    async def _open(self) -> Self:
        """Open the duologue."""
        try:
            await _in_thread(self._connect, self._disconnect)
            await self._run(self._opening())
        except BaseException:
            self.abort()
            await self.close()
            raise
        return self

    async def _run(self, steps: Steps[T]) -> T:
        pause = Pause(SYSTEM_CLOCK, None)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            await pause.step()

    async def close(self, timeout: float | None = CLOSE_TIMEOUT) -> None:
        """Leave the duologue, once the server has received everything, and end the driver that was started for it.

        What the server has sent and was not received is dropped. May be called again. A close that is cancelled aborts.

        Args:
            timeout: Seconds to wait for the server, at most; None waits forever.

        Raises:
            ConnectionLost: The server did not confirm in time that it has received everything, or was not heard from.
            MainstemError: What ended the duologue, if no call has raised it.

        Example:
            >>> await duologue.close()
        """
        if self._ending is None and self._connection is not None:
            self._ending = asyncio.get_running_loop().create_task(self._finish(timeout))
        if self._ending is not None:
            await _join(self._ending)
            # Raised once, to the first who waits for it.
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
        """End the duologue at once, without waiting for the server. What it has not received is lost; it learns of the abort.

        Example:
            >>> duologue.abort()
        """
        self._abort()
        if self._ending is None:
            self._ending = asyncio.get_running_loop().create_task(self._finish(None, aborts=True))


def serve(
    handler: Callable[[Duologue], Awaitable[object]],
    host: str | None = None,
    port: int | None = None,
    *,
    settings: ServerSettings | None = None,
    aeron: Aeron | None = None,
    directory: str | os.PathLike[str] | None = None,
    key: ServerKey | None = None,
    **overrides: Any,
) -> Opening[Server]:
    """Start a server: ``async with``, or ``await`` and later ``await server.close()``.

    Args:
        handler: An asynchronous function that serves one duologue, called in a task of its own for each client that joins. The
            duologue ends when it returns.
        host: The address of this machine to bind: the setting ``address``.
        port: The port of the all-clients channel: the setting ``initial_port``. The control port is the next one, unless
            ``initial_control_port`` is given.
        settings: The settings; the other arguments override them.
        aeron: A client of a media driver to use.
        directory: The directory of a media driver to connect to; without it and ``aeron``, a driver is started.
        key: The server's key pair, which switches encryption on.
        **overrides: Settings by name, as `ServerSettings` has them.

    Returns:
        What starts the server when it is awaited or entered.

    Raises:
        ConfigurationError: A setting cannot be used.
        RegistrationError: The driver cannot bind an address; raised when it starts.
        TypeError: A setting is given twice or does not exist, or there is no address.

    Example:
        >>> async with aio.serve(talk, "192.0.2.1") as server:
        ...     await server.wait()
    """
    server = Server(
        handler, server_settings(settings, host, port, overrides), aeron=aeron, directory=directory, key=key
    )
    return Opening(server._open, "duologue.aio.serve()")


def connect(
    host: str | None = None,
    port: int | None = None,
    *,
    settings: ClientSettings | None = None,
    aeron: Aeron | None = None,
    directory: str | os.PathLike[str] | None = None,
    **overrides: Any,
) -> Opening[Client]:
    """Open a duologue: ``async with``, or ``await`` and later ``await duologue.close()``.

    Args:
        host: The server's address: the setting ``server``.
        port: The port of the server's all-clients channel: the setting ``initial_port``. The control port is the next one,
            unless ``initial_control_port`` is given.
        settings: The settings; the other arguments override them.
        aeron: A client of a media driver to use.
        directory: The directory of a media driver to connect to; without it and ``aeron``, a driver is started.
        **overrides: Settings by name, as `ClientSettings` has them.

    Returns:
        What opens the duologue when it is awaited or entered.

    Raises:
        ConfigurationError: A setting cannot be used.
        ConnectTimeout: A step of connecting took too long; raised when it opens.
        ConnectRefused: The server refused this client, with its reason; raised when it opens.
        TypeError: A setting is given twice or does not exist, or there is no server.

    Example:
        >>> async with aio.connect("192.0.2.1") as duologue:
        ...     await duologue.send("ECHO tide")
    """
    client = Client(client_settings(settings, host, port, overrides), aeron=aeron, directory=directory)
    return Opening(client._open, "duologue.aio.connect()")

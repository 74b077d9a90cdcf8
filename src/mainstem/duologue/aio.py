"""Duologues for asyncio: the same server and client, whose waiting is the event loop's.

Example:
    >>> async def talk(duologue):
    ...     async for message in duologue:
    ...         await duologue.send(message)
    >>> async with aio.serve(talk, "127.0.0.1"):
    ...     async with aio.connect("127.0.0.1") as duologue:
    ...         await duologue.send("ECHO tide")

Everything but the start and the end of a media driver runs in the event loop's thread: the duty cycles of a server are one
task, those of a client run while it opens, sends, receives or closes. A task of its own serves each duologue of an
asynchronous handler; the server's task only puts messages on its queue. That queue is bounded: when it is full the
server does not read the client (``Duologue.paused``), which then feels back pressure.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self, TypeVar

from mainstem._internal.opening import Opening
from mainstem._internal.tasks import start_task
from mainstem.aeron.agent import AgentTerminated
from mainstem.aeron.aio.waiting import Pause
from mainstem.duologue.handler import Handler
from mainstem.duologue.lifecycle import ClientLife, ServerLife
from mainstem.duologue.messages import BAD_MESSAGE, INTERNAL_ERROR
from mainstem.duologue.settings import ClientSettings, ServerSettings, client_settings, server_settings
from mainstem.errors import BadMessage, ClosedError, MainstemError, OfferError

if TYPE_CHECKING:
    import os
    from collections.abc import AsyncIterator, Awaitable, Callable, Generator
    from types import TracebackType

    from mainstem.aeron.client.client import Aeron
    from mainstem.duologue.client_core import ClientCore
    from mainstem.duologue.crypto import ServerKey
    from mainstem.duologue.lifecycle import Steps
    from mainstem.duologue.server_core import ServerCore
    from mainstem.duologue.session import Duologue as InnerDuologue
    from mainstem.duologue.stats import ServerStats

T = TypeVar("T")

__all__ = ["Client", "Duologue", "Server", "connect", "serve"]

logger = logging.getLogger("mainstem.duologue.server")

MAX_UNREAD = 256
"""Messages of one client that its task has not received; then the client feels back pressure."""

CLOSE_LIMIT = 10.0
"""Seconds that closing a server waits for the tasks of its duologues, once they are cancelled."""

QUEUE_POLL = 0.0005
"""Seconds between two checks whether the messages before have been accepted."""


class Duologue:
    """One client's duologue, for the task that serves it. Iterating gives its messages until the client has gone.

    Example:
        >>> async def talk(duologue: Duologue) -> None:
        ...     async for message in duologue:
        ...         await duologue.send(message)
    """

    def __init__(self, inner: InnerDuologue) -> None:
        self.inner = inner
        self._unread: deque[bytes] = deque()
        self._changed = asyncio.Event()
        self._reason: str | None = None

    @property
    def reason(self) -> str | None:
        """Why it ended; None while it goes on."""
        return self._reason

    async def send(self, message: bytes | str) -> None:
        """Send a message, once those before it have been accepted.

        Args:
            message: At most ``inner.max_message_length`` bytes; text is encoded as UTF-8.

        Raises:
            ClosedError: The client has gone.
            ValueError: The message is too long.
            TypeError: The message is neither text nor a bytes-like object.

        Example:
            >>> await duologue.send("ECHO tide")
        """
        while self.inner.is_open and self.inner.queued:
            await asyncio.sleep(QUEUE_POLL)
        self.inner.send(message)

    def close(self, error: str = "") -> Closing:
        """End the duologue, after what was sent has gone out.

        Args:
            error: A reason that the client receives before; empty for none.

        Returns:
            What may be awaited, until the duologue has ended; it ends without that.

        Example:
            >>> await duologue.close("see you tomorrow")
        """
        self.inner.close(error)
        return Closing(self)

    async def wait_closed(self) -> None:
        """Wait until the duologue has ended.

        Example:
            >>> await duologue.wait_closed()
        """
        while self._reason is None:
            self._changed.clear()
            await self._changed.wait()

    async def receive(self) -> bytes:
        """Receive the next message. A call that is cancelled has taken none.

        Returns:
            The message, decrypted where the duologue is encrypted.

        Raises:
            ClosedError: The duologue has ended, and all its messages were received.

        Example:
            >>> message = await duologue.receive()
        """
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
        """Queue a message that came; called by the server.

        Args:
            message: The message.

        Example:
            >>> duologue.put(b"ECHO tide")
        """
        self._unread.append(message)
        self.inner.paused = len(self._unread) >= MAX_UNREAD
        self._changed.set()

    def end(self, reason: str) -> None:
        """Note that the duologue has ended; called by the server.

        Args:
            reason: Why, in a few words.

        Example:
            >>> duologue.end("silent for too long")
        """
        self._reason = reason
        self._changed.set()


class Closing:
    """What `Duologue.close` returns: awaiting it waits until the duologue has ended."""

    def __init__(self, duologue: Duologue) -> None:
        self._duologue = duologue

    def __await__(self) -> Generator[Any, None, None]:
        return self._duologue.wait_closed().__await__()


async def _connect(life: ServerLife | ClientLife, *resources: Any) -> None:
    """Open a life in a thread; where that is cancelled, nothing stays open."""
    opening = asyncio.ensure_future(asyncio.to_thread(life.connect, *resources))
    try:
        await asyncio.shield(opening)
    except asyncio.CancelledError:
        await asyncio.wait([opening])
        if not opening.exception():
            await asyncio.to_thread(life.disconnect)
        raise


class _Tasks(Handler):
    """Runs a task for every duologue."""

    def __init__(self, talk: Callable[[Duologue], Awaitable[object]]) -> None:
        self._talk = talk
        self.tasks: set[asyncio.Task[None]] = set()
        self._by_duologue: dict[InnerDuologue, asyncio.Task[None]] = {}

    def on_open(self, duologue: InnerDuologue) -> None:
        """Start its task."""
        served = Duologue(duologue)
        duologue.user = served
        task = start_task(self._run(served), asyncio.get_running_loop())
        self.tasks.add(task)
        self._by_duologue[duologue] = task
        task.add_done_callback(self.tasks.discard)

    def on_message(self, duologue: InnerDuologue, message: bytes) -> None:
        """Queue it for the task."""
        if isinstance(duologue.user, Duologue):
            duologue.user.put(message)

    def on_close(self, duologue: InnerDuologue, reason: str) -> None:
        """End the task's iteration; a task that runs on is cancelled after a while."""
        if isinstance(duologue.user, Duologue):
            duologue.user.end(reason)
        task = self._by_duologue.pop(duologue, None)
        if task is not None and not task.done():
            asyncio.get_running_loop().call_later(CLOSE_LIMIT, task.cancel)

    async def _run(self, served: Duologue) -> None:
        try:
            await self._talk(served)
        except BadMessage:
            served.close(BAD_MESSAGE)
        except (ClosedError, OfferError) as error:
            # The client has gone, or does not read: that is no fault of the program.
            logger.debug("[%d] its task ended: %s", served.inner.session_id, error)
            served.close()
        except Exception:
            logger.exception("[%d] its task failed", served.inner.session_id)
            served.close(INTERNAL_ERROR)
        else:
            served.close()


class Server:
    """A server that the event loop runs, started by `serve`. An asynchronous context manager.

    Example:
        >>> async with aio.serve(talk, "192.0.2.1") as server:
        ...     await asyncio.sleep(60)
    """

    def __init__(
        self,
        handler: Handler | Callable[[Duologue], Awaitable[object]],
        settings: ServerSettings,
        *,
        aeron: Aeron | None = None,
        directory: str | os.PathLike[str] | None = None,
        key: ServerKey | None = None,
    ) -> None:
        self.settings = settings
        self._handler = handler if isinstance(handler, Handler) else _Tasks(handler)
        self._life = ServerLife(self._handler, settings)
        self._resources = (aeron, directory, key)
        self._task: asyncio.Task[None] | None = None

    @property
    def closed(self) -> bool:
        """Whether it is closed."""
        return not self._life.is_connected

    @property
    def error(self) -> MainstemError | None:
        """The error that ended the server, if one did: its driver has ended."""
        return self._life.failure

    async def _open(self) -> Self:
        """Open the all-clients channel."""
        # Starting a driver takes a moment, in which the event loop may have other things to do.
        await _connect(self._life, *self._resources)
        self._task = asyncio.get_running_loop().create_task(self._run())
        return self

    @property
    def core(self) -> ServerCore:
        """The server itself, to be used in the loop's thread. Raises ClosedError while it is not running."""
        if not self._life.is_connected:
            raise ClosedError("the server is not running")
        return self._life.core

    def stats(self) -> ServerStats:
        """Read the server's counts.

        Returns:
            A copy: the counts since the start.

        Raises:
            ClosedError: The server is not running.

        Example:
            >>> server.stats().duologues_opened
        """
        return replace(self.core.stats)

    def broadcast(self, message: bytes | str) -> None:
        """Send a message to every client that is there.

        Args:
            message: At most ``max_message_length`` bytes; text is encoded as UTF-8.

        Raises:
            ValueError: The message is too long.
            TypeError: The message is neither text nor a bytes-like object.
            ClosedError: The server is not running.

        Example:
            >>> server.broadcast("the server ends at noon")
        """
        self.core.broadcast(message)

    async def _run(self) -> None:
        life = self._life
        pause = Pause(life.clock, None)
        with suppress(AgentTerminated):
            while True:
                if life.do_work(life.clock.monotonic_ns()):
                    pause.restart()
                await pause.step()
        # Nothing arrives any more: the tasks of duologues, which wait for it, end now and not at ``close``.
        life.on_close()

    async def wait(self, timeout: float | None = None) -> bool:
        """Wait until the server has ended: by ``close``, or by an error, which is its ``error`` then.

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

    async def close(self) -> None:
        """End every duologue and its task, and the server. May be called again.

        Example:
            >>> await server.close()
        """
        if self._task is not None:
            self._task.cancel()
            await self.wait()
        self._life.on_close()
        try:
            if isinstance(self._handler, _Tasks) and (tasks := self._handler.tasks - {asyncio.current_task()}):
                for serving in tasks:
                    serving.cancel()
                _, pending = await asyncio.wait(tasks, timeout=CLOSE_LIMIT)
                if pending:
                    logger.warning("%d tasks go on %g s after they were cancelled", len(pending), CLOSE_LIMIT)
        finally:
            await asyncio.to_thread(self._life.disconnect)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class Client:
    """A duologue with a server, opened by `connect`. An asynchronous context manager.

    Example:
        >>> async with aio.connect("192.0.2.1") as duologue:
        ...     await duologue.send("ECHO tide")
        ...     print(await duologue.receive(timeout=5))
    """

    def __init__(
        self,
        settings: ClientSettings,
        *,
        aeron: Aeron | None = None,
        directory: str | os.PathLike[str] | None = None,
    ) -> None:
        self.settings = settings
        self._life = ClientLife(settings)
        self._resources = (aeron, directory)

    async def _open(self) -> Self:
        """Open the duologue."""
        try:
            await _connect(self._life, *self._resources)
            self._life.start()
            await self._run(self._life.opening())
        except BaseException:
            await self.close()
            raise
        return self

    @property
    def closed(self) -> bool:
        """Whether it is closed."""
        return not self._life.is_connected

    @property
    def session_id(self) -> int:
        """The session of both streams of the duologue."""
        return self.core.duologue_session

    @property
    def is_encrypted(self) -> bool:
        """Whether messages are encrypted."""
        return bool(self.settings.server_key)

    @property
    def max_message_length(self) -> int:
        """The longest message that can be sent, in bytes."""
        return self.core.max_message_length

    @property
    def core(self) -> ClientCore:
        """The client itself. Raises ClosedError while it is not open."""
        if not self._life.is_connected:
            raise ClosedError("the duologue client is closed")
        return self._life.core

    async def _run(self, steps: Steps[T]) -> T:
        """Run a procedure to its end; gives way to the loop between its duty cycles."""
        pause = Pause(self._life.clock, None)
        while True:
            try:
                work = next(steps)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            if work:
                pause.restart()
            await pause.step()

    async def send(self, message: bytes | str) -> None:
        """Send a message; returns once the stream has accepted it. A call that is cancelled may still send it.

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
            >>> await duologue.send("ECHO tide")
        """
        await self._run(self._life.sending(message))

    async def receive(self, timeout: float | None = None) -> bytes:
        """Receive the next message. A call that is cancelled has taken none.

        Args:
            timeout: Seconds to wait at most; None waits for ever.

        Returns:
            The message, decrypted where the duologue is encrypted.

        Raises:
            Timeout: No message came in time. None is lost: the next call receives it.
            ConnectRefused: The server ended the duologue with a reason.
            ClosedError: The server ended the duologue, or this client is closed.

        Example:
            >>> message = await duologue.receive(timeout=5)
        """
        return await self._run(self._life.receiving(timeout))

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            try:
                yield await self.receive()
            except ClosedError:
                return

    async def close(self) -> None:
        """Leave the duologue, and end the driver that was started for it. May be called again.

        Example:
            >>> await duologue.close()
        """
        if self._life.is_connected:
            try:
                await self._run(self._life.closing())
            finally:
                await asyncio.to_thread(self._life.disconnect)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def serve(
    handler: Handler | Callable[[Duologue], Awaitable[object]],
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
        handler: An asynchronous function that serves one duologue, or a `Handler`.
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

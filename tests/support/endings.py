"""One conversation of each protocol family in each variant, for tests of how conversations end.

The near end sends. A handler at the far end receives until it learns of the end, and records how. The blocking variant's calls run
in a thread, so that one test drives both variants.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import inspect
import threading
from typing import TYPE_CHECKING, Any

from tests.support.ports import free_port
from tests.support.waiting import until

from mainstem.errors import ClosedError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from mainstem.aeron.driver.media_driver import MediaDriver
    from mainstem.aqueduct.certificates import CertificateFiles

STREAM_ID = 1001
# The size of a message, or of a chunk of a byte stream.
SIZE = 256


class Far:
    """What the far end received, and how it learned of the end."""

    def __init__(self, *, raises: bool) -> None:
        self.raises = raises
        self.received = bytearray()
        self.error: BaseException | None = None
        self.handles: list[Any] = []
        self._ended = threading.Event()

    async def handle(self, handle: Any, receive: Any) -> None:
        """Run as the handler of the asyncio variant."""
        self.handles.append(handle)
        try:
            while (data := await receive()) is not None:
                self._take(data)
        except BaseException as error:
            self._note(error)
            raise
        self._ended.set()

    def handle_blocking(self, handle: Any, receive: Any) -> None:
        """Run as the handler of the blocking variant, in a thread."""
        self.handles.append(handle)
        try:
            while (data := receive()) is not None:
                self._take(data)
        except BaseException as error:
            self._note(error)
            raise
        self._ended.set()

    def _take(self, data: bytes) -> None:
        self.received += data
        if self.raises:
            raise ZeroDivisionError("the handler raised")

    def _note(self, error: BaseException) -> None:
        self.error = error
        self._ended.set()

    async def ended(self) -> None:
        """Wait until the handler has returned or raised."""
        await until(self._ended.is_set)


class Conversation:
    """The near end of a conversation; callers await its calls in both variants."""

    def __init__(
        self, near: Any, far: Far, *, blocks: bool, write: str = "send", read: str = "receive", server: Any = None
    ) -> None:
        self.near = near
        self._server = server
        self._read = getattr(near, read, None)
        self.far = far
        self._blocks = blocks
        self._write = write

    async def send(self, data: bytes) -> None:
        await self.call(self._write, data)
        if not self._blocks and hasattr(self.near, "drain"):
            await self.near.drain()

    async def receive(self) -> Any:
        """Wait for a message from the far end, or for its end."""
        return await run(self._blocks, self._read)

    async def call(self, name: str, *arguments: Any) -> Any:
        """Call a method of the near end."""
        return await run(self._blocks, getattr(self.near, name), *arguments)

    async def call_server(self, name: str, *arguments: Any) -> Any:
        """Call a method of the far end's server."""
        return await run(self._blocks, getattr(self._server, name), *arguments)

    @property
    def server_closed(self) -> bool:
        return bool(self._server.closed)


async def run(blocks: bool, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function of one variant: in a thread if it blocks, else await its result."""
    if blocks:
        return await asyncio.to_thread(function, *arguments)
    result = function(*arguments)
    return await result if inspect.isawaitable(result) else result


@contextlib.asynccontextmanager
async def entered(blocks: bool, manager: Any) -> AsyncIterator[Any]:
    """Enter a context manager of one variant. If an error broke the conversation, leaving it may raise that error."""
    if not blocks:
        entered_value = await manager.__aenter__()
    else:
        entered_value = await asyncio.to_thread(manager.__enter__)
    try:
        yield entered_value
    finally:
        leave = manager.__exit__ if blocks else manager.__aexit__
        with contextlib.suppress(Exception):
            await run(blocks, leave, None, None, None)


class Family:
    """Opens a conversation of one family."""

    def __init__(self, name: str, *, driver: MediaDriver | None = None, files: CertificateFiles | None = None) -> None:
        self.name = name
        self.driver = driver
        self.files = files
        self.port = 0

    def conversation(self, far: Far, *, blocks: bool) -> contextlib.AbstractAsyncContextManager[Conversation]:
        return getattr(self, f"_{self.name.lower()}")(far, blocks)  # type: ignore[no-any-return]

    def _package(self, blocks: bool) -> Any:
        return importlib.import_module(f"mainstem.{self.name.lower()}" + ("" if blocks else ".aio"))

    def _stream_handler(self, far: Far, blocks: bool) -> Any:
        """Return a handler for bymux and Jmux, which reads to the end."""
        return self._handler(far, blocks, lambda stream: (stream, stream.read), ends=())

    def _message_handler(self, far: Far, blocks: bool, receiver: Callable[[Any], Any]) -> Any:
        """Return a handler for Aqueduct and duologues, which receives until the sender has finished."""

        def source(served: Any) -> tuple[Any, Any]:
            handle = receiver(served)
            return handle, handle.receive

        return self._handler(far, blocks, source, ends=(ClosedError,))

    def _handler(
        self,
        far: Far,
        blocks: bool,
        source: Callable[[Any], tuple[Any, Any]],
        ends: tuple[type[Exception], ...],
    ) -> Any:
        """Return a handler that receives with the call ``source`` names, until it returns nothing or raises one of ``ends``."""

        async def handle(served: Any) -> None:
            handle, call = source(served)

            async def receive() -> bytes | None:
                try:
                    return await call() or None
                except ends:
                    return None

            await far.handle(handle, receive)

        def handle_blocking(served: Any) -> None:
            handle, call = source(served)

            def receive() -> bytes | None:
                try:
                    return call() or None
                except ends:
                    return None

            far.handle_blocking(handle, receive)

        return handle_blocking if blocks else handle

    @contextlib.asynccontextmanager
    async def _jmux(self, far: Far, blocks: bool) -> AsyncIterator[Conversation]:
        package = self._package(blocks)
        serving = await run(blocks, package.serve, self._stream_handler(far, blocks), "127.0.0.1", 0)
        async with entered(blocks, serving) as server:
            connecting = await run(blocks, package.connect, "127.0.0.1", server.port)
            async with entered(blocks, connecting) as client:
                session = await run(blocks, client.open_session)
                yield Conversation(session, far, blocks=blocks, write="write", read="read", server=server)

    @contextlib.asynccontextmanager
    async def _bymux(self, far: Far, blocks: bool) -> AsyncIterator[Conversation]:
        package = self._package(blocks)
        serving = await run(blocks, package.serve, self._stream_handler(far, blocks), "127.0.0.1", 0)
        async with entered(blocks, serving) as server:
            connecting = await run(blocks, package.connect, "127.0.0.1", server.port)
            async with entered(blocks, connecting) as connection:
                stream = await run(blocks, connection.open_stream)
                yield Conversation(stream, far, blocks=blocks, write="write", read="read", server=server)

    @contextlib.asynccontextmanager
    async def _aqueduct(self, far: Far, blocks: bool) -> AsyncIterator[Conversation]:
        package = self._package(blocks)
        assert self.files is not None
        handler = self._message_handler(far, blocks, lambda connection: connection.receiver)
        files = {"certificate": self.files.certificate, "key": self.files.key}
        serving = await run(blocks, lambda: package.serve(handler, "127.0.0.1", 0, **files))
        async with entered(blocks, serving) as server:
            connecting = await run(blocks, lambda: package.connect("127.0.0.1", server.port, ca=self.files.ca))
            async with entered(blocks, connecting) as connection:
                yield Conversation(connection.sender, far, blocks=blocks, read="wait_closed", server=server)

    @contextlib.asynccontextmanager
    async def _duologue(self, far: Far, blocks: bool) -> AsyncIterator[Conversation]:
        package = self._package(blocks)
        assert self.driver is not None
        from tests.support.duologues import calling
        from tests.support.duologues import serving as serving_on

        handler = self._message_handler(far, blocks, lambda duologue: duologue)
        self.port = self.port or free_port(128)
        port = self.port
        directory = self.driver.directory
        serving = await run(blocks, lambda: package.serve(handler, **serving_on(port), directory=directory))
        async with entered(blocks, serving) as server:
            connecting = await run(blocks, lambda: package.connect(**calling(port), directory=directory))
            async with entered(blocks, connecting) as client:
                yield Conversation(client, far, blocks=blocks, server=server)

    @contextlib.asynccontextmanager
    async def _aeron(self, far: Far, blocks: bool) -> AsyncIterator[Conversation]:
        package = importlib.import_module("mainstem" if blocks else "mainstem.aio")
        assert self.driver is not None
        connecting = await run(blocks, package.connect, self.driver.directory)
        async with entered(blocks, connecting) as aeron:
            subscription = await run(blocks, aeron.add_subscription, "aeron:ipc", STREAM_ID)
            publication = await run(blocks, aeron.add_publication, "aeron:ipc", STREAM_ID)
            messages = subscription.messages()

            async def receive() -> bytes | None:
                if blocks:
                    return await asyncio.to_thread(next, messages, None)
                return await anext(messages, None)

            reading = asyncio.create_task(far.handle(subscription, receive))
            try:
                yield Conversation(publication, far, blocks=blocks)
            finally:
                await run(blocks, publication.close)
                await asyncio.wait([reading])
                await run(blocks, subscription.close)

"""The blocking APIs: an event loop in a thread of its own, and streams whose methods wait for it.

Every object of a blocking API belongs to one :class:`LoopThread`. A call from any thread becomes a coroutine there, and the
caller waits for its result; protocol state is only ever touched by the loop's thread. Calls of several threads on one
stream are therefore safe, and ordered as the loop receives them.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from mainstem.errors import ClosedError, TimedOut
from mainstem.mux.async_stream import READ_LIMIT, AsyncStream

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from mainstem.mux.engine import Engine

T = TypeVar("T")
S = TypeVar("S", bound=AsyncStream)


# How often a waiting caller checks that the loop's thread is alive.
LIVENESS_S = 1.0


async def _limited(work: Coroutine[Any, Any, T], timeout: float | None) -> T:
    """Runs ``work`` with a time limit that is kept by the loop itself.

    A caller that gave up by its own clock could lose what ``work`` returned in that moment, such as bytes that were read.
    """
    deadline = asyncio.timeout(timeout)
    try:
        async with deadline:
            return await work
    except TimeoutError:
        if not deadline.expired():
            raise
        raise TimedOut(f"nothing happened within {timeout:g} s", timeout=timeout) from None


class LoopThread:
    """Runs coroutines for callers in other threads. A context manager; stopping twice is fine."""

    def __init__(self, name: str = "mainstem-mux") -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @classmethod
    def running(cls, start: Coroutine[Any, Any, T]) -> tuple[LoopThread, T]:
        """Returns a thread and what ``start`` returned in it.

        Args:
            start: A coroutine, which the loop's thread runs first. Where it raises, no thread is left.

        Returns:
            The thread and the result.

        Example:
            >>> thread, connection = LoopThread.running(bymux.connect("127.0.0.1", 7000))
        """
        thread = cls()
        try:
            return thread, thread.run(start)
        except BaseException:
            thread.stop()
            raise

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        if tasks:
            self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    def run(self, work: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        """Returns the result of ``work``.

        Args:
            work: A coroutine, which the loop's thread runs.
            timeout: Seconds after which ``work`` is cancelled; ``None`` waits without a limit.

        Returns:
            What ``work`` returns.

        Raises:
            TimedOut: The timeout passed.
            ClosedError: The loop was stopped.

        Example:
            >>> listener = thread.run(bymux.serve(handler, "127.0.0.1", 7000))
        """
        if not self._thread.is_alive():
            work.close()
            raise ClosedError("the connection is closed")
        limited = _limited(work, timeout)
        try:
            future = asyncio.run_coroutine_threadsafe(limited, self._loop)
        except RuntimeError:  # the loop was closed since
            limited.close()
            work.close()
            raise ClosedError("the connection is closed") from None
        while True:
            try:
                return future.result(LIVENESS_S)
            except concurrent.futures.CancelledError:
                raise ClosedError("the connection was closed") from None
            except TimeoutError:
                if future.done():
                    raise
                if not self._thread.is_alive():
                    raise ClosedError("the connection was closed") from None
            except KeyboardInterrupt:
                future.cancel()
                raise

    def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """Returns the result of ``function``, run between the loop's tasks.

        Args:
            function: A plain function.
            arguments: Its positional arguments.

        Returns:
            What it returns.

        Raises:
            ClosedError: The loop was stopped.

        Example:
            >>> thread.call(stream.abort)
        """

        async def work() -> T:
            return function(*arguments)

        return self.run(work())

    def stop(self) -> None:
        """Ends the loop and its thread. Twice is fine.

        Example:
            >>> thread.stop()
        """
        if self._thread.is_alive():
            with suppress(RuntimeError):  # another thread has stopped it since
                self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    def __enter__(self) -> LoopThread:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()


class PeerView:
    """The peer of a connection, for callers in any thread. What is here stays as it was when the connection has ended."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @property
    def peer_address(self) -> Any:
        """The peer's address as its socket names it: host and port for TCP; ``None`` when there is none."""
        return self._engine.peer_address

    @property
    def peer_certificate(self) -> dict[str, Any] | None:
        """The peer's TLS certificate as :meth:`ssl.SSLSocket.getpeercert` returns it; ``None`` without TLS."""
        return self._engine.peer_certificate


class BlockingStream(Generic[S]):
    """The base of a stream for callers that block. Iteration yields what arrives until the end."""

    def __init__(self, thread: LoopThread, stream: S) -> None:
        self._thread = thread
        self._stream = stream

    @property
    def id(self) -> int:
        """The id on the wire."""
        return self._stream.id

    def read(self, limit: int = READ_LIMIT, *, timeout: float | None = None) -> bytes:
        """Waits for bytes and returns them.

        Args:
            limit: The most bytes to return (256 KiB by default). A negative limit returns everything up to the end.
            timeout: Seconds to wait; ``None`` waits without a limit.

        Returns:
            Between one and ``limit`` bytes as soon as there are some; ``b""`` at the end.

        Raises:
            TimedOut: The timeout passed.
            MainstemError: What ended the stream, after the bytes from before it were read.

        Example:
            >>> data = stream.read(timeout=5)
        """
        return self._thread.run(self._stream.read(limit), timeout)

    def readexactly(self, count: int, *, timeout: float | None = None) -> bytes:
        """Waits for ``count`` bytes and returns them.

        Args:
            count: How many bytes.
            timeout: Seconds to wait; ``None`` waits without a limit.

        Returns:
            Exactly ``count`` bytes.

        Raises:
            asyncio.IncompleteReadError: The stream ended before (an ``EOFError``); ``partial`` has the bytes that came.
            TimedOut: The timeout passed.
            MainstemError: What broke the stream off.

        Example:
            >>> header = stream.readexactly(4, timeout=5)
        """
        return self._thread.run(self._stream.readexactly(count), timeout)

    def write(self, data: bytes | bytearray | memoryview, *, timeout: float | None = None) -> None:
        """Queues bytes and waits while more than 128 KiB are queued: this is where back pressure is felt.

        Args:
            data: The bytes.
            timeout: Seconds to wait; ``None`` waits without a limit. After a time-out the bytes are queued all the same.

        Raises:
            TimedOut: The timeout passed.
            MainstemError: What ended the writing half.
            TypeError: The data is no bytes-like object.

        Example:
            >>> stream.write(b"tide", timeout=5)
        """

        async def work() -> None:
            self._stream.write(data)
            await self._stream.drain()

        self._thread.run(work(), timeout)

    def __iter__(self) -> Iterator[bytes]:
        while data := self.read():
            yield data

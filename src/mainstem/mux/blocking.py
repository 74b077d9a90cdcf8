"""Streams whose methods wait for an asyncio stream in a loop's thread (:mod:`mainstem._internal.loop_thread`)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from mainstem.mux.async_stream import READ_LIMIT, AsyncStream

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

    from mainstem._internal.loop_thread import LoopThread
    from mainstem.mux.engine import Engine

S = TypeVar("S", bound=AsyncStream)


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
            Timeout: The timeout passed.
            MainstemError: What ended the stream, after the bytes from before it were read.

        Example:
            >>> data = stream.read(timeout=5)
        """
        return self._thread.run(self._stream.read(limit), timeout, undo=self._unread)

    def readexactly(self, count: int, *, timeout: float | None = None) -> bytes:
        """Waits for ``count`` bytes and returns them.

        Args:
            count: How many bytes.
            timeout: Seconds to wait; ``None`` waits without a limit.

        Returns:
            Exactly ``count`` bytes.

        Raises:
            asyncio.IncompleteReadError: The stream ended before (an ``EOFError``); ``partial`` has the bytes that came.
            Timeout: The timeout passed.
            MainstemError: What broke the stream off.

        Example:
            >>> header = stream.readexactly(4, timeout=5)
        """
        return self._thread.run(self._stream.readexactly(count), timeout, undo=self._unread)

    def _unread(self, outcome: bytes | BaseException) -> None:
        """Puts back what an interrupted call had read."""
        if isinstance(outcome, asyncio.IncompleteReadError):
            outcome = outcome.partial
        if isinstance(outcome, bytes):
            self._stream.unread(outcome)

    def write(self, data: bytes | bytearray | memoryview, *, timeout: float | None = None) -> None:
        """Queues bytes and waits while more than 128 KiB are queued: this is where back pressure is felt.

        Args:
            data: The bytes.
            timeout: Seconds to wait; ``None`` waits without a limit. After a time-out, or if a signal handler raises, the
                bytes are queued all the same.

        Raises:
            Timeout: The timeout passed.
            MainstemError: What ended the writing half.
            TypeError: The data is no bytes-like object.

        Example:
            >>> stream.write(b"tide", timeout=5)
        """

        def work() -> Coroutine[Any, Any, None]:
            self._stream.write(data)
            return self._stream.drain()

        self._thread.run(work, timeout)

    def __iter__(self) -> Iterator[bytes]:
        while data := self.read():
            yield data

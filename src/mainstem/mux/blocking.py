"""What waits for an asyncio object in a loop's thread (:mod:`mainstem._internal.loop_thread`): streams and servers that block.

Each object here has the asyncio object that it stands for in ``_inner``, and the names of its methods. A method that waits runs
that of the asyncio object in the loop's thread. Any thread may call them.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from mainstem.errors import ClosedError
from mainstem.mux import aio_stream, sockets
from mainstem.mux.aio_stream import READ_LIMIT
from mainstem.mux.engine import CLOSE_TIMEOUT_S

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator
    from typing import Self

    from mainstem._internal.endpoint_stats import EndpointStats
    from mainstem._internal.loop_thread import LoopThread
    from mainstem.errors import MainstemError
    from mainstem.mux.aio_stream import StreamStats

I = TypeVar("I", bound=Any)  # noqa: E741 - the inner object
S = TypeVar("S", bound=aio_stream.BaseStream)


class Facade(Generic[I]):
    """What every object that blocks has. What is here stays as it was when the object has ended."""

    def __init__(self, thread: LoopThread, inner: I) -> None:
        self._thread = thread
        self._inner = inner

    @property
    def closed(self) -> bool:
        """Whether it is closed, by either side."""
        return bool(self._inner.closed)

    @property
    def error(self) -> MainstemError | None:
        """What ended it early; ``None`` while it is open, and after an end in order or from this side that lost nothing."""
        error: MainstemError | None = self._inner.error
        return error

    def __repr__(self) -> str:
        return repr(self._inner)

    def _wait_closed(self, wait: Callable[[], Coroutine[Any, Any, None]], timeout: float | None) -> None:
        """Waits in the loop's thread, which another thread may stop meanwhile."""
        try:
            self._thread.run(wait, timeout)
        except ClosedError:
            if not self.closed:
                raise


class PeerFacade(Facade[I]):
    """A stream or connection."""

    @property
    def peer_address(self) -> Any:
        """The peer's address as its socket names it: host and port for TCP; ``None`` when there is none."""
        return self._inner.peer_address

    @property
    def peer_certificate(self) -> dict[str, Any] | None:
        """The peer's TLS certificate as :meth:`ssl.SSLSocket.getpeercert` returns it.

        ``None`` without TLS. A client's certificate is requested by ``verify_mode`` of the server's context, and was verified
        then; with ``CERT_NONE`` this is empty.
        """
        certificate: dict[str, Any] | None = self._inner.peer_certificate
        return certificate


class BaseStream(PeerFacade[S]):
    """The base of a stream that blocks. Iteration yields what arrives until the end."""

    @property
    def id(self) -> int:
        """The id on the wire."""
        return self._inner.id

    @property
    def queued(self) -> int:
        """Written bytes that wait for credit or for their turn."""
        return self._inner.queued

    def stats(self) -> StreamStats:
        """Return what passed through the stream and what waits in it.

        Returns:
            The numbers at this moment.
        """
        return self._inner.stats()

    def at_eof(self) -> bool:
        """Whether everything was read and no more will come.

        Returns:
            ``True`` once the peer has finished and the last byte was read.

        Example:
            >>> while not stream.at_eof():
            ...     print(stream.read())
        """
        return self._inner.at_eof()

    def read(self, limit: int = READ_LIMIT, *, timeout: float | None = None) -> bytes:
        """Waits for bytes and returns them.

        Args:
            limit: The most bytes to return (256 KiB by default). A negative limit returns everything up to the end, at
                most the settings' ``read_limit``.
            timeout: Seconds to wait; ``None`` waits without a limit.

        Returns:
            Between one and ``limit`` bytes as soon as there are some; ``b""`` at the end.

        Raises:
            LimitExceeded: More than ``read_limit`` bytes came before the end; smaller reads return them.
            Timeout: The timeout passed.
            MainstemError: What ended the stream, after the bytes from before it were read. With a negative limit those
                bytes are left for other reads.

        Example:
            >>> data = stream.read(timeout=5)
        """
        return self._thread.run(self._inner.read(limit), timeout, undo=self._unread)

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
            MainstemError: What broke the stream off; the bytes that came are left for other reads.

        Example:
            >>> header = stream.readexactly(4, timeout=5)
        """
        return self._thread.run(self._inner.readexactly(count), timeout, undo=self._unread)

    def _unread(self, outcome: bytes | BaseException) -> None:
        """Puts back what an interrupted call had read."""
        if isinstance(outcome, asyncio.IncompleteReadError):
            outcome = outcome.partial
        if isinstance(outcome, bytes):
            self._inner._unread(outcome)

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
            self._inner.write(data)
            return self._inner.drain()

        self._thread.run(work, timeout)

    def flush(self, *, timeout: float | None = None) -> None:
        """Waits until the transport has taken everything that was written.

        Args:
            timeout: Seconds to wait; ``None`` waits without a limit.

        Raises:
            Timeout: The timeout passed.
            MainstemError: What ended the writing half before that.

        Example:
            >>> stream.flush(timeout=5)
        """
        self._thread.run(self._inner.flush(), timeout)

    def __iter__(self) -> Iterator[bytes]:
        while data := self.read():
            yield data


class Server(Facade[sockets.Server[Any]]):
    """What ``serve`` returns: a server whose handlers run in threads. As a context manager it is closed at the end.

    Example:
        >>> with serve(handler, "127.0.0.1", 7000) as server:
        ...     server.wait()
    """

    @property
    def port(self) -> int:
        """The TCP port that is listened on, at every address."""
        return self._inner.port

    @property
    def address(self) -> Any:
        """The address that is listened on, as the socket names it; of several, the first."""
        return self._inner.address

    def stats(self) -> EndpointStats:
        """Returns what the server has now and what it has counted.

        Returns:
            The figures of all its connections, those that have ended among them.

        Example:
            >>> server.stats().connections_opened
            17
        """
        return self._inner.stats()

    def wait(self, timeout: float | None = None) -> None:
        """Waits until the server is closed.

        Args:
            timeout: Seconds to wait; ``None`` waits without a limit.

        Raises:
            Timeout: The timeout passed; the server goes on.

        Example:
            >>> server.wait()
        """
        self._wait_closed(self._inner.wait, timeout)

    def shutdown(self, timeout: float | None = None) -> None:
        """Stops listening, lets the handlers that run finish, and closes the server.

        Streams and requests that come in meanwhile are given to no handler. A handler may call it; it does not wait for itself.

        Args:
            timeout: Seconds for the handlers, after which the streams of those that are left are aborted; ``None`` waits without
                a limit.

        Example:
            >>> server.shutdown(timeout=5)
        """
        self._end(lambda: self._inner.shutdown(timeout))

    def close(self, timeout: float = CLOSE_TIMEOUT_S) -> None:
        """Stops listening and ends every connection at once, which ends what handlers wait for. Twice is fine.

        What was written and not sent yet is dropped; :meth:`shutdown` sends it. A handler may call it; it does not wait for itself.

        Args:
            timeout: Seconds to wait for the end of the handlers (10 by default).

        Example:
            >>> server.close()
        """
        self._end(lambda: self._inner.close(timeout))

    def _end(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            if not self.closed:
                self._wait_closed(work, None)
        finally:
            self._thread.stop(self._inner.abort)

    def abort(self) -> None:
        """Does what :meth:`close` does, without waiting for handlers to clean up.

        Example:
            >>> server.abort()
        """
        self._thread.stop(self._inner.abort)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

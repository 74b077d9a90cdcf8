"""Streams and servers that block: what bymux and Jmux share. Each stands for the asyncio object in ``_inner``."""

from __future__ import annotations

import asyncio
import warnings
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from mainstem._internal.facade import asks, waits
from mainstem.errors import ClosedError
from mainstem.mux import aio_stream, sockets

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator
    from typing import Self

    from mainstem._internal.loop_thread import LoopThread
    from mainstem.errors import MainstemError

I = TypeVar("I", bound=Any)  # noqa: E741 - the inner object
S = TypeVar("S", bound=aio_stream.BaseStream)


class Facade(Generic[I]):
    """What every object that blocks has. It stays as it was when the object has ended."""

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

    def _warn_if_open(self) -> None:
        """End what the program dropped open, and the thread that is its own. For ``__del__``."""
        inner = getattr(self, "_inner", None)
        if inner is not None and not inner.closed:
            self._thread.stop_soon(inner.abort)
            warnings.warn(f"{inner!r} was dropped without being closed", ResourceWarning, stacklevel=3, source=self)

    def _wait_closed(self, wait: Callable[[], Coroutine[Any, Any, None]], timeout: float | None) -> None:
        """Wait in the loop's thread, which another thread may stop meanwhile."""
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
        """The peer's TLS certificate as :meth:`ssl.SSLSocket.getpeercert` returns it; ``None`` without TLS.

        A client has one if ``verify_mode`` of the server's context, or ``client_ca``, requested it; it was verified then. With
        ``CERT_NONE`` this is empty.
        """
        certificate: dict[str, Any] | None = self._inner.peer_certificate
        return certificate


def _unread(stream: aio_stream.BaseStream, outcome: bytes | BaseException) -> None:
    """Put back what an interrupted call had read."""
    if isinstance(outcome, asyncio.IncompleteReadError):
        outcome = outcome.partial
    if isinstance(outcome, bytes):
        stream._unread(outcome)


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

    at_eof = asks(aio_stream.BaseStream.at_eof)
    stats = asks(aio_stream.BaseStream.stats)
    read = waits(aio_stream.BaseStream.read, undo=_unread)
    readexactly = waits(aio_stream.BaseStream.readexactly, undo=_unread)
    flush = waits(aio_stream.BaseStream.flush)

    def write(self, data: bytes | bytearray | memoryview, *, timeout: float | None = None) -> None:
        """Queue bytes, and wait while more than 128 KiB are queued: this is where back pressure is felt.

        Args:
            data: The bytes.
            timeout: Seconds to wait; ``None`` waits without a limit. After a timeout, or if a signal handler raises, the bytes
                are queued all the same.

        Raises:
            Timeout: The timeout passed.
            MainstemError: What ended the writing half.
            TypeError: The data is not a bytes-like object.

        Example:
            >>> stream.write(b"tide", timeout=5)
        """

        def work() -> Coroutine[Any, Any, None]:
            self._inner.write(data)
            return self._inner.drain()

        self._thread.run(work, timeout)

    def __iter__(self) -> Iterator[bytes]:
        """Iterate over the data as `read` returns it, until the peer finishes its half. Raises what `read` raises."""
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

    def __del__(self) -> None:
        self._warn_if_open()

    stats = asks(sockets.Server[Any].stats)

    def wait(self, timeout: float | None = None) -> None:
        """Wait until the server is closed.

        Args:
            timeout: Seconds to wait; ``None`` waits without a limit.

        Raises:
            Timeout: The timeout passed; the server goes on.
        """
        self._wait_closed(self._inner.wait, timeout)

    def shutdown(self, timeout: float | None = None) -> None:
        """Stop listening, let the handlers that run finish, and close the server.

        Streams and requests that come in meanwhile are given to no handler. A handler may call it; it does not wait for itself.

        Args:
            timeout: Seconds for the handlers, after which the streams of those that are left are aborted; ``None`` waits without
                a limit.
        """
        self._end(lambda: self._inner.shutdown(timeout))

    def close(self, timeout: float | None = None) -> None:
        """Stop listening and end every connection at once, which ends what handlers wait for. Closing twice is fine.

        What was written and not sent yet is dropped; :meth:`shutdown` sends it. A handler may call it; it does not wait for itself.

        Args:
            timeout: Seconds to wait for the end of the handlers; ``None`` takes the settings' ``close_timeout`` (10).
        """
        self._end(lambda: self._inner.close(timeout))

    def _end(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            if not self.closed:
                self._wait_closed(work, None)
        finally:
            self._thread.stop(self._inner.abort)

    def abort(self) -> None:
        """Do what :meth:`close` does, without waiting for handlers to clean up."""
        self._thread.stop(self._inner.abort)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

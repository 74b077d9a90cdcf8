"""The blocking streams and servers that bymux and Jmux share. Each object stands for the asyncio object in ``_inner``."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from mainstem._internal.loop_thread import LoopThread, asks, waits
from mainstem.errors import ClosedError, IncompleteRead
from mainstem.mux import aio_stream, sockets

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator
    from typing import Self

    from mainstem.errors import MainstemError

I = TypeVar("I", bound=Any)  # noqa: E741 - the inner object
S = TypeVar("S", bound=aio_stream.BaseStream)
F = TypeVar("F", bound="Facade[Any]")


class Facade(Generic[I]):
    """Base class of all blocking objects. Its properties remain available after the object has ended."""

    def __init__(self, thread: LoopThread, inner: I) -> None:
        self._thread = thread
        self._inner = inner

    @property
    def closed(self) -> bool:
        """Whether this object has been closed, by either side."""
        return bool(self._inner.closed)

    @property
    def error(self) -> MainstemError | None:
        """The error that ended this object early.

        ``None`` while it is open, after an orderly end, and after an end on this side that lost nothing.
        """
        error: MainstemError | None = self._inner.error
        return error

    def __repr__(self) -> str:
        return repr(self._inner)

    def __enter__(self) -> Self:
        return self

    def _warn_if_open(self) -> None:
        """Abort an object that the application dropped without closing, and stop its own thread. For ``__del__``."""
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
    """Base class of blocking streams and connections."""

    @property
    def peer_address(self) -> Any:
        """The peer's address in the form that its socket uses: host and port for TCP; ``None`` if there is none."""
        return self._inner.peer_address

    @property
    def peer_certificate(self) -> dict[str, Any] | None:
        """The peer's TLS certificate as :meth:`ssl.SSLSocket.getpeercert` returns it; ``None`` without TLS.

        A server gets a client's certificate only if ``verify_mode`` of its context, or ``client_ca``, requests it; the certificate
        has then been verified. With ``CERT_NONE`` this is empty.
        """
        certificate: dict[str, Any] | None = self._inner.peer_certificate
        return certificate


def abort_outcome(outcome: Facade[Any] | BaseException) -> None:
    """Abort the object that an interrupted call had made."""
    if not isinstance(outcome, BaseException):
        outcome._inner.abort()


def open_in_thread(start: Callable[[LoopThread], Coroutine[Any, Any, F]]) -> F:
    """Return the object that ``start`` opens in the event loop of a new thread."""
    return LoopThread.running(start, abort_outcome)


def _unread(stream: aio_stream.BaseStream, outcome: bytes | BaseException) -> None:
    if isinstance(outcome, IncompleteRead):
        outcome = outcome.partial
    if isinstance(outcome, bytes):
        stream._unread(outcome)


class BaseStream(PeerFacade[S]):
    """Base class of blocking streams. Iterating over a stream yields data as it arrives, until the end."""

    @property
    def id(self) -> int:
        """The stream's id on the wire."""
        return self._inner.id

    @property
    def queued(self) -> int:
        """The number of written bytes that are waiting for credit or for their turn."""
        return self._inner.queued

    at_eof = asks(aio_stream.BaseStream.at_eof)
    stats = asks(aio_stream.BaseStream.stats)
    read = waits(aio_stream.BaseStream.read, undo=_unread)
    readexactly = waits(aio_stream.BaseStream.readexactly, undo=_unread)
    flush = waits(aio_stream.BaseStream.flush)

    def write(self, data: bytes | bytearray | memoryview, *, timeout: float | None = None) -> None:
        """Queue bytes, then wait while more than 128 KiB are queued. This wait is the back pressure.

        Args:
            data: The bytes.
            timeout: Seconds to wait; ``None`` waits forever. If the call times out, or a signal handler raises, the bytes are
                still queued.

        Raises:
            Timeout: The timeout passed.
            MainstemError: The error that ended the writing half.
            TypeError: The data is not a bytes-like object.

        Example:
            >>> stream.write(b"tide", timeout=5)
        """
        inner = self._inner

        def work() -> Any:
            inner.write(data)
            return inner.drain() if timeout is not None or inner._must_drain() else None

        self._thread.run(work, timeout)

    def __iter__(self) -> Iterator[bytes]:
        """Iterate over data as `read` returns it, until the peer finishes its half. Raises the same errors as `read`."""
        while data := self.read():
            yield data

    def __exit__(self, *exc: object) -> None:
        inner: Any = self._inner
        self._thread.run(lambda: inner.__aexit__(*exc), undo=lambda _: inner.abort())


class Server(Facade[sockets.Server[Any]]):
    """A server whose handlers run in threads, as returned by ``serve``. A ``with`` block closes it at its end.

    Example:
        >>> with serve(handler, "127.0.0.1", 7000) as server:
        ...     server.wait()
    """

    @property
    def port(self) -> int | Any:
        """The TCP port on which the server listens, at every address; ``None`` for a Unix socket."""
        return self._inner.port

    @property
    def address(self) -> Any:
        """The address on which the server listens, in the form that its socket uses. If there are several, the first."""
        return self._inner.address

    def __del__(self) -> None:
        self._warn_if_open()

    stats = asks(sockets.Server[Any].stats)

    def wait(self, timeout: float | None = None) -> None:
        """Wait until the server is closed.

        Args:
            timeout: Seconds to wait; ``None`` waits forever.

        Raises:
            Timeout: The timeout passed; the server keeps running.
        """
        self._wait_closed(self._inner.wait, timeout)

    def shutdown(self, timeout: float | None = None) -> None:
        """Stop listening, let running handlers finish, and close the server.

        Streams and requests that arrive meanwhile are not given to any handler. If a handler calls this, the call does not wait for
        that handler.

        Args:
            timeout: Seconds to wait for the handlers, after which the streams of the remaining ones are aborted; ``None`` waits
                forever.
        """
        self._end(lambda: self._inner.shutdown(timeout))

    def close(self, timeout: float | None = None) -> None:
        """Stop listening and end all connections immediately, which ends the calls that handlers wait in.

        Data that was written but not sent is dropped; :meth:`shutdown` sends it. If a handler calls this, the call does not
        wait for that handler. It can be called more than once.

        Args:
            timeout: Seconds to wait for the handlers to end; ``None`` uses ``close_timeout`` from the settings (10 by default).
        """
        self._end(lambda: self._inner.close(timeout))

    def _end(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            if not self.closed:
                self._wait_closed(work, None)
        finally:
            self._thread.stop(self._inner.abort)

    def abort(self) -> None:
        """Close the server like :meth:`close`, but without waiting for handlers to clean up."""
        self._thread.stop(self._inner.abort)

    def __exit__(self, *exc: object) -> None:
        self.close()

"""The blocking streams and servers that bymux and Jmux share. Each object stands for the asyncio object in ``_inner``."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from mainstem._internal.loop_thread import Facade, LoopThread, abort_outcome, asks, waits
from mainstem.errors import ClosedError, IncompleteRead
from mainstem.mux import aio_stream, sockets

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

S = TypeVar("S", bound=aio_stream.BaseStream)
F = TypeVar("F", bound=Facade[Any])
I = TypeVar("I", bound=Any)  # noqa: E741 - the inner object
P = ParamSpec("P")


def run_until_closed(
    facade: Facade[Any], work: Callable[[], Coroutine[Any, Any, None]], timeout: float | None = None
) -> None:
    """Wait for the end of an object in its loop's thread, which another thread may stop meanwhile."""
    try:
        facade._thread.run(work, timeout)
    except ClosedError:
        if facade._thread.is_inherited or not facade.closed:
            raise


def _run(facade: Facade[Any], work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    facade._thread.run(work)


def ends(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, None]],
    run: Callable[[Any, Callable[[], Coroutine[Any, Any, None]]], None] = _run,
) -> Callable[Concatenate[Any, P], None]:
    """Make the blocking method that closes an object from the asyncio one, which ``run`` runs unless the object is closed.

    In any case, the object's `abort` follows, which ends its thread.
    """
    name = method.__name__

    @functools.wraps(method)
    def call(self: Any, /, *arguments: P.args, **options: P.kwargs) -> None:
        try:
            if not self.closed:
                run(self, functools.partial(getattr(self._inner, name), *arguments, **options))
        finally:
            self.abort()

    return call


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
            LocalProtocolError: ``finish`` was called before.
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
        if not self._thread.is_inherited:
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
        self._warn_if_open(owns_thread=True)

    stats = asks(sockets.Server[Any].stats)

    def wait(self, timeout: float | None = None) -> None:
        """Wait until the server is closed.

        Args:
            timeout: Seconds to wait; ``None`` waits forever.

        Raises:
            Timeout: The timeout passed; the server keeps running.
        """
        run_until_closed(self, self._inner.wait, timeout)

    shutdown = ends(sockets.Server[Any].shutdown, run_until_closed)
    close = ends(sockets.Server[Any].close, run_until_closed)

    def abort(self) -> None:
        """Close the server like :meth:`close`, but without waiting for handlers to clean up."""
        self._thread.stop(self._inner.abort)

    def __exit__(self, *exc: object) -> None:
        self.close()

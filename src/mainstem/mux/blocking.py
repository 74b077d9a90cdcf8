"""The blocking streams and servers that bymux and Jmux share. Each object stands for the asyncio object in ``_inner``."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, TypeVar

from mainstem._internal.loop_thread import Facade, LoopThread, abort_outcome, asks, ends, waits, waits_for_end
from mainstem._internal.made import Made
from mainstem.mux import aio_stream, sockets

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

S = TypeVar("S", bound=aio_stream.BaseStream)
F = TypeVar("F", bound=Facade[Any])
I = TypeVar("I", bound=Any)  # noqa: E741 - the inner object


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
    read = waits(aio_stream.BaseStream.read, undo=aio_stream.unread)
    readexactly = waits(aio_stream.BaseStream.readexactly, undo=aio_stream.unread)
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
        work: Any = functools.partial(aio_stream.write_and_drain, self._inner, data, always=timeout is not None)
        self._thread.run(work, timeout)

    def __iter__(self) -> Iterator[bytes]:
        """Iterate over data as `read` returns it, until the peer finishes its half. Raises the same errors as `read`."""
        while data := self.read():
            yield data

    def __exit__(self, *exc: object) -> None:
        inner: Any = self._inner
        if not self._thread.is_inherited:
            self._thread.run(lambda: inner.__aexit__(*exc), undo=lambda _: inner.abort())


class Server(Facade[sockets.Server[Any]], metaclass=Made, made_by="serve()"):
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

    wait = waits_for_end(sockets.Server[Any].wait)
    shutdown = ends(sockets.Server[Any].shutdown, may_be_closed=True)
    close = ends(sockets.Server[Any].close, may_be_closed=True)

    def abort(self) -> None:
        """Close the server like :meth:`close`, but without waiting for handlers to clean up."""
        self._thread.stop(self._inner.abort)

    def __exit__(self, *exc: object) -> None:
        self.close()

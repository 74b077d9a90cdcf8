"""Jmux for callers that block: the asyncio API, run by a thread. Every method may be called from any thread."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from mainstem._internal.loop_thread import LoopThread
from mainstem.jmux import aio_client
from mainstem.mux.blocking import BaseStream, PeerFacade

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainstem.endpoint_stats import EndpointStats
    from mainstem.errors import Delivery
    from mainstem.jmux.settings import Settings


class BlockingSession(BaseStream[aio_client.ClientSession]):
    """One request and its response. Each call that waits takes ``timeout`` in seconds and raises ``Timeout``.

    Example:
        >>> with client.request() as session:
        ...     session.write(b"whole request")
        ...     session.finish()
        ...     print(session.read(-1, timeout=5))
    """

    @property
    def connection(self) -> PeerFacade[Any]:
        """The connection that the session belongs to: the server's ``peer_address`` and ``peer_certificate``."""
        return PeerFacade(self._thread, self._inner.connection)

    @property
    def delivery(self) -> Delivery:
        """Whether the server may have processed the request, by what is known now."""
        return self._inner.delivery

    @property
    def may_retry(self) -> bool:
        """Whether sending the request again cannot make the server execute it twice."""
        return self._inner.may_retry

    def finish(self) -> None:
        """Marks the request as complete. Twice is fine.

        Raises:
            MainstemError: What ended the session.

        Example:
            >>> session.finish()
        """
        self._thread.call(self._inner.finish)

    def abort(self, detail: str = "") -> None:
        """Gives the request up.

        Args:
            detail: A text for the server.

        Example:
            >>> session.abort("no longer needed")
        """
        self._thread.call(self._inner.abort, detail)


class BlockingClient:
    """Sends requests to one server. A context manager; :func:`connect` returns it.

    Example:
        >>> with connect("127.0.0.1", 7001) as client:
        ...     print(client.call(b"whole request"))
    """

    def __init__(self, thread: LoopThread, client: aio_client.Client) -> None:
        self._thread = thread
        self._inner = client

    @contextmanager
    def request(self, *, timeout: float | None = None) -> Iterator[BlockingSession]:
        """Opens a session for one request inside the block; it is aborted when the block raises or leaves the response unread.

        Args:
            timeout: Seconds to wait for a free session; ``None`` waits without a limit.

        Yields:
            The session.

        Raises:
            Timeout: The timeout passed.
            MainstemError: The server cannot be reached.

        Example:
            >>> with client.request() as session:
            ...     session.write(b"whole request")
            ...     session.finish()
            ...     print(session.read(-1))
        """
        session = self._thread.run(self._inner.open_session(), timeout, undo=_leave)
        try:
            yield BlockingSession(self._thread, session)
            self._thread.call(session.leave)
        except BaseException:
            self._thread.call(lambda: session.leave(in_order=False))
            raise

    def call(self, data: bytes, *, attempts: int = 2, timeout: float | None = None) -> bytes:
        """Sends a whole request and waits for the whole response.

        The request is sent again only where the specification guarantees that the server processed nothing of it.

        Args:
            data: The request.
            attempts: How often the request is sent at most.
            timeout: Seconds for all attempts together; ``None`` waits without a limit.

        Returns:
            The response.

        Raises:
            Timeout: The timeout passed.
            Aborted: The server aborted the session.
            MainstemError: What ended the session or the connection.

        Example:
            >>> response = client.call(b"whole request", timeout=5)
        """
        return self._thread.run(self._inner.call(data, attempts=attempts, timeout=timeout))

    def stats(self) -> EndpointStats:
        """Returns what the client has now and what it has counted.

        Returns:
            The figures.

        Example:
            >>> client.stats().streams_opened
            128
        """
        return self._inner.stats()

    def close(self) -> None:
        """Ends every connection and the thread. Twice is fine.

        Example:
            >>> client.close()
        """
        try:
            if not self._inner.closed:
                self._thread.run(self._inner.close())
        finally:
            self._thread.stop(self._inner.abort)

    def __enter__(self) -> BlockingClient:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _leave(outcome: aio_client.ClientSession | BaseException) -> None:
    """Ends a session that nobody has, because an exception interrupted the call that opened it."""
    if isinstance(outcome, aio_client.ClientSession):
        outcome.leave(in_order=False)


def connect(
    host: str | None = None, port: int | None = None, *, settings: Settings | None = None, **options: Any
) -> BlockingClient:
    """Connects to a server.

    Args:
        host: The server's address.
        port: Its TCP port.
        settings: The configuration of each connection.
        options: Further options of :func:`mainstem.jmux.connect`.

    Returns:
        A client with its first connection.

    Raises:
        ConnectionLost: The server cannot be reached.
        Timeout: Connecting took too long.

    Example:
        >>> with connect("127.0.0.1", 7001) as client:
        ...     print(client.call(b"whole request"))
    """

    async def start(thread: LoopThread) -> BlockingClient:
        return BlockingClient(thread, await aio_client.connect(host, port, settings=settings, **options))

    def undo(outcome: BlockingClient | BaseException) -> None:
        if isinstance(outcome, BlockingClient):
            outcome._inner.abort()

    return LoopThread.running(start, undo)

"""bymux for callers that block: the asyncio API, run by a thread. Every method may be called from any thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mainstem._internal.loop_thread import LoopThread
from mainstem.bymux import aio
from mainstem.bymux.aio_stream import PING_TIMEOUT_S, BymuxStream
from mainstem.mux.blocking import BaseStream, PeerFacade

if TYPE_CHECKING:
    from mainstem.bymux.settings import Settings
    from mainstem.endpoint_stats import EndpointStats


class BlockingStream(BaseStream[BymuxStream]):
    """One stream. Each call that waits takes ``timeout`` in seconds and raises ``Timeout``.

    As a context manager it is closed at the end, and aborted when the block raises.

    Example:
        >>> with connection.open_stream() as stream:
        ...     stream.write(b"tide")
        ...     print(stream.readexactly(4, timeout=5))
    """

    def __init__(self, thread: LoopThread, stream: BymuxStream, connection: BlockingConnection) -> None:
        super().__init__(thread, stream)
        self._connection = connection

    @property
    def connection(self) -> BlockingConnection:
        """The connection that the stream belongs to, with the peer's address and certificate."""
        return self._connection

    def close(self, *, timeout: float | None = None) -> None:
        """Ends the writing half after everything written; returns when it has left. Twice is fine.

        Args:
            timeout: Seconds without progress until the stream is aborted. ``None`` takes the settings' ``stall_timeout``
                (10 minutes), ``math.inf`` sets no limit.

        Raises:
            Timeout: The timeout passed; ``unsent`` bytes were not sent.
            MainstemError: What ended the writing half before everything had left, with ``unsent``.

        Example:
            >>> stream.close(timeout=5)
        """
        self._thread.run(self._inner.close(timeout))

    def stop_read(self) -> None:
        """Gives no more credit: what still arrives is dropped.

        Example:
            >>> stream.stop_read()
        """
        self._thread.call(self._inner.stop_read)

    def abort(self) -> None:
        """Ends both halves now; what was queued is dropped.

        Example:
            >>> stream.abort()
        """
        self._thread.call(self._inner.abort)

    def ping(self, timeout: float = PING_TIMEOUT_S) -> float:
        """Measures the round trip to the peer on this stream.

        Args:
            timeout: Seconds to wait for the pong.

        Returns:
            Seconds.

        Raises:
            Timeout: No pong came.

        Example:
            >>> print(stream.ping())
        """
        return self._thread.run(self._inner.ping(timeout))

    def __enter__(self) -> BlockingStream:
        return self

    def __exit__(self, *exc: object) -> None:
        self._thread.run(self._inner.__aexit__(*exc), undo=lambda _: self._inner.abort())  # type: ignore[arg-type]


class BlockingConnection(PeerFacade[aio.Connection]):
    """One end of a bymux connection, with a thread of its own. A context manager; :func:`connect` returns it.

    Example:
        >>> with connect("127.0.0.1", 7000) as connection:
        ...     print(connection.ping())
    """

    def __init__(self, thread: LoopThread, connection: aio.Connection) -> None:
        super().__init__(thread, connection)

    def open_stream(self, *, timeout: float | None = None) -> BlockingStream:
        """Creates a stream, waiting for the peer's credit for streams when none is left.

        Args:
            timeout: Seconds to wait; ``None`` waits without a limit.

        Returns:
            The stream.

        Raises:
            Timeout: The timeout passed.
            ClosedError: No more streams may be created.

        Example:
            >>> with connection.open_stream() as stream:
            ...     stream.write(b"tide")
        """

        async def work() -> BlockingStream:
            return BlockingStream(self._thread, await self._inner.open_stream(), self)

        def undo(outcome: BlockingStream | BaseException) -> None:
            if isinstance(outcome, BlockingStream):
                outcome._inner.abort()

        return self._thread.run(work(), timeout, undo=undo)

    def accept_stream(self, *, timeout: float | None = None) -> BlockingStream | None:
        """Waits for the next stream that the peer creates.

        Args:
            timeout: Seconds to wait; ``None`` waits without a limit.

        Returns:
            The stream; ``None`` once there will be no more.

        Raises:
            Timeout: The timeout passed.

        Example:
            >>> stream = connection.accept_stream(timeout=5)
        """

        async def work() -> BlockingStream | None:
            stream = await self._inner.accept_stream()
            return None if stream is None else BlockingStream(self._thread, stream, self)

        def undo(outcome: BlockingStream | BaseException | None) -> None:
            if isinstance(outcome, BlockingStream):
                self._inner.unaccept_stream(outcome._inner)

        return self._thread.run(work(), timeout, undo=undo)

    def ping(self, timeout: float = PING_TIMEOUT_S) -> float:
        """Measures the round trip to the peer.

        Args:
            timeout: Seconds to wait for the pong.

        Returns:
            Seconds.

        Raises:
            Timeout: No pong came.

        Example:
            >>> print(connection.ping())
        """
        return self._thread.run(self._inner.ping(timeout))

    def stats(self) -> EndpointStats:
        """Returns what the connection has now and what it has counted.

        Returns:
            The figures.

        Example:
            >>> connection.stats().bytes_sent
            4096
        """
        return self._inner.stats()

    def close(self, timeout: float | None = None) -> None:
        """Waits for the active streams, then ends the connection and its thread. Twice is fine.

        Args:
            timeout: Seconds to wait for the active streams; those that are left are aborted. By default 10 seconds, or as long
                as streams that were closed here make progress at the peer: the settings' ``stall_timeout`` without any.

        Raises:
            ClosedError: Streams that were not closed had ``unsent`` bytes that were not sent.

        Example:
            >>> connection.close()
        """
        try:
            if self._inner.failure is None:
                self._thread.run(self._inner.close(timeout))
        finally:
            self._thread.stop(self._inner.abort)

    def __enter__(self) -> BlockingConnection:
        return self

    def __exit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        if kind is None:
            self.close()
        else:
            self._thread.stop(self._inner.abort)


def connect(
    host: str | None = None,
    port: int | None = None,
    *,
    settings: Settings | None = None,
    **options: Any,
) -> BlockingConnection:
    """Connects as the proactive end.

    Args:
        host: The peer's address.
        port: Its TCP port.
        settings: The connection's configuration; the defaults are vanilla bymux.
        options: Further options of :func:`mainstem.bymux.connect`, without ``handler``.

    Returns:
        The connection.

    Raises:
        ConnectionLost: The peer cannot be reached.
        Timeout: Connecting took too long.

    Example:
        >>> with connect("127.0.0.1", 7000) as connection:
        ...     print(connection.ping())
    """

    async def start(thread: LoopThread) -> BlockingConnection:
        return BlockingConnection(thread, await aio.connect(host, port, settings=settings, **options))

    def undo(outcome: BlockingConnection | BaseException) -> None:
        if isinstance(outcome, BlockingConnection):
            outcome._inner.abort()

    return LoopThread.running(start, undo)

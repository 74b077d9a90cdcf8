"""bymux for callers that block: the asyncio face, run by a thread. Every method may be called from any thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mainstem.mux.blocking import LoopThread
from mainstem.mux.bymux import aio

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainstem.mux.bymux.settings import Settings

READ_LIMIT = 256 * 1024


class BlockingStream:
    """One stream. Each call that waits takes ``timeout`` in seconds and raises ``TimedOut``."""

    def __init__(self, thread: LoopThread, stream: aio.BymuxStream) -> None:
        self._thread = thread
        self._stream = stream

    @property
    def id(self) -> int:
        """The stream's id on the wire."""
        return self._stream.id

    def read(self, limit: int = READ_LIMIT, *, timeout: float | None = None) -> bytes:
        """Between one and ``limit`` bytes, ``b""`` at the end; negative: everything up to the end."""
        return self._thread.run(self._stream.read(limit), timeout)

    def readexactly(self, count: int, *, timeout: float | None = None) -> bytes:
        """Exactly ``count`` bytes. Raises ``asyncio.IncompleteReadError`` (an ``EOFError``) when the stream ends before."""
        return self._thread.run(self._stream.readexactly(count), timeout)

    def write(self, data: bytes | bytearray | memoryview, *, timeout: float | None = None) -> None:
        """Queues bytes and waits while too much is queued: this is where back pressure is felt."""

        async def work() -> None:
            self._stream.write(data)
            await self._stream.drain()

        self._thread.run(work(), timeout)

    def close(self, *, timeout: float | None = None) -> None:
        """Ends the writing half after everything written; returns when it has left. Twice is fine."""
        self._thread.run(self._stream.close(), timeout)

    def stop_read(self) -> None:
        """Gives no more credit: what still arrives is dropped."""
        self._thread.call(self._stream.stop_read)

    def abort(self) -> None:
        """Ends both halves now."""
        self._thread.call(self._stream.abort)

    def ping(self, timeout: float = 10.0) -> float:
        """The round-trip time to the peer on this stream, in seconds."""
        return self._thread.run(self._stream.ping(timeout))

    def __iter__(self) -> Iterator[bytes]:
        while data := self.read():
            yield data

    def __enter__(self) -> BlockingStream:
        return self

    def __exit__(self, *exc: object) -> None:
        self._thread.run(self._stream.__aexit__(*exc))  # type: ignore[arg-type]


class BlockingConnection:
    """One end of a bymux connection, with a thread of its own. A context manager; made by :func:`connect`."""

    def __init__(self, thread: LoopThread, connection: aio.Connection) -> None:
        self._thread = thread
        self._connection = connection

    def open_stream(self, *, timeout: float | None = None) -> BlockingStream:
        """Creates a stream, waiting for the peer's leave where none is left."""
        return BlockingStream(self._thread, self._thread.run(self._connection.open_stream(), timeout))

    def accept_stream(self, *, timeout: float | None = None) -> BlockingStream | None:
        """The next stream that the peer created; ``None`` once there will be none."""
        stream = self._thread.run(self._connection.accept_stream(), timeout)
        return None if stream is None else BlockingStream(self._thread, stream)

    def ping(self, timeout: float = 10.0) -> float:
        """The round-trip time to the peer, in seconds."""
        return self._thread.run(self._connection.ping(timeout))

    def close(self, timeout: float = aio.CLOSE_TIMEOUT_S) -> None:
        """Waits for the active streams at most ``timeout`` seconds, then ends the connection and its thread. Twice is fine."""
        if self._connection.failure is None:
            self._thread.run(self._connection.close(timeout))
        self._thread.stop()

    def __enter__(self) -> BlockingConnection:
        return self

    def __exit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        if kind is not None:
            self._thread.call(self._connection.abort)
        self.close()


def connect(
    host: str | None = None,
    port: int | None = None,
    *,
    settings: Settings | None = None,
    **options: Any,
) -> BlockingConnection:
    """Connects as the proactive end; the options are those of :func:`mainstem.mux.bymux.connect` without ``handler``."""
    thread = LoopThread()
    try:
        connection = thread.run(aio.connect(host, port, settings=settings, **options))
    except BaseException:
        thread.stop()
        raise
    return BlockingConnection(thread, connection)

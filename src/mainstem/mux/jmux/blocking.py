"""Jmux for callers that block: the asyncio face, run by a thread. Every method may be called from any thread."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from mainstem.mux.blocking import LoopThread
from mainstem.mux.jmux import aio_client

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainstem.mux.jmux.settings import Settings
    from mainstem.mux.jmux.state import Delivery

READ_LIMIT = 256 * 1024


class BlockingSession:
    """One request and its response. Each call that waits takes ``timeout`` in seconds and raises ``TimedOut``."""

    def __init__(self, thread: LoopThread, session: aio_client.ClientSession) -> None:
        self._thread = thread
        self._session = session

    @property
    def delivery(self) -> Delivery:
        """Whether the server may have processed the request, by what is known now."""
        return self._session.delivery

    @property
    def may_retry(self) -> bool:
        """The request can be sent again without the danger of being executed twice."""
        return self._session.may_retry

    def write(self, data: bytes | bytearray | memoryview, *, timeout: float | None = None) -> None:
        """Queues bytes of the request and waits while too much is queued."""

        async def work() -> None:
            self._session.write(data)
            await self._session.drain()

        self._thread.run(work(), timeout)

    def finish(self) -> None:
        """The request is complete."""
        self._thread.call(self._session.finish)

    def read(self, limit: int = READ_LIMIT, *, timeout: float | None = None) -> bytes:
        """Between one and ``limit`` bytes, ``b""`` at the end; negative: everything up to the end."""
        return self._thread.run(self._session.read(limit), timeout)

    def readexactly(self, count: int, *, timeout: float | None = None) -> bytes:
        """Exactly ``count`` bytes. Raises ``asyncio.IncompleteReadError`` (an ``EOFError``) when the response ends before."""
        return self._thread.run(self._session.readexactly(count), timeout)

    def abort(self, detail: str = "") -> None:
        """Gives the request up."""
        self._thread.call(self._session.abort, detail)

    def __iter__(self) -> Iterator[bytes]:
        while data := self.read():
            yield data


class BlockingClient:
    """Sends requests to one server. A context manager; made by :func:`connect`."""

    def __init__(self, thread: LoopThread, client: aio_client.Client) -> None:
        self._thread = thread
        self._client = client

    @contextmanager
    def request(self, *, timeout: float | None = None) -> Iterator[BlockingSession]:
        """A session for one request inside the block; aborted when the block raises or leaves the response unread."""
        session = self._thread.run(self._client.request().__aenter__(), timeout)
        try:
            yield BlockingSession(self._thread, session)
        except BaseException:
            self._thread.call(session._leave, False)
            raise
        self._thread.call(session._leave, True)

    def call(self, data: bytes, *, attempts: int = 2, timeout: float | None = None) -> bytes:
        """The whole response to a whole request; repeated only where nothing can have been processed."""
        return self._thread.run(self._client.call(data, attempts=attempts), timeout)

    def close(self) -> None:
        """Ends every connection and the thread. Twice is fine."""
        if not self._client._closed:
            self._thread.run(self._client.close())
        self._thread.stop()

    def __enter__(self) -> BlockingClient:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def connect(
    host: str | None = None, port: int | None = None, *, settings: Settings | None = None, **options: Any
) -> BlockingClient:
    """A client with its first connection; the options are those of :func:`mainstem.mux.jmux.connect`."""
    thread = LoopThread()
    try:
        client = thread.run(aio_client.connect(host, port, settings=settings, **options))
    except BaseException:
        thread.stop()
        raise
    return BlockingClient(thread, client)

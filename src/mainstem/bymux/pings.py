"""The pings of a connection and its streams that wait for their pongs."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from mainstem._internal.tasks import within
from mainstem.errors import MainstemError

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainstem.bymux.stream import StreamState

PING_TIMEOUT_S = 10.0


class PingWaiters:
    """The tasks that wait for pongs, in the order of their pings, by stream (``None`` is the connection).

    ``send`` sends a ping, or raises the error that ended the connection.
    """

    def __init__(self, send: Callable[[StreamState | None], None]) -> None:
        self._send = send
        self._waiters: dict[StreamState | None, deque[asyncio.Future[float | MainstemError]]] = {}

    async def ping(self, stream: StreamState | None, timeout: float | None) -> float:
        """Send a ping and wait for its pong; return the round trip in seconds."""
        self._send(stream)
        future: asyncio.Future[float | MainstemError] = asyncio.get_running_loop().create_future()
        self._waiters.setdefault(stream, deque()).append(future)
        result = await within(timeout, future, "ping")
        if isinstance(result, MainstemError):
            raise result
        return result

    def received(self, stream: StreamState | None, rtt_ns: int) -> None:
        """Complete the oldest ping. A negative round trip marks an unsolicited pong."""
        waiters = self._waiters.get(stream)
        if rtt_ns < 0 or not waiters:
            return
        future = waiters.popleft()
        if not waiters:
            del self._waiters[stream]
        if not future.done():
            future.set_result(rtt_ns / 1e9)

    def fail(self, stream: StreamState | None, error: MainstemError) -> None:
        """Raise an error from the pings of a stream that has ended, or of the connection."""
        for future in self._waiters.pop(stream, ()):
            if not future.done():
                future.set_result(error)

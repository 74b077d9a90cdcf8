"""The persistent subscription for asyncio. What waits for a disk or a store runs in a thread; what is handed out does not."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Self

from mainstem._core.log.columns import Columns
from mainstem.errors import ClosedError, Timeout, needs_extras
from mainstem.recording.persistent.batch import COLUMNS
from mainstem.recording.persistent.stream import PersistentStream
from mainstem.recording.persistent.subscription import Deadline

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from types import TracebackType

    import pyarrow as pa

    from mainstem.clock import Clock
    from mainstem.recording.persistent.session import SessionStream
    from mainstem.recording.persistent.stream import Client

IDLE_S = 0.001


class AsyncPersistentSubscription:
    """A persistent subscription for asyncio; iterating yields whole messages. One task uses it.

    ``Aeron.add_persistent_subscription`` creates it. A cancelled call has taken nothing.

    Example:
        >>> async with await aeron.add_persistent_subscription("aeron:ipc", 1001, recordings="tides") as subscription:
        ...     async for message in subscription:
        ...         print(message)
    """

    def __init__(self, stream: PersistentStream, client: Client, clock: Clock) -> None:
        self._stream, self._client, self._clock = stream, client, clock
        self._job: asyncio.Future[SessionStream | None] | None = None
        self._closing = False

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self.messages()

    async def messages(self, *, timeout: float | None = None) -> AsyncIterator[bytes]:
        """Yields whole messages as they come, until every publisher that was live has ended, or the subscription is closed.

        Args:
            timeout: Seconds to wait for the next message; None waits for ever.

        Yields:
            One message after another; one that was not taken comes in the next iteration.

        Raises:
            Timeout: Nothing came for ``timeout`` seconds.
            RecordingError: Positions are missing or damaged.
            RegistrationError: The driver refused the live channel.

        Example:
            >>> async for message in subscription.messages(timeout=10.0):
            ...     print(message)
        """
        while not self._closing:
            session = await self._next(timeout)
            if session is None:
                return
            batch = session.next_batch()
            assert batch is not None, "a session that is ready has a batch"
            while not (batch.is_empty or self._closing):
                first, last, position = batch.take(1)
                session.advance_to(position)
                for payload in batch.payloads(first, last):
                    yield payload
            # A stream that never runs dry must not keep the loop from its other tasks.
            await asyncio.sleep(0)

    async def next_arrow(self, limit: int = 4096, *, timeout: float | None = None) -> pa.RecordBatch:
        """Waits for messages and returns them as a record batch.

        Args:
            limit: The most messages.
            timeout: Seconds to wait for the first one; None waits for ever.

        Returns:
            A batch with the columns position, session_id, reserved_value and payload; without rows at the end of the stream.

        Raises:
            Timeout: Nothing came in time.
            MissingExtraError: pyarrow is not installed.
            RecordingError: Positions are missing or damaged.

        Example:
            >>> batch = await subscription.next_arrow(1000)
        """
        with needs_extras():
            from mainstem.arrow import record_batch

        session = await self._next(timeout)
        if session is None:
            return record_batch(Columns(COLUMNS).take(), 0)
        batch = session.next_batch()
        assert batch is not None, "a session that is ready has a batch"
        first, last, position = batch.take(limit)
        rows: pa.RecordBatch = batch.arrow(first, last)
        session.advance_to(position)
        return rows

    async def _next(self, timeout: float | None) -> SessionStream | None:
        """A session that has messages; None at the end of the stream."""
        deadline = Deadline(self._clock, timeout)
        while True:
            if self._closing:
                raise ClosedError(f"{self._stream!r} is closed")
            session = await self._ready()
            if session is not None:
                return session
            if self._stream.is_end_of_stream:
                return None
            if deadline.is_over:
                raise Timeout(f"nothing came on {self._stream!r} for {timeout:g} s", timeout=timeout)
            self._client.invoke()
            await asyncio.sleep(IDLE_S)

    async def _ready(self) -> SessionStream | None:
        if self._job is None:
            if self._stream.is_live:
                return self._stream.ready()
            self._job = asyncio.get_running_loop().run_in_executor(None, self._stream.ready)
        # A thread cannot be cancelled: the next call waits for the same one, and what it has prepared is still there.
        try:
            return await asyncio.shield(self._job)
        finally:
            if self._job.done():
                self._job = None

    @property
    def closed(self) -> bool:
        """Whether it is closed."""
        return self._closing

    @property
    def is_live(self) -> bool:
        """Whether every publisher's messages come from the live stream now."""
        return self._job is None and self._stream.is_live

    @property
    def positions(self) -> dict[int, int]:
        """Where the last message handed out of each recording ends, by recording id: ``start=`` goes on from there."""
        return self._stream.positions

    async def close(self) -> None:
        """Closes the live subscription and the recordings, after what is being read. May be called twice.

        Example:
            >>> await subscription.close()
        """
        self._closing = True
        if self._job is not None:
            await asyncio.wait([self._job])
            self._job.exception()  # retrieved, or asyncio logs it
        self._stream.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<asynchronous {self._stream!r}>"


async def opened(
    client: Client, channel: str, stream_id: int, *, clock: Clock, **options: Any
) -> AsyncPersistentSubscription:
    """An asynchronous persistent subscription; what opening reads is read in a thread."""

    def make() -> PersistentStream:
        return PersistentStream(client, channel, stream_id, clock=clock, **options)

    opening = asyncio.get_running_loop().run_in_executor(None, make)
    try:
        stream = await asyncio.shield(opening)
    except asyncio.CancelledError:
        # The thread goes on; what it opens is closed.
        opening.add_done_callback(_close_opened)
        raise
    return AsyncPersistentSubscription(stream, client, clock)


def _close_opened(opening: asyncio.Future[PersistentStream]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()

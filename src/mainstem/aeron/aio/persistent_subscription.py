"""The persistent subscription for asyncio. A thread reads disks and stores; messages are delivered in the event loop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from mainstem._internal.clock import Deadline
from mainstem._internal.entry_points import entry_point
from mainstem._internal.tasks import within
from mainstem.aeron.aio.resource import Closing
from mainstem.aeron.client.base import conductor_of
from mainstem.aeron.client.operation import wait_or_cancel
from mainstem.aeron.client.persistent_subscription import IDLE_S, PersistentBase
from mainstem.aeron.client.subscription import Subscription
from mainstem.errors import ClosedError, Timeout

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import pyarrow as pa

    from mainstem.aeron.client.base import AeronBase
    from mainstem.aeron.client.persistent_subscription import ReadySession, RecordedStream


class PersistentSubscription(PersistentBase, Closing):
    """A persistent subscription for asyncio; iterating yields whole messages. One task uses it.

    ``Aeron.add_persistent_subscription`` creates it. A cancelled call does not lose messages.

    Example:
        >>> async with aeron.add_persistent_subscription("aeron:ipc", 1001, recordings="tides") as subscription:
        ...     async for message in subscription:
        ...         print(message)
    """

    def __init__(self, stream: RecordedStream) -> None:
        super().__init__(stream)
        self._job: asyncio.Future[ReadySession | None] | None = None
        self._closing = False

    def __aiter__(self) -> AsyncIterator[bytes]:
        """Iterate over `messages` without a timeout."""
        return self.messages()

    async def messages(self, *, timeout: float | None = None) -> AsyncIterator[bytes]:
        """Yield whole messages as they arrive, until all live publishers have ended or the subscription is closed."""
        while not self._closing:
            session = await self._next(timeout)
            if session is None:
                return
            for message in self._each(session):
                yield message
            # A stream that always has messages must not keep the event loop from running other tasks.
            await asyncio.sleep(0)

    async def receive(self, *, timeout: float | None = None) -> bytes:
        """Wait for the next message and return it."""
        # A stream that always has messages must not keep the event loop from running other tasks.
        await asyncio.sleep(0)
        return self._first(await self._next(timeout))

    async def next_arrow(self, limit: int = 4096, *, timeout: float | None = None) -> pa.RecordBatch:
        """Wait for messages and return them as a record batch."""
        return self._rows(await self._next(timeout), limit)

    async def _next(self, timeout: float | None) -> ReadySession | None:
        """Return a session with messages, or None at the end of the stream or if the subscription is closed in the meantime."""
        if self._closing:
            raise ClosedError(f"{self!r} is closed")
        deadline = Deadline(self._stream.clock, timeout)
        while not self.closed:
            session = await self._ready()
            if session is not None or self.is_end_of_stream:
                return session
            if deadline.expired:
                raise self._timeout(timeout)
            self._stream.client.invoke()
            await asyncio.sleep(IDLE_S)
        return None

    async def _ready(self) -> ReadySession | None:
        if self._job is None:
            if self._stream.is_live:
                return self._stream.ready()
            self._job = asyncio.get_running_loop().run_in_executor(None, self._stream.ready)
        # A thread cannot be cancelled, so the next call waits for the same thread and uses its result.
        try:
            return await asyncio.shield(self._job)
        finally:
            if self._job.done():
                self._job = None

    @property
    def closed(self) -> bool:
        """Whether the subscription is closed."""
        return self._closing

    @property
    def is_live(self) -> bool:
        """Whether every publisher's messages now come from the live stream."""
        return self._job is None and super().is_live

    async def close(self) -> None:
        """Wait for a pending read, then close the live subscription and the recordings. Idempotent."""
        self._closing = True
        if self._job is not None:
            await asyncio.wait([self._job])
            self._job.exception()  # retrieved, because asyncio logs it otherwise
        self._stream.close()

    def _abandon(self) -> None:
        stream, job = self._stream, self._job
        if job is None or job.done():
            stream.close()
        else:
            # The job's thread still uses the stream.
            job.add_done_callback(lambda _: stream.close())


class _Client:
    """The part of an asyncio client that a persistent stream uses in the thread that reads recordings."""

    def __init__(self, client: AeronBase) -> None:
        self._conductor = conductor_of(client)
        self.directory = client.directory
        self.invoke = client.invoke

    def add_subscription(self, channel: str, stream_id: int, /, *, timeout: float | None = None) -> Subscription:
        return wait_or_cancel(self._conductor.add_subscription(Subscription, channel, stream_id), timeout)


async def open_persistent(
    client: AeronBase, channel: str, stream_id: int, *, timeout: float | None, **options: Any
) -> PersistentSubscription:
    """Open a persistent subscription. A thread reads the recordings."""

    def make() -> RecordedStream:
        make_stream = entry_point("persistent-stream")
        stream: RecordedStream = make_stream(
            _Client(client), channel, stream_id, clock=client.context.clock, timeout=timeout, **options
        )
        return stream

    opening = asyncio.get_running_loop().run_in_executor(None, make)
    try:
        stream = await within(timeout, asyncio.shield(opening), "add_persistent_subscription")
    except (asyncio.CancelledError, Timeout):
        # The thread continues, so close what it opens.
        opening.add_done_callback(_close_opened)
        raise
    return PersistentSubscription(stream)


def _close_opened(opening: asyncio.Future[RecordedStream]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()

"""Publications, subscriptions and counters for asyncio."""

from __future__ import annotations

import asyncio
from functools import partial
from operator import length_hint
from typing import TYPE_CHECKING, Any, Literal, overload

from mainstem._core.log.append import ConcurrentAppender, ExclusiveAppender
from mainstem._internal.clock import NOT_A_TIME, timeout_of
from mainstem.aeron.aio.resource import Closing, Destinations
from mainstem.aeron.aio.waiting import Pause, result_of, run
from mainstem.aeron.client.counter import CounterBase
from mainstem.aeron.client.image import ImageBase
from mainstem.aeron.client.publication import PublicationBase
from mainstem.aeron.client.resource import StreamEnd
from mainstem.aeron.client.subscription import MESSAGES_AT_ONCE, SubscriptionBase, next_batch
from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    import pyarrow as pa

    from mainstem._core.log.read import Message
    from mainstem.aeron.client.operation import Conductor


class Sending(PublicationBase, Destinations):
    """A publication that waits on the event loop."""

    async def send(
        self: Any,
        message: Any,
        timeout: float | None = None,
        *,
        reserved_value: int | Callable[[memoryview], int] | None = None,
    ) -> int:
        """Offer a message until there is space. If the call is cancelled, nothing is sent."""
        if timeout is not None and timeout != timeout:
            raise ConfigurationError(NOT_A_TIME)
        position: int = self.offer(message, reserved_value=reserved_value)
        if position < 0:
            steps = self._sending(position, message, timeout, reserved_value)
            position = await run(steps, Pause(self._conductor.invokers))
        return position

    async def close(self) -> None:
        """Close the publication. Messages that were sent are still delivered; use ``revoke`` to drop them."""
        self._end()


class Publication(Sending, ConcurrentAppender):
    """A concurrent publication for asyncio. Methods that never wait, such as ``offer`` and ``try_claim``, are not coroutines.

    Example:
        >>> async with aeron.add_publication("aeron:ipc", 1001) as publication:
        ...     await publication.send(b"tick")
    """


class ExclusivePublication(Sending, ExclusiveAppender):
    """A publication for asyncio with one writer and its own session."""


class Counter(CounterBase, Closing):
    """A counter of an asyncio client. Reading and writing its value never waits."""


class Image(ImageBase):
    """One publication's stream in a subscription for asyncio."""

    subscription: Subscription

    async def reject(self, reason: str, *, timeout: float | None = None) -> None:
        """Reject the stream. If the call is cancelled, the stream may have been rejected."""
        timeout = timeout_of(timeout)
        await result_of(self._conductor, self._conductor.reject_image(self, reason), timeout)


async def iterate(
    get_conductor: Callable[[], Conductor | None],
    owner: Any,
    take: Callable[[], Iterator[Any] | None],
    has_ended: Callable[[], bool],
    timeout: float | None,
    *,
    at_end: Callable[[], Awaitable[None]] | None = None,
) -> AsyncIterator[Any]:
    """Yield messages like the blocking ``iterate``."""
    conductor = get_conductor()
    if conductor is None:
        return
    timeout = timeout_of(timeout)
    pause = Pause(conductor.invokers)
    end = StreamEnd(conductor, has_ended)
    while True:
        if (batch := take()) is None:
            pause.restart()
            batch = await run(next_batch(conductor, owner, take, end, timeout), pause)
            if batch is None:
                break
        for message in batch:
            yield message
        # A stream that always has messages must not keep the event loop from its other tasks.
        await asyncio.sleep(0)
    if at_end is not None:
        await at_end()


class Subscription(SubscriptionBase[Image], Destinations):
    """A subscription for asyncio. Iterating over it yields whole messages. Methods that never wait are not coroutines.

    Attributes:
        images: A tuple of the streams that the subscription receives, one for each publication.

    Example:
        >>> async with aeron.add_subscription("aeron:ipc", 1001) as subscription:
        ...     async for message in subscription:
        ...         print(message)
    """

    _image_kind = Image

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self.messages()

    @overload
    def messages(self, *, timeout: float | None = None, metadata: Literal[False] = False) -> AsyncIterator[bytes]: ...

    @overload
    def messages(self, *, timeout: float | None = None, metadata: Literal[True]) -> AsyncIterator[Message]: ...

    @overload
    def messages(
        self, *, timeout: float | None = None, metadata: bool
    ) -> AsyncIterator[bytes] | AsyncIterator[Message]: ...

    def messages(self, *, timeout: float | None = None, metadata: bool = False) -> AsyncIterator[Any]:
        """Yield whole messages as they arrive. Leaving or cancelling the iterator loses no message."""
        take = partial(self._take_messages, MESSAGES_AT_ONCE, metadata)
        return iterate(lambda: self._conductor, self, take, self._has_ended, timeout, at_end=self._check_feed)

    async def receive(self, *, timeout: float | None = None) -> bytes:
        """Wait for the next message and return it. If the call is cancelled, no message is lost."""
        if not length_hint(self._taken):
            # A stream that always has messages must not keep the event loop from its other tasks.
            await asyncio.sleep(0)
        for message in await run(self._receiving(timeout), Pause(self._conductor.invokers)):
            return message
        await self._check_feed()
        raise self._nothing_follows()

    async def _check_feed(self) -> None:
        if self._feed is not None and not self._closed:
            await self._feed.check(self)

    async def wait_for_data(self, *, timeout: float | None = None) -> bool:  # type: ignore[override]
        """Wait until there is something to poll or the subscription is closed."""
        timeout = timeout_of(timeout)
        return self.has_data() or await run(self._waiting_for_data(timeout), Pause(self._conductor.invokers))

    async def next_arrow(self, limit: int = 4096, *, timeout: float | None = None) -> pa.RecordBatch:
        """Wait for messages and return them as a record batch. If the call is cancelled, no messages are consumed."""
        return await run(self._taking_arrow(limit, timeout), Pause(self._conductor.invokers))

"""Publications, subscriptions and counters whose waiting is the event loop's."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Literal, overload

from mainstem._core.log.append import ConcurrentAppender, ExclusiveAppender
from mainstem._internal.clock import NOT_A_TIME
from mainstem.aeron.aio.resource import Closing, Destinations
from mainstem.aeron.aio.waiting import Pause, result_of
from mainstem.aeron.client.counter import CounterBase
from mainstem.aeron.client.image import ImageBase
from mainstem.aeron.client.offer_status import OfferStatus
from mainstem.aeron.client.publication import PublicationBase, offer_error_of
from mainstem.aeron.client.subscription import MESSAGES_AT_ONCE, SubscriptionBase
from mainstem.errors import Timeout

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    import pyarrow as pa

    from mainstem._core.log.fragment import Message


class Sending(PublicationBase, Destinations):
    """A publication of an asyncio program."""

    async def send(
        self: Any,
        message: Any,
        timeout: float | None = None,
        *,
        reserved_value: int | Callable[[memoryview], int] | None = None,
    ) -> int:
        """Offers a message until there is room. A call that is cancelled has sent nothing.

        Example:
            >>> position = await publication.send(b"tick", timeout=1.0)
        """
        if timeout is not None and timeout != timeout:
            raise ValueError(NOT_A_TIME)
        pause: Pause | None = None
        while (position := self.offer(message, reserved_value=reserved_value)) < 0:
            status = OfferStatus(position)
            if status.is_final:
                raise offer_error_of(self, status, f"send on {self!r}")
            pause = pause or Pause.of(self._conductor, timeout)
            if not await pause.step():
                raise offer_error_of(self, status, f"send on {self!r}", f", for {timeout:g} s")
        sent: int = position
        return sent


class Publication(Sending, ConcurrentAppender):
    """A concurrent publication for asyncio. What never waits, as ``offer`` and ``try_claim``, is not awaited.

    Example:
        >>> async with await aeron.add_publication("aeron:ipc", 1001) as publication:
        ...     await publication.send(b"tick")
    """


class ExclusivePublication(Sending, ExclusiveAppender):
    """A publication for asyncio with one writer and a session of its own.

    Example:
        >>> async with await aeron.add_exclusive_publication("aeron:ipc", 1001) as publication:
        ...     await publication.send(b"tick")
    """

    _is_exclusive = True


class Counter(CounterBase, Closing):
    """A counter of an asyncio client; its value is read and written without waiting.

    Example:
        >>> async with await aeron.add_counter(1001, "orders accepted") as orders:
        ...     orders.add(1)
    """


class Image(ImageBase):
    """One publication's stream in a subscription for asyncio.

    Example:
        >>> for image in subscription.images:
        ...     print(image.source_identity, image.position)
    """

    subscription: Subscription

    async def reject(self, reason: str, *, timeout: float | None = None) -> None:
        """Rejects the stream. A call that is cancelled may have rejected it.

        Example:
            >>> await image.reject("unknown schema")
        """
        owner = self.subscription._conductor
        await result_of(owner, owner.reject_image(self, reason), timeout)


class Subscription(SubscriptionBase[Image], Destinations):
    """A subscription for asyncio; iterating yields whole messages. What never waits, as ``poll``, is not awaited.

    Example:
        >>> async with await aeron.add_subscription("aeron:ipc", 1001) as subscription:
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

    async def messages(self, *, timeout: float | None = None, metadata: bool = False) -> AsyncIterator[Any]:
        """Yields whole messages as they come. An iterator that is left or cancelled loses nothing.

        Example:
            >>> async for message in subscription.messages(timeout=10.0, metadata=True):
            ...     print(message.position, message.session_id, message.payload)
        """
        pause = Pause.of(self._conductor, timeout)
        while True:
            batch = self._take_messages(MESSAGES_AT_ONCE, metadata)
            if batch is not None:
                for message in batch:
                    yield message
                # A stream that never runs dry must not keep the loop from its other tasks.
                await asyncio.sleep(0)
                pause.restart()
            elif self._closed or self.is_end_of_stream:
                self._conductor.raise_failure()
                return
            elif not await pause.step():
                raise Timeout(f"nothing came on {self!r} for {timeout:g} s", timeout=timeout)

    async def wait_for_data(self, *, timeout: float | None = None) -> bool:
        """Waits until there is something to poll, or the subscription is closed.

        Example:
            >>> while await subscription.wait_for_data(timeout=1.0):
            ...     subscription.poll(handler)
        """
        pause = Pause.of(self._conductor, timeout)
        while not self.has_data():
            if self._closed or not await pause.step():
                return False
        return True

    async def next_arrow(self, limit: int = 4096, *, timeout: float | None = None) -> pa.RecordBatch:
        """Waits for messages and returns them as a record batch. A call that is cancelled has taken none.

        Example:
            >>> batch = await subscription.next_arrow(1000)
        """
        if not await self.wait_for_data(timeout=timeout):
            self._conductor.raise_failure()
            raise Timeout(f"nothing came on {self!r}", timeout=timeout)
        return self.poll_arrow(limit)

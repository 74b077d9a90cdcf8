"""Publications and subscriptions whose waiting is the event loop's."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Literal, overload

from mainstem.aeron.aio.waiting import AsyncResource, Pause
from mainstem.aeron.client.offer_status import OfferStatus
from mainstem.aeron.client.subscription import MESSAGES_AT_ONCE
from mainstem.errors import Timeout

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    import pyarrow as pa

    from mainstem._core.log.fragment import Message
    from mainstem.aeron.client.publication import ExclusivePublication as SyncExclusivePublication
    from mainstem.aeron.client.publication import Publication as SyncPublication
    from mainstem.aeron.client.subscription import Subscription as SyncSubscription
    from mainstem.clock import Clock


class Stream(AsyncResource):
    """What publications and subscriptions have in common."""

    @property
    def channel(self) -> str:
        """The channel that it was added with."""
        return self._inner.channel  # type: ignore[no-any-return]

    @property
    def stream_id(self) -> int:
        """The stream id."""
        return self._inner.stream_id  # type: ignore[no-any-return]

    @property
    def registration_id(self) -> int:
        """The correlation id of the command that added it."""
        return self._inner.registration_id  # type: ignore[no-any-return]

    @property
    def is_connected(self) -> bool:
        """Whether a peer is connected."""
        return self._inner.is_connected  # type: ignore[no-any-return]


class Publication(Stream):
    """A publication for asyncio.

    Example:
        >>> async with await aeron.add_publication("aeron:ipc", 1001) as publication:
        ...     await publication.send(b"tick")
    """

    def __init__(self, inner: SyncPublication | SyncExclusivePublication, clock: Clock) -> None:
        self._inner = inner
        self._clock = clock

    @property
    def sync(self) -> SyncPublication | SyncExclusivePublication:
        """The publication itself, with all calls that never wait (``offer_many``, ``try_claim``, ...)."""
        return self._inner  # type: ignore[no-any-return]

    @property
    def session_id(self) -> int:
        """The session id."""
        return self._inner.session_id  # type: ignore[no-any-return]

    @property
    def position(self) -> int:
        """The position after the last message."""
        return self._inner.position  # type: ignore[no-any-return]

    @property
    def max_message_length(self) -> int:
        """The longest message, in bytes."""
        return self._inner.max_message_length  # type: ignore[no-any-return]

    def offer(self, data: Any, *, reserved_value: int | Callable[[memoryview], int] | None = None) -> int:
        """Offers a message at once, as the publication's own ``offer``.

        Args:
            data: The message, any buffer of bytes.
            reserved_value: An int64 for the frame header, or a function that computes it from the frame.

        Returns:
            The position after the message, or a negative OfferStatus.

        Raises:
            ValueError: The message is longer than ``max_message_length``.

        Example:
            >>> position = publication.offer(b"tick")
        """
        return self._inner.offer(data, reserved_value=reserved_value)  # type: ignore[no-any-return]

    async def send(
        self,
        data: Any,
        *,
        timeout: float | None = None,
        reserved_value: int | Callable[[memoryview], int] | None = None,
    ) -> int:
        """Offers a message until there is room, and returns the position after it.

        A cancelled call has sent the message or has not: nothing is half sent.

        Args:
            data: The message, any buffer of bytes.
            timeout: Seconds to wait for room; None waits for ever.
            reserved_value: An int64 for the frame header, or a function that computes it from the frame.

        Returns:
            The position after the message.

        Raises:
            BackPressured: A subscriber was slower than the publisher for the whole time.
            NotConnected: No subscriber was connected for the whole time, or the group of receivers was not complete.
            AdminAction: The log was rotating when the time was over.
            ClosedError: The publication is closed; DriverTimeout or ClientTimeout where that is why.
            MaxPositionExceeded: The stream has used up its positions.
            ValueError: The message is longer than ``max_message_length``.

        Example:
            >>> position = await publication.send(b"tick", timeout=1.0)
        """
        pause: Pause | None = None
        while (position := self.offer(data, reserved_value=reserved_value)) < 0:
            status = OfferStatus(position)
            if status.is_final:
                raise self._inner.offer_error(status, f"send on {self._inner!r}")
            pause = pause or Pause(self._clock, timeout)
            if not await pause.step():
                raise self._inner.offer_error(status, f"send on {self._inner!r}", f", for {timeout:g} s")
        return position


class ExclusivePublication(Publication):
    """A publication for asyncio with one writer and a session of its own.

    Example:
        >>> async with await aeron.add_exclusive_publication("aeron:ipc", 1001) as publication:
        ...     await publication.send(b"tick")
    """


class Subscription(Stream):
    """A subscription for asyncio; iterating yields whole messages.

    Example:
        >>> async with await aeron.add_subscription("aeron:ipc", 1001) as subscription:
        ...     async for message in subscription:
        ...         print(message)
    """

    def __init__(self, inner: SyncSubscription, clock: Clock) -> None:
        self._inner = inner
        self._clock = clock

    @property
    def sync(self) -> SyncSubscription:
        """The subscription itself, with all polls, which never wait."""
        return self._inner  # type: ignore[no-any-return]

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
        """Yields whole messages as they come, until every image has ended, or the subscription is closed.

        An iterator that is left or cancelled loses nothing: the next one goes on behind the last message that was yielded.

        Args:
            timeout: Seconds to wait for the next message; None waits for ever.
            metadata: True yields a ``Message``: the bytes with position, session, reserved value and image.

        Yields:
            One message after another.

        Raises:
            Timeout: Nothing came for ``timeout`` seconds.
            DriverTimeout: The driver ended.
            ClientTimeout: The driver timed this client out.
            LocalProtocolError: An iterator without metadata was left before the messages that it had taken were yielded.

        Example:
            >>> async for message in subscription.messages(timeout=10.0, metadata=True):
            ...     print(message.position, message.session_id, message.payload)
        """
        pause = Pause(self._clock, timeout)
        while True:
            batch = self._inner.take_messages(MESSAGES_AT_ONCE, metadata)
            if batch is not None:
                for message in batch:
                    yield message
                # A stream that never runs dry must not keep the loop from its other tasks.
                await asyncio.sleep(0)
                pause.restart()
            elif self._inner.closed or self._inner.is_end_of_stream:
                self._inner.raise_failure()
                return
            elif not await pause.step():
                raise Timeout(f"nothing came on {self._inner!r} for {timeout:g} s", timeout=timeout)

    async def next_arrow(self, limit: int = 4096, *, timeout: float | None = None) -> pa.RecordBatch:
        """Waits for messages and returns them as a record batch.

        Args:
            limit: The most messages.
            timeout: Seconds to wait for the first one; None waits for ever.

        Returns:
            A batch with the columns position, session_id, reserved_value and payload.

        Raises:
            Timeout: Nothing came in time, or the subscription is closed; DriverTimeout or ClientTimeout where that is why.
            MissingExtraError: pyarrow is not installed.

        Example:
            >>> batch = await subscription.next_arrow(1000)
        """
        pause = Pause(self._clock, timeout)
        while not self._inner.has_data():
            if self._inner.closed or not await pause.step():
                self._inner.raise_failure()
                raise Timeout(f"nothing came on {self._inner!r}", timeout=timeout)
        return self.sync.poll_arrow(limit)

"""Aeron for asyncio: the same client, whose waiting is the event loop's.

Example:
    >>> async with mainstem.aio.connect() as aeron:
    ...     subscription = await aeron.add_subscription("aeron:ipc", 1001)
    ...     async for message in subscription:
    ...         print(message)
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, overload

from mainstem.aeron.client.client import Aeron as SyncAeron
from mainstem.aeron.client.client import start_attaching
from mainstem.aeron.client.context import ClientContext
from mainstem.aeron.client.offer_status import OfferStatus, offer_error
from mainstem.aeron.client.poller import BATCH, Poller
from mainstem.aeron.client.requester import REPLY_TIMEOUT
from mainstem.aeron.client.requests import (
    MAX_CLIENTS,
    MAX_IN_FLIGHT,
    ReplierState,
    RequesterState,
    response_mode,
    with_parameter,
)
from mainstem.aeron.client.subscription import MESSAGES_AT_ONCE
from mainstem.aeron.cnc import ATTACH_POLL_INTERVAL_NS
from mainstem.clock import NS_PER_SECOND
from mainstem.errors import TimedOut

if TYPE_CHECKING:
    import os
    from collections.abc import AsyncIterator, Callable, Generator, Iterable, Mapping
    from datetime import datetime
    from types import TracebackType

    import pyarrow as pa

    from mainstem._core.log.fragment import Message
    from mainstem.aeron.client.asynchronous import AsyncOperation
    from mainstem.aeron.client.counter import Counter
    from mainstem.aeron.client.image import Image
    from mainstem.aeron.client.publication import ExclusivePublication, Publication
    from mainstem.aeron.client.settings import ClientSettings
    from mainstem.aeron.client.subscription import Subscription
    from mainstem.clock import Clock
    from mainstem.recording.persistent.aio import AsyncPersistentSubscription

T = TypeVar("T")

__all__ = [
    "AsyncAeron",
    "AsyncPoller",
    "AsyncPublication",
    "AsyncReplier",
    "AsyncRequest",
    "AsyncRequester",
    "AsyncSubscription",
    "connect",
]

# A pause gives way to the loop's other tasks so often, then sleeps: from the shortest sleep to the longest, doubling.
TURNS_BEFORE_SLEEP = 20
MIN_SLEEP = 0.0001
MAX_SLEEP = 0.002


class Pause:
    """Idles for one waiting call: turns of the loop, then sleeps."""

    def __init__(self, clock: Clock, timeout: float | None) -> None:
        self._clock = clock
        self._timeout = timeout
        self.restart()

    def restart(self) -> None:
        """Begins anew after a success."""
        self._turns = 0
        self._sleep = MIN_SLEEP
        self._deadline_ns = 0
        if self._timeout is not None:
            self._deadline_ns = self._clock.monotonic_ns() + round(self._timeout * NS_PER_SECOND)

    async def step(self) -> bool:
        """Idles once; false when the time is over."""
        if self._timeout is not None and self._clock.monotonic_ns() >= self._deadline_ns:
            return False
        self._turns += 1
        if self._turns <= TURNS_BEFORE_SLEEP:
            await asyncio.sleep(0)
        else:
            await asyncio.sleep(self._sleep)
            self._sleep = min(2 * self._sleep, MAX_SLEEP)
        return True


class _AsyncResource:
    """What every asynchronous form of a resource has: an end."""

    _inner: Any

    @property
    def closed(self) -> bool:
        """Whether it is closed."""
        return bool(self._inner.closed)

    def close(self) -> None:
        """Closes it, without waiting. May be called twice.

        Example:
            >>> subscription.close()
        """
        self._inner.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<asynchronous {self._inner!r}>"


class AsyncPublication(_AsyncResource):
    """A publication for asyncio.

    Example:
        >>> async with await aeron.add_publication("aeron:ipc", 1001) as publication:
        ...     await publication.send(b"tick")
    """

    def __init__(self, inner: Publication | ExclusivePublication, clock: Clock) -> None:
        self._inner = inner
        self._clock = clock

    @property
    def sync(self) -> Publication | ExclusivePublication:
        """The publication itself, with all calls that never wait (``offer_many``, ``try_claim``, ...)."""
        return self._inner  # type: ignore[no-any-return]

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
            ClosedError: The publication is closed.
            MaxPositionExceeded: The stream has used up its positions.
            ValueError: The message is longer than ``max_message_length``.

        Example:
            >>> position = await publication.send(b"tick", timeout=1.0)
        """
        pause: Pause | None = None
        while (position := self.offer(data, reserved_value=reserved_value)) < 0:
            status = OfferStatus(position)
            if status.is_final:
                raise offer_error(status, f"send on {self._inner!r}")
            pause = pause or Pause(self._clock, timeout)
            if not await pause.step():
                raise self._inner.offer_error(status, f"send on {self._inner!r}", f", for {timeout:g} s")
        return position


class AsyncSubscription(_AsyncResource):
    """A subscription for asyncio; iterating yields whole messages.

    Example:
        >>> async with await aeron.add_subscription("aeron:ipc", 1001) as subscription:
        ...     async for message in subscription:
        ...         print(message)
    """

    def __init__(self, inner: Subscription, clock: Clock) -> None:
        self._inner = inner
        self._clock = clock

    @property
    def sync(self) -> Subscription:
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
            TimedOut: Nothing came for ``timeout`` seconds.
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
                raise TimedOut(f"nothing came on {self._inner!r} for {timeout:g} s", timeout=timeout)

    async def next_arrow(self, limit: int = 4096, *, timeout: float | None = None) -> pa.RecordBatch:
        """Waits for messages and returns them as a record batch.

        Args:
            limit: The most messages.
            timeout: Seconds to wait for the first one; None waits for ever.

        Returns:
            A batch with the columns position, session_id, reserved_value and payload.

        Raises:
            TimedOut: Nothing came in time, or the subscription is closed.
            MissingExtraError: pyarrow is not installed.

        Example:
            >>> batch = await subscription.next_arrow(1000)
        """
        pause = Pause(self._clock, timeout)
        while not self._inner.has_data():
            if self._inner.closed or not await pause.step():
                raise TimedOut(f"nothing came on {self._inner!r}", timeout=timeout)
        return self.sync.poll_arrow(limit)


class AsyncAeron(_AsyncResource):
    """A client of a media driver for asyncio. Create one with ``connect``.

    Example:
        >>> async with mainstem.aio.connect() as aeron:
        ...     publication = await aeron.add_publication("aeron:ipc", 1001)
    """

    def __init__(self, inner: SyncAeron) -> None:
        self._inner = inner
        self._clock = inner.context.clock

    @property
    def sync(self) -> SyncAeron:
        """The client itself."""
        return self._inner  # type: ignore[no-any-return]

    async def add_publication(self, channel: str, stream_id: int) -> AsyncPublication:
        """Adds a concurrent publication.

        Args:
            channel: The channel URI.
            stream_id: The stream id, an int32.

        Returns:
            The publication.

        Raises:
            ChannelUriError: A key of the channel is a likely typing error of a known one.
            RegistrationError: The driver refused; ``code`` is Aeron's error code.
            DriverTimeout: The driver did not respond in time.
            ClosedError: The client is closed.

        Example:
            >>> publication = await aeron.add_publication("aeron:ipc", 1001)
        """
        operation = self.sync.async_add_publication(channel, stream_id)
        publication = await self._finished(operation)
        return AsyncPublication(publication, self._clock)

    async def add_exclusive_publication(self, channel: str, stream_id: int) -> AsyncPublication:
        """Adds a publication with one writer and a session of its own.

        Args:
            channel: The channel URI.
            stream_id: The stream id, an int32.

        Returns:
            The publication.

        Raises:
            ChannelUriError: A key of the channel is a likely typing error of a known one.
            RegistrationError: The driver refused; ``code`` is Aeron's error code.
            DriverTimeout: The driver did not respond in time.
            ClosedError: The client is closed.

        Example:
            >>> publication = await aeron.add_exclusive_publication("aeron:ipc", 1001)
        """
        operation = self.sync.async_add_exclusive_publication(channel, stream_id)
        publication = await self._finished(operation)
        return AsyncPublication(publication, self._clock)

    async def add_subscription(
        self,
        channel: str,
        stream_id: int,
        *,
        on_available_image: Callable[[Image], object] | None = None,
        on_unavailable_image: Callable[[Image], object] | None = None,
    ) -> AsyncSubscription:
        """Adds a subscription.

        Args:
            channel: The channel URI.
            stream_id: The stream id, an int32.
            on_available_image: Called on the conductor's thread, outside the event loop, with each new image.
            on_unavailable_image: Called on the conductor's thread with each image that became unavailable.

        Returns:
            The subscription.

        Raises:
            ChannelUriError: A key of the channel is a likely typing error of a known one.
            RegistrationError: The driver refused; ``code`` is Aeron's error code.
            DriverTimeout: The driver did not respond in time.
            ClosedError: The client is closed.

        Example:
            >>> subscription = await aeron.add_subscription("aeron:ipc", 1001)
        """
        operation = self.sync.async_add_subscription(
            channel, stream_id, on_available_image=on_available_image, on_unavailable_image=on_unavailable_image
        )
        return AsyncSubscription(await self._finished(operation), self._clock)

    async def add_persistent_subscription(
        self,
        channel: str,
        stream_id: int,
        *,
        recordings: os.PathLike[str] | str,
        start: str | int | datetime | dict[int, int] = "earliest",
        recorded_channel: str | None = None,
        strict: bool = True,
        options: Mapping[str, str] | None = None,
    ) -> AsyncPersistentSubscription:
        """Adds a subscription that begins with what was recorded and goes on with the live stream.

        No message is missing and none comes twice, however long the recordings take to read and however slow the reader is, while
        a recorder runs. The live stream is joined when nearly everything recorded was read.

        Args:
            channel: The channel URI of the live stream.
            stream_id: The stream id, an int32.
            recordings: Where the stream is recorded: a directory or a URL.
            start: ``earliest``; ``latest``, from now on; a time, ``datetime`` or ISO 8601 in UTC, exact to an entry of the index; a
                position, after which messages are wanted; or positions by recording id, as ``positions`` of an earlier one.
            recorded_channel: The channel that was recorded, where the place has the stream of several; by default ``channel``.
            strict: Whether positions that are missing or damaged raise; otherwise they are logged and passed over.
            options: Options of the store, for a URL.

        Returns:
            The subscription.

        Raises:
            ConfigurationError: ``start`` is not possible, or it is not clear which recordings are meant.
            RecordingError: There are no recordings, or they are damaged.
            StoreError: The store cannot be read.
            RegistrationError: The driver refused; ``code`` is Aeron's error code.
            DriverTimeout: The driver did not respond in time.
            ClosedError: The client is closed.

        Example:
            >>> subscription = await aeron.add_persistent_subscription("aeron:ipc", 1001, recordings="tides")
        """
        # The one import that points upwards, as in the client itself.
        from mainstem.recording.persistent.aio import opened

        return await opened(
            self.sync,
            channel,
            stream_id,
            recordings=recordings,
            clock=self._clock,
            start=start,
            recorded_channel=recorded_channel,
            strict=strict,
            options=options,
        )

    async def add_counter(self, type_id: int, label: str, *, key: bytes = b"") -> Counter:
        """Adds a counter; its value is read and written without waiting.

        Args:
            type_id: The type; ids from 1000 on are for applications.
            label: The text that tools show, at most 380 bytes.
            key: Bytes that identify the counter to programs, at most 112.

        Returns:
            The counter.

        Raises:
            RegistrationError: The driver refused.
            DriverTimeout: The driver did not respond in time.
            ClosedError: The client is closed.

        Example:
            >>> orders = await aeron.add_counter(1001, "orders accepted")
        """
        return await self._finished(self.sync.async_add_counter(type_id, label, key=key))

    async def _finished(self, operation: AsyncOperation[T]) -> T:
        pause = Pause(self._clock, None)
        while not operation.is_done:
            self.sync.invoke()
            await pause.step()
        return operation.result()


class AsyncRequester(_AsyncResource):
    """Sends requests, and returns the reply to each; any number of tasks may wait for replies. Create one with ``open``.

    Example:
        >>> async with await AsyncRequester.open(
        ...     aeron, "aeron:ipc", 1001, response_channel="aeron:ipc", response_stream_id=1002
        ... ) as requester:
        ...     await requester.request(b"price of XYZ", timeout=1.0)
    """

    def __init__(self, state: RequesterState, clock: Clock) -> None:
        self._state = state
        self._inner = state.subscription
        self._clock = clock

    @classmethod
    async def open(
        cls,
        aeron: AsyncAeron,
        channel: str,
        stream_id: int,
        *,
        response_channel: str,
        response_stream_id: int,
        max_in_flight: int = MAX_IN_FLIGHT,
    ) -> Self:
        """Adds the publication of requests and the subscription to replies.

        Args:
            aeron: The client.
            channel: The channel of requests, as ``aeron:udp?endpoint=server:20121`` or ``aeron:ipc``.
            stream_id: Their stream id.
            response_channel: The channel of replies, as ``aeron:udp?control=server:20122`` or ``aeron:ipc``.
            response_stream_id: Their stream id.
            max_in_flight: How many requests may wait for their replies at once.

        Returns:
            The requester.

        Raises:
            ChannelUriError: A key of a channel is a likely typing error of a known one.
            RegistrationError: The driver refused.
            DriverTimeout: The driver did not respond in time.

        Example:
            >>> requester = await AsyncRequester.open(
            ...     aeron, "aeron:ipc", 1001, response_channel="aeron:ipc", response_stream_id=1002
            ... )
        """
        subscription = (await aeron.add_subscription(response_mode(response_channel), response_stream_id)).sync
        try:
            channel = with_parameter(channel, f"response-correlation-id={subscription.registration_id}")
            publication = (await aeron.add_exclusive_publication(channel, stream_id)).sync
        except BaseException:
            subscription.close()
            raise
        return cls(RequesterState(publication, subscription, max_in_flight), aeron.sync.context.clock)

    @property
    def in_flight(self) -> int:
        """How many requests wait for their replies."""
        return len(self._state.slots)

    @property
    def late_replies(self) -> int:
        """How many replies came after their request had been given up, and were dropped."""
        return self._state.late_replies

    async def request(self, payload: Any, *, timeout: float | None = None) -> bytes:
        """Sends a request and waits for its reply. A cancelled call frees its slot; the request may have been sent.

        Args:
            payload: The request, any buffer of bytes.
            timeout: Seconds for all of it, the wait for a connection included; None waits for ever.

        Returns:
            The reply.

        Raises:
            TimedOut: The request was sent, and no reply came in time. The replier may have received it.
            NotConnected: No replier was connected in time: nothing was sent.
            BackPressured: There was no room in time, or ``max_in_flight`` requests wait already: nothing was sent.
            ClosedError: The requester is closed.
            DriverTimeout: The driver ended.
            ClientTimeout: The driver timed this client out.

        Example:
            >>> reply = await requester.request(b"price of XYZ", timeout=1.0)
        """
        state = self._state
        slot = state.open_slot()
        pause = Pause(self._clock, timeout)
        try:
            while (position := state.publication.offer(payload, reserved_value=slot.correlation_id)) < 0:
                state.check_open()
                if not await pause.step():
                    raise state.publication.offer_error(position, "request", f", for {timeout:g} s")
            while slot.reply is None:
                state.poll()
                if slot.reply is None:
                    state.check_open()
                    if not await pause.step():
                        raise TimedOut(f"no reply came within {timeout:g} s", timeout=timeout)
            return slot.reply
        finally:
            state.free(slot)

    def close(self) -> None:
        """Closes it with its publication and subscription, without waiting. May be called twice.

        Example:
            >>> requester.close()
        """
        self._state.close()


class AsyncRequest:
    """One request that a replier received.

    Attributes:
        payload: The request.
        correlation_id: The reserved value of the request, which its reply has too.
        session_id: The requester's session id.
        source_identity: Where it came from: ``ip:port``, or ``aeron:ipc``.

    Example:
        >>> async for request in replier.requests():
        ...     await request.reply(request.payload.upper())
    """

    def __init__(self, message: Message, publication: AsyncPublication) -> None:
        self.payload = message.payload
        self.correlation_id = message.reserved_value
        self.session_id = message.session_id
        self.source_identity = message.source_identity
        self._publication = publication

    async def reply(self, payload: Any, *, timeout: float | None = REPLY_TIMEOUT) -> None:
        """Sends the reply.

        Args:
            payload: The reply, any buffer of bytes.
            timeout: Seconds to wait for room; None waits for ever.

        Raises:
            ClosedError: The requester has gone, or the replier is closed.
            NotConnected: The requester has gone.
            BackPressured: The requester does not read its replies.

        Example:
            >>> await request.reply(b"42")
        """
        await self._publication.send(payload, timeout=timeout, reserved_value=self.correlation_id)


class AsyncReplier(_AsyncResource):
    """Receives requests, and replies to each requester over a publication of its own. Create one with ``open``.

    Example:
        >>> async with await AsyncReplier.open(
        ...     aeron, "aeron:ipc", 1001, response_channel="aeron:ipc", response_stream_id=1002
        ... ) as replier:
        ...     async for request in replier.requests():
        ...         await request.reply(request.payload.upper())
    """

    def __init__(self, state: ReplierState, clock: Clock) -> None:
        self._state = state
        self._inner = state.subscription
        self._clock = clock

    @classmethod
    async def open(
        cls,
        aeron: AsyncAeron,
        channel: str,
        stream_id: int,
        *,
        response_channel: str,
        response_stream_id: int,
        max_clients: int = MAX_CLIENTS,
    ) -> Self:
        """Adds the subscription to requests.

        Args:
            aeron: The client.
            channel: The channel of requests, as ``aeron:udp?endpoint=0.0.0.0:20121`` or ``aeron:ipc``.
            stream_id: Their stream id.
            response_channel: The channel of replies, as ``aeron:udp?control=server:20122`` or ``aeron:ipc``.
            response_stream_id: Their stream id.
            max_clients: How many requesters may be connected; each has a log of its own at the driver.

        Returns:
            The replier.

        Raises:
            ChannelUriError: A key of a channel is a likely typing error of a known one.
            RegistrationError: The driver refused.
            DriverTimeout: The driver did not respond in time.

        Example:
            >>> replier = await AsyncReplier.open(
            ...     aeron, "aeron:ipc", 1001, response_channel="aeron:ipc", response_stream_id=1002
            ... )
        """
        subscription = (await aeron.add_subscription(channel, stream_id)).sync
        state = ReplierState(aeron.sync, subscription, response_channel, response_stream_id, max_clients)
        return cls(state, aeron.sync.context.clock)

    @property
    def clients(self) -> int:
        """How many requesters have a way back."""
        return self._state.clients

    @property
    def refused_clients(self) -> int:
        """How many publishers were rejected: without a response channel, or beyond ``max_clients``."""
        return self._state.refused_clients

    async def requests(self, *, timeout: float | None = None) -> AsyncIterator[AsyncRequest]:
        """Yields requests as they come, until the replier is closed; one that is left or cancelled loses nothing.

        Args:
            timeout: Seconds to wait for the next request; None waits for ever.

        Yields:
            One request after another.

        Raises:
            TimedOut: No request came for ``timeout`` seconds.
            DriverTimeout: The driver ended.
            ClientTimeout: The driver timed this client out.

        Example:
            >>> async for request in replier.requests():
            ...     await request.reply(request.payload.upper())
        """
        state = self._state
        pause = Pause(self._clock, timeout)
        while not self._inner.closed:
            if state.work():
                message, publication = state.queue.popleft()
                yield AsyncRequest(message, AsyncPublication(publication, self._clock))
                if not state.queue:
                    # Requests that never run dry must not keep the loop from its other tasks.
                    await asyncio.sleep(0)
                pause.restart()
            elif not await pause.step():
                raise TimedOut(f"no request came for {timeout:g} s", timeout=timeout)
        self._inner.raise_failure()

    def close(self) -> None:
        """Closes it with its publications and subscription, without waiting. May be called twice.

        Example:
            >>> replier.close()
        """
        self._state.close()


class AsyncPoller:
    """Reads several subscriptions of one client for asyncio: a busy one does not keep another waiting. One task uses it.

    It owns none of them: closing them is the program's.

    Args:
        subscriptions: Those to begin with.
        batch: The most messages of one subscription before the next has its turn.

    Raises:
        ConfigurationError: They are of several clients, or ``batch`` is less than 1.

    Example:
        >>> poller = AsyncPoller([quotes, orders])
        >>> async for subscription, message in poller.messages(timeout=10.0):
        ...     print(subscription.sync.stream_id, message)
    """

    def __init__(self, subscriptions: Iterable[AsyncSubscription] = (), *, batch: int = BATCH) -> None:
        self._inner = Poller(batch=batch)
        self._outer: dict[int, AsyncSubscription] = {}
        for subscription in subscriptions:
            self.add(subscription)

    @property
    def subscriptions(self) -> tuple[AsyncSubscription, ...]:
        """The subscriptions, in the order of their turns: the next one first."""
        return tuple(self._outer[id(each)] for each in self._inner.subscriptions if not each.closed)

    def add(self, subscription: AsyncSubscription) -> None:
        """Adds a subscription, while messages are iterated too. One that is there stays as it is.

        Args:
            subscription: One of the same client.

        Raises:
            ConfigurationError: It is another client's.

        Example:
            >>> poller.add(await aeron.add_subscription("aeron:ipc", 1003))
        """
        self._inner.add(subscription.sync)
        self._clock = subscription._clock
        # Without those that were closed meanwhile.
        self._outer = {id(each.sync): each for each in (*self._outer.values(), subscription) if not each.closed}

    def remove(self, subscription: AsyncSubscription) -> None:
        """Takes a subscription out; it stays open. What was taken of it and not yielded is the next that it yields by itself.

        Args:
            subscription: One that was added; any other changes nothing.

        Example:
            >>> poller.remove(quotes)
        """
        self._inner.remove(subscription.sync)
        self._outer.pop(id(subscription.sync), None)

    @overload
    def messages(
        self, *, timeout: float | None = None, metadata: Literal[False] = False
    ) -> AsyncIterator[tuple[AsyncSubscription, bytes]]: ...

    @overload
    def messages(
        self, *, timeout: float | None = None, metadata: Literal[True]
    ) -> AsyncIterator[tuple[AsyncSubscription, Message]]: ...

    async def messages(
        self, *, timeout: float | None = None, metadata: bool = False
    ) -> AsyncIterator[tuple[AsyncSubscription, Any]]:
        """Yields whole messages as they come, until every subscription has ended or is closed; as ``Poller.messages``.

        An iterator that is left or cancelled loses nothing.

        Args:
            timeout: Seconds to wait for the next message; None waits for ever.
            metadata: True yields a ``Message``: the bytes with position, session, reserved value and image.

        Yields:
            A subscription and one message of it.

        Raises:
            TimedOut: Nothing came on any subscription for ``timeout`` seconds.
            DriverTimeout: The driver ended.
            ClientTimeout: The driver timed this client out.
            LocalProtocolError: An iterator without metadata was left before the messages that it had taken were yielded.

        Example:
            >>> async for subscription, message in poller.messages(timeout=10.0):
            ...     print(subscription.sync.stream_id, message)
        """
        inner = self._inner
        if not inner.subscriptions:
            return
        conductor = inner.subscriptions[0]._conductor
        pause = Pause(self._clock, timeout)
        while True:
            turn = inner.take_messages(metadata)
            if turn is not None:
                subscription = self._outer[id(turn[0])]
                for message in turn[1]:
                    yield subscription, message
                # A stream that never runs dry must not keep the loop from its other tasks.
                await asyncio.sleep(0)
                pause.restart()
            elif inner.is_finished:
                conductor.raise_failure()
                return
            elif not await pause.step():
                raise TimedOut(
                    f"nothing came on {len(inner.subscriptions)} subscriptions for {timeout:g} s", timeout=timeout
                )


class Connecting:
    """The result of ``connect``: await it, or use it in ``async with``."""

    def __init__(self, context: ClientContext) -> None:
        self._context = context
        self._client: AsyncAeron | None = None

    async def _attach(self) -> AsyncAeron:
        attach = start_attaching(self._context)
        while (client := SyncAeron.attached(self._context, attach)) is None:
            await asyncio.sleep(ATTACH_POLL_INTERVAL_NS / NS_PER_SECOND)
        return AsyncAeron(client)

    def __await__(self) -> Generator[Any, None, AsyncAeron]:
        return self._attach().__await__()

    async def __aenter__(self) -> AsyncAeron:
        self._client = await self._attach()
        return self._client

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._client is not None:
            # Ending the conductor's thread takes a moment, and the loop may have other things to do.
            await asyncio.to_thread(self._client.close)


def connect(
    directory: str | os.PathLike[str] | None = None,
    *,
    settings: ClientSettings | None = None,
    context: ClientContext | None = None,
    **overrides: Any,
) -> Connecting:
    """Attaches to a driver, as ``Aeron.connect`` does.

    Args:
        directory: The driver's directory; by default ``AERON_DIR``, or ``/dev/shm/aeron-USER``.
        settings: The client's settings; those of the environment by default.
        context: Handlers, clock and files; the defaults of ``ClientContext`` when left out.
        **overrides: Single fields of the settings or of the context, by name.

    Returns:
        An object to await, or to use in ``async with``, for the client.

    Raises:
        DriverTimeout: No driver is ready in time; raised by the await.
        ConfigurationError: A setting is not accepted.

    Example:
        >>> async with mainstem.aio.connect() as aeron:
        ...     publication = await aeron.add_publication("aeron:ipc", 1001)
    """
    return Connecting(ClientContext.build(directory, settings, context, overrides))

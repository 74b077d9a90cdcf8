"""The client whose waiting is the event loop's, and how it attaches to a driver."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from mainstem.aeron.aio.streams import ExclusivePublication, Publication, Subscription
from mainstem.aeron.aio.waiting import AsyncResource, Pause
from mainstem.aeron.client.client import Aeron as SyncAeron
from mainstem.aeron.client.client import start_attaching
from mainstem.aeron.client.context import ClientContext
from mainstem.aeron.cnc import ATTACH_POLL_INTERVAL_NS
from mainstem.clock import NS_PER_SECOND

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Generator, Mapping
    from datetime import datetime
    from types import TracebackType

    from mainstem.aeron.client.asynchronous import AsyncOperation
    from mainstem.aeron.client.counter import Counter
    from mainstem.aeron.client.image import Image
    from mainstem.aeron.client.settings import ClientSettings
    from mainstem.aeron.client.stats import ClientStats
    from mainstem.recording.persistent.aio import AsyncPersistentSubscription

T = TypeVar("T")


class Aeron(AsyncResource):
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

    @property
    def client_id(self) -> int:
        """The number that identifies this client at the driver."""
        return self._inner.client_id  # type: ignore[no-any-return]

    @property
    def directory(self) -> str:
        """The driver's directory."""
        return self._inner.directory  # type: ignore[no-any-return]

    def stats(self) -> ClientStats:
        """Returns what the client has at this moment: publications, subscriptions and images with their positions.

        Returns:
            The figures; ``print`` shows them in some lines.

        Example:
            >>> print(aeron.stats())
        """
        return self._inner.stats()  # type: ignore[no-any-return]

    async def add_publication(self, channel: str, stream_id: int) -> Publication:
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
        return Publication(publication, self._clock)

    async def add_exclusive_publication(self, channel: str, stream_id: int) -> ExclusivePublication:
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
        return ExclusivePublication(publication, self._clock)

    async def add_subscription(
        self,
        channel: str,
        stream_id: int,
        *,
        on_available_image: Callable[[Image], object] | None = None,
        on_unavailable_image: Callable[[Image], object] | None = None,
    ) -> Subscription:
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
        return Subscription(await self._finished(operation), self._clock)

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
        try:
            while not operation.is_done:
                self.sync.invoke()
                await pause.step()
            return operation.result()
        except BaseException:
            operation.cancel()
            raise


class Connecting:
    """The result of ``connect``: await it, or use it in ``async with``."""

    def __init__(self, context: ClientContext) -> None:
        self._context = context
        self._client: Aeron | None = None

    async def _attach(self) -> Aeron:
        attach = start_attaching(self._context)
        while (client := SyncAeron.attached(self._context, attach)) is None:
            await asyncio.sleep(ATTACH_POLL_INTERVAL_NS / NS_PER_SECOND)
        return Aeron(client)

    def __await__(self) -> Generator[Any, None, Aeron]:
        return self._attach().__await__()

    async def __aenter__(self) -> Aeron:
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

"""The client whose waiting is the event loop's, and how it attaches to a driver."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from mainstem._internal.clock import NS_PER_SECOND
from mainstem._internal.opening import Opening
from mainstem.aeron.aio.resource import Closing
from mainstem.aeron.aio.streams import Counter, ExclusivePublication, Publication, Subscription
from mainstem.aeron.aio.waiting import result_of
from mainstem.aeron.client.base import AeronBase, Attaching
from mainstem.aeron.client.context import ClientContext
from mainstem.aeron.cnc import ATTACH_POLL_INTERVAL_NS

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from mainstem.aeron.aio.streams import Image
    from mainstem.aeron.client.settings import ClientSettings
    from mainstem.recording.persistent.aio import PersistentSubscription


class Aeron(AeronBase, Closing):
    """A client of a media driver for asyncio. Create one with ``connect``.

    Example:
        >>> async with mainstem.aio.Aeron.connect() as aeron:
        ...     publication = await aeron.add_publication("aeron:ipc", 1001)
    """

    @classmethod
    def connect(
        cls,
        directory: str | os.PathLike[str] | None = None,
        *,
        settings: ClientSettings | None = None,
        context: ClientContext | None = None,
        timeout: float | None = None,
        **overrides: Any,
    ) -> Opening[Self]:
        """Attaches to the driver in a directory. A call that is cancelled leaves nothing open.

        Returns:
            An object to await, or to use in ``async with``, for the client.

        Example:
            >>> async with mainstem.aio.Aeron.connect("/dev/shm/aeron-prices", client_name="pricing") as aeron:
            ...     publication = await aeron.add_publication("aeron:ipc", 1001)
        """
        context = ClientContext.build(directory, settings, context, overrides)
        return Opening(partial(cls._attach, context, timeout), "mainstem.aio.Aeron.connect()")

    @classmethod
    async def _attach(cls, context: ClientContext, timeout: float | None) -> Self:
        attaching = Attaching(context, timeout)
        while (conductor := attaching.step()) is None:
            if context.driver_invoker is not None:
                context.driver_invoker()
            await asyncio.sleep(ATTACH_POLL_INTERVAL_NS / NS_PER_SECOND)
        return cls(conductor)

    async def add_publication(self, channel: str, stream_id: int, *, timeout: float | None = None) -> Publication:
        """Adds a concurrent publication. A call that is cancelled has added none.

        Example:
            >>> publication = await aeron.add_publication("aeron:ipc", 1001)
        """
        operation = self._conductor.add_publication(Publication, channel, stream_id)
        return await result_of(self._conductor, operation, timeout)

    async def add_exclusive_publication(
        self, channel: str, stream_id: int, *, timeout: float | None = None
    ) -> ExclusivePublication:
        """Adds a publication with one writer and a session of its own. A call that is cancelled has added none.

        Example:
            >>> publication = await aeron.add_exclusive_publication("aeron:ipc", 1001)
        """
        operation = self._conductor.add_publication(ExclusivePublication, channel, stream_id)
        return await result_of(self._conductor, operation, timeout)

    async def add_subscription(
        self,
        channel: str,
        stream_id: int,
        *,
        on_available_image: Callable[[Image], object] | None = None,
        on_unavailable_image: Callable[[Image], object] | None = None,
        timeout: float | None = None,
    ) -> Subscription:
        """Adds a subscription. A call that is cancelled has added none.

        The handlers run on the conductor's thread, outside the event loop.

        Example:
            >>> subscription = await aeron.add_subscription("aeron:ipc", 1001)
        """
        operation = self._conductor.add_subscription(
            Subscription, channel, stream_id, on_available_image, on_unavailable_image
        )
        return await result_of(self._conductor, operation, timeout)

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
    ) -> PersistentSubscription:
        """Adds a subscription that begins with what was recorded and goes on with the live stream.

        What reads recordings runs in a thread.

        Example:
            >>> subscription = await aeron.add_persistent_subscription("aeron:ipc", 1001, recordings="tides")
        """
        # The one import that points upwards, as in the blocking client.
        from mainstem.recording.persistent.aio import open_persistent

        return await open_persistent(
            self,
            channel,
            stream_id,
            recordings=recordings,
            start=start,
            recorded_channel=recorded_channel,
            strict=strict,
            options=options,
        )

    async def add_counter(self, type_id: int, label: str, *, key: bytes = b"", timeout: float | None = None) -> Counter:
        """Adds a counter that lives as long as this client. A call that is cancelled has added none.

        Example:
            >>> orders = await aeron.add_counter(1001, "orders accepted")
        """
        operation = self._conductor.add_counter(Counter, type_id, key, label)
        return await result_of(self._conductor, operation, timeout)

    async def add_static_counter(
        self, type_id: int, label: str, *, registration_id: int, key: bytes = b"", timeout: float | None = None
    ) -> Counter:
        """Adds a counter that belongs to no client. A call that is cancelled may have added it.

        Example:
            >>> version = await aeron.add_static_counter(1002, "schema version", registration_id=7)
        """
        operation = self._conductor.add_counter(Counter, type_id, key, label, registration_id)
        return await result_of(self._conductor, operation, timeout)

    async def next_session_id(self, stream_id: int, *, timeout: float | None = None) -> int:
        """Returns a session id that is free for a stream.

        Example:
            >>> channel = f"aeron:ipc?session-id={await aeron.next_session_id(1001)}"
        """
        return await result_of(self._conductor, self._conductor.next_session_id(stream_id), timeout)

    async def close(self) -> None:
        """Ends the client with its publications, subscriptions and counters. May be called twice.

        The client is closed at once, also where the call is cancelled; the rest of it waits for the conductor's thread.

        Example:
            >>> await aeron.close()
        """
        self._conductor.close()
        if self._runner is None:
            self._end()
        else:
            await asyncio.to_thread(self._end)


connect = Aeron.connect
"""``Aeron.connect``, under the name that it has in every family."""

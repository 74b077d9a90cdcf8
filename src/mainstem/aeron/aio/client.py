"""The asyncio client, and how it attaches to a driver."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar

from mainstem._internal.clock import NS_PER_SECOND
from mainstem._internal.opening import Opening
from mainstem.aeron.aio.persistent_subscription import open_persistent
from mainstem.aeron.aio.resource import Closing
from mainstem.aeron.aio.streams import Counter, ExclusivePublication, Publication, Subscription
from mainstem.aeron.aio.waiting import result_of, run
from mainstem.aeron.client.base import AeronBase, attaching
from mainstem.aeron.client.context import ClientContext
from mainstem.aeron.cnc import ATTACH_POLL_INTERVAL_NS

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from mainstem.aeron.aio.persistent_subscription import PersistentSubscription
    from mainstem.aeron.aio.streams import Image
    from mainstem.aeron.client.operation import Operation
    from mainstem.aeron.client.settings import ClientSettings
    from mainstem.aeron.client.waiting import Wait

T = TypeVar("T")


class Aeron(AeronBase, Closing, made_by="Aeron.connect()"):
    """A client of a media driver for asyncio.

    ``connect`` and every ``add_...`` return an object to use with ``await``, or with ``async with``, which also closes what it
    opened. If such a call is cancelled, nothing is added.

    Example:
        >>> async with mainstem.aio.Aeron.connect() as aeron:
        ...     async with aeron.add_publication("aeron:ipc", 1001) as publication:
        ...         await publication.send(b"tick")
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
        """Attach to the driver in a directory, like :meth:`mainstem.Aeron.connect`."""
        context = ClientContext.build(directory, settings, context, overrides)
        return Opening(partial(cls._attach, context, timeout), "mainstem.aio.Aeron.connect()")

    @classmethod
    async def _attach(cls, context: ClientContext, timeout: float | None) -> Self:
        async def pause(_: Wait | None) -> None:
            if context.driver_invoker is not None:
                context.driver_invoker()
            await asyncio.sleep(ATTACH_POLL_INTERVAL_NS / NS_PER_SECOND)

        return cls.made(await run(attaching(context, timeout), pause))

    def _adding(self, name: str, send: Callable[[], Operation[T]], timeout: float | None) -> Opening[T]:
        """Return the opening that sends a command and waits for the driver's response."""

        async def add() -> T:
            return await result_of(self._conductor, send(), timeout)

        return Opening(add, f"{name}()")

    def add_publication(self, channel: str, stream_id: int, *, timeout: float | None = None) -> Opening[Publication]:
        """Add a concurrent publication, like :meth:`mainstem.Aeron.add_publication`."""
        send = partial(self._conductor.add_publication, Publication, channel, stream_id)
        return self._adding("add_publication", send, timeout)

    def add_exclusive_publication(
        self, channel: str, stream_id: int, *, timeout: float | None = None
    ) -> Opening[ExclusivePublication]:
        """Add an exclusive publication, like :meth:`mainstem.Aeron.add_exclusive_publication`."""
        send = partial(self._conductor.add_publication, ExclusivePublication, channel, stream_id)
        return self._adding("add_exclusive_publication", send, timeout)

    def add_subscription(
        self,
        channel: str,
        stream_id: int,
        *,
        on_available_image: Callable[[Image], object] | None = None,
        on_unavailable_image: Callable[[Image], object] | None = None,
        timeout: float | None = None,
    ) -> Opening[Subscription]:
        """Add a subscription, like :meth:`mainstem.Aeron.add_subscription`.

        The handlers run on the conductor's thread, not on the event loop.
        """
        handlers = on_available_image, on_unavailable_image
        send = partial(self._conductor.add_subscription, Subscription, channel, stream_id, *handlers)
        return self._adding("add_subscription", send, timeout)

    def add_persistent_subscription(
        self,
        channel: str,
        stream_id: int,
        *,
        recordings: os.PathLike[str] | str,
        start: str | int | datetime | dict[int, int] = "earliest",
        recorded_channel: str | None = None,
        strict: bool = True,
        options: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> Opening[PersistentSubscription]:
        """Add a subscription that starts with recorded messages, like :meth:`mainstem.Aeron.add_persistent_subscription`.

        A thread reads the recordings. It cannot be interrupted: after a timeout or a cancellation, it closes what it has opened.
        """
        open_subscription = partial(
            open_persistent,
            self,
            channel,
            stream_id,
            recordings=recordings,
            start=start,
            recorded_channel=recorded_channel,
            strict=strict,
            options=options,
            timeout=timeout,
        )
        return Opening(open_subscription, "add_persistent_subscription()")

    def add_counter(
        self, type_id: int, label: str, *, key: bytes = b"", timeout: float | None = None
    ) -> Opening[Counter]:
        """Add a counter that lives as long as this client, like :meth:`mainstem.Aeron.add_counter`."""
        send = partial(self._conductor.add_counter, Counter, type_id, key, label)
        return self._adding("add_counter", send, timeout)

    def add_static_counter(
        self, type_id: int, label: str, *, registration_id: int, key: bytes = b"", timeout: float | None = None
    ) -> Opening[Counter]:
        """Add a counter that outlives this client, like :meth:`mainstem.Aeron.add_static_counter`.

        If the call is cancelled, the counter may have been added.
        """
        send = partial(self._conductor.add_counter, Counter, type_id, key, label, registration_id)
        return self._adding("add_static_counter", send, timeout)

    async def next_session_id(self, stream_id: int, *, timeout: float | None = None) -> int:
        """Return a session id that no publication on this stream uses."""
        return await result_of(self._conductor, self._conductor.next_session_id(stream_id), timeout)

    async def close(self) -> None:
        """Close the client with its publications, subscriptions and counters.

        The client closes immediately, even if the call is cancelled. The call then waits for the conductor's thread to end.
        """
        self._conductor.close()
        if self._runner is None:
            self._end()
        else:
            await asyncio.to_thread(self._end)


connect = Aeron.connect
"""``Aeron.connect``, under the name that every protocol family uses."""

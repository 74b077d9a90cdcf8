"""Reading many subscriptions in one asyncio loop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Literal, overload

from mainstem.aeron.aio.streams import Subscription
from mainstem.aeron.aio.waiting import Pause
from mainstem.aeron.client.poller import PollerBase
from mainstem.aeron.client.resource import StreamEnd

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from mainstem._core.log.read import Message


class Poller(PollerBase[Subscription]):
    """A poller that reads several subscriptions of one client in turn. Use it from one task.

    Example:
        >>> async for subscription, message in Poller([quotes, orders]).messages(timeout=10.0):
        ...     print(subscription.stream_id, message)
    """

    @overload
    def messages(
        self, *, timeout: float | None = None, metadata: Literal[False] = False
    ) -> AsyncIterator[tuple[Subscription, bytes]]: ...

    @overload
    def messages(
        self, *, timeout: float | None = None, metadata: Literal[True]
    ) -> AsyncIterator[tuple[Subscription, Message]]: ...

    async def messages(
        self, *, timeout: float | None = None, metadata: bool = False
    ) -> AsyncIterator[tuple[Subscription, Any]]:
        """Yield whole messages as they arrive. Leaving or cancelling the iterator loses no message."""
        if self._conductor is None:
            return
        pause = Pause.of(self._conductor, timeout)
        end = StreamEnd(self._conductor, lambda: self.is_finished)
        while True:
            turn = self._take_messages(metadata)
            if turn is not None:
                subscription, batch = turn
                for message in batch:
                    yield subscription, message
                # A stream that always has messages must not keep the event loop from its other tasks.
                await asyncio.sleep(0)
                pause.restart()
            elif end.is_reached():
                break
            elif not await pause.step():
                if end.is_seen:
                    break
                raise self._timeout(timeout)
        self._conductor.raise_failure()

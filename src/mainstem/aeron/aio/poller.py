"""Reading many subscriptions in one asyncio loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, overload

from mainstem.aeron.aio.streams import Subscription, iterate
from mainstem.aeron.client.poller import PollerBase

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

    def messages(
        self, *, timeout: float | None = None, metadata: bool = False
    ) -> AsyncIterator[tuple[Subscription, Any]]:
        """Yield whole messages as they arrive. Leaving or cancelling the iterator loses no message."""
        return iterate(
            lambda: self._conductor, self, lambda: self._take_turn(metadata), lambda: self.is_finished, timeout
        )

"""Many subscriptions read in one loop, whose waiting is the event loop's."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Literal, overload

from mainstem.aeron.aio.waiting import Pause
from mainstem.aeron.client.poller import BATCH
from mainstem.aeron.client.poller import Poller as SyncPoller
from mainstem.errors import Timeout

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from mainstem._core.log.fragment import Message
    from mainstem.aeron.aio.streams import Subscription


class Poller:
    """Reads several subscriptions of one client for asyncio: a busy one does not keep another waiting. One task uses it.

    It owns none of them: closing them is the program's.

    Args:
        subscriptions: Those to begin with.
        batch: The most messages of one subscription before the next has its turn.

    Raises:
        ConfigurationError: They are of several clients, or ``batch`` is less than 1.

    Example:
        >>> poller = Poller([quotes, orders])
        >>> async for subscription, message in poller.messages(timeout=10.0):
        ...     print(subscription.stream_id, message)
    """

    def __init__(self, subscriptions: Iterable[Subscription] = (), *, batch: int = BATCH) -> None:
        self._inner = SyncPoller(batch=batch)
        self._outer: dict[int, Subscription] = {}
        for subscription in subscriptions:
            self.add(subscription)

    def __repr__(self) -> str:
        return f"<asynchronous {self._inner!r}>"

    @property
    def subscriptions(self) -> tuple[Subscription, ...]:
        """The subscriptions, in the order of their turns: the next one first."""
        return tuple(self._outer[id(each)] for each in self._inner.subscriptions if not each.closed)

    def add(self, subscription: Subscription) -> None:
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

    def remove(self, subscription: Subscription) -> None:
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
    ) -> AsyncIterator[tuple[Subscription, bytes]]: ...

    @overload
    def messages(
        self, *, timeout: float | None = None, metadata: Literal[True]
    ) -> AsyncIterator[tuple[Subscription, Message]]: ...

    async def messages(
        self, *, timeout: float | None = None, metadata: bool = False
    ) -> AsyncIterator[tuple[Subscription, Any]]:
        """Yields whole messages as they come, until every subscription has ended or is closed; as ``Poller.messages``.

        An iterator that is left or cancelled loses nothing.

        Args:
            timeout: Seconds to wait for the next message; None waits for ever.
            metadata: True yields a ``Message``: the bytes with position, session, reserved value and image.

        Yields:
            A subscription and one message of it.

        Raises:
            Timeout: Nothing came on any subscription for ``timeout`` seconds.
            DriverTimeout: The driver ended.
            ClientTimeout: The driver timed this client out.
            LocalProtocolError: An iterator without metadata was left before the messages that it had taken were yielded.

        Example:
            >>> async for subscription, message in poller.messages(timeout=10.0):
            ...     print(subscription.stream_id, message)
        """
        inner = self._inner
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
                inner.raise_failure()
                return
            elif not await pause.step():
                raise Timeout(
                    f"nothing came on {len(inner.subscriptions)} subscriptions for {timeout:g} s", timeout=timeout
                )

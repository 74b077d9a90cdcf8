"""Many subscriptions read by one loop, each in its turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload

from mainstem.aeron.client.subscription import Subscription, SubscriptionBase
from mainstem.errors import ConfigurationError, Timeout

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mainstem._core.log.fragment import Message
    from mainstem.aeron.client.resource import ResourceOwner

S = TypeVar("S", bound=SubscriptionBase[Any])

BATCH = 64  # messages of one subscription before the next has its turn


class PollerBase(Generic[S]):
    """What the pollers of both variants have besides waiting."""

    def __init__(self, subscriptions: Iterable[S] = (), *, batch: int = BATCH) -> None:
        if batch < 1:
            raise ConfigurationError(f"batch: {batch} messages would be no turn at all")
        self._batch = batch
        self._subscriptions: list[S] = []
        self._conductor: ResourceOwner | None = None
        for subscription in subscriptions:
            self.add(subscription)

    def __repr__(self) -> str:
        return f"<Poller of {len(self._subscriptions)} subscriptions>"

    @property
    def subscriptions(self) -> tuple[S, ...]:
        """The subscriptions, in the order of their turns: the next one first."""
        return tuple(self._subscriptions)

    def add(self, subscription: S) -> None:
        """Adds a subscription, while messages are iterated too. One that is there stays as it is.

        Args:
            subscription: One of the same client.

        Raises:
            ConfigurationError: It is another client's, whose driver this one would not wait for.

        Example:
            >>> poller.add(aeron.add_subscription("aeron:ipc", 1003))
        """
        if self._subscriptions and subscription._conductor is not self._conductor:
            raise ConfigurationError(f"{subscription!r} is of another client: a poller reads those of one")
        self._conductor = subscription._conductor
        if not any(each is subscription for each in self._subscriptions):
            self._subscriptions.append(subscription)

    def remove(self, subscription: S) -> None:
        """Takes a subscription out; it stays open. What was taken of it and not yielded is the next that it yields by itself.

        Args:
            subscription: One that was added; any other changes nothing.

        Example:
            >>> poller.remove(quotes)
        """
        self._subscriptions = [each for each in self._subscriptions if each is not subscription]

    @property
    def is_finished(self) -> bool:
        """Whether every subscription is closed, or its images have all ended and were read; so with none at all."""
        return all(each.closed or each.is_end_of_stream for each in self._subscriptions)

    def _take_messages(self, metadata: bool) -> tuple[S, Iterator[Any]] | None:
        """Takes the messages of the next subscription that has some; None when none has any."""
        for subscription in self.subscriptions:
            if subscription.closed:
                self.remove(subscription)
                continue
            # Its turn is over, whether it has messages or not: the next one begins where this one stops.
            # One assignment: a signal handler that raises takes no subscription out.
            self._subscriptions = [*self._subscriptions[1:], self._subscriptions[0]]
            batch = subscription._take_messages(self._batch, metadata)
            if batch is not None:
                return subscription, batch
        return None

    def _timeout(self, timeout: float | None) -> Timeout:
        return Timeout(f"nothing came on {len(self._subscriptions)} subscriptions for {timeout:g} s", timeout=timeout)


class Poller(PollerBase[Subscription]):
    """Reads several subscriptions of one client: a busy one does not keep another waiting. One thread uses it.

    It owns none of them: closing them is the program's.

    Args:
        subscriptions: Those to begin with.
        batch: The most messages of one subscription before the next has its turn.

    Raises:
        ConfigurationError: They are of several clients, or ``batch`` is less than 1.

    Example:
        >>> poller = Poller([quotes, orders])
        >>> for subscription, message in poller.messages(timeout=10.0):
        ...     print(subscription.stream_id, message)
    """

    @overload
    def messages(
        self, *, timeout: float | None = None, metadata: Literal[False] = False
    ) -> Iterator[tuple[Subscription, bytes]]: ...

    @overload
    def messages(
        self, *, timeout: float | None = None, metadata: Literal[True]
    ) -> Iterator[tuple[Subscription, Message]]: ...

    def messages(self, *, timeout: float | None = None, metadata: bool = False) -> Iterator[tuple[Subscription, Any]]:
        """Yields whole messages as they come, until every subscription has ended or is closed.

        One that is closed drops out; one whose publishers have all ended stays, since others may come, as long as another has
        not. An iterator that is left, by ``break`` or by a time-out, loses nothing.

        Args:
            timeout: Seconds to wait for the next message; None waits forever.
            metadata: True yields a ``Message``: the bytes with position, session, reserved value and image.

        Yields:
            A subscription and one message of it.

        Raises:
            Timeout: Nothing came on any subscription for ``timeout`` seconds.
            DriverTimeout: The driver ended.
            ClientTimeout: The driver timed this client out.
            LocalProtocolError: An iterator without metadata was left before the messages that it had taken were yielded.

        Example:
            >>> for subscription, message in poller.messages(timeout=10.0):
            ...     print(subscription.stream_id, message)
        """
        if self._conductor is None:
            return
        waiting = self._conductor.waiting(timeout)
        while True:
            turn = self._take_messages(metadata)
            if turn is not None:
                subscription, batch = turn
                for message in batch:
                    yield subscription, message
                waiting.restart()
            elif self.is_finished:
                self._conductor.raise_failure()
                return
            elif not waiting.step():
                raise self._timeout(timeout)

"""Reading many subscriptions in turn in one loop."""

from __future__ import annotations

from itertools import repeat
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload

from mainstem.aeron.client.subscription import Subscription, SubscriptionBase, iterate
from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mainstem._core.log.read import Message
    from mainstem.aeron.client.operation import Conductor

S = TypeVar("S", bound=SubscriptionBase[Any])

BATCH = 64  # messages of one subscription before it is the next one's turn


class PollerBase(Generic[S]):
    """The non-blocking part of a poller."""

    def __init__(self, subscriptions: Iterable[S] = (), *, batch: int = BATCH) -> None:
        if batch < 1:
            raise ConfigurationError(f"batch must be at least 1 (got {batch})")
        self._batch = batch
        self._subscriptions: list[S] = []
        self._conductor: Conductor | None = None
        for subscription in subscriptions:
            self.add(subscription)

    def __repr__(self) -> str:
        return f"<Poller of {len(self._subscriptions)} subscriptions>"

    @property
    def subscriptions(self) -> tuple[S, ...]:
        """The subscriptions in the order of their turns, starting with the next one."""
        return tuple(self._subscriptions)

    def add(self, subscription: S) -> None:
        """Add a subscription. This works during iteration, too. Adding it again changes nothing.

        Args:
            subscription: A subscription of the same client.

        Raises:
            ConfigurationError: The subscription belongs to another client.
        """
        if self._subscriptions and subscription._conductor is not self._conductor:
            raise ConfigurationError(
                f"{subscription!r} belongs to another client: a Poller reads subscriptions of one client"
            )
        self._conductor = subscription._conductor
        if not any(each is subscription for each in self._subscriptions):
            self._subscriptions.append(subscription)

    def remove(self, subscription: S) -> None:
        """Remove a subscription without closing it. It keeps messages that were taken from it but not yielded.

        Args:
            subscription: The subscription. If it was not added, nothing changes.
        """
        self._subscriptions = [each for each in self._subscriptions if each is not subscription]

    @property
    def is_finished(self) -> bool:
        """Whether every subscription is closed or at the end of its stream. True if there are no subscriptions."""
        return all(each.closed or each.is_end_of_stream for each in self._subscriptions)

    def _take_turn(self, metadata: bool) -> Iterator[tuple[S, Any]] | None:
        """Take messages of the next subscription that has any, each with the subscription. Return None if none has any."""
        for subscription in self.subscriptions:
            if subscription.closed:
                self.remove(subscription)
                continue
            # The subscription's turn ends here, whether or not it has messages, and the next call begins with the one after it.
            # This is a single assignment so that no subscription is lost if a signal handler raises.
            self._subscriptions = [*self._subscriptions[1:], self._subscriptions[0]]
            batch = subscription._take_messages(self._batch, metadata)
            if batch is not None:
                return zip(repeat(subscription), batch, strict=False)
        return None


class Poller(PollerBase[Subscription]):
    """A poller that reads several subscriptions of one client in turn, so that a busy one cannot starve another.

    Use it from one thread. It does not own the subscriptions; the application closes them.

    Args:
        subscriptions: The subscriptions to start with.
        batch: The maximum number of messages of one subscription before it is the next one's turn.

    Raises:
        ConfigurationError: The subscriptions belong to several clients, or ``batch`` is less than 1.

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
        """Yield whole messages as they arrive, until every subscription is closed or has ended.

        The poller removes closed subscriptions. A subscription whose publishers have all ended stays until all other subscriptions
        have ended too, because new publishers may appear. Leaving the iterator, through ``break`` or a timeout, loses no message.

        Args:
            timeout: Seconds to wait for the next message; None waits forever.
            metadata: Whether to yield ``Message`` objects (with position, session, reserved value and image) instead of bytes.

        Yields:
            A subscription and one of its messages.

        Raises:
            Timeout: Nothing arrived on any subscription for ``timeout`` seconds.
            MainstemError: The other errors of ``messages`` of a subscription.
        """
        return iterate(
            lambda: self._conductor, self, lambda: self._take_turn(metadata), lambda: self.is_finished, timeout
        )

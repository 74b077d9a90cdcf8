"""Which subscriptions there are, and which of them match a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.aeron.command.error_code import ErrorCode
from mainstem.aeron.driver.conductor.subscription_link import SubscriptionKind
from mainstem.aeron.driver.errors import invalid_channel
from mainstem.errors import RegistrationError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainstem.aeron.driver.conductor.endpoints import ReceiveEndpoint
    from mainstem.aeron.driver.conductor.ipc_publication import IpcPublication
    from mainstem.aeron.driver.conductor.network_publication import NetworkPublication
    from mainstem.aeron.driver.conductor.subscription_link import Subscription


class SubscriptionRegistry:
    """Every subscription by its registration id, in the order of registration."""

    def __init__(self) -> None:
        self._by_id: dict[int, Subscription] = {}

    def __iter__(self) -> Iterator[Subscription]:
        return iter(self._by_id.values())

    def get(self, registration_id: int) -> Subscription:
        """The subscription of that id. Raises RegistrationError (UNKNOWN_SUBSCRIPTION)."""
        subscription = self._by_id.get(registration_id)
        if subscription is None:
            raise RegistrationError(
                f"unknown subscription: registration id {registration_id}", code=ErrorCode.UNKNOWN_SUBSCRIPTION
            )
        return subscription

    def find(self, registration_id: int) -> Subscription | None:
        """The subscription of that id, if there is one."""
        return self._by_id.get(registration_id)

    def add(self, subscription: Subscription) -> None:
        """Registers it."""
        self._by_id[subscription.registration_id] = subscription

    def remove(self, subscription: Subscription) -> None:
        """Forgets it."""
        del self._by_id[subscription.registration_id]

    def of_client(self, client_id: int) -> list[Subscription]:
        """The subscriptions that a client owns."""
        return [subscription for subscription in self if subscription.client_id == client_id]

    def matching_ipc(self, publication: IpcPublication, request: IpcPublication | None) -> list[Subscription]:
        """IPC subscriptions to the publication's stream and session that are not linked to it yet.

        ``request`` is the publication that it answers: then only the subscription that waits for the answer matches.
        """
        return [
            subscription
            for subscription in self
            if subscription.wants_ipc(publication.stream_id)
            and _answers(subscription, publication, request)
            and subscription.accepts_session(publication.session_id)
            and publication not in subscription.positions
        ]

    def matching_spies(self, publication: NetworkPublication) -> list[Subscription]:
        """Spies on the publication's channel, stream and session that are not linked to it yet."""
        return [
            subscription
            for subscription in self
            if subscription.stream_id == publication.stream_id
            and subscription.spies_on(publication.endpoint)
            and subscription.accepts_session(publication.session_id)
            and publication not in subscription.positions
        ]

    def matching_network(self, endpoint: ReceiveEndpoint, stream_id: int, session_id: int) -> list[Subscription]:
        """Subscriptions that want a stream arriving at ``endpoint``."""
        return [
            subscription
            for subscription in self
            if subscription.endpoint is endpoint
            and subscription.stream_id == stream_id
            and subscription.accepts_session(session_id)
        ]

    def check_no_clash(self, candidate: Subscription) -> None:
        """``reliable``, ``rejoin`` and being a response must agree on one endpoint, stream and session (§7)."""
        for other in self:
            if (
                other.kind is not SubscriptionKind.NETWORK
                or other.endpoint is not candidate.endpoint
                or other.stream_id != candidate.stream_id
                or other.session_id != candidate.session_id
            ):
                continue
            for name in ("reliable", "rejoin", "is_response"):
                asked, existing = getattr(candidate.params, name), getattr(other.params, name)
                if asked != existing:
                    raise invalid_channel(
                        f"option conflicts with existing subscription: {name}={asked} existing {name}={existing} "
                        f"existing channel={other.channel} channel={candidate.channel}"
                    )


def _answers(subscription: Subscription, publication: IpcPublication, request: IpcPublication | None) -> bool:
    """Responses and those who wait for them keep to themselves."""
    if not publication.params.is_response:
        return not subscription.params.is_response
    return request is not None and request.params.response_correlation_id == subscription.registration_id

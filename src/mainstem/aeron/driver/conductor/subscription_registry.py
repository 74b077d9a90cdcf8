"""The registry of the driver's subscriptions, which finds those that match a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.aeron.command.error_code import ErrorCode
from mainstem.aeron.driver.errors import check_unused, invalid_channel
from mainstem.errors import RegistrationError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainstem.aeron.driver.conductor.channels import ReceiveChannel
    from mainstem.aeron.driver.conductor.subscription_link import StreamSource, SubscriptionLink


class SubscriptionRegistry:
    def __init__(self) -> None:
        self._by_id: dict[int, SubscriptionLink] = {}

    def __iter__(self) -> Iterator[SubscriptionLink]:
        return iter(self._by_id.values())

    def get(self, registration_id: int, *, client_id: int) -> SubscriptionLink:
        subscription = self._by_id.get(registration_id)
        if subscription is None or subscription.client_id != client_id:
            raise RegistrationError(
                f"unknown subscription: client {client_id} has none with registration id {registration_id}",
                code=ErrorCode.UNKNOWN_SUBSCRIPTION,
            )
        return subscription

    def find(self, registration_id: int) -> SubscriptionLink | None:
        return self._by_id.get(registration_id)

    def add(self, subscription: SubscriptionLink) -> None:
        self._by_id[subscription.registration_id] = subscription

    def remove(self, subscription: SubscriptionLink) -> None:
        del self._by_id[subscription.registration_id]

    def of_client(self, client_id: int) -> list[SubscriptionLink]:
        return [subscription for subscription in self if subscription.client_id == client_id]

    def matching(self, source: StreamSource) -> list[SubscriptionLink]:
        return [
            subscription
            for subscription in self
            if subscription.stream_id == source.stream_id
            and source not in subscription.positions
            and source.interest_of(subscription) is not None
        ]

    def matching_setup(self, channel: ReceiveChannel, stream_id: int, session_id: int) -> list[SubscriptionLink]:
        return [
            subscription
            for subscription in self
            if subscription.stream_id == stream_id
            and subscription.interest_in_received(channel, session_id) is not None
        ]

    def check_unused(self, registration_id: int) -> None:
        check_unused(registration_id, self._by_id)

    def check_no_clash(self, candidate: SubscriptionLink) -> None:
        """Check that subscriptions to the same session agree on ``reliable``, ``rejoin`` and ``is_response``.

        Raises RegistrationError (docs/protocols/aeron.md, 7).
        """
        for other in self:
            if (
                other.receive_channel is not candidate.receive_channel
                or other.stream_id != candidate.stream_id
                or other.session_id != candidate.session_id
            ):
                continue
            for name, option in (("reliable", "reliable"), ("rejoin", "rejoin"), ("is_response", "isResponse")):
                requested = getattr(candidate.params, name)
                if requested != getattr(other.params, name):
                    raise invalid_channel(
                        f"option conflicts with existing subscription: {option}={str(requested).lower()} "
                        f"existingChannel={other.channel} channel={candidate.channel}"
                    )

"""Links between subscriptions and matching streams, and the notifications of clients about them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.aeron.command.responses import OnAvailableImage, OnUnavailableImage
from mainstem.aeron.counters import subscriber_position
from mainstem.aeron.driver.conductor.subscription_link import SubscriberPosition, TetherState
from mainstem.aeron.driver.event_log.events import Event

if TYPE_CHECKING:
    from mainstem.aeron.driver.conductor.resources import Resources
    from mainstem.aeron.driver.conductor.subscription_link import StreamSource, SubscriptionLink


IPC_CHANNEL = "aeron:ipc"


class ImageLinks:
    def __init__(self, resources: Resources) -> None:
        self._resources = resources

    def link(self, subscription: SubscriptionLink, source: StreamSource, now_ns: int) -> SubscriberPosition:
        """Give ``subscription`` a position in ``source``. Call ``announce`` to tell the client when the source is ready."""
        assert source not in subscription.positions
        interest = source.interest_of(subscription)
        assert interest is not None
        join = source.join_position
        spec = subscriber_position(
            subscription.registration_id,
            session_id=source.session_id,
            stream_id=source.stream_id,
            channel=interest.channel,
            join_position=join,
        )
        cell = self._resources.counters.allocate(
            spec,
            registration_id=subscription.registration_id,
            owner_id=subscription.client_id,
            reference_id=source.registration_id,
            value=join,
        )
        position = SubscriberPosition(subscription=subscription, interest=interest, cell=cell, since_ns=now_ns)
        subscription.positions[source] = position
        source.add_subscriber(position)
        return position

    def announce(self, source: StreamSource, position: SubscriberPosition) -> None:
        self._resources.clients.send(
            OnAvailableImage(
                image_correlation_id=source.registration_id,
                session_id=source.session_id,
                stream_id=source.stream_id,
                subscription_registration_id=position.subscription.registration_id,
                subscriber_position_id=position.cell.counter_id,
                log_file=source.log_file,
                source_identity=source.source_identity,
            )
        )

    def unlink(self, subscription: SubscriptionLink, source: StreamSource) -> None:
        position = subscription.positions.pop(source)
        if position.state is TetherState.CLOSED:
            source.subscribers.remove(position)  # its counter may be another's already
            return
        source.remove_subscriber(position)
        self._resources.counters.free(position.cell)

    def unlink_all(self, source: StreamSource) -> None:
        for position in list(source.subscribers):
            self.unlink(position.subscription, source)

    def on_lingering(self, source: StreamSource) -> None:
        for position in source.subscribers:
            if position.state is TetherState.ACTIVE:
                self._announce_end(source, position)

    def enter_linger(self, source: StreamSource, position: SubscriberPosition) -> None:
        """Tell an untethered subscriber that fell too far behind that its image is unavailable."""
        self._announce_end(source, position)
        self._state_changed(source, position, TetherState.ACTIVE)

    def enter_resting(self, source: StreamSource, position: SubscriberPosition) -> None:
        """Stop making the stream wait for the subscriber."""
        source.rest_subscriber(position)
        self._state_changed(source, position, TetherState.LINGER)

    def enter_closed(self, source: StreamSource, position: SubscriberPosition) -> None:
        """Free the counter of a subscriber that does not rejoin. It stays linked, so that it is not linked again."""
        source.rest_subscriber(position)
        self._resources.counters.free(position.cell)
        self._state_changed(source, position, TetherState.LINGER)

    def enter_active(self, source: StreamSource, position: SubscriberPosition) -> None:
        """Make the stream wait for the subscriber again, from the join position on, and announce the image."""
        source.add_subscriber(position)
        self.announce(source, position)
        self._state_changed(source, position, TetherState.RESTING)

    def _announce_end(self, source: StreamSource, position: SubscriberPosition) -> None:
        """Tell a subscriber that its image is unavailable. Over IPC, pass the bare channel, as the reference does."""
        self.announce_gone(source, position, IPC_CHANNEL if source.is_ipc else None)

    def announce_gone(self, source: StreamSource, position: SubscriberPosition, channel: str | None = None) -> None:
        self._resources.clients.send(
            OnUnavailableImage(
                image_correlation_id=source.registration_id,
                subscription_registration_id=position.subscription.registration_id,
                stream_id=source.stream_id,
                channel=channel or position.interest.channel,
            )
        )

    def _state_changed(self, source: StreamSource, position: SubscriberPosition, old: TetherState) -> None:
        self._resources.instrument.state_change(
            f"untethered subscription {position.subscription.registration_id} on {source.registration_id}",
            old.name,
            position.state.name,
            position.since_ns,
        )
        self._resources.note(
            Event.UNTETHERED_SUBSCRIPTION_STATE_CHANGE,
            subscription_id=position.subscription.registration_id,
            stream_id=source.stream_id,
            session_id=source.session_id,
            old=old.name,
            new=position.state.name,
        )

"""ADD_SUBSCRIPTION and REMOVE_SUBSCRIPTION, for network, IPC and spy subscriptions (docs/protocols/aeron.md, 7, 19.5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.aeron.channel import ChannelUri
from mainstem.aeron.command.responses import OnOperationSuccess, OnSubscriptionReady
from mainstem.aeron.driver.conductor.params import SubscriptionParams
from mainstem.aeron.driver.conductor.subscription_link import Interest, LocalInterest, SubscriptionLink
from mainstem.aeron.driver.event_log.events import Event

if TYPE_CHECKING:
    from mainstem.aeron.command.commands import AddSubscription, RemoveSubscription
    from mainstem.aeron.driver.conductor.channels import Channels
    from mainstem.aeron.driver.conductor.clients import Clients
    from mainstem.aeron.driver.conductor.image_links import ImageLinks
    from mainstem.aeron.driver.conductor.ipc_publication import IpcPublications
    from mainstem.aeron.driver.conductor.network_publication import NetworkPublications
    from mainstem.aeron.driver.conductor.publication_image import Images
    from mainstem.aeron.driver.conductor.resources import Resources
    from mainstem.aeron.driver.conductor.subscription_registry import SubscriptionRegistry
    from mainstem.aeron.driver.media.udp_channel import UdpChannel

NO_CHANNEL_STATUS = -1


class SubscriptionCommands:
    def __init__(
        self,
        resources: Resources,
        clients: Clients,
        links: ImageLinks,
        registry: SubscriptionRegistry,
        channels: Channels,
        ipc: IpcPublications,
        network: NetworkPublications,
        images: Images,
    ) -> None:
        self._resources = resources
        self._clients = clients
        self._links = links
        self.registry = registry
        self._channels = channels
        self._ipc = ipc
        self._network = network
        self._images = images

    def add(self, command: AddSubscription, now_ns: int) -> None:
        self.registry.check_unused(command.correlation_id)
        self._clients.get_or_add(command.client_id)
        uri = ChannelUri.parse(command.channel)
        udp = None if uri.is_ipc else self._channels.resolve(uri)
        params = SubscriptionParams.of(uri, self._resources.settings)
        subscription = SubscriptionLink(
            registration_id=command.correlation_id,
            client_id=command.client_id,
            stream_id=command.stream_id,
            interest=Interest(channel=command.channel, params=params),
            session_id=params.session_id,
            local=[],
            positions={},
        )
        if udp is not None and not uri.spy:
            self._add_network(subscription, udp, now_ns)
        else:
            subscription.local.append(LocalInterest(channel=command.channel, params=params, spied=udp))
            self._ready(subscription, NO_CHANNEL_STATUS)
            self._ipc.link_all(now_ns)
            self._network.link_all(now_ns)

    def _add_network(self, subscription: SubscriptionLink, udp: UdpChannel, now_ns: int) -> None:
        udp.check_subscription()
        channel = self._channels.receive(
            udp,
            subscription.params,
            registration_id=subscription.registration_id,
            text=subscription.channel,
        )
        subscription.receive_channel = channel
        try:
            self.registry.check_no_clash(subscription)
        except BaseException:
            self._channels.close_if_unused(channel)
            raise
        channel.add_interest(subscription.stream_id, subscription.session_id)
        self._ready(subscription, channel.status.counter_id)
        self._images.link_all(now_ns)

    def _ready(self, subscription: SubscriptionLink, channel_status_id: int) -> None:
        self.registry.add(subscription)
        self._resources.clients.send(
            OnSubscriptionReady(correlation_id=subscription.registration_id, channel_status_id=channel_status_id)
        )

    def remove(self, command: RemoveSubscription, now_ns: int) -> None:
        self._release(self.registry.get(command.registration_id, client_id=command.client_id), now_ns)
        self._resources.clients.send(OnOperationSuccess(correlation_id=command.correlation_id))

    def release_client(self, client_id: int, now_ns: int) -> None:
        for subscription in self.registry.of_client(client_id):
            self._release(subscription, now_ns)

    def _release(self, subscription: SubscriptionLink, now_ns: int) -> None:
        self.registry.remove(subscription)
        self._resources.changed(f"subscription {subscription.registration_id}", "ACTIVE", "REMOVED")
        self._resources.note(
            Event.REMOVE_SUBSCRIPTION_CLEANUP,
            stream_id=subscription.stream_id,
            id=subscription.registration_id,
            channel=subscription.channel,
        )
        for source in list(subscription.positions):
            self._links.unlink(subscription, source)
            source.on_unlinked(now_ns)
        channel = subscription.receive_channel
        if channel is not None:
            channel.remove_interest(subscription.stream_id, subscription.session_id)
            self._channels.close_if_unused(channel)

"""The commands that add and remove destinations of publications and subscriptions (docs/protocols/aeron.md, 19)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.aeron.channel import ChannelUri
from mainstem.aeron.command.error_code import ErrorCode
from mainstem.aeron.command.responses import OnOperationSuccess
from mainstem.aeron.driver.conductor.network_publication import NetworkPublication
from mainstem.aeron.driver.conductor.params import SubscriptionParams
from mainstem.aeron.driver.conductor.subscription_link import LocalInterest, TetherState
from mainstem.aeron.driver.errors import invalid_channel
from mainstem.aeron.driver.media.addresses import InetAddress
from mainstem.errors import ChannelUriError, RegistrationError

if TYPE_CHECKING:
    from mainstem.aeron.command.commands import (
        AddDestination,
        AddReceiveDestination,
        RemoveDestination,
        RemoveDestinationById,
        RemoveReceiveDestination,
    )
    from mainstem.aeron.driver.conductor.channels import Channels, ReceiveChannel, SendChannel
    from mainstem.aeron.driver.conductor.image_links import ImageLinks
    from mainstem.aeron.driver.conductor.ipc_publication import IpcPublications
    from mainstem.aeron.driver.conductor.network_publication import NetworkPublications
    from mainstem.aeron.driver.conductor.publication_commands import PublicationCommands
    from mainstem.aeron.driver.conductor.resources import Resources
    from mainstem.aeron.driver.conductor.subscription_link import StreamSource, SubscriberPosition, SubscriptionLink
    from mainstem.aeron.driver.conductor.subscription_registry import SubscriptionRegistry
    from mainstem.aeron.driver.media.udp_channel import UdpChannel


class SendDestinationCommands:
    """The destinations of publications with ``control-mode=manual``."""

    def __init__(self, resources: Resources, publications: PublicationCommands, channels: Channels) -> None:
        self._resources = resources
        self._publications = publications
        self._channels = channels

    def add(self, command: AddDestination, now_ns: int) -> None:  # noqa: ARG002 - every handler gets the time
        """Handle ADD_DESTINATION. The command's correlation id becomes the registration id of the destination."""
        channel = self._send_channel(command.client_id, command.registration_id)
        uri, name = self._uri(command.channel)
        address = self._address(uri, name)
        if address is None:  # the sender has the name resolved again until it has an address (19.3)
            self._resources.sender.add_unresolved_destination(
                channel.endpoint, name=name, registration_id=command.correlation_id
            )
        else:
            self._resources.sender.add_destination(
                channel.endpoint, address, name=name, registration_id=command.correlation_id
            )
        self._done(command.correlation_id)

    def remove(self, command: RemoveDestination, now_ns: int) -> None:  # noqa: ARG002
        """Handle REMOVE_DESTINATION: remove the destination with that name, or else the one with its resolved address."""
        channel = self._send_channel(command.client_id, command.registration_id)
        uri, name = self._uri(command.channel)
        address = self._address(uri, name)
        self._resources.sender.remove_destination(channel.endpoint, name=name, address=address)
        self._done(command.correlation_id)

    def remove_by_id(self, command: RemoveDestinationById, now_ns: int) -> None:  # noqa: ARG002
        channel = self._send_channel(command.client_id, command.resource_registration_id)
        self._resources.sender.remove_destination_by_id(channel.endpoint, command.destination_registration_id)
        self._done(command.correlation_id)

    def _send_channel(self, client_id: int, registration_id: int) -> SendChannel:
        publication = self._publications.of_client(client_id, registration_id)
        if not isinstance(publication, NetworkPublication):
            raise RegistrationError(
                f"{publication.channel} is not a network publication", code=ErrorCode.UNKNOWN_PUBLICATION
            )
        if not publication.send_channel.udp.is_manual:
            raise invalid_channel(
                f"channel does not allow manual control: {publication.channel} must have control-mode=manual"
            )
        return publication.send_channel

    def _uri(self, channel: str) -> tuple[ChannelUri, str]:
        """Return the destination's URI and its endpoint. Other parameters are ignored. Raises ChannelUriError."""
        uri = ChannelUri.parse(channel)
        if uri.spy:
            raise ChannelUriError(
                channel,
                "Aeron spies are invalid as send destinations: a destination of a publication must be aeron:udp",
            )
        name = uri.endpoint
        if uri.is_ipc or name is None:
            raise uri.fault("a destination of a publication must be aeron:udp with an endpoint")
        if name.rpartition(":")[2] == "0":
            raise uri.fault("endpoint has port=0 for send destination: a publication cannot send to it", "endpoint")
        uri.check_destination()
        return uri, name

    def _address(self, uri: ChannelUri, name: str) -> InetAddress | None:
        """Return the endpoint's address, or None if its name has none yet.

        Like in the C driver, that is no error: a destination can be added before its host. If the host does not come, the sender
        has the name resolved again, and that failure is an error.
        """
        names = self._resources.names
        try:
            address = uri.address_of("endpoint", names.lookup(name, "endpoint"))
            return InetAddress(names.resolve(address.host), address.port)
        except (ChannelUriError, LookupError) as error:
            self._resources.errors.note(f"destination {name}", f"destination {uri} has no address yet: {error}")
        return None

    def _done(self, correlation_id: int) -> None:
        self._resources.clients.send(OnOperationSuccess(correlation_id=correlation_id))


class ReceiveDestinationCommands:
    """The destinations of subscriptions with ``control-mode=manual``."""

    def __init__(
        self,
        resources: Resources,
        registry: SubscriptionRegistry,
        channels: Channels,
        links: ImageLinks,
        ipc: IpcPublications,
        network: NetworkPublications,
    ) -> None:
        self._resources = resources
        self._registry = registry
        self._channels = channels
        self._links = links
        self._ipc = ipc
        self._network = network

    def add(self, command: AddReceiveDestination, now_ns: int) -> None:
        """Handle ADD_RCV_DESTINATION, which adds a socket, publications to spy on, or IPC."""
        uri = ChannelUri.parse(command.channel)
        if uri.is_ipc or uri.spy:
            udp = None if uri.is_ipc else self._channels.resolve(uri)
            params = SubscriptionParams.of(uri, self._resources.settings)
            subscription = self._manual(command.client_id, command.registration_id)
            subscription.local.append(LocalInterest(channel=command.channel, params=params, spied=udp))
        else:
            udp = self._channels.resolve(uri, is_destination=True)
            subscription = self._manual(command.client_id, command.registration_id)
            uri.check_destination()
            uri.check_ats()
            udp.check_subscription()
            self._add_socket(subscription, udp)
        self._resources.clients.send(OnOperationSuccess(correlation_id=command.correlation_id))
        self._ipc.link_all(now_ns)
        self._network.link_all(now_ns)

    def remove(self, command: RemoveReceiveDestination, now_ns: int) -> None:  # noqa: ARG002 - every handler gets the time
        """Handle REMOVE_RCV_DESTINATION.

        The command identifies a socket by its canonical form, but IPC and spies by their text, as in the reference.
        """
        uri = ChannelUri.parse(command.channel)
        if uri.is_ipc or uri.spy:
            self._remove_local(self._manual(command.client_id, command.registration_id), command.channel)
        else:
            udp = self._channels.resolve(uri, is_destination=True)
            self._remove_socket(self._receive_channel(self._manual(command.client_id, command.registration_id)), udp)
        self._resources.clients.send(OnOperationSuccess(correlation_id=command.correlation_id))

    def _add_socket(self, subscription: SubscriptionLink, udp: UdpChannel) -> None:
        self._channels.open_destination(
            self._receive_channel(subscription), udp, registration_id=subscription.registration_id
        )

    def _remove_socket(self, channel: ReceiveChannel, udp: UdpChannel) -> None:
        destination = channel.find_destination(udp)
        if destination is None:
            return
        channel.destinations.remove(destination)
        self._channels.remove_address(channel, destination.local_address)
        self._channels.close_destination(channel, destination)

    def _remove_local(self, subscription: SubscriptionLink, channel: str) -> None:
        """Unlink the streams that a subscription reads through ``channel``, unless it also reads them through another one."""
        removed = next((each for each in subscription.local if each.channel == channel), None)
        if removed is None:
            raise RegistrationError(
                f"cannot remove destination {channel}: subscription {subscription.channel} has no such destination",
                code=ErrorCode.UNKNOWN_SUBSCRIPTION,
            )
        subscription.local.remove(removed)
        for source, position in list(subscription.positions.items()):
            if position.interest is removed:
                self._reassign(source, position)

    def _reassign(self, source: StreamSource, position: SubscriberPosition) -> None:
        remaining = source.interest_of(position.subscription)
        if remaining is not None:
            position.interest = remaining
            return
        if position.state is TetherState.ACTIVE:
            self._links.announce_gone(source, position)
        self._links.unlink(position.subscription, source)

    def _manual(self, client_id: int, registration_id: int) -> SubscriptionLink:
        subscription = self._registry.get(registration_id, client_id=client_id)
        if not self._receive_channel(subscription).udp.is_manual:
            raise invalid_channel(
                f"channel does not allow manual control: {subscription.channel} must have control-mode=manual"
            )
        return subscription

    def _receive_channel(self, subscription: SubscriptionLink) -> ReceiveChannel:
        if subscription.receive_channel is None:
            raise RegistrationError(
                f"{subscription.channel} is not a network subscription", code=ErrorCode.UNKNOWN_SUBSCRIPTION
            )
        return subscription.receive_channel

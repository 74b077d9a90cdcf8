"""Send and receive endpoints as the conductor knows them: one for each channel's identity, shared by what uses the channel,
with its status and address counters (aeron-behaviour §8.3, §19.7).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, TypeVar

from mainstem.aeron.command.error_code import ErrorCode
from mainstem.aeron.counters import (
    ChannelStatus,
    destinations,
    local_address,
    receive_channel_status,
    send_channel_status,
)
from mainstem.aeron.driver.conductor.publication_params import pick
from mainstem.aeron.driver.errors import invalid_channel
from mainstem.aeron.driver.media.endpoints import ReceiveChannelEndpoint, SendChannelEndpoint
from mainstem.aeron.driver.media.udp_channel import UdpChannel
from mainstem.aeron.driver.settings import port_range
from mainstem.errors import ChannelUriError, ConfigurationError, RegistrationError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mainstem._core.memory.counters import CounterCell
    from mainstem.aeron.channel import ChannelUri
    from mainstem.aeron.driver.media.addresses import InetAddress
    from mainstem.aeron.driver.messages import EndpointClosed
    from mainstem.aeron.driver.resources import Resources


class Endpoint:
    """What both kinds share: the channel, the status counter and one address counter for each bound socket.

    ``users`` counts the publications, or the images, that hold the endpoint open.
    """

    def __init__(self, channel: UdpChannel, status: CounterCell) -> None:
        self.channel = channel
        self.canonical_form = channel.canonical_form
        self.status = status
        self.other_counters: list[CounterCell] = []
        self.users = 0


class SendEndpoint(Endpoint):
    """Where publications leave."""

    def __init__(self, channel: UdpChannel, media: SendChannelEndpoint, status: CounterCell) -> None:
        super().__init__(channel, status)
        self.media = media

    @property
    def is_unused(self) -> bool:
        """Whether nobody needs the socket any more."""
        return not self.users


class ReceiveEndpoint(Endpoint):
    """Where streams arrive. ``interest`` counts subscriptions by (stream id, session id or None for all)."""

    def __init__(
        self, channel: UdpChannel, media: ReceiveChannelEndpoint, status: CounterCell, resources: Resources
    ) -> None:
        super().__init__(channel, status)
        self.media = media
        self.interest: Counter[tuple[int, int | None]] = Counter()
        self._resources = resources

    @property
    def is_unused(self) -> bool:
        """Whether nobody needs the socket any more."""
        return not self.users and not self.interest

    def add_interest(self, stream_id: int, session_id: int | None) -> None:
        """One subscription more; the first of its kind is told to the receiver."""
        key = (stream_id, session_id)
        self.interest[key] += 1
        if self.interest[key] == 1:
            self._resources.receiver.add_subscription(self.media, stream_id, session_id)

    def remove_interest(self, stream_id: int, session_id: int | None) -> None:
        """One subscription fewer; the last of its kind is told to the receiver."""
        key = (stream_id, session_id)
        self.interest[key] -= 1
        if self.interest[key] <= 0:
            del self.interest[key]
            self._resources.receiver.remove_subscription(self.media, stream_id, session_id)


E = TypeVar("E", SendEndpoint, ReceiveEndpoint)


class Endpoints:
    """Opens and closes endpoints and finds them again."""

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self._sends: list[SendEndpoint] = []
        self._receives: list[ReceiveEndpoint] = []
        self._closing: list[SendEndpoint | ReceiveEndpoint] = []
        # Receivers of a group tell themselves apart by this; every endpoint takes the next one.
        self._next_receiver_id = resources.random.getrandbits(64)

    def channel(self, uri: ChannelUri) -> UdpChannel:
        """The channel with its names resolved. Raises ChannelUriError."""
        names = self._resources.names
        return UdpChannel.parse(uri, resolver=names, lookup=names.lookup)

    def find_send(self, channel: UdpChannel) -> SendEndpoint | None:
        """The endpoint that publications of ``channel`` share, if there is one."""
        return self._find(channel, self._sends)

    def open_send(self, channel: UdpChannel, *, registration_id: int, text: str) -> SendEndpoint:
        """A new endpoint for publications; ``text`` is the channel as its client wrote it. Raises RegistrationError."""
        self._check_can_open(channel)
        resources, settings, uri = self._resources, self._resources.settings, channel.uri
        gauge = None
        if channel.has_many_destinations:
            gauge = resources.counters.allocate(destinations(text), registration_id=registration_id)
        try:
            media = SendChannelEndpoint(
                channel,
                resources.transports,
                resources.counter_values,
                so_rcvbuf=pick(uri.so_rcvbuf, settings.socket_so_rcvbuf),
                so_sndbuf=pick(uri.so_sndbuf, settings.socket_so_sndbuf),
                connect=settings.driver_connect,
                ttl=settings.socket_multicast_ttl,
                port_range=port_range(settings.sender_wildcard_port_range or ""),
                destination_counter=gauge,
            )
        except ConfigurationError as error:
            if gauge is not None:
                resources.counters.free(gauge)
            raise _not_opened(error) from error
        addresses = media.local_addresses
        spec = send_channel_status(text, str(addresses[0]))
        status = resources.counters.allocate(spec, registration_id=registration_id)
        endpoint = SendEndpoint(channel, media, status)
        if gauge is not None:
            endpoint.other_counters.append(gauge)
        self._activate(endpoint, addresses, registration_id=registration_id, receive=False)
        self._sends.append(endpoint)
        resources.sender.register_endpoint(media)
        resources.changed(f"send channel {text}", "NONE", "CREATED")
        resources.note("SEND_CHANNEL_CREATION", _places(endpoint))
        return endpoint

    def receive(self, channel: UdpChannel, *, registration_id: int, text: str) -> ReceiveEndpoint:
        """The endpoint that subscriptions of ``channel`` share, opened if there is none. Raises RegistrationError."""
        found = self._find(channel, self._receives)
        if found is not None:
            self._check_agrees(channel, found)
            return found
        self._check_can_open(channel)
        resources, settings, uri = self._resources, self._resources.settings, channel.uri
        self._next_receiver_id = (self._next_receiver_id + 1) & 0xFFFF_FFFF_FFFF_FFFF
        try:
            media = ReceiveChannelEndpoint(
                channel,
                resources.transports,
                resources.counter_values,
                receiver_id=self._next_receiver_id - (1 << 64 if self._next_receiver_id >> 63 else 0),
                group_tag=pick(uri.group_tag, settings.receiver_group_tag),
                so_rcvbuf=pick(uri.so_rcvbuf, settings.socket_so_rcvbuf),
                so_sndbuf=pick(uri.so_sndbuf, settings.socket_so_sndbuf),
                ttl=settings.socket_multicast_ttl,
                window_length=pick(uri.receiver_window_length, settings.rcv_initial_window_length),
                port_range=port_range(settings.receiver_wildcard_port_range or ""),
            )
        except ConfigurationError as error:
            raise _not_opened(error) from error
        addresses = [destination.local_address for destination in media.destinations.values()]
        spec = receive_channel_status(text, str(addresses[0]) if addresses else "")
        status = resources.counters.allocate(spec, registration_id=registration_id)
        endpoint = ReceiveEndpoint(channel, media, status, resources)
        self._activate(endpoint, addresses, registration_id=registration_id, receive=True)
        self._receives.append(endpoint)
        resources.receiver.register_endpoint(media)
        resources.changed(f"receive channel {text}", "NONE", "CREATED")
        resources.note("RECEIVE_CHANNEL_CREATION", _places(endpoint))
        return endpoint

    def of_media(self, media: ReceiveChannelEndpoint) -> ReceiveEndpoint | None:
        """The endpoint that the receiver knows as ``media``, unless it is closing."""
        return next((endpoint for endpoint in self._receives if endpoint.media is media), None)

    def close_send_if_unused(self, endpoint: SendEndpoint) -> None:
        """Has the sender close the socket when no publication is left."""
        if endpoint.is_unused and endpoint in self._sends:
            self._sends.remove(endpoint)
            self._begin_close(endpoint)
            self._resources.sender.close_endpoint(endpoint.media)

    def close_receive_if_unused(self, endpoint: ReceiveEndpoint) -> None:
        """Has the receiver close the sockets when neither a subscription nor an image is left."""
        if endpoint.is_unused and endpoint in self._receives:
            self._receives.remove(endpoint)
            self._begin_close(endpoint)
            self._resources.receiver.close_endpoint(endpoint.media)

    def on_closed(self, message: EndpointClosed, now_ns: int) -> None:  # noqa: ARG002 - every handler gets the time
        """The sockets are closed: the counters go."""
        endpoint = next(endpoint for endpoint in self._closing if endpoint.media is message.endpoint)
        self._closing.remove(endpoint)
        side = "send" if isinstance(endpoint, SendEndpoint) else "receive"
        self._resources.changed(f"{side} channel {endpoint.channel.uri}", "CLOSING", "CLOSED")
        self._resources.note(f"{side.upper()}_CHANNEL_CLOSE", _places(endpoint))
        for cell in (*endpoint.other_counters, endpoint.status):
            self._resources.counters.free(cell)

    def _begin_close(self, endpoint: SendEndpoint | ReceiveEndpoint) -> None:
        endpoint.status.set_release(ChannelStatus.CLOSING)
        self._closing.append(endpoint)

    def _find(self, channel: UdpChannel, endpoints: Iterable[E]) -> E | None:
        return next((endpoint for endpoint in endpoints if endpoint.channel.matches(channel)), None)

    def _check_can_open(self, channel: UdpChannel) -> None:
        uri = channel.uri
        if uri.endpoint is None and uri.control is None and not channel.is_manual:
            raise ChannelUriError(str(uri), f"no channel with tag {uri.channel_tag} is open")
        if any(endpoint.channel.matches(channel) for endpoint in self._closing):
            # The same address cannot be bound twice: the command is tried again until the old socket is closed.
            raise RegistrationError(
                f"the sockets of {channel.canonical_form} are being closed",
                code=ErrorCode.RESOURCE_TEMPORARILY_UNAVAILABLE,
            )

    def _check_agrees(self, channel: UdpChannel, existing: ReceiveEndpoint) -> None:
        wanted, actual = (
            channel.uri.so_rcvbuf,
            pick(existing.channel.uri.so_rcvbuf, self._resources.settings.socket_so_rcvbuf),
        )
        if wanted is not None and wanted != actual:
            raise invalid_channel(
                f"so-rcvbuf={wanted} does not match the existing value {actual} of {existing.channel.uri}"
            )

    def _activate(
        self,
        endpoint: SendEndpoint | ReceiveEndpoint,
        addresses: list[InetAddress],
        *,
        registration_id: int,
        receive: bool,
    ) -> None:
        for address in addresses:
            self.add_address(endpoint, address, registration_id=registration_id, receive=receive)
        endpoint.status.set_release(ChannelStatus.ACTIVE)

    def add_address(
        self, endpoint: SendEndpoint | ReceiveEndpoint, address: InetAddress, *, registration_id: int, receive: bool
    ) -> CounterCell:
        """The counter that shows a bound address."""
        spec = local_address(endpoint.status.counter_id, str(address), receive=receive)
        cell = self._resources.counters.allocate(spec, registration_id=registration_id, value=ChannelStatus.ACTIVE)
        endpoint.other_counters.append(cell)
        return cell

    def remove_address(self, endpoint: ReceiveEndpoint, address: InetAddress) -> None:
        """Frees the counter of an address that is no longer bound."""
        label = f": {endpoint.status.counter_id} {address}"
        for cell in endpoint.other_counters:
            if self._resources.counters.manager.label(cell.counter_id).endswith(label):
                endpoint.other_counters.remove(cell)
                self._resources.counters.free(cell)
                return


def _not_opened(error: ConfigurationError) -> RegistrationError:
    return RegistrationError(str(error), code=ErrorCode.GENERIC_ERROR)


def _places(endpoint: Endpoint) -> str:
    """Where a channel's sockets are, in the event log's words."""
    channel = endpoint.channel
    return f"localData: {channel.local_control}, remoteData: {channel.remote_data}, ttl: {channel.ttl}"

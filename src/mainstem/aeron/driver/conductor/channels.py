"""The open channels (docs/protocols/aeron.md, 8.3, 19.7).

Each open channel has an endpoint (the sockets), counters and users. Publications whose channels match share an open channel, and so
do subscriptions.
"""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from mainstem._internal.frozen import replaced
from mainstem.aeron.channel_values import NO_OFFSET
from mainstem.aeron.command.error_code import ErrorCode
from mainstem.aeron.counters import (
    ChannelStatus,
    destinations,
    local_address,
    receive_channel_status,
    send_channel_status,
)
from mainstem.aeron.driver.conductor.params import pick
from mainstem.aeron.driver.errors import error_code_of, invalid_channel
from mainstem.aeron.driver.event_log.events import Event
from mainstem.aeron.driver.media.endpoints import ReceiveChannelEndpoint, ReceiveDestination, SendChannelEndpoint
from mainstem.aeron.driver.media.transport import AddressInUse
from mainstem.aeron.driver.media.udp_channel import UdpChannel
from mainstem.aeron.driver.settings import port_range
from mainstem.errors import ConfigurationError, RegistrationError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainstem._core.memory.counters import CounterCell
    from mainstem.aeron.channel import ChannelUri
    from mainstem.aeron.driver.conductor.params import PublicationParams, SubscriptionParams
    from mainstem.aeron.driver.conductor.resources import Resources
    from mainstem.aeron.driver.conductor_proxy import DestinationClosed, EndpointClosed
    from mainstem.aeron.driver.media.addresses import InetAddress


TIMESTAMP_OPTIONS = {
    "media_receive_timestamp_offset": "media-rcv-ts-offset",
    "channel_receive_timestamp_offset": "channel-rcv-ts-offset",
    "channel_send_timestamp_offset": "channel-snd-ts-offset",
}


class OpenChannel:
    """The base class of both kinds of open channels. ``users`` is the number of streams that keep the endpoint open."""

    def __init__(self, udp: UdpChannel, status: CounterCell, counters: list[CounterCell]) -> None:
        self.udp = udp
        self.canonical_form = udp.canonical_form
        self.status = status
        self.counters = counters
        self.users = 0


class SendChannel(OpenChannel):
    """An open channel for sending. After ``register_endpoint``, ``endpoint`` belongs to the sender."""

    def __init__(
        self, udp: UdpChannel, endpoint: SendChannelEndpoint, status: CounterCell, counters: list[CounterCell]
    ) -> None:
        super().__init__(udp, status, counters)
        self.endpoint = endpoint

    @property
    def is_unused(self) -> bool:
        return not self.users


class ReceiveChannel(OpenChannel):
    """An open channel for receiving. After ``register_endpoint``, ``endpoint`` belongs to the receiver.

    ``interest`` counts subscriptions by stream id and session id, which is None for all sessions. ``destinations`` are the open
    sockets.
    """

    def __init__(
        self,
        udp: UdpChannel,
        endpoint: ReceiveChannelEndpoint,
        status: CounterCell,
        counters: list[CounterCell],
        resources: Resources,
    ) -> None:
        super().__init__(udp, status, counters)
        self.endpoint = endpoint
        self.interest: Counter[tuple[int, int | None]] = Counter()
        self.destinations: list[ReceiveDestination] = list(endpoint.destinations.values())
        self._resources = resources

    @property
    def is_unused(self) -> bool:
        return not self.users and not self.interest

    @property
    def receive_buffer_length(self) -> int:
        return min((each.receive_buffer_length for each in self.destinations), default=0)

    def find_destination(self, udp: UdpChannel) -> ReceiveDestination | None:
        """Return the newest open socket for a channel, or None."""
        return next((each for each in reversed(self.destinations) if each.is_of(udp)), None)

    def add_interest(self, stream_id: int, session_id: int | None) -> None:
        """Count a new subscription, and tell the receiver about the first one with these ids."""
        key = (stream_id, session_id)
        self.interest[key] += 1
        if self.interest[key] == 1:
            self._resources.receiver.add_subscription(self.endpoint, stream_id, session_id)

    def remove_interest(self, stream_id: int, session_id: int | None) -> None:
        """Stop counting a subscription, and tell the receiver if no subscription with these ids is left."""
        key = (stream_id, session_id)
        self.interest[key] -= 1
        if self.interest[key] <= 0:
            del self.interest[key]
            self._resources.receiver.remove_subscription(self.endpoint, stream_id, session_id)


C = TypeVar("C", SendChannel, ReceiveChannel)


class Channels:
    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self._sends: list[SendChannel] = []
        self._receiver_ports = port_range(resources.settings.receiver_wildcard_port_range or "")
        self._receives: list[ReceiveChannel] = []
        self._closing: list[SendChannel | ReceiveChannel] = []
        self._closing_destinations: list[ReceiveDestination] = []
        # Each receive endpoint takes the next id, which identifies it within a group of receivers.
        self._next_receiver_id = resources.rng.getrandbits(64)

    def resolve(self, uri: ChannelUri, *, is_destination: bool = False) -> UdpChannel:
        names = self._resources.names
        return UdpChannel.parse(uri, resolver=names, lookup=names.lookup, is_destination=is_destination)

    def find_send(self, udp: UdpChannel, params: PublicationParams) -> SendChannel | None:
        udp.uri.check_ats()
        existing = self._find(udp, self._sends)
        if existing is None:
            return None
        self._check_offsets(udp, existing, "channel_send_timestamp_offset")
        self._check_mtu(udp, params, existing)
        for key in ("so_rcvbuf", "so_sndbuf"):
            self._check_buffer(key, getattr(udp.uri, key) or 0, self._buffer(existing.udp.uri, key), udp, existing)
        return existing

    def open_send(self, udp: UdpChannel, params: PublicationParams, *, registration_id: int, text: str) -> SendChannel:
        resources, settings, uri = self._resources, self._resources.settings, udp.uri
        if uri.endpoint is None and uri.control is None and not udp.is_manual and udp.tag is not None:
            raise uri.fault(f"no channel with tag {udp.tag} is open", "tags")
        self._check_mtu(udp, params, None)
        with self.opening(udp.uri):
            endpoint = SendChannelEndpoint(
                udp,
                resources.transports,
                resources.counter_values,
                so_rcvbuf=self._buffer(uri, "so_rcvbuf"),
                so_sndbuf=self._buffer(uri, "so_sndbuf"),
                connect=settings.driver_connect,
                ttl=settings.socket_multicast_ttl,
                # Without a control address, the socket's port is of no interest to anybody.
                port_range=port_range(settings.sender_wildcard_port_range or "") if udp.has_explicit_control else None,
            )
        addresses = [endpoint.local_address]
        spec = send_channel_status(text, str(addresses[0]))
        with self._closed_without_counters(endpoint) as counters:
            if udp.has_many_destinations:
                gauge = resources.counters.allocate(destinations(text), registration_id=registration_id)
                counters.append(gauge)
                endpoint.destinations.gauge = gauge
            status = resources.counters.allocate(spec, registration_id=registration_id)
            counters.append(status)
            channel = SendChannel(udp, endpoint, status, counters)
            self._activate(channel, addresses, registration_id=registration_id)
        self._sends.append(channel)
        resources.sender.register_endpoint(endpoint)
        resources.changed(f"send channel {text}", "NONE", "CREATED")
        resources.note(Event.SEND_CHANNEL_CREATION, **_places(channel))
        return channel

    def receive(
        self, udp: UdpChannel, params: SubscriptionParams, *, registration_id: int, text: str
    ) -> ReceiveChannel:
        udp.uri.check_ats()
        existing = self._find(udp, self._receives)
        if existing is not None:
            self._check_agrees(udp, params, existing)
            return existing
        resources, settings, uri = self._resources, self._resources.settings, udp.uri
        self._check_window(udp, params, self._buffer(uri, "so_rcvbuf"))
        self._next_receiver_id = (self._next_receiver_id + 1) & 0xFFFF_FFFF_FFFF_FFFF
        with self.opening(udp.uri):
            endpoint = ReceiveChannelEndpoint(
                udp,
                resources.transports,
                resources.counter_values,
                receiver_id=self._next_receiver_id - (1 << 64 if self._next_receiver_id >> 63 else 0),
                group_tag=pick(uri.group_tag, settings.receiver_group_tag),
                so_rcvbuf=self._buffer(uri, "so_rcvbuf"),
                so_sndbuf=self._buffer(uri, "so_sndbuf"),
                ttl=settings.socket_multicast_ttl,
                port_range=self._receiver_ports,
            )
        addresses = endpoint.local_addresses
        spec = receive_channel_status(text, str(addresses[0]) if addresses else "")
        with self._closed_without_counters(endpoint) as counters:
            status = resources.counters.allocate(spec, registration_id=registration_id)
            counters.append(status)
            channel = ReceiveChannel(udp, endpoint, status, counters, resources)
            self._activate(channel, addresses, registration_id=registration_id)
        self._receives.append(channel)
        resources.receiver.register_endpoint(endpoint)
        resources.changed(f"receive channel {text}", "NONE", "CREATED")
        resources.note(Event.RECEIVE_CHANNEL_CREATION, **_places(channel))
        return channel

    def open_destination(self, channel: ReceiveChannel, udp: UdpChannel, *, registration_id: int) -> None:
        """Open another socket of a channel with ``control-mode=manual``."""
        settings, uri = self._resources.settings, channel.udp.uri
        with self.opening(udp.uri):
            destination = ReceiveDestination(
                udp,
                self._resources.transports,
                so_rcvbuf=self._buffer(uri, "so_rcvbuf"),
                so_sndbuf=self._buffer(uri, "so_sndbuf"),
                ttl=settings.socket_multicast_ttl,
                port_range=self._receiver_ports,
            )
        try:
            self.add_address(channel, destination.local_address, registration_id=registration_id)
        except BufferError:
            destination.close()
            raise
        channel.destinations.append(destination)
        self._resources.receiver.add_destination(channel.endpoint, destination)

    def move(self, endpoint: SendChannelEndpoint | ReceiveChannelEndpoint, address: InetAddress) -> None:
        """Record that the only name of a channel has another address, which its tag stands for from now on."""
        for send in self._sends:
            if send.endpoint is endpoint and not send.udp.has_many_destinations:
                send.udp = replaced(send.udp, remote_data=address)
        for receive in self._receives:
            if receive.endpoint is endpoint and not receive.udp.is_manual:
                receive.udp = replaced(receive.udp, remote_control=address, local_control=address)

    def of_endpoint(self, endpoint: ReceiveChannelEndpoint) -> ReceiveChannel | None:
        return next((channel for channel in self._receives if channel.endpoint is endpoint), None)

    def close_if_unused(self, channel: SendChannel | ReceiveChannel) -> None:
        """Close the sockets if no publication, subscription or image uses them."""
        assert channel.users >= 0
        if not channel.is_unused:
            return
        if isinstance(channel, SendChannel) and channel in self._sends:
            self._sends.remove(channel)
            self._resources.sender.close_endpoint(channel.endpoint)
        elif isinstance(channel, ReceiveChannel) and channel in self._receives:
            self._receives.remove(channel)
            self._resources.receiver.close_endpoint(channel.endpoint)
        else:
            return
        channel.status.set_release(ChannelStatus.CLOSING)
        self._closing.append(channel)

    def on_closed(self, message: EndpointClosed, now_ns: int) -> None:  # noqa: ARG002 - every handler gets the time
        channel = next(channel for channel in self._closing if channel.endpoint is message.endpoint)
        self._closing.remove(channel)
        side, event = (
            ("send", Event.SEND_CHANNEL_CLOSE)
            if isinstance(channel, SendChannel)
            else ("receive", Event.RECEIVE_CHANNEL_CLOSE)
        )
        self._resources.changed(f"{side} channel {channel.udp.uri}", "CLOSING", "CLOSED")
        self._resources.note(event, **_places(channel))
        for cell in channel.counters:
            self._resources.counters.free(cell)

    def close_destination(self, channel: ReceiveChannel, destination: ReceiveDestination) -> None:
        self._closing_destinations.append(destination)
        self._resources.receiver.remove_destination(channel.endpoint, destination)

    def on_destination_closed(self, message: DestinationClosed, now_ns: int) -> None:  # noqa: ARG002
        self._closing_destinations.remove(message.destination)

    def _find(self, udp: UdpChannel, channels: list[C]) -> C | None:
        for channel in channels:
            if channel.udp.has_tag_of(udp):
                return channel
        return next((channel for channel in channels if channel.udp.matches(udp)), None)

    @contextmanager
    def opening(self, uri: ChannelUri) -> Iterator[None]:
        """Turn a failure to open a socket into RegistrationError.

        If the address is in use while another socket is closing, that socket may be the user, so the error makes the command wait.
        """
        try:
            yield
        except AddressInUse as error:
            if not self._closing and not self._closing_destinations:
                raise _not_opened(uri, error) from error
            raise RegistrationError(
                f"{error}: another socket is still closing: channel={uri}",
                code=ErrorCode.RESOURCE_TEMPORARILY_UNAVAILABLE,
            ) from error
        except ConfigurationError as error:
            raise _not_opened(uri, error) from error

    def _buffer(self, uri: ChannelUri, key: str) -> int:
        """Return the length of a socket buffer from the channel, or else from the settings; 0 is the system's default."""
        return getattr(uri, key) or int(getattr(self._resources.settings, f"socket_{key}"))

    def _check_agrees(self, udp: UdpChannel, params: SubscriptionParams, existing: ReceiveChannel) -> None:
        self._check_offsets(udp, existing, "media_receive_timestamp_offset", "channel_receive_timestamp_offset")
        if udp.is_manual or len(existing.destinations) != 1:
            return
        self._check_window(udp, params, self._buffer(udp.uri, "so_rcvbuf"))
        for key in ("so_sndbuf", "so_rcvbuf"):
            self._check_buffer(key, self._buffer(udp.uri, key), self._buffer(existing.udp.uri, key), udp, existing)

    def _check_offsets(self, udp: UdpChannel, existing: OpenChannel, *names: str) -> None:
        for name in names:
            requested = pick(getattr(udp.uri, name), NO_OFFSET)
            actual = pick(getattr(existing.udp.uri, name), NO_OFFSET)
            if requested != actual:
                raise invalid_channel(
                    f"option conflicts with existing subscription: {TIMESTAMP_OPTIONS[name]}={requested}"
                    f" existingChannel={existing.udp.uri} channel={udp.uri}"
                )

    def _check_buffer(self, key: str, requested: int, actual: int, udp: UdpChannel, existing: OpenChannel) -> None:
        if requested and requested != actual:
            name = key.replace("_", "-")
            raise invalid_channel(
                f"{name}={requested} does not match existing value of {actual or 'OS default'}: "
                f"existingChannel={existing.udp.uri} channel={udp.uri}"
            )

    def _check_mtu(self, udp: UdpChannel, params: PublicationParams, existing: SendChannel | None) -> None:
        """Check that the MTU fits the send buffer of the open socket, if there is one, or else the requested buffer."""
        asked = 0 if existing is None else self._buffer(existing.udp.uri, "so_sndbuf")
        length = asked or self._buffer(udp.uri, "so_sndbuf") or self._resources.buffer_limits.default_send
        if params.mtu > length:
            raise udp.uri.fault(f"MTU greater than SO_SNDBUF for channel: mtu={params.mtu} so-sndbuf={length}", "mtu")

    def _check_window(self, udp: UdpChannel, params: SubscriptionParams, asked: int) -> None:
        """Check that the window fits the requested receive buffer. The system may grant a smaller one."""
        length = asked or self._resources.buffer_limits.default_receive
        if params.receiver_window_length > length:
            raise udp.uri.fault(
                "Initial window greater than SO_RCVBUF for channel: "
                f"rcv-wnd={params.receiver_window_length} so-rcvbuf={length}",
                "rcv-wnd",
            )

    @contextmanager
    def _closed_without_counters(
        self, endpoint: SendChannelEndpoint | ReceiveChannelEndpoint
    ) -> Iterator[list[CounterCell]]:
        """Yield a list for a new channel's counters. If no counter is left, close the sockets and free the listed counters."""
        counters: list[CounterCell] = []
        try:
            yield counters
        except BufferError:
            endpoint.close()
            for cell in counters:
                self._resources.counters.free(cell)
            raise

    def _activate(
        self, channel: SendChannel | ReceiveChannel, addresses: list[InetAddress], *, registration_id: int
    ) -> None:
        for address in addresses:
            self.add_address(channel, address, registration_id=registration_id)
        channel.status.set_release(ChannelStatus.ACTIVE)

    def add_address(self, channel: SendChannel | ReceiveChannel, address: InetAddress, *, registration_id: int) -> None:
        is_receive = isinstance(channel, ReceiveChannel)
        spec = local_address(channel.status.counter_id, str(address), receive=is_receive)
        cell = self._resources.counters.allocate(spec, registration_id=registration_id, value=ChannelStatus.ACTIVE)
        channel.counters.append(cell)

    def remove_address(self, channel: ReceiveChannel, address: InetAddress) -> None:
        label = f": {channel.status.counter_id} {address}"
        for cell in channel.counters:
            if self._resources.counters.manager.label(cell.counter_id).endswith(label):
                channel.counters.remove(cell)
                self._resources.counters.free(cell)
                return


def _not_opened(uri: ChannelUri, error: ConfigurationError) -> RegistrationError:
    return RegistrationError(f"{error}: channel={uri}", code=error_code_of(error))


def _places(channel: OpenChannel) -> dict[str, object]:
    udp = channel.udp
    return {"local": udp.local_control, "remote": udp.remote_data, "ttl": udp.ttl}

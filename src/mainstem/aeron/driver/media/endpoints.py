"""Channel endpoints: the sockets of a channel, for the sender or the receiver."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from mainstem._core.driver.datagram import Address
from mainstem._core.driver.receive_path import ReceiveEndpointCore
from mainstem._core.driver.send_path import SendEndpointCore
from mainstem.aeron.channel_values import NO_OFFSET, written_offset
from mainstem.aeron.driver.media.destinations import DestinationTracker
from mainstem.aeron.driver.media.transport import TransportRequest

if TYPE_CHECKING:
    from mainstem._core.memory.buffer import AtomicBuffer
    from mainstem.aeron.driver.media.addresses import InetAddress
    from mainstem.aeron.driver.media.transport import OpenTransport, Transports
    from mainstem.aeron.driver.media.udp_channel import UdpChannel

_keys = itertools.count(1)


class SendChannelEndpoint:
    """The socket of one sending channel, which also receives its control frames (docs/protocols/aeron.md, 19).

    The conductor opens the endpoint, which then belongs to the sender until ``EndpointClosed``. Raises ConfigurationError if the
    socket cannot be opened. ``connect`` is AERON_DRIVER_CONNECT.
    """

    def __init__(
        self,
        channel: UdpChannel,
        transports: Transports,
        counters: AtomicBuffer,
        *,
        so_rcvbuf: int = 0,
        so_sndbuf: int = 0,
        connect: bool = True,
        ttl: int = 0,
        port_range: tuple[int, int] | None = None,
        destination_timeout_ns: int = 5_000_000_000,
    ) -> None:
        self.channel = channel
        self.key = next(_keys)
        self.ttl = channel.ttl or (ttl if channel.is_multicast else 0)
        many = channel.has_many_destinations
        fixed = channel.has_explicit_endpoint and not many
        connected = connect and fixed and not channel.is_multicast
        self.is_connected = connected
        self.remote_address = channel.remote_data
        self._open: OpenTransport = transports.open(
            TransportRequest(
                bind=channel.local_control.with_port(channel.remote_control.port)
                if channel.is_multicast
                else channel.local_control,
                connect=channel.remote_data if connected else None,
                send_to=channel.remote_data if connect and fixed and channel.is_multicast else None,
                group=channel.remote_control if channel.is_multicast else None,
                interface_ip=channel.interface_ip,
                interface_index=channel.interface_index,
                ttl=self.ttl,
                so_rcvbuf=so_rcvbuf,
                so_sndbuf=so_sndbuf,
                port_range=port_range,
                channel=str(channel.uri),
            )
        )
        destination = Address(channel.remote_data.packed) if fixed and not connected else None
        self.core = SendEndpointCore(self._open.transport, counters, self.key, many, destination)
        self.destinations = DestinationTracker(
            self.core,
            is_manual=channel.is_manual,
            timeout_ns=destination_timeout_ns,
        )

    @property
    def local_address(self) -> InetAddress:
        return self._open.local_address

    def move_to(self, address: InetAddress) -> None:
        """Send to ``address`` from now on. Raises OSError if the system cannot connect the socket to it."""
        if self.is_connected:
            self._open.reconnect(address)
        else:
            self.core.set_destination(Address(address.packed))
        self.remote_address = address

    def close(self) -> None:
        self._open.close()


class ReceiveDestination:
    """One socket of a subscription.

    Control frames go to ``control_address``, or if it is None, to the source of a datagram.
    """

    def __init__(
        self,
        channel: UdpChannel,
        transports: Transports,
        *,
        so_rcvbuf: int = 0,
        so_sndbuf: int = 0,
        ttl: int = 0,
        port_range: tuple[int, int] | None = None,
    ) -> None:
        self.channel = channel
        self.index = -1
        self.control_address: Address | None = None
        if channel.is_multicast or channel.has_explicit_control:
            self.control_address = Address(channel.remote_control.packed)
        self.ttl = channel.ttl or ttl
        self._open = transports.open(
            TransportRequest(
                bind=channel.remote_data
                if not channel.is_multicast
                else channel.local_data.with_port(channel.remote_data.port),
                group=channel.remote_data if channel.is_multicast else None,
                interface_ip=channel.interface_ip,
                interface_index=channel.interface_index,
                ttl=self.ttl,
                so_rcvbuf=so_rcvbuf,
                so_sndbuf=so_sndbuf,
                port_range=port_range,
                timestamps=written_offset(channel.uri.media_receive_timestamp_offset) is not None,
                channel=str(channel.uri),
            )
        )
        self.transport = self._open.transport

    @property
    def elicits_setup(self) -> bool:
        """Whether the receiver must request a SETUP, because the sender doesn't know of it yet."""
        return self.channel.has_explicit_control and not self.channel.is_multicast

    @property
    def local_address(self) -> InetAddress:
        return self._open.local_address

    @property
    def receive_buffer_length(self) -> int:
        return self._open.receive_buffer_length

    def is_of(self, channel: UdpChannel) -> bool:
        return self.channel.canonical_form == channel.canonical_form

    def move_control_to(self, address: InetAddress) -> None:
        if self.control_address is not None:
            self.control_address.put(address.packed)

    def close(self) -> None:
        self._open.close()


class ReceiveChannelEndpoint:
    """The sockets of one receiving channel: one, or any number with ``control-mode=manual``.

    The conductor opens the endpoint, which then belongs to the receiver until ``EndpointClosed``. Raises ConfigurationError if the
    socket cannot be opened. ``receiver_id`` is unique within the group of receivers.
    """

    def __init__(
        self,
        channel: UdpChannel,
        transports: Transports,
        counters: AtomicBuffer,
        *,
        receiver_id: int,
        group_tag: int | None = None,
        so_rcvbuf: int = 0,
        so_sndbuf: int = 0,
        ttl: int = 0,
        port_range: tuple[int, int] | None = None,
    ) -> None:
        self.channel = channel
        self.key = next(_keys)
        self.receiver_id = receiver_id
        self.group_tag = group_tag
        self.core = ReceiveEndpointCore(counters, self.key)
        self.destinations: dict[int, ReceiveDestination] = {}
        media = written_offset(channel.uri.media_receive_timestamp_offset)
        own = written_offset(channel.uri.channel_receive_timestamp_offset)
        self.core.media_timestamp_offset = NO_OFFSET if media is None else media
        self.core.channel_timestamp_offset = NO_OFFSET if own is None else own
        if channel.is_manual:
            return
        first = ReceiveDestination(
            channel, transports, so_rcvbuf=so_rcvbuf, so_sndbuf=so_sndbuf, ttl=ttl, port_range=port_range
        )
        self.add_destination(first)

    @property
    def local_addresses(self) -> list[InetAddress]:
        return [each.local_address for each in self.destinations.values()]

    def add_destination(self, destination: ReceiveDestination) -> None:
        destination.index = self.core.add_transport(destination.transport)
        self.destinations[destination.index] = destination

    def remove_destination(self, destination: ReceiveDestination) -> None:
        if self.destinations.pop(destination.index, None) is not None:
            self.core.remove_transport(destination.index)
            destination.close()

    def close(self) -> None:
        for destination in list(self.destinations.values()):
            self.remove_destination(destination)

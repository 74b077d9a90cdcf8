"""The transports of a simulated host."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

from mainstem.aeron.driver.media.addresses import InetAddress, NetworkInterface
from mainstem.aeron.driver.media.transport import BufferLimits, OpenTransport

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mainstem.aeron.driver.media.transport import TransportRequest
    from mainstem.sim.network import SimNetwork

SOCKET_BUFFER_LENGTH = 4 << 20  # the size that a simulated socket reports; nothing is dropped for want of it


class HostTransports:
    """``Transports`` with sockets bound to ``address`` in a simulated network. ``names`` is its DNS."""

    def __init__(self, network: SimNetwork, address: str) -> None:
        self.network = network
        self.address = address
        self.names: dict[str, str] = {}

    def open(self, request: TransportRequest) -> OpenTransport:
        """Return a bound socket for the driver's ``request``. A wildcard address becomes this host's.

        Raises:
            ConfigurationError: The address is taken.
        """
        local = request.bind
        if local.is_wildcard or local.is_multicast:
            local = InetAddress(self.address, local.port)
        opened = self.network.open(local, connected=request.connect, group=request.group)
        return OpenTransport(
            transport=opened.transport,
            local_address=opened.local,
            receive_buffer_length=request.so_rcvbuf or SOCKET_BUFFER_LENGTH,
            send_buffer_length=request.so_sndbuf or SOCKET_BUFFER_LENGTH,
            release=_nothing,
            reconnect=lambda address: setattr(opened, "connected", address),
        )

    def resolve(self, host: str) -> str:
        """Return the numeric address of ``host``, a name in ``names`` or a numeric address.

        Raises:
            LookupError: The name is unknown.
        """
        try:
            return str(ipaddress.ip_address(self.names.get(host, host)))
        except ValueError:
            raise LookupError(f"unknown host {host!r}") from None

    def buffer_limits(self) -> BufferLimits:
        """Return the default and maximum sizes of a simulated socket's buffers."""
        return BufferLimits(*[SOCKET_BUFFER_LENGTH] * 4)

    def interfaces(self) -> Sequence[NetworkInterface]:
        """Return one network interface, with this host's address."""
        return [NetworkInterface(name="sim0", index=1, ip=self.address, is_loopback=False)]


def _nothing() -> None: ...

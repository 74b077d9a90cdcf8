"""The transports door of one simulated machine."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

from mainstem.aeron.driver.media.addresses import InetAddress, NetworkInterface
from mainstem.aeron.driver.media.transport import BufferLimits, OpenTransport

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mainstem.aeron.driver.media.transport import TransportRequest
    from mainstem.sim.network import SimNetwork

SOCKET_BUFFER_LENGTH = 4 << 20  # what a simulated socket says it has; nothing is dropped for want of it


class HostTransports:
    """A ``Transports`` door whose sockets are bound to ``address`` in a simulated network; ``names`` stands for DNS."""

    def __init__(self, network: SimNetwork, address: str) -> None:
        self.network = network
        self.address = address
        self.names: dict[str, str] = {}

    def open(self, request: TransportRequest) -> OpenTransport:
        """Binds a socket; a wildcard address becomes this host's."""
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
        """The address of a name in ``names``, or a numeric one as it is. Raises LookupError for any other."""
        try:
            return str(ipaddress.ip_address(self.names.get(host, host)))
        except ValueError:
            raise LookupError(f"unknown host {host!r}") from None

    def buffer_limits(self) -> BufferLimits:
        """As large as a simulated socket says it is."""
        return BufferLimits(*[SOCKET_BUFFER_LENGTH] * 4)

    def interfaces(self) -> Sequence[NetworkInterface]:
        """One: this host's address."""
        return [NetworkInterface(name="sim0", index=1, ip=self.address, is_loopback=False)]


def _nothing() -> None:
    """A simulated socket has no descriptor to close."""

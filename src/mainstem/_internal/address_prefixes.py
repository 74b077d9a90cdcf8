"""Which addresses count as one owner, wherever something is limited for each: an IPv4 address, an IPv6 /64 network."""

from __future__ import annotations

import ipaddress
from typing import Any

from mainstem.errors import ConfigurationError


class AddressPrefixes:
    """Maps an address to the network that counts as one owner: by default a whole IPv4 address and an IPv6 /64.

    In IPv6 a single subscriber has 2**64 addresses at least, so that a limit for one address has no effect.
    """

    def __init__(self, *, ipv4: int = 32, ipv6: int = 64) -> None:
        if not 0 < ipv4 <= 32 or not 0 < ipv6 <= 128:
            raise ConfigurationError(
                f"prefixes must have 1 to 32 bits for IPv4 and 1 to 128 for IPv6 (got {ipv4} and {ipv6})"
            )
        self._lengths = {4: ipv4, 6: ipv6}

    def prefix_of(self, address: str) -> str:
        """Return the prefix of an address; an IPv4 address mapped to IPv6 is IPv4.

        Args:
            address: A numeric address; any other text is its own prefix.

        Returns:
            A network, as ``192.0.2.7/32`` or ``2001:db8::/64``.

        Example:
            >>> AddressPrefixes().prefix_of("192.0.2.7")
            '192.0.2.7/32'
        """
        try:
            parsed = unmapped(address)
        except ValueError:
            return address
        return str(ipaddress.ip_network((parsed, self._lengths[parsed.version]), strict=False))


_OWNERS = AddressPrefixes()


def owner_of(peer_address: Any) -> str:
    """Return what shares the limit for one address: an IPv4 address, an IPv6 network; empty for a Unix socket."""
    return _OWNERS.prefix_of(str(peer_address[0]).partition("%")[0]) if isinstance(peer_address, tuple) else ""


def unmapped(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Return the address; an IPv4 one that is mapped to IPv6 as itself. Raises ValueError."""
    parsed = ipaddress.ip_address(address)
    if isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped is not None:
        return parsed.ipv4_mapped
    return parsed


def address_of(source_identity: str) -> str:
    """Return the address in an image's ``ip:port`` or ``[ip]:port``; the whole of it when it is neither (``aeron:ipc``)."""
    host, colon, port = source_identity.rpartition(":")
    if not colon or not port.isdigit():
        return source_identity
    return host.removeprefix("[").removesuffix("]").partition("%")[0]

"""Which addresses share a limit: an IPv4 address is on its own, and all addresses of an IPv6 /64 network count as one."""

from __future__ import annotations

import ipaddress
from functools import lru_cache
from typing import Any

from mainstem.errors import ConfigurationError


class AddressPrefixes:
    """A mapping from an address to the prefix that shares a limit: by default a whole IPv4 address or an IPv6 /64.

    An IPv6 subscriber has at least 2**64 addresses, so a limit on a single address has no effect.
    """

    def __init__(self, *, ipv4: int = 32, ipv6: int = 64) -> None:
        if not 0 < ipv4 <= 32 or not 0 < ipv6 <= 128:
            raise ConfigurationError(
                f"prefixes must have 1 to 32 bits for IPv4 and 1 to 128 for IPv6 (got {ipv4} and {ipv6})"
            )
        self._lengths = {4: ipv4, 6: ipv6}

    def prefix_of(self, address: str) -> str:
        """Return the prefix of an address; an IPv4-mapped IPv6 address counts as IPv4.

        Args:
            address: A numeric address; any other text is its own prefix.

        Returns:
            A network, such as ``192.0.2.7/32`` or ``2001:db8::/64``.

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


@lru_cache(maxsize=1024)  # servers ask for each stream
def owner_of(peer_address: Any) -> str:
    """Return the prefix that shares a peer's limit: an IPv4 address or an IPv6 network; empty for a Unix socket."""
    return _OWNERS.prefix_of(str(peer_address[0]).partition("%")[0]) if isinstance(peer_address, tuple) else ""


def unmapped(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Parse an address; return an IPv4-mapped IPv6 address as IPv4. Raises ValueError."""
    parsed = ipaddress.ip_address(address)
    if isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped is not None:
        return parsed.ipv4_mapped
    return parsed


def address_of(source_identity: str) -> str:
    """Return the address in an image's ``ip:port`` or ``[ip]:port``; any other text (``aeron:ipc``) is returned unchanged."""
    host, colon, port = source_identity.rpartition(":")
    if not colon or not port.isdigit():
        return source_identity
    return host.removeprefix("[").removesuffix("]").partition("%")[0]

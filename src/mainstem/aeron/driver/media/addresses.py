"""Packed IP addresses with ports, network interfaces, and name resolution."""

from __future__ import annotations

import ipaddress
import struct
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, Protocol

from mainstem._internal.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Linux's address families. A packed address begins with one of them.
AF_INET = 2
AF_INET6 = 10
_V4 = struct.Struct("<H2s4s8x")
_V6 = struct.Struct("<H2sI16sI")
# Addresses whose parsed form is cached; a driver uses the same few repeatedly.
MAX_PARSED = 1024


@lru_cache(MAX_PARSED)
def _is_multicast(ip: str) -> bool:
    return _parsed(ip).is_multicast


@lru_cache(MAX_PARSED)
def _parsed(ip: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    return ipaddress.ip_address(ip)


class InetAddress(NamedTuple):
    """A numeric IP address without brackets, and a port. For a link-local IPv6 address, ``scope`` is the interface index."""

    ip: str
    port: int
    scope: int = 0

    @classmethod
    def unpack(cls, packed: bytes) -> InetAddress:
        family = int.from_bytes(packed[:2], "little")
        if family == AF_INET and len(packed) >= _V4.size:
            _, port, ip = _V4.unpack_from(packed)
            return cls(str(ipaddress.IPv4Address(ip)), int.from_bytes(port, "big"))
        if family == AF_INET6 and len(packed) >= _V6.size:
            _, port, _, ip, scope = _V6.unpack_from(packed)
            return cls(str(ipaddress.IPv6Address(ip)), int.from_bytes(port, "big"), scope)
        raise ValueError(f"{packed!r} is not a packed IP address")

    @property
    def packed(self) -> bytes:
        port = self.port.to_bytes(2, "big")
        address = _parsed(self.ip)
        if address.version == 4:
            return _V4.pack(AF_INET, port, address.packed)
        return _V6.pack(AF_INET6, port, 0, address.packed, self.scope)

    @property
    def is_v6(self) -> bool:
        return ":" in self.ip

    @property
    def is_multicast(self) -> bool:
        return _is_multicast(self.ip)

    @property
    def is_wildcard(self) -> bool:
        return _parsed(self.ip).is_unspecified

    def with_port(self, port: int) -> InetAddress:
        return self._replace(port=port)

    def __str__(self) -> str:
        return f"[{self.ip}]:{self.port}" if self.is_v6 else f"{self.ip}:{self.port}"


def wildcard(*, v6: bool, port: int = 0) -> InetAddress:
    return InetAddress("::" if v6 else "0.0.0.0", port)


def control_group(data: InetAddress) -> InetAddress:
    """Return the multicast group for control frames, given the one for data (docs/protocols/aeron.md, 19.2).

    It is the data address with its last byte incremented, modulo 256: for 224.10.9.255, it is 224.10.9.0.
    """
    packed = bytearray(_parsed(data.ip).packed)
    packed[-1] = (packed[-1] + 1) & 0xFF
    return data._replace(ip=str(ipaddress.ip_address(bytes(packed))))


def has_odd_last_byte(address: InetAddress) -> bool:
    return bool(_parsed(address.ip).packed[-1] & 1)


def text_of(packed: bytes) -> str:
    """Return a packed address as ``host:port`` for display, or ``unknown`` if it cannot be unpacked."""
    try:
        return str(InetAddress.unpack(packed))
    except ValueError:
        return "unknown"


@frozen
class NetworkInterface:
    """One address of a network interface. ``name`` is the label of the address, such as ``eth0:1`` for an alias."""

    name: str
    index: int
    ip: str
    is_loopback: bool
    is_multicast: bool = True
    prefix_length: int = 0


class Resolver(Protocol):
    def resolve(self, host: str) -> str:
        """Return the numeric IP address of a host name, preferably IPv4. Raises LookupError."""
        ...

    def interfaces(self) -> Sequence[NetworkInterface]: ...


LOOPBACK = NetworkInterface(name="lo", index=1, ip="127.0.0.1", is_loopback=True)


class LiteralResolver:
    """A resolver that uses no network. It knows numeric addresses, ``localhost`` and the given names."""

    def __init__(
        self, names: Mapping[str, str] | None = None, *, interfaces: Sequence[NetworkInterface] = (LOOPBACK,)
    ) -> None:
        self._names = {"localhost": "127.0.0.1", **(names or {})}
        self._interfaces = tuple(interfaces)

    def resolve(self, host: str) -> str:
        known = self._names.get(host)
        if known is not None:
            return known
        try:
            return str(ipaddress.ip_address(host))
        except ValueError:
            raise LookupError(f"Unable to resolve host=({host}): unknown host") from None

    def interfaces(self) -> Sequence[NetworkInterface]:
        return self._interfaces


LITERAL_RESOLVER = LiteralResolver()

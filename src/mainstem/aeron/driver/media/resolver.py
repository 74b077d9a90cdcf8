"""Names into addresses, without a network: what the simulator and tests resolve with. The system's own is the transports door's."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkInterface:
    """One address of one of the machine's network interfaces."""

    name: str
    index: int
    ip: str
    is_loopback: bool


class Resolver(Protocol):
    """Looks names up and knows the machine's interfaces."""

    def resolve(self, host: str) -> str:
        """The numeric IP address of a name, v4 where there is one. Raises LookupError when there is none."""
        ...

    def interfaces(self) -> Sequence[NetworkInterface]:
        """The machine's addresses."""
        ...


LOOPBACK = NetworkInterface(name="lo", index=1, ip="127.0.0.1", is_loopback=True)


class LiteralResolver:
    """Knows numeric addresses, ``localhost`` and the names it is given."""

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
            raise LookupError(f"unknown host {host!r}") from None

    def interfaces(self) -> Sequence[NetworkInterface]:
        return self._interfaces


LITERAL_RESOLVER = LiteralResolver()

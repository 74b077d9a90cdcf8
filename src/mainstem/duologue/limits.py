"""Limits on what one address may have: addresses by prefix, a quota for each, a rate for each (guide, 4.3 and 5.1)."""

from __future__ import annotations

import ipaddress
from collections import Counter, OrderedDict
from typing import TYPE_CHECKING

from mainstem.clock import NS_PER_SECOND
from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Hashable

# Rates are remembered for so many prefixes; a flood from more than that forgets the one that was quiet longest.
MAX_RATES = 4_096


def address_of(source_identity: str) -> str:
    """The address in an image's ``ip:port`` or ``[ip]:port``; the whole of it when it is neither (``aeron:ipc``)."""
    host, colon, port = source_identity.rpartition(":")
    if not colon or not port.isdigit():
        return source_identity
    return host.removeprefix("[").removesuffix("]").partition("%")[0]


class Prefixes:
    """Puts an address under the network that counts as one owner: by default a whole IPv4 address and an IPv6 /64.

    In IPv6 a single subscriber has 2**64 addresses at least, so that a limit for one address limits nobody.
    """

    def __init__(self, *, ipv4: int = 32, ipv6: int = 64) -> None:
        if not 0 < ipv4 <= 32 or not 0 < ipv6 <= 128:
            raise ConfigurationError(f"prefixes /{ipv4} and /{ipv6} are not 1 to 32 and 1 to 128 bits")
        self._lengths = {4: ipv4, 6: ipv6}

    def of(self, address: str) -> str:
        """The prefix of an address, as ``192.0.2.7/32`` or ``2001:db8::/64``; an IPv4 address mapped to IPv6 is IPv4."""
        try:
            parsed = ipaddress.ip_address(address)
        except ValueError:
            return address
        if isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped is not None:
            parsed = parsed.ipv4_mapped
        return str(ipaddress.ip_network((parsed, self._lengths[parsed.version]), strict=False))


class Quota:
    """At most ``limit`` of something for each owner."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._counts: Counter[Hashable] = Counter()

    def count(self, owner: Hashable) -> int:
        """How many the owner has."""
        return self._counts[owner]

    def take(self, owner: Hashable) -> bool:
        """One more; false when the owner has its limit."""
        if self._counts[owner] >= self.limit:
            return False
        self._counts[owner] += 1
        return True

    def give_back(self, owner: Hashable) -> None:
        """One fewer."""
        self._counts[owner] -= 1
        if self._counts[owner] <= 0:
            del self._counts[owner]

    def __len__(self) -> int:
        return sum(1 for count in self._counts.values() if count)


class RateLimit:
    """A token bucket for each owner: ``burst`` at once, ``rate`` a second on average."""

    def __init__(self, rate: float, burst: int, *, most: int = MAX_RATES) -> None:
        if rate <= 0 or burst < 1:
            raise ConfigurationError(f"a rate of {rate:g} a second with bursts of {burst} lets nothing through")
        self._interval_ns = round(NS_PER_SECOND / rate)
        self._tolerance_ns = (burst - 1) * self._interval_ns
        self._most = most
        # When each bucket is full again; an owner that is not here has a full one.
        self._full_ns: OrderedDict[Hashable, int] = OrderedDict()

    def take(self, owner: Hashable, now_ns: int) -> bool:
        """One token; false when the owner has none left."""
        full_ns = max(self._full_ns.get(owner, now_ns), now_ns)
        if full_ns - now_ns > self._tolerance_ns:
            return False
        self._full_ns[owner] = full_ns + self._interval_ns
        self._full_ns.move_to_end(owner)
        if len(self._full_ns) > self._most:
            self._full_ns.popitem(last=False)
        return True

    def __len__(self) -> int:
        return len(self._full_ns)

"""Admission of streams to a driver: address prefixes, allowed and denied networks, and a rate for each prefix.

The driver calls an ``EndpointFilter`` before it allocates anything for an unknown stream. A refused stream gets no log, no image
and no response.
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from typing import TYPE_CHECKING, Protocol

from mainstem._internal.address_prefixes import AddressPrefixes, unmapped
from mainstem._internal.clock import NS_PER_SECOND
from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

# How many prefixes' rates are remembered. Beyond that, the prefix that has been quiet the longest is forgotten.
MAX_RATES = 4_096
ALL_SOURCES = "all"


class RateLimit:
    """A token bucket for each prefix: up to ``burst`` tokens at once, ``rate`` per second on average."""

    def __init__(self, rate: float, burst: int, *, max_prefixes: int = MAX_RATES) -> None:
        if rate <= 0 or burst < 1:
            raise ConfigurationError(f"a rate of {rate:g} a second with bursts of {burst} lets nothing through")
        self._interval_ns = round(NS_PER_SECOND / rate)
        self._tolerance_ns = (burst - 1) * self._interval_ns
        self._max_prefixes = max_prefixes
        # When each bucket will be full again. A prefix that is missing here has a full bucket.
        self._full_ns: OrderedDict[Hashable, int] = OrderedDict()

    def take(self, prefix: Hashable, now_ns: int) -> bool:
        """Take one token; return False if the prefix has none left."""
        if not self.has(prefix, now_ns):
            return False
        self._full_ns[prefix] = max(self._full_ns.get(prefix, now_ns), now_ns) + self._interval_ns
        self._full_ns.move_to_end(prefix)
        if len(self._full_ns) > self._max_prefixes:
            self._full_ns.popitem(last=False)
        return True

    def give_back(self, prefix: Hashable) -> None:
        """Return a token that was taken."""
        if prefix in self._full_ns:
            self._full_ns[prefix] -= self._interval_ns

    def has(self, prefix: Hashable, now_ns: int) -> bool:
        return self._full_ns.get(prefix, now_ns) - now_ns <= self._tolerance_ns

    def __len__(self) -> int:
        return len(self._full_ns)


class EndpointFilter(Protocol):
    """A filter for streams that the receiver has no image for. The receiver's thread calls it."""

    def admits(self, address: str) -> bool: ...

    def admits_stream(self, address: str, *, term_length: int, now_ns: int) -> bool:
        """Return whether a new stream from this address may have an image. Called once for each SETUP that would create one."""
        ...


class SourceFilter:
    """An `EndpointFilter` that checks networks and rates.

    An address must be in ``allow`` (if empty, any address qualifies) and not in ``deny``. Each address prefix may start ``rate``
    streams per second and ``burst`` at once; all prefixes together may start ``total_rate`` and ``total_burst``. Streams with terms
    longer than ``max_term_length`` are refused.
    """

    def __init__(
        self,
        *,
        allow: Iterable[str] = (),
        deny: Iterable[str] = (),
        rate: float = 0.0,
        burst: int = 16,
        total_rate: float = 0.0,
        total_burst: int = 256,
        max_term_length: int = 1 << 30,
        prefixes: AddressPrefixes | None = None,
    ) -> None:
        self._allow = [network(text) for text in allow]
        self._deny = [network(text) for text in deny]
        self._rate = RateLimit(rate, burst) if rate else None
        self._total = RateLimit(total_rate, total_burst) if total_rate else None
        self._max_term_length = max_term_length
        self._prefixes = prefixes or AddressPrefixes()

    def admits(self, address: str) -> bool:
        try:
            parsed = unmapped(address)
        except ValueError:
            return False
        if any(parsed in one for one in self._deny):
            return False
        return not self._allow or any(parsed in one for one in self._allow)

    def admits_stream(self, address: str, *, term_length: int, now_ns: int) -> bool:
        """Check the networks, the term length and the rates. A refused stream takes nothing from either rate."""
        if not self.admits(address) or term_length > self._max_term_length:
            return False
        prefix = self._prefixes.prefix_of(address)
        return (
            (self._rate is None or self._rate.has(prefix, now_ns))
            and (self._total is None or self._total.take(ALL_SOURCES, now_ns))
            and (self._rate is None or self._rate.take(prefix, now_ns))
        )


def network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    try:
        return ipaddress.ip_network(text.strip(), strict=False)
    except ValueError:
        raise ConfigurationError(f"{text.strip()!r} is not an address or a network such as 192.0.2.0/24") from None


def networks(text: str) -> list[str]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    for part in parts:
        network(part)
    return parts

"""What a driver knows of names and of other drivers, and for how long (behaviour, 22.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainstem.aeron.driver.media.addresses import InetAddress

# Names and drivers kept: whoever floods the port with invented ones gains nothing beyond this.
MAX_ENTRIES = 1024


@dataclass(slots=True)
class CacheEntry:
    """A name's address and when its driver was last heard of."""

    name: str
    address: InetAddress
    last_activity_ns: int


class NameCache:
    """Names by (name, IP version)."""

    def __init__(self) -> None:
        self._entries: dict[tuple[str, bool], CacheEntry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[CacheEntry]:
        return iter(self._entries.values())

    def put(self, name: str, address: InetAddress, last_activity_ns: int) -> None:
        """Takes in a name, unless something newer is known; beyond MAX_ENTRIES new names are not taken."""
        key = (name, address.is_v6)
        known = self._entries.get(key)
        if known is None:
            if len(self._entries) < MAX_ENTRIES:
                self._entries[key] = CacheEntry(name, address, last_activity_ns)
        elif last_activity_ns >= known.last_activity_ns:
            known.address, known.last_activity_ns = address, last_activity_ns

    def find(self, name: str) -> InetAddress | None:
        """The address of a name, v4 first."""
        entry = self._entries.get((name, False)) or self._entries.get((name, True))
        return None if entry is None else entry.address

    def expire(self, before_ns: int) -> None:
        """Forgets what was last heard of before that time."""
        for key in [key for key, entry in self._entries.items() if entry.last_activity_ns < before_ns]:
            del self._entries[key]


class Neighbors:
    """Other drivers' resolvers, by the address of their sockets."""

    def __init__(self) -> None:
        self._heard_ns: dict[InetAddress, int] = {}

    def __len__(self) -> int:
        return len(self._heard_ns)

    def __iter__(self) -> Iterator[InetAddress]:
        return iter(self._heard_ns)

    def __contains__(self, address: object) -> bool:
        return address in self._heard_ns

    def heard(self, address: InetAddress, now_ns: int, *, is_self: bool) -> bool:
        """An entry for that address came; whether it is a new neighbour. Only a driver's own entry keeps one alive."""
        is_new = address not in self._heard_ns
        if is_new and len(self._heard_ns) >= MAX_ENTRIES:
            return False
        if is_new or is_self:
            self._heard_ns[address] = now_ns
        return is_new

    def expire(self, before_ns: int) -> list[InetAddress]:
        """Forgets who was silent since before that time; returns them."""
        silent = [address for address, heard_ns in self._heard_ns.items() if heard_ns < before_ns]
        for address in silent:
            del self._heard_ns[address]
        return silent

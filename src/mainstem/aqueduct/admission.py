"""Who may have a connection of a server, and who has to prove first that it receives what is sent to its address.

Theory of operation
-------------------
Whoever sends a first packet costs the server a TLS handshake and memory, and may have forged its address. So places, which are
few, go to proven addresses only:

    first packet ──► unproven ──handshake complete──► silent ──connection headers──► heard ... leaves
         │                                              ▲
         └── many are unproven ──► Retry ──its token────┘

An address is proven by the end of its handshake, or by the token of a Retry: a packet that keeps nothing here. While
`MAX_UNPROVEN` handshakes are under way, or as many were tried in the last second, first packets get a Retry.

No address has more than its share of the places, and an IPv6 /64 network counts as one address. Where a proven one finds no
place, in all or in its share, the silent one there that came first makes room. A connection whose headers have come is never
ended for another.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

MAX_UNPROVEN = 64
"""Handshakes of addresses that have proven nothing: at once, and in a second. Each takes up to a millisecond of a processor,
and some 100 kB."""

C = TypeVar("C", bound=Hashable)


class Admission(Generic[C]):
    """The places of a server, and the connections that have them.

    Args:
        max_connections: Places in all.
        max_connections_per_address: Places of one address.
        drop: Ends a silent connection whose place is needed.
    """

    def __init__(self, *, max_connections: int, max_connections_per_address: int, drop: Callable[[C], None]) -> None:
        self._max = max_connections
        self._max_per_address = max_connections_per_address
        self._drop = drop
        self._unproven: set[C] = set()
        self._places: dict[C, str] = {}
        self._of_address: Counter[str] = Counter()
        # Of those with places, that have sent no headers: the oldest first.
        self._silent: dict[C, None] = {}
        self._tried = 0
        self._tries_since = float("-inf")

    @property
    def taken(self) -> int:
        """Places that are taken."""
        return len(self._places)

    def must_prove(self, now: float) -> bool:
        """Whether a first packet without a token gets a Retry at present."""
        if now - self._tries_since >= 1.0:
            self._tries_since, self._tried = now, 0
        return len(self._unproven) >= MAX_UNPROVEN or self._tried >= MAX_UNPROVEN

    def try_unproven(self) -> None:
        """A first packet from an address that has proven nothing is being processed."""
        self._tried += 1

    def enter_unproven(self, connection: C) -> None:
        """A handshake has begun, and takes no place yet."""
        self._unproven.add(connection)

    def has_room(self, address: str) -> bool:
        """Whether a connection of an address would find a place, maybe that of a silent one."""
        in_share = self._of_address[address] < self._max_per_address
        if in_share and len(self._places) < self._max:
            return True
        return self._longest_silent(address if not in_share else None) is not None

    def enter(self, connection: C, address: str) -> bool:
        """Give a connection of a proven address a place unless it has one; False if all places are taken."""
        self._unproven.discard(connection)
        if connection in self._places:
            return True
        if self._of_address[address] >= self._max_per_address and not self._make_room(address):
            return False
        if len(self._places) >= self._max and not self._make_room(None):
            return False
        self._places[connection] = address
        self._of_address[address] += 1
        self._silent[connection] = None
        return True

    def heard(self, connection: C) -> None:
        """The headers of a connection have come: its place is its own."""
        self._silent.pop(connection, None)

    def leave(self, connection: C) -> None:
        """Nothing of a connection is left. May be called again."""
        self._unproven.discard(connection)
        self._silent.pop(connection, None)
        address = self._places.pop(connection, None)
        if address is not None:
            self._of_address[address] -= 1
            if not self._of_address[address]:
                del self._of_address[address]

    def _make_room(self, address: str | None) -> bool:
        silent = self._longest_silent(address)
        if silent is None:
            return False
        self.leave(silent)
        self._drop(silent)
        return True

    def _longest_silent(self, address: str | None) -> C | None:
        """The silent connection that came first, of an address or of all."""
        of_address = (connection for connection in self._silent if address in (None, self._places[connection]))
        return next(of_address, None)

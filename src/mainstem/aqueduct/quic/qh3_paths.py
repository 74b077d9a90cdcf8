"""Where a server's packets go when its client's address changes: what qh3 2.1 does not do by itself.

A NAT that forgets a mapping gives the client another address. The library follows to an address that is new, after it has
validated it, but it knows four addresses of a connection at most. It drops whatever comes from a fifth, and keeps sending to
where no one is. Nor does it go back to an address that it has left.

So a server's link watches where packets come from. It goes back to an address that the library has validated and left. An address
that the library refuses may be forged, and cannot be validated: the connection ends, with an error on both sides. One packet is
not enough for either, since it may have been late, or copied by someone on the path.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mainstem.aqueduct.quic.link import Address

LATE_PACKETS = 2
"""Packets in a row, from an address that was left, before packets go there again."""

REFUSED_PACKETS = 3
"""Packets in a row, from an address that the library refuses, before the connection ends."""

REFUSED_SECONDS = 0.5
"""Seconds in which they come, at least."""


class Paths:
    """The addresses of a client, as the library follows them and as they are."""

    def __init__(self) -> None:
        self.detour: Address | None = None
        self.is_lost = False
        self._validated: set[Address] = set()
        self._settled: Address | None = None
        self._stray: Address | None = None
        self._strays = 0
        self._since = 0.0

    def is_settled(self, address: Address) -> bool:
        """Whether packets from an address, the last ones too, change nothing."""
        return address == self._settled

    def came(self, count: int, address: Address, *, active: Address, is_refused: bool, now: float) -> None:
        """Authentic packets came.

        Args:
            count: How many.
            address: From where.
            active: Where the library sends to.
            is_refused: Whether the library took them only as if they had come from there.
            now: The time in seconds.
        """
        if active not in self._validated:
            # The library has moved on.
            self._validated.add(active)
            self.detour = None
        if address == active:
            self.detour = None
            self._settle(address)
        elif not is_refused and address not in self._validated:
            # The library validates it.
            self._settled = None
        elif address == self.detour:
            self._settle(address)
        else:
            self._count(count, address, now)
            if is_refused:
                self.is_lost = self._strays >= REFUSED_PACKETS and now - self._since >= REFUSED_SECONDS
            elif self._strays >= LATE_PACKETS:
                self.detour = address
                self._settle(address)

    def _settle(self, address: Address) -> None:
        self._settled, self._stray, self._strays = address, None, 0

    def _count(self, count: int, address: Address, now: float) -> None:
        self._settled = None
        if address != self._stray:
            self._stray, self._strays, self._since = address, 0, now
        self._strays += count

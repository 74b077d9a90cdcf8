"""Where a server's packets go when its client's address changes: what qh3 2.1 does not do by itself.

A NAT that forgets a mapping gives the client another address. The library follows to a new address after it has validated it,
but it knows at most four addresses of a connection. It drops whatever comes from a fifth, and keeps sending to the old one. Nor
does it return to an address that it has left.

So a server's adapter watches where packets come from. It returns to an address that the library has validated and left. An
address that the library refuses may be forged, and cannot be validated: the connection ends, with an error on both sides. One
packet is not enough for either, since it may have been late, or copied by someone on the path.

The library challenges an address once, and again only if the challenge is lost. It accepts the response only from that address,
while RFC 9000 (8.2.3) accepts it from anywhere. So:

* A client that has returned meanwhile responds from its current address. For a short time, packets from elsewhere are given to
  the library as if they had come from the new address.
* A response that is lost may not be repeated. An address that stays unvalidated is given to the library under another name,
  which it challenges as a separate address.
* If the client is no longer at an address, nobody responds, and the library keeps asking; once it may send no more there, it
  sends nothing at all. So that name is given to the client's current address, which responds.

No address is trusted before the library has had the response to a challenge that went there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mainstem.aqueduct.quic.adapter import Address

LATE_PACKETS = 2
"""Packets in a row from an address that was left, before packets go there again."""

REFUSED_PACKETS = 3
"""Packets in a row from an address that the library refuses, before the connection ends."""

REFUSED_SECONDS = 0.5
"""Minimum number of seconds between the first and the last of them."""

VALIDATION_SECONDS = 1.0
"""Minimum number of seconds to wait for the validation of an address before it is started again."""

VALIDATION_ROUND_TRIPS = 3
"""Minimum number of round trips to wait."""

ANSWER_PACKETS = 16
"""Packets from elsewhere that may hold the response. They count as received from the address, to which three times as much may
be sent before it is validated."""


class Paths:
    """The addresses of a client: those that the library follows, and the real ones."""

    def __init__(self) -> None:
        self.detour: Address | None = None
        self.is_lost = False
        self._validated: set[Address] = set()
        # Addresses that the library knows under another name, and the addresses of those names.
        self._names: dict[Address, Address] = {}
        self._named: dict[Address, Address] = {}
        # Names that the library was given, and has challenged.
        self._challenged: set[Address] = set()
        # Those without a response, and when each was challenged.
        self._waiting: dict[Address, float] = {}
        self._patience = VALIDATION_SECONDS
        self._answers = 0
        self._settled: Address | None = None
        self._stray: Address | None = None
        self._strays = 0
        self._since = 0.0

    def is_settled(self, address: Address) -> bool:
        """Whether packets from an address change nothing."""
        return address == self._settled and not self._waiting

    @property
    def differ(self) -> bool:
        """Whether packets may go to another address than the library says."""
        return self.detour is not None or bool(self._named)

    def name(self, address: Address) -> Address:
        """The name of an address in the library."""
        return self._names.get(address, address)

    def address(self, name: Address) -> Address:
        """The address of a name in the library."""
        return self._named.get(name, name)

    def taken_from(self, address: Address, now: float, round_trip: float) -> Address:
        """The name under which the library is to receive packets that come from an address."""
        self._patience = max(VALIDATION_SECONDS, VALIDATION_ROUND_TRIPS * round_trip)
        name = self.name(address)
        if address in self._validated:
            last = next(reversed(self._waiting), None)
            may_answer = last is not None and self._answers < ANSWER_PACKETS and not self._is_overdue(last, now)
            return last if last is not None and may_answer else name
        is_unanswered = address == self._stray and now - self._since >= self._patience
        if is_unanswered or self.address(name) != address:
            return _other_name(address, len(self._named) + 1)
        return name

    def came(
        self, count: int, address: Address, name: Address, *, active: Address, is_refused: bool, now: float
    ) -> None:
        """Authentic packets came.

        Args:
            count: How many.
            address: Where they came from.
            name: The name under which the library received them.
            active: The name of the address to which the library sends.
            is_refused: Whether the library accepted them only under the name ``active``.
            now: The time in seconds.
        """
        self._waiting.pop(active, None)
        active = self.address(active)
        has_moved = active not in self._validated
        if has_moved:
            # The library has moved on.
            self._validated.add(active)
            self.detour = None
        if self._waiting and address in self._validated:
            self._came_from_elsewhere(count, address, now)
        if address == active:
            self.detour = None
            self._settle(address)
        elif not is_refused and address not in self._validated:
            self._await_validation(count, address, name, now)
        elif has_moved and not is_refused:
            # The response came from elsewhere: the client has left again.
            self.detour = address
            self._settle(address)
        elif address == self.detour:
            self._settle(address)
        else:
            self._count(count, address, now)
            if is_refused:
                self.is_lost = self._strays >= REFUSED_PACKETS and now - self._since >= REFUSED_SECONDS
            elif self._strays >= LATE_PACKETS:
                self.detour = address
                self._settle(address)

    def _is_overdue(self, name: Address, now: float) -> bool:
        return now - self._waiting[name] >= self._patience

    def _came_from_elsewhere(self, count: int, address: Address, now: float) -> None:
        """Packets came from a validated address while another is being validated."""
        self._answers += count
        for name in self._waiting:
            former = self.address(name)
            if former != self._stray and self._is_overdue(name, now):
                # Nobody responds there. The library would keep asking, and would send nothing else once it may send no more
                # there. Give that name to the client's current address, which responds. One name after the other: the
                # library may send three times what has come from there.
                if self._names.get(former) == name:
                    del self._names[former]
                self._names[address], self._named[name] = name, address
                del self._waiting[name]
                self._waiting = dict.fromkeys(self._waiting, now)
                self._answers = ANSWER_PACKETS
                break

    def _await_validation(self, count: int, address: Address, name: Address, now: float) -> None:
        if name not in self._challenged:
            # The library challenges it now.
            self._challenged.add(name)
            if name != address:
                self._names[address], self._named[name] = name, address
            self._waiting[name], self._answers = now, 0
            self._stray = None
        self._count(count, address, now)

    def _settle(self, address: Address) -> None:
        self._settled, self._stray, self._strays = address, None, 0

    def _count(self, count: int, address: Address, now: float) -> None:
        self._settled = None
        if address != self._stray:
            self._stray, self._strays, self._since = address, 0, now
        self._strays += count


def _other_name(address: Address, number: int) -> Address:
    """An address from which no packet comes: an IPv6 one with a flow label, which a host's sockets do not report."""
    host, port = address[:2]
    scope = address[3] if len(address) > 2 else 0
    return (host if ":" in host else f"::ffff:{host}", port, number, scope)

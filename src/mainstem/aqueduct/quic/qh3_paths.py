"""Follow a client whose address changes, on a server, in the cases that qh3 2.1 does not handle by itself.

A NAT that forgets a mapping gives the client another address. The library switches to a new address after validating it, but it
knows at most four addresses per connection. It drops packets from a fifth and keeps sending to the old address. Nor does it
return to an address that it has left.

So a server's adapter watches where packets come from. It returns to an address that the library has validated and left. An
address that the library refuses may be forged and cannot be validated: the connection ends, with an error on both sides. One
packet is not enough for either, because it may be late or copied by an attacker on the path.

The library challenges an address once, and again only if the challenge is lost. It accepts the response only from that address,
although RFC 9000 (8.2.3) accepts it from anywhere. So:

* A client that has meanwhile returned to its old address responds from there. For a short time, packets from other addresses are
  passed to the library as if they had come from the new address.
* A response that is lost may not be repeated. An address that stays unvalidated is passed to the library under another name,
  which the library challenges as a separate address.
* If the client has left an address, nobody responds, and the library keeps asking. Once it has used up its allowance for that
  address, it sends nothing at all. So that name is given to the client's current address, which responds.

No address is trusted before the library has received the response to a challenge sent to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mainstem.aqueduct.quic.udp import Address

LATE_PACKETS = 2
"""Consecutive packets from an address that was left, before packets are sent there again."""

REFUSED_PACKETS = 3
"""Consecutive packets from an address that the library refuses, before the connection ends."""

REFUSED_SECONDS = 0.5
"""Minimum number of seconds between the first and the last of these packets."""

VALIDATION_SECONDS = 1.0
"""Minimum number of seconds to wait for the validation of an address before starting it again."""

VALIDATION_ROUND_TRIPS = 3
"""Minimum number of round trips to wait for the validation of an address."""

ANSWER_PACKETS = 16
"""Maximum packets from other addresses that are passed on because they may hold the response. They count as received from the
new address, to which three times as much can be sent before it is validated."""


class Paths:
    """The addresses of a client: the names under which the library knows them, and the real addresses."""

    def __init__(self) -> None:
        self.detour: Address | None = None
        self.is_lost = False
        self._validated: set[Address] = set()
        # Maps addresses to the other names under which the library knows them, and those names to addresses.
        self._names: dict[Address, Address] = {}
        self._named: dict[Address, Address] = {}
        # Names that the library was given and has challenged.
        self._challenged: set[Address] = set()
        # Challenged names without a response, and when each was challenged.
        self._waiting: dict[Address, float] = {}
        self._patience = VALIDATION_SECONDS
        self._answers = 0
        self._settled: Address | None = None
        self._stray: Address | None = None
        self._strays = 0
        self._since = 0.0

    def is_settled(self, address: Address) -> bool:
        """Return whether packets from an address change nothing."""
        return address == self._settled and not self._waiting

    @property
    def differ(self) -> bool:
        """Whether packets may have to be sent to other addresses than the library says."""
        return self.detour is not None or bool(self._named)

    def name(self, address: Address) -> Address:
        """Return the name under which the library knows an address."""
        return self._names.get(address, address)

    def address(self, name: Address) -> Address:
        """Return the address that the library knows under a name."""
        return self._named.get(name, name)

    def taken_from(self, address: Address, now: float, round_trip: float) -> Address:
        """Return the name under which to pass packets from an address to the library."""
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
        """Process the arrival of ``count`` authentic packets, which the library received under ``name``.

        ``active`` is the name of the address to which the library sends. If ``is_refused``, it accepted the packets only under
        that name.
        """
        self._waiting.pop(active, None)
        active = self.address(active)
        has_moved = active not in self._validated
        if has_moved:
            # The library has switched to another address.
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
            # The response came from a different address: the client has left the new address again.
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
        """Process the arrival of packets from a validated address while another is being validated."""
        self._answers += count
        for name in self._waiting:
            former = self.address(name)
            if former != self._stray and self._is_overdue(name, now):
                # Nobody responds there. The library would keep asking, and would send nothing else once its allowance for that
                # address is used up. Give the name to the client's current address, which responds. Handle only one name at a
                # time, because the library can send only three times what it received from an address.
                if self._names.get(former) == name:
                    del self._names[former]
                self._names[address], self._named[name] = name, address
                del self._waiting[name]
                self._waiting = dict.fromkeys(self._waiting, now)
                self._answers = ANSWER_PACKETS
                break

    def _await_validation(self, count: int, address: Address, name: Address, now: float) -> None:
        if name not in self._challenged:
            # The library now challenges this name.
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
    """Return an address from which no packet can come: IPv6 with a flow label, which a host's sockets do not report."""
    host, port = address[:2]
    scope = address[3] if len(address) > 2 else 0
    return (host if ":" in host else f"::ffff:{host}", port, number, scope)

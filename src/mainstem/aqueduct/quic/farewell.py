"""The closing period of a connection: its last packets are sent more than once (RFC 9000, 10.2.1).

The packet that closes a connection is not acknowledged. If it is lost, the peer waits for its idle timeout and then reports
a lost connection. So it is sent three times, a round trip apart, and again in response to packets that still come: to the
first, the second, the fourth, and so on, so that two ends cannot keep each other busy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mainstem.aqueduct.quic.adapter import Address

SENDINGS = 3
"""How many times the last packets are sent, apart from responses."""

SHORTEST_GAP = 0.05
"""Minimum number of seconds between two sendings, so that a burst of losses does not take all of them."""

ROUND_TRIPS = 1.5
"""Round trips between two sendings: what the peer had in flight has arrived by then."""


class Farewell:
    """The closing period of a connection that this side has closed."""

    def __init__(self, datagrams: list[tuple[bytes, Address]], now: float, round_trip: float) -> None:
        self._datagrams = datagrams
        self._gap = max(SHORTEST_GAP, ROUND_TRIPS * round_trip)
        self._sent = 1
        self._next_at = now + self._gap
        self._received = 0
        self._is_asked = False

    @property
    def is_over(self) -> bool:
        """Whether the closing period has ended."""
        return self._sent > SENDINGS

    @property
    def due(self) -> float:
        """When to call `handle_timer`."""
        return self._next_at

    def handle_timer(self, now: float) -> None:
        """Send again, or end the period, if it is time."""
        if now >= self._next_at:
            self._sent += 1
            self._next_at = now + self._gap
            self._is_asked = True

    def received(self, datagrams: int) -> None:
        """The peer has sent something: it may not know of the close yet."""
        before, self._received = self._received, self._received + datagrams
        # A power of two lies in between.
        self._is_asked = self._is_asked or before.bit_length() < self._received.bit_length()

    def take(self) -> list[tuple[bytes, Address]]:
        """Return what is to be sent now."""
        is_asked, self._is_asked = self._is_asked, False
        return self._datagrams if is_asked and not self.is_over else []

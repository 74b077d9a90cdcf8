"""The closing period of a connection: its last packets are sent more than once (RFC 9000, 10.2.1).

The packet that closes a connection is not acknowledged. If it is lost, the peer waits for its idle timeout and then reports a
lost connection. So the packet is sent three times, 1.5 round trips apart. It is also sent in response to packets that still
arrive: to the first, the second, the fourth, and so on, so that two endpoints cannot keep each other busy.

A server that has received the close forgets the connection and says so with a stateless reset (RFC 9000, 10.3), which ends the
closing period immediately. There is no other way to say it. A draining endpoint is allowed to send one packet that closes the
connection too, but one of the QUIC libraries cannot send it, and neither can read it while closing. A client that has received
the close sends nothing, because the server could not know its reset token.
"""

from __future__ import annotations

import os
from hmac import compare_digest
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mainstem.aqueduct.quic.udp import Address

SENDINGS = 3
"""How many times the last packets are sent, not counting responses."""

SHORTEST_GAP = 0.05
"""Minimum number of seconds between two transmissions, so that a burst of losses does not hit all of them."""

ROUND_TRIPS = 1.5
"""Round trips between two transmissions, by which time packets that the peer had in flight have arrived."""

TOKEN_LENGTH = 16
"""Length in bytes of the token, which ends a stateless reset."""

RESET_LENGTH = 24
"""Length in bytes of the stateless resets sent here: at least 21, and shorter than any packet that closes a connection."""


def stateless_reset(token: bytes) -> bytes:
    """Return a datagram that says its sender has forgotten the connection. It looks like any other packet."""
    unused = bytearray(os.urandom(RESET_LENGTH - TOKEN_LENGTH))
    unused[0] = 0x40 | unused[0] & 0x3F
    return bytes(unused) + token


class Farewell:
    """The closing period of a connection that this side has closed.

    ``datagrams`` are sent repeatedly. ``token`` is the token of the peer's stateless resets, empty if it is unknown.
    """

    def __init__(
        self, datagrams: list[tuple[bytes, Address]], now: float, round_trip: float, token: bytes = b""
    ) -> None:
        self._datagrams = datagrams
        self._token = token
        self._gap = max(SHORTEST_GAP, ROUND_TRIPS * round_trip)
        self._sent = 1
        # The time at which to call `handle_timer`.
        self.due = now + self._gap
        self._received = 0
        self._is_asked = False

    @property
    def is_over(self) -> bool:
        return self._sent > SENDINGS

    def handle_timer(self, now: float) -> None:
        """Schedule the next transmission, or end the period, if it is time."""
        if now >= self.due:
            self._sent += 1
            self.due = now + self._gap
            self._is_asked = True

    def received(self, datagrams: list[bytes]) -> None:
        """Process datagrams from the peer, which either has forgotten the connection or may not know of the close yet."""
        if len(self._token) == TOKEN_LENGTH and any(
            compare_digest(data[-TOKEN_LENGTH:], self._token) for data in datagrams
        ):
            self._sent = SENDINGS + 1
        before, self._received = self._received, self._received + len(datagrams)
        # Respond if the count has passed a power of two.
        self._is_asked = self._is_asked or before.bit_length() < self._received.bit_length()

    def take(self) -> list[tuple[bytes, Address]]:
        is_asked, self._is_asked = self._is_asked, False
        return self._datagrams if is_asked and not self.is_over else []

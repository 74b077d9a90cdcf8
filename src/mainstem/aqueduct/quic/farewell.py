"""The closing period of a connection: its last packets are sent more than once (RFC 9000, 10.2.1).

The packet that closes a connection is not acknowledged. If it is lost, the peer waits for its idle timeout and then reports
a lost connection. So it is sent three times, a round trip apart, and again in response to packets that still come: to the
first, the second, the fourth, and so on, so that two ends cannot keep each other busy.

A server that has been told of the close has forgotten the connection, and says so with a stateless reset (RFC 9000, 10.3):
then the period is over at once. Nothing else can say it. A draining endpoint may send one packet that closes the connection
too, but one of the QUIC libraries cannot send it, and neither can read it while it is closing. A client that was told says
nothing: the server could not know its reset token.
"""

from __future__ import annotations

import os
from hmac import compare_digest
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mainstem.aqueduct.quic.adapter import Address

SENDINGS = 3
"""How many times the last packets are sent, apart from responses."""

SHORTEST_GAP = 0.05
"""Minimum number of seconds between two sendings, so that a burst of losses does not take all of them."""

ROUND_TRIPS = 1.5
"""Round trips between two sendings: what the peer had in flight has arrived by then."""

TOKEN_LENGTH = 16
"""Bytes of a stateless reset's token, which are its last."""

RESET_LENGTH = 24
"""Bytes of a stateless reset that is sent here: at least 21, and fewer than any packet has that closes a connection."""


def stateless_reset(token: bytes) -> bytes:
    """Return the datagram which says that its sender has forgotten a connection. It looks like any other packet."""
    unused = bytearray(os.urandom(RESET_LENGTH - TOKEN_LENGTH))
    unused[0] = 0x40 | unused[0] & 0x3F
    return bytes(unused) + token


class Farewell:
    """The closing period of a connection that this side has closed.

    Args:
        datagrams: The last packets, which are sent again.
        now: The current time.
        round_trip: The connection's round-trip time in seconds.
        token: The token of the peer's stateless resets; empty if it is not known.
    """

    def __init__(
        self, datagrams: list[tuple[bytes, Address]], now: float, round_trip: float, token: bytes = b""
    ) -> None:
        self._datagrams = datagrams
        self._token = token
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

    def received(self, datagrams: list[bytes]) -> None:
        """The peer has sent something: either it has forgotten the connection, or it may not know of the close yet."""
        if len(self._token) == TOKEN_LENGTH and any(
            compare_digest(data[-TOKEN_LENGTH:], self._token) for data in datagrams
        ):
            self._sent = SENDINGS + 1
        before, self._received = self._received, self._received + len(datagrams)
        # A power of two lies in between.
        self._is_asked = self._is_asked or before.bit_length() < self._received.bit_length()

    def take(self) -> list[tuple[bytes, Address]]:
        """Return what is to be sent now."""
        is_asked, self._is_asked = self._is_asked, False
        return self._datagrams if is_asked and not self.is_over else []

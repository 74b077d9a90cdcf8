"""Admission control: decides which clients get a connection, and which must first prove that they own their address.

Theory of operation
-------------------
A first packet costs the server a TLS handshake and memory, and its source address may be forged. So the limited connection
slots (*places*) go only to proven addresses:

    first packet ──► unproven ──handshake complete──► silent ──connection headers──► heard ... leaves
         │                                              ▲
         └── many are unproven ──► Retry ──its token────┘

Completing the handshake proves an address, and so does returning the token of a Retry, for which the server stores nothing. While
`MAX_UNPROVEN` handshakes are in progress, or as many were tried in the last second, first packets get a Retry. The server stores
nothing for a packet that the library cannot decrypt.

No address can take more than its share of the places, and an IPv6 /64 network counts as one address. If there is no place left
for a proven address, in total or in its share, the oldest silent connection there is dropped. A connection whose headers have
arrived is never ended in favor of another. (Servers over streams use :mod:`mainstem._internal.admission`: TCP has proved the
address, and a newcomer waits in its socket until a place is free.)
"""

from __future__ import annotations

import contextlib
import hmac
from collections import Counter
from collections.abc import Callable, Hashable
from os import urandom
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from mainstem.aqueduct.settings import CID_LENGTH

if TYPE_CHECKING:
    from mainstem.aqueduct.quic.adapter import QuicAdapter
    from mainstem.aqueduct.quic.server_context import PacketHeader, ServerContext
    from mainstem.aqueduct.quic.udp import Address

MAX_UNPROVEN = 64
"""Maximum handshakes with unproven addresses, both at once and per second. Each takes up to 1 ms of CPU time and about 100 kB."""

SMALLEST_FIRST = 1200
"""Minimum size in bytes of a datagram that begins a connection (RFC 9000, 14.1). A response to a smaller one could be larger."""

TOKEN_LIFETIME = 15.0
"""Seconds for which a token is valid. A client returns its token immediately."""

_CODE_LENGTH = 16
_TIME_LENGTH = 8

C = TypeVar("C", bound=Hashable)


class Admission(Generic[C]):
    """The places of a server, and the connections that hold them. ``drop`` ends a silent connection whose place is needed."""

    def __init__(self, *, max_connections: int, max_connections_per_address: int, drop: Callable[[C], None]) -> None:
        self._max = max_connections
        self._max_per_address = max_connections_per_address
        self._drop = drop
        self._unproven: set[C] = set()
        self._places: dict[C, str] = {}
        self._of_address: Counter[str] = Counter()
        # Connections with a place that have not sent headers, oldest first.
        self._silent: dict[C, None] = {}
        self._tried = 0
        self._tries_since = float("-inf")

    @property
    def taken(self) -> int:
        return len(self._places)

    def must_prove(self, now: float) -> bool:
        """Return whether a first packet without a token currently gets a Retry."""
        if now - self._tries_since >= 1.0:
            self._tries_since, self._tried = now, 0
        return len(self._unproven) >= MAX_UNPROVEN or self._tried >= MAX_UNPROVEN

    def try_unproven(self) -> None:
        self._tried += 1

    def enter_unproven(self, connection: C) -> None:
        """Register a connection whose handshake has begun. It does not take a place yet."""
        self._unproven.add(connection)

    def has_room(self, address: str) -> bool:
        """Return whether a connection from an address would get a place, possibly that of a silent connection."""
        in_share = self._of_address[address] < self._max_per_address
        if in_share and len(self._places) < self._max:
            return True
        return self._longest_silent(address if not in_share else None) is not None

    def enter(self, connection: C, address: str) -> bool:
        """Give a connection from a proven address a place unless it has one; return False if all places are taken."""
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
        """Let a connection keep its place, because its headers have arrived."""
        self._silent.pop(connection, None)

    def leave(self, connection: C) -> None:
        """Release the place of a connection that is gone. Calling it again has no effect."""
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
        """Return the oldest silent connection from an address, or from any address if it is None."""
        of_address = (connection for connection in self._silent if address in (None, self._places[connection]))
        return next(of_address, None)


class RetryTokens:
    """The tokens of Retry packets. A client that returns one has proven that it owns its address (RFC 9000, 8.1).

    A token holds the data that the server would otherwise have to store, and a message authentication code under a key of this
    server. It is bound to the client's address and port, to both connection ids, and to the time. Making or checking it costs
    one hash. The libraries have their own tokens, but with qh3 each costs an RSA decryption, which a flood could exploit.
    """

    def __init__(self) -> None:
        self._key = urandom(32)

    def make(self, address: Address, original: bytes, retried: bytes, now: float) -> bytes:
        """Return a token for a client whose first packet was for id ``original`` and whose next will be for ``retried``."""
        content = int(now * 1000).to_bytes(_TIME_LENGTH) + original
        return self._code(address, content, retried) + content

    def original(self, token: bytes, address: Address, retried: bytes, now: float) -> bytes | None:
        """Return the connection id that the client's first packet was for; None if the token is invalid."""
        code, content = token[:_CODE_LENGTH], token[_CODE_LENGTH:]
        if len(content) < _TIME_LENGTH or not hmac.compare_digest(code, self._code(address, content, retried)):
            return None
        age = now - int.from_bytes(content[:_TIME_LENGTH]) / 1000
        return content[_TIME_LENGTH:] if age <= TOKEN_LIFETIME else None

    def _code(self, address: Address, content: bytes, retried: bytes) -> bytes:
        parts = (f"{address[0]}|{address[1]}".encode(), retried)
        framed = b"".join(len(part).to_bytes(1) + part for part in parts)
        return hmac.digest(self._key, framed + content, "sha256")[:_CODE_LENGTH]


class FirstPackets:
    """Handles packets that belong to no connection."""

    def __init__(self, context: ServerContext, admission: Admission[Any], *, always_retry: bool) -> None:
        self._context = context
        self._admission = admission
        self._always_retry = always_retry
        self._tokens = RetryTokens()

    def arrived(
        self, data: bytes, header: PacketHeader, address: Address, now: float
    ) -> bytes | tuple[QuicAdapter, bool] | None:
        """Return the response to a packet, or the connection that it begins and whether its address is proven.

        The response is a version negotiation or a Retry, and nothing is stored for it.
        """
        if len(data) < SMALLEST_FIRST:
            return None
        negotiation = self._context.negotiate(header)
        if negotiation is not None or not header.is_initial:
            return negotiation
        # The connection id that the client began with, if it returns the token of a Retry.
        original = self._tokens.original(header.token, address, header.destination_cid, now) if header.token else None
        if original is None:
            if self._always_retry or self._admission.must_prove(now):
                retried = urandom(CID_LENGTH)
                token = self._tokens.make(address, header.destination_cid, retried, now)
                return self._context.retry(header, retried, token)
            self._admission.try_unproven()
        adapter = self._context.accept(header, original)
        with contextlib.suppress(*adapter.library_errors):
            adapter.receive([data], address, now)
            if adapter.has_begun:
                return adapter, original is not None
        adapter.lifecycle.discard_trace()
        return None

"""The tokens of Retry packets. A client that returns one has proven that it owns its address (RFC 9000, 8.1).

A token holds the data that the server would otherwise have to store, and a message authentication code under a key of this
server. It is bound to the client's address and port, to both connection ids, and to the time. Making or checking it costs one
hash. The libraries have their own tokens, but with qh3 each costs an RSA decryption, which a flood could exploit.
"""

from __future__ import annotations

import hmac
from os import urandom
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mainstem.aqueduct.quic.adapter import Address

TOKEN_LIFETIME = 15.0
"""Seconds for which a token is valid. A client returns its token immediately."""

_CODE_LENGTH = 16
_TIME_LENGTH = 8


class RetryTokens:
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

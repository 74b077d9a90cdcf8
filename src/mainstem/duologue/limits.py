"""Limits on what one address may have (addresses by prefix, a quota for each, a rate for each), and on a message.

See docs/protocols/duologue.md, 4.3 and 5.1.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from mainstem._internal.address_prefixes import AddressPrefixes, address_of
from mainstem._internal.as_bytes import as_message
from mainstem.aeron.admission import RateLimit

if TYPE_CHECKING:
    from collections.abc import Hashable

__all__ = ["AddressPrefixes", "Quota", "RateLimit", "address_of", "checked_message", "longest_message"]

SEAL_LENGTH = 24  # a number and a tag, which encryption adds to a message


def longest_message(term_length: int, *, is_encrypted: bool) -> int:
    """The longest message of a duologue in bytes, by the length of its terms."""
    return term_length // 8 - (SEAL_LENGTH if is_encrypted else 0)


def checked_message(message: bytes | str, longest: int) -> bytes:
    """The bytes of a message. Raises TypeError where it is neither text nor bytes, ValueError where it is too long."""
    data = as_message(message)
    if len(data) > longest:
        raise ValueError(f"message of {len(data)} bytes is too long (limit {longest}, by term_length)")
    return data


class Quota:
    """At most ``limit`` of something for each owner."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._counts: Counter[Hashable] = Counter()

    def count(self, owner: Hashable) -> int:
        """Return how many the owner has."""
        return self._counts[owner]

    def take(self, owner: Hashable) -> bool:
        """Take one more; False where the owner has its limit."""
        if self._counts[owner] >= self.limit:
            return False
        self._counts[owner] += 1
        return True

    def give_back(self, owner: Hashable) -> None:
        """Give one back."""
        self._counts[owner] -= 1
        if self._counts[owner] <= 0:
            del self._counts[owner]

    def __len__(self) -> int:
        return sum(1 for count in self._counts.values() if count)

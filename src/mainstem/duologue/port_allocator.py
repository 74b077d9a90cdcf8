"""Ports and session ids of duologues, random and never allocated twice at a time (docs/protocols/duologue.md, 4.5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.errors import ConfigurationError, InternalError

if TYPE_CHECKING:
    from random import Random

FIRST_SESSION_ID = 1
LAST_SESSION_ID = (1 << 31) - 1
MAX_DRAWS = 1_000  # of session ids: with 2**31 of them and a few hundred in use, a second draw is already rare


class PortAllocator:
    """Ports of ``[first, first + count)``: O(count) memory, O(1) for every allocation and every release.

    The ports lie in one list whose front part is in use: allocating swaps a random free one to the border and moves the
    border; releasing does the reverse.
    """

    def __init__(self, first: int, count: int, random: Random) -> None:
        if not (first > 0 and count > 0 and first + count <= 65536):
            raise ConfigurationError(f"ports must be from 1 to 65535 (got {first} to {first + count - 1})")
        self._random = random
        self._ports = list(range(first, first + count))
        self._place = {port: index for index, port in enumerate(self._ports)}
        self._used = 0

    @property
    def free_count(self) -> int:
        """Ports that are free."""
        return len(self._ports) - self._used

    @property
    def in_use(self) -> frozenset[int]:
        """Those that were allocated and not released."""
        return frozenset(self._ports[: self._used])

    def allocate(self) -> int | None:
        """Allocate a free port, any of them equally likely; None if there is none."""
        if not self.free_count:
            return None
        chosen = self._random.randrange(self._used, len(self._ports))
        self._swap(chosen, self._used)
        self._used += 1
        return self._ports[self._used - 1]

    def release(self, port: int) -> None:
        """Free a port. Raises InternalError for one that is not in use."""
        index = self._place.get(port, len(self._ports))
        if index >= self._used:
            raise InternalError(f"port {port} was not allocated")
        self._used -= 1
        self._swap(index, self._used)

    def _swap(self, one: int, other: int) -> None:
        ports = self._ports
        ports[one], ports[other] = ports[other], ports[one]
        self._place[ports[one]] = one
        self._place[ports[other]] = other


class SessionAllocator:
    """Session ids of ``[first, last]``: O(m) memory for m in use; allocating draws until it meets a free one.

    That is one draw almost always, and as many as there are ids when nearly all are in use.
    """

    def __init__(self, random: Random, *, first: int = FIRST_SESSION_ID, last: int = LAST_SESSION_ID) -> None:
        if first > last:
            raise ConfigurationError(f"there are no session ids from {first} to {last}")
        self._random = random
        self._first, self._last = first, last
        self._used: set[int] = set()

    @property
    def in_use(self) -> frozenset[int]:
        """Those that were allocated and not released."""
        return frozenset(self._used)

    def allocate(self) -> int | None:
        """Allocate a free id, unpredictable as far as the generator is; None where all are in use."""
        if len(self._used) > self._last - self._first:
            return None
        for _ in range(MAX_DRAWS):
            candidate = self._random.randint(self._first, self._last)
            if candidate not in self._used:
                break
        else:
            # Nearly all are in use: the next free one after the last draw.
            span = self._last - self._first + 1
            start = candidate - self._first
            free = ((start + step) % span + self._first for step in range(span))
            candidate = next(each for each in free if each not in self._used)
        self._used.add(candidate)
        return candidate

    def release(self, session_id: int) -> None:
        """Free an id. Raises InternalError for one that is not in use."""
        if session_id not in self._used:
            raise InternalError(f"session id {session_id} was not allocated")
        self._used.remove(session_id)

"""Who has a place at a listener: limits in all and for each address.

Theory of operation
-------------------
A newcomer that finds no room takes the place of the one there that has been silent for longest. It does not have that place at
once: the connection that was dropped for it may have handlers that still run, and these count until they have ended. Until then
the newcomer waits, and nothing of it is read.

    admit ──room──────────────────────────────────► begin() … leave
      │                                               ▲
      └──no room──► drop() of a silent one, its heir ─┘ when the silent one leaves

A newcomer that waits is silent itself. Whoever drops it waits for the same place in its stead, so that a place has at most one
heir: what waits is never more than what is ending.

A share counts everyone of its address, with those that wait. It is above its limit by one for each newcomer that waits for
another of its address, and never by what has begun.
"""

from __future__ import annotations

from collections import Counter
from typing import Generic, Protocol, TypeVar

from mainstem._internal.validation import check_int


class Candidate(Protocol):
    """What wants a place."""

    address: str  # what shares one limit; empty for none

    @property
    def is_silent(self) -> bool:
        """Whether its place may be given to another."""
        ...

    def begin(self) -> None:
        """It has a place."""
        ...

    def drop(self, reason: str) -> None:
        """Its place is needed. ``Admission.leave`` follows once nothing of it is left, at once or later."""
        ...


C = TypeVar("C", bound=Candidate)


class Admission(Generic[C]):
    """The places of a listener, and who has them."""

    def __init__(self, *, max_connections: int, max_connections_per_address: int) -> None:
        limits = {"max_connections": max_connections, "max_connections_per_address": max_connections_per_address}
        check_int(limits, min_value=1)
        self.refused = 0
        self.dropped_silent = 0
        self._max = max_connections
        self._max_per_address = max_connections_per_address
        self._placed: set[C] = set()
        self._waits_for: dict[C, C] = {}  # a newcomer, and the one whose place it has next
        self._heirs: dict[C, C] = {}  # the reverse of it
        self._silent: dict[C, None] = {}  # the oldest first; those that have spoken since leave when they are met
        self._of_address: Counter[str] = Counter()
        self._stopped = False

    def __len__(self) -> int:
        return len(self._placed) + len(self._waits_for)

    def __contains__(self, candidate: C) -> bool:
        return candidate in self._placed or candidate in self._waits_for

    def admit(self, candidate: C) -> bool:
        """Give a candidate a place, now or as soon as it is free; false where it is one too many, or too late."""
        if self._stopped:
            return False
        address = candidate.address
        in_full_share = bool(address) and self._of_address[address] >= self._max_per_address
        if not in_full_share and len(self._placed) < self._max:
            self._enter(candidate)
            self._place(candidate)
            return True
        victim = self._longest_silent(address if in_full_share else "")
        if victim is None:
            self.refused += 1
            return False
        self._enter(candidate)
        # One that waits has no place yet, but is the next to have one.
        ending = self._waits_for.pop(victim, victim)
        self._waits_for[candidate] = ending
        self._heirs[ending] = candidate
        if ending is not victim:
            self._forget(victim)
        self.dropped_silent += 1
        victim.drop("it had sent nothing, and its place was needed")
        return True

    def leave(self, candidate: C) -> None:
        """Nothing of a candidate is left. Twice is fine."""
        if candidate in self._placed:
            self._placed.discard(candidate)
            self._forget(candidate)
            heir = self._heirs.pop(candidate, None)
            if heir is not None:
                del self._waits_for[heir]
                self._place(heir)
        elif (ending := self._waits_for.pop(candidate, None)) is not None:
            del self._heirs[ending]
            self._forget(candidate)

    def stop(self) -> list[C]:
        """Admit nobody from now on; return who is there."""
        self._stopped = True
        return [*self._placed, *self._waits_for]

    def _enter(self, candidate: C) -> None:
        self._silent[candidate] = None
        if candidate.address:
            self._of_address[candidate.address] += 1

    def _place(self, candidate: C) -> None:
        self._placed.add(candidate)
        candidate.begin()

    def _forget(self, candidate: C) -> None:
        self._silent.pop(candidate, None)
        if candidate.address:
            self._of_address[candidate.address] -= 1
            if not self._of_address[candidate.address]:
                del self._of_address[candidate.address]

    def _longest_silent(self, address: str) -> C | None:
        """The one, of that address or of any, that has been silent for longest, and that nobody has dropped yet."""
        for candidate in list(self._silent):
            if not candidate.is_silent:
                del self._silent[candidate]
            elif address in ("", candidate.address):
                del self._silent[candidate]
                return candidate
        return None

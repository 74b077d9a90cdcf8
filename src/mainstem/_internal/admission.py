"""Admission control of a server: limits on connections in total and per address.

Theory of operation
-------------------
A newcomer that finds no room takes the place of the candidate that has been silent longest. It does not get the place
immediately: the dropped connection may have handlers that are still running, and these count until they have ended. Until then
the newcomer waits, and nothing is read from it. (Aqueduct's server has an admission of its own: its newcomers have no socket that
could wait, and an address is a claim there until the handshake proves it.)

    admit ──room──────────────────────────────────► begin() … leave
      │                                               ▲
      └──no room──► drop() of a silent one, its heir ─┘ when the silent one leaves

A waiting newcomer is silent itself. A later newcomer that drops it waits for the same place instead, so each place has at most
one heir. There are never more waiting than ending candidates.

The count of an address includes its waiting candidates. It exceeds the limit by one for each newcomer that waits for the place
of another candidate of its address, but connections that have begun never exceed it.
"""

from __future__ import annotations

from collections import Counter
from typing import Generic, Protocol, TypeVar

from mainstem._internal.validation import check_int


class Candidate(Protocol):
    """A connection that wants a place."""

    address: str  # candidates with the same address share a limit; empty means no limit

    @property
    def is_silent(self) -> bool:
        """Whether the candidate's place can be given to another."""
        ...

    def begin(self) -> None:
        """Begin: the candidate has a place."""
        ...

    def drop(self, reason: str) -> None:
        """End the candidate, whose place is needed. ``Admission.leave`` follows once it is gone, immediately or later."""
        ...


C = TypeVar("C", bound=Candidate)


class Admission(Generic[C]):
    """The places of a server, and the candidates that hold them."""

    def __init__(self, *, max_connections: int, max_connections_per_address: int) -> None:
        limits = {"max_connections": max_connections, "max_connections_per_address": max_connections_per_address}
        check_int(limits, min_value=1)
        self.refused = 0
        self.dropped_silent = 0
        self._max = max_connections
        self._max_per_address = max_connections_per_address
        self._placed: set[C] = set()
        self._waits_for: dict[C, C] = {}  # maps a newcomer to the candidate whose place it gets next
        self._heirs: dict[C, C] = {}  # the reverse mapping
        self._silent: dict[C, None] = {}  # oldest first; those that have sent something are removed when found
        self._of_address: Counter[str] = Counter()
        self._stopped = False

    def __len__(self) -> int:
        return len(self._placed) + len(self._waits_for)

    def __contains__(self, candidate: C) -> bool:
        return candidate in self._placed or candidate in self._waits_for

    def admit(self, candidate: C) -> bool:
        """Give a candidate a place, now or as soon as one is free; return False if there is none, or after ``stop``."""
        if self._stopped:
            return False
        address = candidate.address
        in_full_share = self.is_share_full(address)
        if not in_full_share and len(self._placed) < self._max:
            self._enter(candidate)
            self._place(candidate)
            return True
        victim = self._longest_silent(address if in_full_share else "")
        if victim is None:
            self.refused += 1
            return False
        self._enter(candidate)
        # If the victim is waiting, it has no place yet. The newcomer inherits its claim.
        ending = self._waits_for.pop(victim, victim)
        self._waits_for[candidate] = ending
        self._heirs[ending] = candidate
        if ending is not victim:
            self._forget(victim)
        self.dropped_silent += 1
        victim.drop("it had sent nothing, and its place was needed")
        return True

    def is_share_full(self, address: str) -> bool:
        """Whether the candidates of an address are as many as may come from one."""
        return bool(address) and self._of_address[address] >= self._max_per_address

    def drop_longest_silent(self, reason: str) -> bool:
        """End the candidate that has been silent longest; return whether there was one."""
        victim = self._longest_silent("")
        if victim is None:
            return False
        self.dropped_silent += 1
        victim.drop(reason)
        return True

    def leave(self, candidate: C) -> None:
        """Release the place of a candidate that is gone. Can be called more than once."""
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
        """Refuse all candidates from now on; return the current ones."""
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
        """Remove and return the candidate that has been silent longest, from ``address`` or, if that is empty, from any."""
        for candidate in list(self._silent):
            if not candidate.is_silent:
                del self._silent[candidate]
            elif address in ("", candidate.address):
                del self._silent[candidate]
                return candidate
        return None

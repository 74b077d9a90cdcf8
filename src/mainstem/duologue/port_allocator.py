"""Ports of duologues, random and never allocated twice at a time (docs/protocols/duologue.md, 4.5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random


class PortAllocator:
    """O(n) memory for n ports, O(1) for every allocation and every release."""

    def __init__(self, ports: range, rng: Random) -> None:
        self._rng = rng
        self._free = list(ports)
        self.in_use: set[int] = set()

    @property
    def free_count(self) -> int:
        return len(self._free)

    def allocate(self) -> int:
        """Allocate a free port, any of them equally likely. There must be one."""
        free = self._free
        chosen = self._rng.randrange(len(free))
        free[chosen], free[-1] = free[-1], free[chosen]
        port = free.pop()
        self.in_use.add(port)
        return port

    def release(self, port: int) -> None:
        """Free a port that is in use."""
        self.in_use.remove(port)
        self._free.append(port)

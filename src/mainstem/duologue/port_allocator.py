"""Random ports for duologues; a port has one user at a time (docs/protocols/duologue.md, 4.5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random


class PortAllocator:
    """O(n) memory for n ports, O(1) per allocation and release."""

    def __init__(self, ports: range, rng: Random) -> None:
        self._rng = rng
        self._free = list(ports)
        self.in_use: set[int] = set()

    @property
    def free_count(self) -> int:
        return len(self._free)

    def allocate(self) -> int:
        """Allocate a random free port. There must be one."""
        free = self._free
        chosen = self._rng.randrange(len(free))
        free[chosen], free[-1] = free[-1], free[chosen]
        port = free.pop()
        self.in_use.add(port)
        return port

    def release(self, port: int) -> None:
        self.in_use.remove(port)
        self._free.append(port)

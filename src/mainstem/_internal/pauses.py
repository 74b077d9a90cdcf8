"""Growing pauses between attempts."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random


class GrowingPause:
    """Pauses that double from ``first_s`` to ``max_s`` seconds. Each is up to half shorter, so peers do not all try at once."""

    def __init__(self, first_s: float, max_s: float, rng: Random) -> None:
        self._first_s, self._max_s, self._rng = first_s, max_s, rng
        self._next_s = first_s

    @property
    def is_first(self) -> bool:
        return self._next_s == self._first_s

    def next_s(self) -> float:
        """Return how long to pause before the next attempt."""
        pause_s = self._next_s * self._rng.uniform(0.5, 1.0)
        self._next_s = min(self._next_s * 2, self._max_s)
        return pause_s

    def reset(self) -> None:
        self._next_s = self._first_s

"""A clock that moves only by ``advance_ns``, and the clocks of hosts, which follow it."""

from __future__ import annotations

from mainstem._internal.clock import NS_PER_MS, NS_PER_SECOND
from mainstem.errors import ConfigurationError

# Nonzero, so that code that treats 0 as "never" fails.
START_NS = 1_000 * NS_PER_SECOND
EPOCH_AT_START_MS = 1_700_000_000_000


class ManualClock:
    """A ``Clock`` for tests and simulations that only ``advance_ns`` moves.

    Args:
        start_ns: The first monotonic reading.
        epoch_ms: The first epoch reading, in milliseconds.
    """

    def __init__(self, *, start_ns: int = START_NS, epoch_ms: int = EPOCH_AT_START_MS) -> None:
        self._start_ns = start_ns
        self._now_ns = start_ns
        self._epoch_ms = epoch_ms

    def monotonic_ns(self) -> int:
        """Return monotonic time in nanoseconds."""
        return self._now_ns

    def epoch_ms(self) -> int:
        """Return epoch time in milliseconds."""
        return self._epoch_ms + (self._now_ns - self._start_ns) // NS_PER_MS

    def epoch_ns(self) -> int:
        """Return epoch time in nanoseconds."""
        return self._epoch_ms * NS_PER_MS + self._now_ns - self._start_ns

    def advance_ns(self, delta_ns: int) -> int:
        """Advance time by ``delta_ns`` nanoseconds, and return the new monotonic reading.

        Raises:
            ConfigurationError: ``delta_ns`` is negative.
        """
        if delta_ns < 0:
            raise ConfigurationError(f"a clock cannot go back by {-delta_ns} ns")
        self._now_ns += delta_ns
        return self._now_ns


class HostClock:
    """A ``Clock`` that follows a world's clock, with its own drift and offset."""

    def __init__(self, world: ManualClock) -> None:
        self._world = world
        self._since_ns = self._base_ns = world.monotonic_ns()
        self._drift_ppm = 0
        self._offset_ms = 0

    def monotonic_ns(self) -> int:
        elapsed_ns = self._world.monotonic_ns() - self._since_ns
        if self._drift_ppm:
            elapsed_ns += elapsed_ns * self._drift_ppm // 1_000_000
        return self._base_ns + elapsed_ns

    def epoch_ms(self) -> int:
        return self._world.epoch_ms() + self._offset_ms

    def epoch_ns(self) -> int:
        return self._world.epoch_ns() + self._offset_ms * NS_PER_MS

    def drift(self, parts_per_million: int) -> None:
        self._base_ns, self._since_ns = self.monotonic_ns(), self._world.monotonic_ns()
        self._drift_ppm = parts_per_million

    def jump_ms(self, delta_ms: int) -> None:
        self._offset_ms += delta_ms

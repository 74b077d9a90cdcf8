"""The clock of one simulated host: monotonic time may drift, and the time of day may jump."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem._internal.clock import NS_PER_MS

if TYPE_CHECKING:
    from mainstem.sim.clock import ManualClock

MILLION = 1_000_000


class HostClock:
    """A ``Clock`` that follows a world's clock, with its own drift and offset.

    Args:
        world: The clock to follow.
    """

    def __init__(self, world: ManualClock) -> None:
        self._world = world
        self._since_ns = self._base_ns = world.monotonic_ns()
        self._drift_ppm = 0
        self._offset_ms = 0

    def monotonic_ns(self) -> int:
        """Return monotonic time in nanoseconds. It never goes back."""
        elapsed_ns = self._world.monotonic_ns() - self._since_ns
        if self._drift_ppm:
            elapsed_ns += elapsed_ns * self._drift_ppm // MILLION
        return self._base_ns + elapsed_ns

    def epoch_ms(self) -> int:
        """Return the time of day in milliseconds."""
        return self._world.epoch_ms() + self._offset_ms

    def epoch_ns(self) -> int:
        """Return the time of day in nanoseconds."""
        return self._world.epoch_ns() + self._offset_ms * NS_PER_MS

    def drift(self, parts_per_million: int) -> None:
        """Run fast or slow from now on.

        Args:
            parts_per_million: Drift; negative is slow, 0 follows the world's clock.
        """
        self._base_ns, self._since_ns = self.monotonic_ns(), self._world.monotonic_ns()
        self._drift_ppm = parts_per_million

    def jump_ms(self, delta_ms: int) -> None:
        """Move the time of day by ``delta_ms`` milliseconds, forward or back."""
        self._offset_ms += delta_ms

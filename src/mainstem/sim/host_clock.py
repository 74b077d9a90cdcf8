"""The clock of one simulated machine: its monotonic clock may drift, its clock of the day may jump."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem._internal.clock import NS_PER_MS

if TYPE_CHECKING:
    from mainstem.sim.clock import ManualClock

MILLION = 1_000_000


class HostClock:
    """A ``Clock`` that follows a world's, with a drift and an offset of its own.

    Args:
        world: The clock that it follows.
    """

    def __init__(self, world: ManualClock) -> None:
        self._world = world
        self._since_ns = self._base_ns = world.monotonic_ns()
        self._drift_ppm = 0
        self._offset_ms = 0

    def monotonic_ns(self) -> int:
        """Reads monotonic time, which never goes back.

        Returns:
            Nanoseconds.

        Example:
            ``host.clock.monotonic_ns()``
        """
        elapsed_ns = self._world.monotonic_ns() - self._since_ns
        if self._drift_ppm:
            elapsed_ns += elapsed_ns * self._drift_ppm // MILLION
        return self._base_ns + elapsed_ns

    def epoch_ms(self) -> int:
        """Reads the time of day.

        Returns:
            Milliseconds.

        Example:
            ``host.clock.epoch_ms()``
        """
        return self._world.epoch_ms() + self._offset_ms

    def epoch_ns(self) -> int:
        """Reads the time of day.

        Returns:
            Nanoseconds.

        Example:
            ``host.clock.epoch_ns()``
        """
        return self._world.epoch_ns() + self._offset_ms * NS_PER_MS

    def drift(self, parts_per_million: int) -> None:
        """Runs fast or slow from now on.

        Args:
            parts_per_million: How much; negative for slow, 0 for as the world's clock does.

        Example:
            ``host.clock.drift(200)``
        """
        self._base_ns, self._since_ns = self.monotonic_ns(), self._world.monotonic_ns()
        self._drift_ppm = parts_per_million

    def jump_ms(self, delta_ms: int) -> None:
        """Sets the time of day forward or back.

        Args:
            delta_ms: By how much, in milliseconds.

        Example:
            ``host.clock.jump_ms(-3_600_000)``
        """
        self._offset_ms += delta_ms

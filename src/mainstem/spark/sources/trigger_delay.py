"""When a micro-batch is worth its cost: ``minBytesPerTrigger`` with ``maxTriggerDelay``, as of Kafka's connector."""

from __future__ import annotations

from mainstem._internal.clock import SYSTEM_CLOCK, Clock


class TriggerDelay:
    """Holds micro-batches back until enough is new, or the last one is long ago. Belongs to one run of a query, on the driver.

    The first micro-batch of a run is not held back, so a restarted query is not later than one that went on.
    """

    def __init__(self, min_bytes: int | None, max_delay_ns: int, clock: Clock = SYSTEM_CLOCK) -> None:
        self._min_bytes, self._max_delay_ns, self._clock = min_bytes, max_delay_ns, clock
        self._last_ns: int | None = None

    def holds(self, waiting: int) -> bool:
        """Whether ``waiting`` bytes are to wait for more. If not, what is there becomes a micro-batch now."""
        if self._min_bytes is None:
            return False
        now = self._clock.monotonic_ns()
        if self._last_ns is None:
            self._last_ns = now
        elif waiting < self._min_bytes and now - self._last_ns < self._max_delay_ns:
            return True
        elif waiting:
            self._last_ns = now
        return False

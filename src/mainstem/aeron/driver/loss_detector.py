"""Which gaps of an image are to be reported now. Several at once, each with its own timer (behaviour, 16.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mainstem.aeron.driver.delay import DelayGenerator

NEVER_NS = 0x7FFFFFFFFFFFFFFF
# As many gaps as are repaired at once; those behind them wait until these are closed.
MAX_GAPS = 64

Gap = tuple[int, int]


class LossDetector:
    """Keeps a timer for each gap that a scan has found. A gap is a (position, length).

    A gap that is found again with the same position and length keeps its timer; any other is new. ``deadline_ns`` is when
    ``due`` has something to say, NEVER_NS while nothing is missing.
    """

    def __init__(self, delay: DelayGenerator) -> None:
        self._delay = delay
        self._timers: dict[Gap, int] = {}
        self._counted_to = 0
        self.deadline_ns = NEVER_NS

    @property
    def gaps(self) -> list[Gap]:
        """What is known to be missing, in order."""
        return sorted(self._timers)

    def on_scan(self, gaps: Sequence[Gap], now_ns: int) -> int:
        """Takes in what a scan found. Returns the bytes that were never reported missing before."""
        known = self._timers
        self._timers = {}
        new_bytes = 0
        for gap in gaps[:MAX_GAPS]:
            timer = known.get(gap)
            self._timers[gap] = now_ns + self._delay.first_ns() if timer is None else timer
            if timer is None:
                position, length = gap
                end = position + length
                new_bytes += max(0, end - max(position, self._counted_to))
                self._counted_to = max(self._counted_to, end)
        self._set_deadline()
        return new_bytes

    def due(self, now_ns: int) -> list[Gap]:
        """The gaps whose time has come; their timers start again."""
        expired = [gap for gap, timer in self._timers.items() if timer <= now_ns]
        for gap in expired:
            self._timers[gap] = now_ns + self._delay.retry_ns()
        if expired:
            self._set_deadline()
        return expired

    def _set_deadline(self) -> None:
        self.deadline_ns = min(self._timers.values(), default=NEVER_NS)

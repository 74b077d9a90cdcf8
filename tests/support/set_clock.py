"""A clock whose time of day can be set."""

from __future__ import annotations

from mainstem._internal.clock import NS_PER_MS, SystemClock


class SetClock(SystemClock):
    """The host's clocks, with the time of day set by ``set_by_ms``."""

    def __init__(self, set_by_ms: int = 0) -> None:
        self.set_by_ms = set_by_ms

    def epoch_ms(self) -> int:
        return super().epoch_ms() + self.set_by_ms

    def epoch_ns(self) -> int:
        return super().epoch_ns() + self.set_by_ms * NS_PER_MS

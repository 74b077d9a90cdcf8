"""An event loop whose time is its turns, so that a busy machine does not make timers due between two of them."""

from __future__ import annotations

import asyncio
import selectors

TURN = 20e-6
"""Seconds that a turn of the loop takes."""


class _Selector(selectors.DefaultSelector):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.now += TURN
        ready = super().select(0)
        if ready or timeout is None:
            return ready or super().select(timeout)
        # Nothing is under way, so the next thing to happen is a timer.
        self.now += timeout
        return ready


class CountedTimeLoop(asyncio.SelectorEventLoop):
    """A loop in which both ends run: time passes with each turn, and jumps to the next timer when nothing else can happen."""

    def __init__(self) -> None:
        self._time = _Selector()
        super().__init__(self._time)

    def time(self) -> float:
        return self._time.now

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        # Time would jump past the limit, which Python 3.12 added: the executor's threads use the host's time.
        await super().shutdown_default_executor()

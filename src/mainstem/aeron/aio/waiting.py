"""What everything asynchronous here shares: how a call waits, and how a resource ends."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Self

from mainstem.clock import seconds_ns

if TYPE_CHECKING:
    from types import TracebackType

    from mainstem.clock import Clock

# A pause gives way to the loop's other tasks so often, then sleeps: from the shortest sleep to the longest, doubling.
TURNS_BEFORE_SLEEP = 20
MIN_SLEEP = 0.0001
MAX_SLEEP = 0.002


class Pause:
    """Idles for one waiting call: turns of the loop, then sleeps."""

    def __init__(self, clock: Clock, timeout: float | None) -> None:
        self._clock = clock
        self._timeout = timeout
        self.restart()

    def restart(self) -> None:
        """Begins anew after a success."""
        self._turns = 0
        self._sleep = MIN_SLEEP
        self._deadline_ns = 0
        if self._timeout is not None:
            self._deadline_ns = self._clock.monotonic_ns() + seconds_ns(self._timeout)

    async def step(self) -> bool:
        """Idles once; false when the time is over."""
        if self._timeout is not None and self._clock.monotonic_ns() >= self._deadline_ns:
            return False
        self._turns += 1
        if self._turns <= TURNS_BEFORE_SLEEP:
            await asyncio.sleep(0)
        else:
            await asyncio.sleep(self._sleep)
            self._sleep = min(2 * self._sleep, MAX_SLEEP)
        return True


class AsyncResource:
    """What every asynchronous form of a resource has: an end."""

    _inner: Any

    @property
    def closed(self) -> bool:
        """Whether it is closed."""
        return bool(self._inner.closed)

    @property
    def error(self) -> Exception | None:
        """What ended it without ``close``: a DriverTimeout or a ClientTimeout; else None."""
        return self._inner.error  # type: ignore[no-any-return]

    def close(self) -> None:
        """Closes it, without waiting. May be called twice.

        Example:
            >>> subscription.close()
        """
        self._inner.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<asynchronous {self._inner!r}>"

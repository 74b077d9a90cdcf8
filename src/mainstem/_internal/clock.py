"""Time as a dependency: protocol code receives ``now_ns`` as an argument and never reads a clock itself."""

from __future__ import annotations

import time
from typing import Protocol

from mainstem._core import layout
from mainstem.errors import ConfigurationError, Timeout

NS_PER_US = 1_000
NS_PER_MS = 1_000_000
NS_PER_SECOND = 1_000_000_000
NEVER_NS = layout.NEVER_NS  # a deadline that never comes: the maximum int64
NOT_A_TIME = "NaN is not a number of seconds"


def seconds_ns(seconds: float) -> int:
    """Return a duration in nanoseconds, at most ``NEVER_NS``: ``math.inf`` and ``sys.maxsize`` seconds never end.

    Raises ConfigurationError for NaN.
    """
    if seconds != seconds:
        raise ConfigurationError(NOT_A_TIME)
    return round(min(seconds * NS_PER_SECOND, NEVER_NS))


def timeout_of(seconds: float | None) -> float | None:
    """Return a timeout in seconds, or None if there is none (None or infinity). Raises ConfigurationError for NaN."""
    return None if seconds is None or seconds_ns(seconds) == NEVER_NS else seconds


class Deadline:
    """The end of a wait, ``timeout`` seconds from its creation; never, if ``timeout`` is None."""

    def __init__(self, clock: Clock, timeout: float | None) -> None:
        timeout = timeout_of(timeout)
        self.timeout = timeout
        self._clock = clock
        self._end_ns = NEVER_NS if timeout is None else min(clock.monotonic_ns() + seconds_ns(timeout), NEVER_NS)

    @property
    def expired(self) -> bool:
        """Whether the deadline has passed."""
        return self._clock.monotonic_ns() > self._end_ns

    @property
    def left(self) -> float | None:
        """The seconds until the deadline, at least 0; None if it never comes."""
        return None if self._end_ns == NEVER_NS else max(0, self._end_ns - self._clock.monotonic_ns()) / NS_PER_SECOND

    def check(self, what: str) -> float | None:
        """Return ``left``. Raises Timeout if the deadline has passed; the error says that ``what`` timed out."""
        if self.expired:
            raise Timeout(f"{what}: timed out after {self.timeout:g} s", timeout=self.timeout)
        return self.left


class Clock(Protocol):
    """A monotonic clock for durations, and a time of day for timestamps that other programs read."""

    def monotonic_ns(self) -> int:
        """Return nanoseconds that never go backwards."""
        ...

    def epoch_ms(self) -> int:
        """Return milliseconds since 1970-01-01 UTC."""
        ...

    def epoch_ns(self) -> int:
        """Return nanoseconds since 1970-01-01 UTC, for timestamps that other hosts compare with theirs."""
        ...


class SystemClock:
    """The host's own clocks."""

    monotonic_ns = staticmethod(time.monotonic_ns)

    def epoch_ms(self) -> int:
        return time.time_ns() // NS_PER_MS

    def epoch_ns(self) -> int:
        return time.time_ns()


SYSTEM_CLOCK = SystemClock()

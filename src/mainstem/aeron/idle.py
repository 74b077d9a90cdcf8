"""Idle strategies: what an agent does when it has no work.

Yielding the processor takes a fraction of a microsecond. The shortest sleep takes about 80 µs, no matter how short the requested
duration is, because the kernel's timers are that coarse. So a strategy sleeps only as its last step, and never uses a sleep of
zero to yield.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Protocol

from mainstem._internal.clock import NS_PER_MS, NS_PER_SECOND, NS_PER_US
from mainstem._internal.units import format_duration_ns, parse_duration_ns
from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

# The reference's backoff: spin, then yield, then park. Each park is twice as long as the previous one, up to the maximum.
MAX_SPINS = 10
MAX_YIELDS = 20
MIN_PARK_NS = NS_PER_US
MAX_PARK_NS = NS_PER_MS
DEFAULT_SLEEP_NS = NS_PER_MS


class IdleStrategy(Protocol):
    name: str

    def idle(self, work_count: int) -> None:
        """Return at once if ``work_count`` is positive; otherwise pause."""

    def reset(self) -> None:
        """Return to the strategy's initial state, as after a duty cycle that did work."""


class BusySpinIdle:
    """A strategy that never pauses. It has the lowest latency and uses a whole core."""

    name = "spin"

    def idle(self, work_count: int) -> None:
        pass

    def reset(self) -> None:
        pass


class NoOpIdle(BusySpinIdle):
    """A strategy that never pauses, for a caller that does its own pacing."""

    name = "noop"


class YieldIdle:
    name = "yield"

    def idle(self, work_count: int) -> None:
        if work_count <= 0:
            os.sched_yield()

    def reset(self) -> None:
        pass


class SleepIdle:
    name = "sleep-ns"

    def __init__(self, sleep_ns: int = DEFAULT_SLEEP_NS) -> None:
        self.sleep_ns = sleep_ns

    def idle(self, work_count: int) -> None:
        if work_count <= 0:
            time.sleep(self.sleep_ns / NS_PER_SECOND)

    def reset(self) -> None:
        pass


class BackoffIdle:
    """A strategy that first spins, then yields, then parks for increasingly long times."""

    name = "backoff"

    def __init__(
        self,
        max_spins: int = MAX_SPINS,
        max_yields: int = MAX_YIELDS,
        min_park_ns: int = MIN_PARK_NS,
        max_park_ns: int = MAX_PARK_NS,
    ) -> None:
        self.max_spins = max_spins
        self.max_yields = max_yields
        self.min_park_ns = min_park_ns
        self.max_park_ns = max_park_ns
        self._rounds = 0
        self._park_ns = min_park_ns

    def idle(self, work_count: int) -> None:
        if work_count > 0:
            self.reset()
            return
        self._rounds += 1
        if self._rounds <= self.max_spins:
            return
        if self._rounds <= self.max_spins + self.max_yields:
            os.sched_yield()
            return
        time.sleep(self._park_ns / NS_PER_SECOND)
        self._park_ns = min(2 * self._park_ns, self.max_park_ns)

    def reset(self) -> None:
        self._rounds = 0
        self._park_ns = self.min_park_ns


def _backoff(arguments: list[str]) -> BackoffIdle:
    if not arguments:
        return BackoffIdle()
    if len(arguments) != 4:
        raise ConfigurationError(
            "idle strategy backoff takes max spins, max yields, min park and max park, as 10-20-1us-1ms"
        )
    spins, yields, shortest, longest = (parse_duration_ns(text, name="idle strategy backoff") for text in arguments)
    if not 0 < shortest <= longest:
        raise ConfigurationError(
            f"idle strategy backoff: the shortest park of {format_duration_ns(shortest)} is not above 0 and up to the"
            f" longest of {format_duration_ns(longest)}"
        )
    return BackoffIdle(spins, yields, shortest, longest)


def _sleep(arguments: list[str]) -> SleepIdle:
    if len(arguments) > 1:
        raise ConfigurationError("idle strategy sleep-ns takes one duration, or nothing")
    return SleepIdle(*(parse_duration_ns(text, name="idle strategy sleep-ns") for text in arguments))


def _plain(kind: Callable[[], IdleStrategy], name: str) -> Callable[[list[str]], IdleStrategy]:
    def make(arguments: list[str]) -> IdleStrategy:
        if arguments:
            raise ConfigurationError(f"idle strategy {name} takes no arguments, and was given {', '.join(arguments)}")
        return kind()

    return make


_MAKERS: dict[str, Callable[[list[str]], IdleStrategy]] = {
    "backoff": _backoff,
    "spin": _plain(BusySpinIdle, "spin"),
    "noop": _plain(NoOpIdle, "noop"),
    "yield": _plain(YieldIdle, "yield"),
    "sleep-ns": _sleep,
}
_ALIASES = {"spinning": "spin", "busy-spin": "spin", "busy_spin": "spin", "yielding": "yield", "sleeping": "sleep-ns"}
_ALIASES |= {"sleep": "sleep-ns", "sleep_ns": "sleep-ns", "no-op": "noop", "no_op": "noop"}
# The reference's drivers also accept these: symbols in C, class names in Java.
_ALIASES |= {
    "aeron_idle_strategy_backoff": "backoff",
    "aeron_idle_strategy_busy_spinning": "spin",
    "aeron_idle_strategy_noop": "noop",
    "aeron_idle_strategy_yielding": "yield",
    "aeron_idle_strategy_sleeping": "sleep-ns",
    "org.agrona.concurrent.BackoffIdleStrategy": "backoff",
    "org.agrona.concurrent.BusySpinIdleStrategy": "spin",
    "org.agrona.concurrent.NoOpIdleStrategy": "noop",
    "org.agrona.concurrent.YieldingIdleStrategy": "yield",
    "org.agrona.concurrent.SleepingIdleStrategy": "sleep-ns",
}
IDLE_STRATEGIES = tuple(_MAKERS)


def is_idle_strategy(name: str) -> bool:
    return name in _MAKERS or name in _ALIASES


def idle_strategy(name: str, arguments: str = "") -> IdleStrategy:
    """Return the strategy with this name: backoff, spin, noop, yield or sleep-ns (docs/protocols/aeron.md, 24).

    ``arguments`` is a duration for ``sleep-ns``. For ``backoff`` it has max spins, max yields, min park and max park, separated by
    dashes, such as ``10-20-1us-1ms``. Raises ConfigurationError.
    """
    maker = _MAKERS.get(_ALIASES.get(name, name))
    if maker is None:
        raise ConfigurationError(f"idle strategy {name!r} is not one of {', '.join(IDLE_STRATEGIES)}")
    return maker([text.strip() for text in arguments.split("-")] if arguments.strip() else [])

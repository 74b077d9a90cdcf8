"""How calls wait. A call that may wait is written once, as steps, for the blocking and the asyncio client.

The steps of a call are a generator. It yields when it has to wait, and is resumed when something may have changed.
``run`` resumes it in the caller's thread; ``run`` of ``aeron/aio/waiting.py`` does so in the event loop. Closing the generator at a
yield gives up the call, so every call can be interrupted and cancelled.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import nullcontext
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from mainstem._internal.clock import NS_PER_SECOND, seconds_ns

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from mainstem._core.log.read import SubscriptionReader
    from mainstem._internal.clock import Clock
    from mainstem.aeron.idle import IdleStrategy

T = TypeVar("T")

LONGEST_WAIT = 0.01  # seconds; ``_wait_for_data`` returns this often anyway


class Wait(NamedTuple):
    """What a step waits for: ``left`` seconds at most (None: no limit), and a subscription's data unless that is None."""

    left: float | None = None
    subscription: SubscriptionReader | None = None


Steps = Generator[Wait | None, None, T]


def run(
    steps: Steps[T],
    wait: Callable[[Wait | None], object],
    lock: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> T:
    """Return the result of a call. Each step holds ``lock``; ``wait`` does not."""
    try:
        while True:
            with lock():
                try:
                    awaited = next(steps)
                except StopIteration as end:
                    return end.value  # type: ignore[no-any-return]
            wait(awaited)
    except BaseException:
        with lock():
            steps.close()
        raise


class Waiting:
    """A wait that idles between checks of a condition, until a timeout."""

    def __init__(
        self, idle: IdleStrategy, clock: Clock, timeout: float | None, invokers: tuple[Callable[[], int], ...]
    ) -> None:
        self._idle = idle
        self._clock = clock
        self._timeout_ns = None if timeout is None else seconds_ns(timeout)
        self._invokers = invokers
        self.restart()

    def restart(self) -> None:
        self._deadline_ns = None if self._timeout_ns is None else self._clock.monotonic_ns() + self._timeout_ns
        self._idle.reset()

    def step(self, subscription: SubscriptionReader | None = None) -> bool:
        """Idle once. Return False when the time is up. If the wait is for a subscription's data, release the GIL."""
        left_ns = None
        if self._deadline_ns is not None:
            left_ns = self._deadline_ns - self._clock.monotonic_ns()
            if left_ns <= 0:
                return False
        if self._invokers:
            self._idle.idle(sum(invoke() for invoke in self._invokers))
        elif subscription is not None:
            subscription._wait_for_data(LONGEST_WAIT if left_ns is None else left_ns / NS_PER_SECOND)
        else:
            self._idle.idle(0)
        return True

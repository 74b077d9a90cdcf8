"""How asyncio calls wait. See ``aeron/client/waiting.py``."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from mainstem._internal.clock import seconds_ns

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from mainstem._internal.clock import Clock
    from mainstem.aeron.client.operation import Operation
    from mainstem.aeron.client.resource import ResourceOwner
    from mainstem.aeron.client.waiting import Steps, Wait

T = TypeVar("T")

# How often a pause yields to the loop's other tasks before it starts to sleep. Sleeps double from the minimum to the maximum.
TURNS_BEFORE_SLEEP = 20
MIN_SLEEP = 0.0001
MAX_SLEEP = 0.002


async def run(steps: Steps[T], wait: Callable[[Wait | None], Awaitable[object]]) -> T:
    """Return the result of a call, after awaiting ``wait`` between its steps."""
    try:
        while True:
            try:
                awaited = next(steps)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            await wait(awaited)
    finally:
        steps.close()


class Pause:
    """The idle strategy of one call: it first yields to the event loop, then sleeps."""

    def __init__(self, clock: Clock, timeout: float | None, invokers: tuple[Callable[[], int], ...] = ()) -> None:
        self._clock = clock
        self._timeout_ns = None if timeout is None else seconds_ns(timeout)
        self._invokers = invokers
        self.restart()

    @classmethod
    def of(cls, owner: ResourceOwner, timeout: float | None) -> Pause:
        return cls(owner.context.clock, timeout, owner.invokers)

    def restart(self) -> None:
        self._turns = 0
        self._sleep = MIN_SLEEP
        self._deadline_ns = 0
        if self._timeout_ns is not None:
            self._deadline_ns = self._clock.monotonic_ns() + self._timeout_ns

    async def step(self) -> bool:
        """Idle once. Return False when the time is up."""
        if self._timeout_ns is not None and self._clock.monotonic_ns() >= self._deadline_ns:
            return False
        for invoke in self._invokers:
            invoke()
        self._turns += 1
        if self._turns <= TURNS_BEFORE_SLEEP:
            await asyncio.sleep(0)
        else:
            await asyncio.sleep(self._sleep)
            self._sleep = min(2 * self._sleep, MAX_SLEEP)
        return True


async def result_of(owner: ResourceOwner, operation: Operation[T], timeout: float | None) -> T:
    """Wait for a command's result. Cancel the command if the wait ends early."""
    try:
        pause = Pause.of(owner, timeout)
        while not operation.is_done:
            if not await pause.step():
                operation._give_up(timeout)
        return operation.result()
    except BaseException:
        operation.cancel()
        raise

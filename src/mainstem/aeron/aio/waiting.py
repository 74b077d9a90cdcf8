"""How asyncio calls wait. See ``aeron/client/waiting.py``."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from mainstem.aeron.client.operation import awaiting

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from mainstem.aeron.client.operation import Conductor, Operation
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
    """How a call waits in the event loop: it first yields to other tasks, then sleeps."""

    def __init__(self, invokers: tuple[Callable[[], int], ...] = ()) -> None:
        self._invokers = invokers
        self.restart()

    def restart(self) -> None:
        self._turns = 0
        self._sleep = MIN_SLEEP

    async def __call__(self, _: Wait | None = None) -> None:
        for invoke in self._invokers:
            invoke()
        self._turns += 1
        if self._turns <= TURNS_BEFORE_SLEEP:
            await asyncio.sleep(0)
        else:
            await asyncio.sleep(self._sleep)
            self._sleep = min(2 * self._sleep, MAX_SLEEP)


async def result_of(conductor: Conductor, operation: Operation[T], timeout: float | None) -> T:
    """Wait for a command's result. Cancel the command if the wait ends early."""
    return await run(awaiting(operation, timeout), Pause(conductor.invokers))

"""How calls wait. A call that may wait is written once, as steps, for the blocking and the asyncio client.

The steps of a call are a generator. It yields when it has to wait, and is resumed when something may have changed.
``run`` resumes it in the caller's thread; ``run`` of ``aeron/aio/waiting.py`` does so in the event loop. Closing the generator at a
yield gives up the call, so every call can be interrupted and cancelled.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import nullcontext
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from mainstem.aeron.idle import BackoffIdle

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from mainstem._core.log.read import SubscriptionReader
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
    """How a call waits in the caller's thread: with an idle strategy or, for a subscription's data, without the GIL."""

    def __init__(self, invokers: tuple[Callable[[], int], ...] = (), idle: IdleStrategy | None = None) -> None:
        self._invokers = invokers
        self._idle = idle or BackoffIdle()

    def restart(self) -> None:
        self._idle.reset()

    def __call__(self, wait: Wait | None = None) -> None:
        if self._invokers:
            self._idle.idle(sum(invoke() for invoke in self._invokers))
        elif wait is not None and wait.subscription is not None:
            wait.subscription._wait_for_data(LONGEST_WAIT if wait.left is None else wait.left)
        else:
            self._idle.idle(0)

"""Wait in tests until a condition is true, for as long as anything makes progress.

A limit in seconds would measure the machine: beside other work, anything can take twenty times as long. So a wait fails only if
there was no progress at all for ``STALL_S``, that is, if ``progress`` returned the same value all that time.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")

# Seconds without any progress before a wait gives up. No working step takes this long. The limit is shorter than pyproject.toml's
# limit for a hanging test, so that the failure names the condition.
STALL_S = 240.0
POLL_S = 0.001


def nothing() -> None:
    """Do nothing: the default to invoke if threads run the driver, and the default progress if none can be observed."""


class StallTimeout:
    """A deadline that progress renews: ``check(progress)`` raises if the value has not changed for ``STALL_S``."""

    def __init__(
        self, what: str = "", *, stall_s: float | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._what = what
        self._stall_s = STALL_S if stall_s is None else stall_s
        self._clock = clock
        self._seen: object = None
        self._deadline = clock() + self._stall_s

    def check(self, progress: object = None) -> None:
        now = self._clock()
        if progress != self._seen:
            self._seen = progress
            self._deadline = now + self._stall_s
        if now >= self._deadline:
            raise AssertionError(f"no progress for {self._stall_s:g} s: {self._what or progress}")


def wait_for(
    what: Callable[[], T],
    why: str = "",
    *,
    invoke: Callable[[], object] = nothing,
    progress: Callable[[], object] = nothing,
    poll_s: float = POLL_S,
) -> T:
    """Poll until ``what`` is true and return it; ``progress`` returns a value that changes in the meantime."""
    stall = StallTimeout(why)
    while not (value := what()):
        stall.check(progress())
        invoke()
        time.sleep(poll_s)
    return value


async def until(what: Callable[[], T], *, progress: Callable[[], object] = nothing, poll_s: float = POLL_S) -> T:
    """Poll as ``wait_for`` does, in asyncio."""
    stall = StallTimeout()
    while not (value := what()):
        stall.check(progress())
        await asyncio.sleep(poll_s)
    return value


async def soon(step: Awaitable[T], *, progress: Callable[[], object] = nothing) -> T:
    """Return the result of an awaitable; fail if nothing makes progress for ``STALL_S`` before it completes."""
    task = asyncio.ensure_future(step)
    stall = StallTimeout(repr(task))
    try:
        while not task.done():
            stall.check(progress())
            await asyncio.wait([task], timeout=1.0)
        return task.result()
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait([task], timeout=1.0)


async def settle() -> None:
    """Run everything that is due in this event loop and its consequences, some tens of turns deep, without passing time."""
    for _ in range(30):
        await asyncio.sleep(0)

"""Waiting in tests: until something is so, as long as something moves.

A limit in seconds is a measure of the machine: beside other work, anything may take twenty times as long. So a wait ends in
failure only where nothing moved at all for ``STALL_S``: what ``progress`` returns was the same all the while.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")

# Seconds without any progress, after which a wait is given up. Nothing that works takes as long for a single step, and it is
# shorter than the limit of a hanging test in pyproject.toml, so that the failure says what was waited for.
STALL_S = 240.0
POLL_S = 0.001


def nothing() -> None:
    """What there is to invoke where threads run the driver, and progress where none is seen."""


class StallTimeout:
    """A deadline that each progress renews: ``check(progress)`` raises where it was the same value for ``STALL_S``."""

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
    """Poll until ``what`` is true and returns it; ``progress`` is something that changes on the way there."""
    stall = StallTimeout(why)
    while not (value := what()):
        stall.check(progress())
        invoke()
        time.sleep(poll_s)
    return value


async def until(what: Callable[[], T], *, progress: Callable[[], object] = nothing, poll_s: float = POLL_S) -> T:
    """``wait_for`` in asyncio."""
    stall = StallTimeout()
    while not (value := what()):
        stall.check(progress())
        await asyncio.sleep(poll_s)
    return value


async def soon(step: Awaitable[T], *, progress: Callable[[], object] = nothing) -> T:
    """What an awaitable returns; a failure where nothing moved for ``STALL_S`` before it did."""
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
    """Let what is due in this event loop happen, without any time: what follows from it too, some tens of turns deep."""
    for _ in range(30):
        await asyncio.sleep(0)

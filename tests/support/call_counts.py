"""Counts the calls of Mainstem's own Python functions: a cost that a busy machine does not change."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

MARK = "/mainstem/"


async def calls_of(work: Callable[[], Awaitable[object]]) -> int:
    """Run some work in this event loop. Return how many Python functions and coroutines of Mainstem were entered or resumed."""
    count = 0

    def seen(frame: Any, event: str, _: object) -> None:
        nonlocal count
        if event == "call" and MARK in frame.f_code.co_filename:
            count += 1

    sys.setprofile(seen)
    try:
        await work()
    finally:
        sys.setprofile(None)
    return count

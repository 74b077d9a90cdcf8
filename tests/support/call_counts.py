"""Count calls of Mainstem's own Python functions: a measure of cost that does not depend on the machine's load."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

MARK = "/mainstem/"


async def calls_of(work: Callable[[], Awaitable[object]]) -> int:
    """Run ``work`` in this event loop; return how many of Mainstem's Python functions and coroutines were entered or resumed."""
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

"""Count calls of Mainstem's own Python functions: a measure of cost that does not depend on the machine's load."""

from __future__ import annotations

import itertools
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

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


@contextmanager
def calls_of_threads() -> Iterator[Callable[[Callable[[], object]], int]]:
    """Yield a function that does the same for ``work`` in this thread and in all threads that start in the block."""
    number = itertools.count()  # counting is one step, even if another thread counts at the same time
    is_counting = False

    def seen(frame: Any, event: str, _: object) -> None:
        if is_counting and event == "call" and MARK in frame.f_code.co_filename:
            next(number)

    def counted(work: Callable[[], object]) -> int:
        nonlocal is_counting
        before = next(number)
        sys.setprofile(seen)
        is_counting = True
        try:
            work()
        finally:
            is_counting = False
            sys.setprofile(None)
        return next(number) - before - 1

    threading.setprofile(seen)
    try:
        yield counted
    finally:
        threading.setprofile(None)  # type: ignore[arg-type]

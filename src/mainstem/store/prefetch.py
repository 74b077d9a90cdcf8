"""The threads that fetch from stores. All readers of a process share them, and one reader can use up to half of them."""

from __future__ import annotations

import os
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")
R = TypeVar("R")

# Requests in flight for one reader: enough to hide the round trip to an object store at 1 to 10 Gbit/s.
AHEAD = 4

_executors: list[ThreadPoolExecutor] = []
# Threads do not survive in a forked process.
os.register_at_fork(after_in_child=_executors.clear)


def _executor() -> ThreadPoolExecutor:
    if not _executors:
        _executors.append(ThreadPoolExecutor(2 * AHEAD, thread_name_prefix="mainstem-fetch"))
    return _executors[0]


def fetching(action: Callable[[int, int], T], start: int, end: int) -> Future[T]:
    """Run ``action(start, end)`` in one of the threads, and return its future."""
    return _executor().submit(action, start, end)


def in_threads(action: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """Return the result of ``action`` for each item.

    If there are several, they run in threads, because the calls wait for a server. Raises the first error.
    """
    return [action(item) for item in items] if len(items) < 2 else list(_executor().map(action, items))

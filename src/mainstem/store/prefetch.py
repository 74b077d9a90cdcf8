"""The threads that fetch from stores: those of one reader, for as many readers as a process has."""

from __future__ import annotations

import os
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")
R = TypeVar("R")

# Requests under way for one reader: enough to hide a round trip of an object store at a gigabit or ten.
AHEAD = 4

_executors: list[ThreadPoolExecutor] = []
# Threads do not live on in a child process.
os.register_at_fork(after_in_child=_executors.clear)


def _executor() -> ThreadPoolExecutor:
    if not _executors:
        _executors.append(ThreadPoolExecutor(2 * AHEAD, thread_name_prefix="mainstem-fetch"))
    return _executors[0]


def fetching(action: Callable[[int, int], T], start: int, end: int) -> Future[T]:
    """``action(start, end)`` in one of the threads."""
    return _executor().submit(action, start, end)


def in_threads(action: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """``action`` of each item, several at once: for calls that wait for a server. The first error is raised."""
    return [action(item) for item in items] if len(items) < 2 else list(_executor().map(action, items))

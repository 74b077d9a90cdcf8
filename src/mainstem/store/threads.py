"""Threads that call client libraries.

Fetching threads hide the time that calls wait for a server. All readers of a process share them, and one reader can use up to half
of them. A call that must end on a signal or after a timeout has a thread of its own, because the libraries do neither reliably.
"""

from __future__ import annotations

import os
import threading
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any, TypeVar

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


class Call(Future[Any]):
    """A function call in a thread of its own.

    The thread is a daemon, so a call that never returns cannot keep the process alive.
    """

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        super().__init__()
        threading.Thread(target=self._run, args=(function, arguments), name="mainstem-store", daemon=True).start()

    def _run(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        try:
            self.set_result(function(*arguments))
        except BaseException as error:  # raised by result()
            self.set_exception(error)

    def wait(self, seconds: float | None = None) -> bool:
        return bool(wait([self], seconds).done)


def interruptible(function: Callable[[], T]) -> T:
    """Return the result of ``function``. In the main thread, Ctrl-C ends the wait for it immediately."""
    if threading.current_thread() is not threading.main_thread():
        return function()
    result: T = Call(function).result()
    return result

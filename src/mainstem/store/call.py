"""Runs calls of client libraries in threads of their own, because they neither return on a signal nor time out reliably."""

from __future__ import annotations

import threading
from concurrent.futures import Future, wait
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


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

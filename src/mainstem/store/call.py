"""Calls of client libraries that neither return on a signal nor time out reliably: on threads of their own."""

from __future__ import annotations

import threading
from concurrent.futures import Future, wait
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class Call(Future[Any]):
    """A function on a thread of its own: a daemon, so that a call that never returns does not keep the process from ending."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        super().__init__()
        threading.Thread(target=self._run, args=(function, arguments), name="mainstem-store", daemon=True).start()

    def _run(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        try:
            self.set_result(function(*arguments))
        except BaseException as error:  # raised where the result is asked for
            self.set_exception(error)

    def wait(self, seconds: float | None = None) -> bool:
        return bool(wait([self], seconds).done)


def interruptible(function: Callable[[], T]) -> T:
    """The result of ``function``. In the main thread Ctrl-C ends the wait for it at once."""
    if threading.current_thread() is not threading.main_thread():
        return function()
    result: T = Call(function).result()
    return result

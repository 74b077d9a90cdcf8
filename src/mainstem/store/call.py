"""Calls of client libraries that neither return on a signal nor time out reliably: on threads of their own."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class Call:
    """A function on a thread of its own."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self._function, self._arguments = function, arguments
        self._result: Any = None
        self._error: BaseException | None = None
        self._done = threading.Event()
        # A daemon: a call that never returns does not keep the process from ending.
        threading.Thread(target=self._run, name="mainstem-store", daemon=True).start()

    def _run(self) -> None:
        try:
            self._result = self._function(*self._arguments)
        except BaseException as error:  # raised where the result is asked for
            self._error = error
        finally:
            self._done.set()

    def wait(self, seconds: float | None = None) -> bool:
        return self._done.wait(seconds)

    def result(self) -> Any:
        if self._error is not None:
            raise self._error
        return self._result


def interruptible(function: Callable[[], T]) -> T:
    """The result of ``function``. In the main thread Ctrl-C ends the wait for it at once."""
    if threading.current_thread() is not threading.main_thread():
        return function()
    call = Call(function)
    call.wait()
    result: T = call.result()
    return result

"""One call of a blocking API: its work in the loop's thread, and the thread that waits for it.

Theory of operation
-------------------
A signal handler may raise in the waiting thread, at any time and any exception: a ``TimeoutError`` from an alarm, a
``KeyboardInterrupt``. The caller then gets no result, even if there is one. So the call is rolled back: its work is cancelled, and
if it already had a result, ``undo`` receives it and restores what would be lost with it, such as bytes that were read or a stream
that was accepted.

The interrupted thread does not wait for the rollback. Later calls do, in the loop's thread, before their own work: a read that
follows an interrupted one finds the stream as it was.

The first step of a call is not rolled back: ``begin`` runs in the loop's thread, in the order of the calls, whether or not the
call is interrupted. A ``write`` queues its bytes there.

The methods ``start`` and ``interrupt`` run in the loop's thread, once each (a second call does nothing); ``wait`` runs in the
caller's. ``value`` and ``error`` are final once ``wait`` has returned True.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from mainstem._internal.tasks import within
from mainstem.errors import ClosedError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

T = TypeVar("T")


async def _limited(work: Coroutine[Any, Any, T], timeout: float | None, ending: set[asyncio.Task[Any]]) -> T:
    """Run ``work`` after the interrupted calls have ended, with a timeout that the loop itself enforces.

    If the caller enforced the timeout, it could lose what ``work`` returned at that moment, such as bytes that were read.
    """

    async def run() -> T:
        while ending:
            await asyncio.wait(set(ending))
        return await work

    return await within(timeout, run(), "the call")


class Call(Generic[T]):
    """One call. ``ending`` has the tasks of interrupted calls that are still running, for all calls of a loop."""

    __slots__ = (
        "_begin",
        "_ended",
        "_ending",
        "_interrupted",
        "_is_over",
        "_started",
        "_task",
        "_timeout",
        "_undo",
        "_work",
        "error",
        "value",
    )

    value: T

    def __init__(
        self,
        begin: Callable[[], Coroutine[Any, Any, T]],
        timeout: float | None,
        undo: Callable[[Any], object] | None,
        ending: set[asyncio.Task[Any]],
    ) -> None:
        self._begin = begin
        self._timeout = timeout
        self._undo = undo
        self._ending = ending
        self._work: Coroutine[Any, Any, T] | None = None
        self._task: asyncio.Task[T] | None = None
        self._started = self._interrupted = self._is_over = False
        self._ended = threading.Lock()
        self._ended.acquire()
        self.error: BaseException | None = None

    def start(self) -> None:
        """Start the work."""
        if self._started:
            return
        self._started = True
        try:
            self._work = self._begin()
        except Exception as error:
            self._end(error)
            return
        limited = _limited(self._work, self._timeout, self._ending)
        self._task = asyncio.get_running_loop().create_task(limited)
        self._task.add_done_callback(self._on_done)

    def interrupt(self) -> None:
        """Roll the call back."""
        if self._interrupted:
            return
        self._interrupted = True
        if self._is_over:
            self._take_back()
            return
        self.start()
        if self._task is not None:
            self._ending.add(self._task)
            self._task.cancel()

    def wait(self, timeout: float) -> bool:
        """Wait at most ``timeout`` seconds for the work to end; return whether it has."""
        return self._ended.acquire(timeout=timeout)

    def _on_done(self, task: asyncio.Task[T]) -> None:
        assert self._work is not None
        self._work.close()  # it was never started if the task was cancelled before its first step
        self._ending.discard(task)
        if task.cancelled():
            self._end(ClosedError("the connection was closed"))
        elif (error := task.exception()) is not None:
            self._end(error)
        else:
            self.value = task.result()
            self._end(None)

    def _end(self, error: BaseException | None) -> None:
        self.error = error
        self._is_over = True
        self._ended.release()
        if self._interrupted:
            self._take_back()

    def _take_back(self) -> None:
        if self._undo is not None:
            self._undo(self.value if self.error is None else self.error)

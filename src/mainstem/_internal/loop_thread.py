"""An event loop in a thread of its own, for blocking APIs that are implemented with asyncio.

Every object of such an API belongs to one :class:`LoopThread`. A call from any thread becomes a coroutine in the loop, and the
caller waits for its result; only the loop's thread ever touches protocol state. So several threads may call one object safely,
and their calls are ordered as the loop receives them.

A call that an exception interrupts, such as one that a signal handler raises in the main thread, is rolled back
(:mod:`.blocking_call`). No other call may happen between the result of :meth:`LoopThread.run` and the caller's own code, because an
exception there would lose the result. So the coroutine, in the loop's thread, does everything that is derived from a result.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from typing import TYPE_CHECKING, Any, TypeVar

from mainstem._internal.blocking_call import Call
from mainstem._internal.tasks import HANDLER_TASK
from mainstem.errors import ClosedError, Delivery, MainstemError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

T = TypeVar("T")

# How often a waiting caller checks that the loop's thread is alive.
LIVENESS_S = 1.0
# How long the remaining tasks may take to end when the loop is stopped.
END_TIMEOUT_S = 10.0


class LoopThread:
    """A thread whose event loop runs coroutines for other threads. A context manager; `stop` may be called twice."""

    def __init__(self, name: str = "mainstem-loop") -> None:
        self._ending: set[asyncio.Task[Any]] = set()
        self._is_ready = threading.Event()
        self._is_given_up = False
        self._failure: OSError | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        try:
            self._thread.start()
            self._is_ready.wait()
        except BaseException:
            self._is_given_up = True
            if self._is_ready.is_set() and self._failure is None:
                self._post(self._loop.stop)
            raise
        if self._failure is not None:
            raise MainstemError(f"cannot start an event loop: {self._failure.strerror}") from self._failure

    @classmethod
    def running(
        cls, start: Callable[[LoopThread], Coroutine[Any, Any, T]], undo: Callable[[T | BaseException], object]
    ) -> T:
        """Return the result of the coroutine that ``start`` returns, run in the loop of a new thread."""
        thread = cls()
        try:
            return thread.run(lambda: start(thread), undo=undo)
        except BaseException:
            thread.stop()
            raise

    def _run(self) -> None:
        # Create the loop here, where no signal handler can interrupt it.
        try:
            # A loop needs three file descriptors. If it gets too few, it stays half initialized, and complains when collected.
            with contextlib.ExitStack() as probes:
                for _ in range(3):
                    probes.callback(os.close, os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
            self._loop = asyncio.new_event_loop()
        except OSError as error:
            self._failure = error
            self._is_ready.set()
            return
        asyncio.set_event_loop(self._loop)
        self._is_ready.set()
        if not self._is_given_up:
            self._loop.run_forever()
        # Cancel twice: a cancelled task may wait for a thread, and gives up waiting when it is cancelled again.
        for _ in range(2):
            tasks = asyncio.all_tasks(self._loop)
            for task in tasks:
                task.cancel()
            if tasks:
                self._loop.run_until_complete(asyncio.wait(tasks, timeout=END_TIMEOUT_S))
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    def run(
        self,
        work: Coroutine[Any, Any, T] | Callable[[], Coroutine[Any, Any, T]],
        timeout: float | None = None,
        *,
        undo: Callable[[T | BaseException], object] | None = None,
    ) -> T:
        """Return the result of ``work``. Raises Timeout or ClosedError."""
        call = Call(work if callable(work) else lambda: work, timeout, undo, self._ending)
        try:
            if not self._thread.is_alive() or not self._post(call.start):
                error = ClosedError("the connection is closed")
                error.delivery = Delivery.NONE
                raise error
            while not call.wait(LIVENESS_S):
                if not self._thread.is_alive() and not call.wait(0):
                    raise ClosedError("the connection was closed")
        except BaseException:
            if not self._insist(call.interrupt) and not callable(work):
                work.close()
            raise
        # Nothing is called from here on, so no signal handler can run, and the result reaches the caller.
        if call.error is None:
            return call.value
        try:
            raise call.error
        finally:
            del call

    def call(
        self, function: Callable[..., T], *arguments: Any, undo: Callable[[T | BaseException], object] | None = None
    ) -> T:
        """Return the result of ``function``, run between the loop's tasks. It runs even if an exception interrupts the call.

        Raises ClosedError.
        """

        def work() -> Coroutine[Any, Any, T]:
            return _return(function(*arguments))

        return self.run(work, undo=undo)

    def _post(self, function: Callable[[], object]) -> bool:
        """Run a function in the loop's thread, without waiting; return False if the loop is closed."""
        try:
            self._loop.call_soon_threadsafe(function)
        except RuntimeError:
            if not self._loop.is_closed():
                raise
            return False
        return True

    def _insist(self, function: Callable[[], object]) -> bool:
        """Do the same as `_post`, even if signal handlers raise meanwhile; raise their exception afterward."""
        interruption: BaseException | None = None
        pending = [function]

        def run_once() -> None:
            if pending:
                pending.pop()()

        while True:
            try:
                is_posted = self._post(run_once)
                break
            except BaseException as error:
                interruption = error
        if interruption is not None:
            raise interruption
        return is_posted

    def stop(self, last: Callable[[], object] | None = None) -> None:
        """End the loop and its thread. May be called twice. In a handler's thread, return before the loop ends."""
        self._insist(lambda: self._end(last))
        serving = HANDLER_TASK.get()
        if serving is None or serving.get_loop() is not self._loop:
            self._thread.join()

    def stop_soon(self, last: Callable[[], object]) -> None:
        """Do the same as `stop` without waiting, from any thread."""
        self._post(lambda: self._end(last))

    def _end(self, last: Callable[[], object] | None) -> None:
        try:
            if last is not None:
                last()
        finally:
            self._loop.stop()

    def __enter__(self) -> LoopThread:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()


async def _return(value: T) -> T:
    return value

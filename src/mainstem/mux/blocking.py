"""An event loop in a thread of its own, for callers that block: what the blocking faces stand on."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any, TypeVar

from mainstem.errors import ClosedError, TimedOut

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

T = TypeVar("T")


class LoopThread:
    """Runs coroutines for callers in other threads. A context manager; stopping twice is fine."""

    def __init__(self, name: str = "mainstem-mux") -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        if tasks:
            self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    def run(self, work: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        """The result of ``work``. Raises what it raises, and ``TimedOut`` after ``timeout`` seconds (``work`` is cancelled)."""
        if self._loop.is_closed() or not self._thread.is_alive():
            work.close()
            raise ClosedError("the connection is closed")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(timeout)
        except TimeoutError:
            if future.done():
                raise
            future.cancel()
            raise TimedOut(f"nothing happened within {timeout:g} s", timeout=timeout) from None
        except KeyboardInterrupt:
            future.cancel()
            raise

    def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """The result of ``function``, run between the loop's tasks."""

        async def work() -> T:
            return function(*arguments)

        return self.run(work())

    def stop(self) -> None:
        """Ends the loop and its thread."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

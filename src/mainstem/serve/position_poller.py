"""Waits until a position has passed: one task reads the positions for all waiting requests.

A recorder publishes its position by a store to mapped memory, and the kernel does not notify other processes of that. So positions
are polled while requests are waiting, and not otherwise. The pause between two rounds grows with the cost of a round.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

# The minimum pause. It adds half of it to the latency of a live reader, and costs about 1% of a CPU while one is waiting.
PAUSE_S = 0.001
# The pause as a multiple of the duration of one round, so polling takes at most a tenth of the loop's time.
PAUSE_SHARE = 10


class PositionPoller:
    """Checks the waiting requests in rounds and wakes those that are done."""

    def __init__(self) -> None:
        self._waiting: dict[asyncio.Future[None], Callable[[], bool]] = {}
        self._task: asyncio.Task[None] | None = None
        self._is_closing = False

    async def wait(self, passed: Callable[[], bool], seconds: float) -> None:
        """Return when ``passed`` returns true, when the time is over, or when the server closes. Raises what ``passed`` raises."""
        if seconds <= 0 or self._is_closing or passed():
            return
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        self._waiting[future] = passed
        if self._task is None or self._task.done():
            self._task = loop.create_task(self._run())
        try:
            async with asyncio.timeout(seconds):
                await future
        except TimeoutError:
            pass
        finally:
            self._waiting.pop(future, None)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            start = loop.time()
            for future, passed in list(self._waiting.items()):
                try:
                    is_over = passed()
                except Exception as error:  # raised in the request that waits
                    if not future.done():
                        future.set_exception(error)
                else:
                    if is_over and not future.done():
                        future.set_result(None)
            await asyncio.sleep(max(PAUSE_S, (loop.time() - start) * PAUSE_SHARE))

    def close(self) -> None:
        """End all present and future waits."""
        self._is_closing = True
        for future in self._waiting:
            if not future.done():
                future.set_result(None)

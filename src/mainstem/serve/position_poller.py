"""Waiting for a position to pass: one task reads the positions for all requests that wait.

A recorder publishes its position by a store to mapped memory, of which the kernel notifies no other process. So it is read again
and again while a request waits, and not at all otherwise. The pause between two readings grows with what they cost.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

# Adds half of it to the latency of a live reader, and costs about one part in a hundred of a CPU while one waits.
PAUSE_S = 0.001
# The pause, as a multiple of the time one round of readings took: polling takes at most a tenth of the loop's time.
PAUSE_SHARE = 10


class PositionPoller:
    """Wakes the requests that wait, round by round."""

    def __init__(self) -> None:
        self._waiting: dict[asyncio.Future[None], Callable[[], bool]] = {}
        self._task: asyncio.Task[None] | None = None
        self._is_closing = False

    async def wait(self, passed: Callable[[], bool], seconds: float) -> None:
        """Return when ``passed`` returns true or raises, when the time is over, or when the server closes."""
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
                except Exception as error:  # it belongs to the request that waits
                    if not future.done():
                        future.set_exception(error)
                else:
                    if is_over and not future.done():
                        future.set_result(None)
            await asyncio.sleep(max(PAUSE_S, (loop.time() - start) * PAUSE_SHARE))

    def close(self) -> None:
        """End every wait, now and later."""
        self._is_closing = True
        for future in self._waiting:
            if not future.done():
                future.set_result(None)

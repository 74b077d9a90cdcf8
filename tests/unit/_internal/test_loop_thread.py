"""The thread of a blocking object's event loop."""

from __future__ import annotations

import asyncio
import threading

from tests.support.waiting import STALL_S

from mainstem._internal.loop_thread import LoopThread
from mainstem.errors import ClosedError


def test_a_second_stop_does_not_end_the_loop_before_its_tasks() -> None:
    began, ended = threading.Event(), threading.Event()

    async def slow_to_end() -> None:
        try:
            began.set()
            await asyncio.sleep(STALL_S)
        finally:
            # The loop is ending, and this is its last task.
            thread.stop_soon(lambda: None)
            for _ in range(10):
                await asyncio.sleep(0)
            ended.set()

    def call() -> None:
        try:
            thread.run(slow_to_end)
        except ClosedError:
            return

    thread = LoopThread()
    caller = threading.Thread(target=call)
    caller.start()
    assert began.wait(STALL_S)
    thread.stop()
    caller.join(STALL_S)
    assert ended.is_set()

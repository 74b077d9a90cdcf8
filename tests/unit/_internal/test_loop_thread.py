"""The thread of a blocking object's event loop."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

from tests.support.waiting import STALL_S

from mainstem._internal import loop_thread
from mainstem._internal.loop_thread import LoopThread
from mainstem.errors import ClosedError, Delivery

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    import pytest


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


def test_a_call_that_comes_while_the_loop_is_ending_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_thread, "END_TIMEOUT_S", 0.5)
    began = threading.Event()
    calls: list[str] = []
    errors: list[ClosedError] = []

    async def late() -> None:
        calls.append("late")
        await asyncio.sleep(STALL_S)

    def call(work: Callable[[], Coroutine[object, object, None]]) -> None:
        try:
            thread.run(work)
        except ClosedError as error:
            errors.append(error)

    async def slow_to_end() -> None:
        try:
            began.set()
            await asyncio.sleep(STALL_S)
        except asyncio.CancelledError:
            try:
                await asyncio.sleep(STALL_S)
            finally:
                # The tasks that the loop has now were cancelled a second and last time.
                late_caller.start()
                while late_caller.is_alive() and not calls:
                    await asyncio.sleep(0.001)

    thread = LoopThread()
    caller = threading.Thread(target=call, args=(slow_to_end,))
    late_caller = threading.Thread(target=call, args=(late,))
    caller.start()
    assert began.wait(STALL_S)
    thread.stop()
    caller.join(STALL_S)
    late_caller.join(STALL_S)
    assert not calls
    assert [error.delivery for error in errors].count(Delivery.NONE) == 1
    assert len(errors) == 2

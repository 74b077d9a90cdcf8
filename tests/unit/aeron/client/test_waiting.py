"""The steps of a call run alike in a thread and in the event loop."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from mainstem.aeron.aio import waiting as in_loop
from mainstem.aeron.client import waiting as in_thread
from mainstem.aeron.client.waiting import Wait

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainstem.aeron.client.waiting import Steps


def run_in_loop(steps: Steps[Any], wait: Callable[[Wait | None], object]) -> Any:
    async def wait_in_loop(awaited: Wait | None) -> None:
        await asyncio.sleep(0)
        wait(awaited)

    return asyncio.run(in_loop.run(steps, wait_in_loop))


BOTH = pytest.mark.parametrize("run", [in_thread.run, run_in_loop], ids=["thread", "loop"])


@BOTH
def test_a_wait_is_told_what_the_step_waits_for(run: Any) -> None:
    def steps() -> Steps[str]:
        yield None
        yield Wait(1.5)
        return "result"

    waits: list[Wait | None] = []
    assert run(steps(), waits.append) == "result"
    assert waits == [None, Wait(1.5)]


@BOTH
def test_steps_end_when_a_wait_is_interrupted(run: Any) -> None:
    ended = []

    def steps() -> Steps[None]:
        try:
            yield None
        finally:
            ended.append(True)

    def interrupt(_: Wait | None) -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        run(steps(), interrupt)
    assert ended == [True]


def test_a_cancelled_call_ends_its_steps() -> None:
    ended = []

    def steps() -> Steps[None]:
        try:
            while True:
                yield None
        finally:
            ended.append(True)

    async def cancel() -> None:
        call = asyncio.create_task(in_loop.run(steps(), in_loop.Pause()))
        await asyncio.sleep(0)
        call.cancel()
        await asyncio.wait([call])
        assert call.cancelled()

    asyncio.run(cancel())
    assert ended == [True]


def test_the_lock_is_held_during_steps_and_their_end_but_not_while_waiting() -> None:
    lock = threading.Lock()
    held = []

    def steps() -> Steps[None]:
        try:
            held.append(lock.locked())
            yield None
            held.append(lock.locked())
            yield None
        finally:
            held.append(lock.locked())

    def wait(_: Wait | None) -> None:
        assert not lock.locked()
        if len(held) == 2:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        in_thread.run(steps(), wait, lambda: lock)
    assert held == [True, True, True]

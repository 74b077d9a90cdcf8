"""Test waits: they last as long as something makes progress, whatever the clock shows."""

from __future__ import annotations

import asyncio

import pytest
from tests.support import waiting as module
from tests.support.waiting import StallTimeout, soon, until, wait_for


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_progress_renews_the_deadline() -> None:
    clock = Clock()
    stall = StallTimeout("the tide", stall_s=10, clock=clock)
    for step in range(100):
        clock.now += 9
        stall.check(step)
    clock.now += 9
    stall.check(99)
    clock.now += 1
    with pytest.raises(AssertionError, match="no progress for 10 s: the tide"):
        stall.check(99)


def test_a_wait_returns_what_it_waited_for_and_works_meanwhile() -> None:
    work: list[int] = []
    assert wait_for(lambda: work[4:], invoke=lambda: work.append(len(work))) == [4]


async def test_a_wait_in_asyncio_lets_the_others_run() -> None:
    ready: list[str] = []
    asyncio.get_running_loop().call_later(0.01, ready.append, "high")
    assert await until(lambda: ready) == ["high"]


async def test_an_awaitable_times_out_only_if_nothing_progresses(monkeypatch: pytest.MonkeyPatch) -> None:
    async def returns() -> str:
        await asyncio.sleep(0)
        return "ebb"

    async def fails() -> None:
        raise ValueError("low")

    assert await soon(returns()) == "ebb"
    with pytest.raises(ValueError, match="low"):
        await soon(fails())
    never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    monkeypatch.setattr(module, "STALL_S", 0.0)
    with pytest.raises(AssertionError, match="no progress"):
        await soon(never)
    assert never.cancelled()

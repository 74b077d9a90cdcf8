"""Handlers in threads: how many run at once, whose turn it is, and what happens when one is cancelled."""

from __future__ import annotations

import asyncio
import threading
from contextlib import ExitStack
from typing import Any

import pytest
from tests.support.waiting import STALL_S, until

from mainstem._internal.handler_threads import HandlerThreads, Slots
from mainstem.errors import ConfigurationError


async def take(slots: Slots, address: str, held: dict[str, list[ExitStack]]) -> None:
    if not slots.take(address):
        await slots.wait(address)
    stack = ExitStack()
    stack.callback(slots.free, address)
    held.setdefault(address, []).append(stack)


def counts(held: dict[str, list[ExitStack]]) -> dict[str, int]:
    return {address: len(stacks) for address, stacks in held.items() if stacks}


@pytest.mark.asyncio
async def test_one_address_leaves_slots_to_the_others_which_take_turns() -> None:
    slots, held = Slots(4, 2), dict[str, list[ExitStack]]()
    tasks = [asyncio.ensure_future(take(slots, "greedy", held)) for _ in range(5)]
    await asyncio.sleep(0)
    assert counts(held) == {"greedy": 2}
    tasks += [asyncio.ensure_future(take(slots, name, held)) for name in ("b", "c", "d", "d")]
    await asyncio.sleep(0)
    assert counts(held) == {"greedy": 2, "b": 1, "c": 1}
    held["b"].pop().close()  # the first waiter allowed to take it is at d: greedy has its share
    await until(lambda: "d" in held)
    assert counts(held) == {"greedy": 2, "c": 1, "d": 1}
    held["greedy"].pop().close()
    await until(lambda: counts(held)["greedy"] == 2)
    held["greedy"].pop().close()
    await until(lambda: counts(held) == {"greedy": 1, "c": 1, "d": 2})
    for stacks in held.values():
        while stacks:
            stacks.pop().close()
    await asyncio.gather(*tasks)
    assert counts(held) == {"greedy": 2}


@pytest.mark.asyncio
async def test_a_cancelled_wait_passes_its_turn_on() -> None:
    slots, held = Slots(1, 1), dict[str, list[ExitStack]]()
    await take(slots, "", held)
    first, second, third = (asyncio.ensure_future(take(slots, name, held)) for name in ("a", "b", "c"))
    await asyncio.sleep(0)
    first.cancel()  # while it waits
    held[""].pop().close()  # the slot goes to b
    second.cancel()  # after it was given the slot, before it runs
    await asyncio.wait([first, second, third], timeout=STALL_S)
    assert counts(held) == {"c": 1}
    held["c"].pop().close()
    assert slots._free == 1
    assert not slots._waiting
    assert not +slots._taken


class Served:
    peer_address = ("192.0.2.1", 5)

    def __init__(self) -> None:
        self.gone = threading.Event()

    def abort(self) -> None:
        self.gone.set()


@pytest.mark.asyncio
async def test_a_cancelled_handler_counts_until_its_thread_has_ended() -> None:
    begun, may_end = threading.Event(), threading.Event()

    def handler(served: Served) -> None:
        begun.set()
        served.gone.wait(STALL_S)
        may_end.wait(STALL_S)

    threads = HandlerThreads(max_handlers=1)
    served = Served()
    task = asyncio.ensure_future(threads.adapt(handler, lambda inner: inner)(served))
    await until(begun.is_set)
    task.cancel()
    await until(served.gone.is_set)
    assert not task.done()
    assert threads._slots._free == 0
    may_end.set()
    await asyncio.wait([task], timeout=STALL_S)
    assert task.cancelled()
    assert threads._slots._free == 1


@pytest.mark.parametrize(("raised", "seen"), [(KeyError("k"), KeyError), (SystemExit(3), RuntimeError)])
@pytest.mark.asyncio
async def test_what_a_handler_raises_is_raised_by_its_task(raised: BaseException, seen: type[Exception]) -> None:
    def handler(_: Any) -> None:
        raise raised

    with pytest.raises(seen) as caught:
        await HandlerThreads().adapt(handler, lambda inner: inner)(Served())
    assert raised in (caught.value, caught.value.__cause__)


def test_limits_are_checked() -> None:
    with pytest.raises(ConfigurationError, match="max_handlers=0"):
        HandlerThreads(0)
    with pytest.raises(ConfigurationError, match="max_handlers_per_address"):
        HandlerThreads(1, 0)

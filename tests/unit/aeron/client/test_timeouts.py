"""Timeouts of both variants: they are in seconds, infinity equals None, and NaN is refused."""

from __future__ import annotations

import inspect
import math
import shutil
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.waiting import STALL_S

import mainstem
from mainstem.errors import DriverTimeout
from mainstem.recording import Recorder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CHANNEL = "aeron:ipc?term-length=64k"
DESTINATION = "aeron:udp?endpoint=127.0.0.1:9"
BACK: dict[str, Any] = {"response_channel": CHANNEL, "response_stream_id": 9}
VARIANTS = {"blocking": mainstem, "asyncio": mainstem.aio}


@pytest.fixture
def directory() -> Iterator[str]:
    with mainstem.MediaDriver.launch(threads=True) as driver:
        yield driver.directory


async def outcome(result: Any) -> Any:
    """Return the result of a call of either variant; for an iterator, its first item."""
    if inspect.isasyncgen(result):
        return await anext(result)
    if inspect.isgenerator(result):
        return next(result)
    return await result if inspect.isawaitable(result) else result


class World:
    """A client of one variant and its calls that can wait."""

    def __init__(self, variant: Any, directory: str) -> None:
        self.variant, self.directory = variant, directory
        self.recordings = f"{directory}-recordings"
        with Recorder(self.recordings):
            pass

    async def open(self) -> None:
        self.aeron = await outcome(self.variant.connect(self.directory))
        self.subscription = await outcome(self.aeron.add_subscription(CHANNEL, 1))
        self.publication = await outcome(self.aeron.add_publication(CHANNEL, 1))
        self.many = await outcome(self.aeron.add_publication("aeron:udp?control-mode=manual", 5))
        self.poller = self.variant.Poller([self.subscription])
        self.responder = await outcome(self.variant.Responder(self.aeron, CHANNEL, 2, **BACK))
        self.requester = await outcome(self.variant.Requester(self.aeron, CHANNEL, 2, **BACK))

    async def close(self) -> None:
        shutil.rmtree(self.recordings)
        for each in (self.requester, self.responder, self.aeron):
            for _ in range(2):
                await outcome(each.close())
                assert each.closed
            assert each.error is None


CALLS: dict[str, Callable[[World, float], Any]] = {
    "connect": lambda it, timeout: it.variant.connect(it.directory, timeout=timeout),
    "add_publication": lambda it, timeout: it.aeron.add_publication(CHANNEL, 3, timeout=timeout),
    "add_exclusive_publication": lambda it, timeout: it.aeron.add_exclusive_publication(CHANNEL, 3, timeout=timeout),
    "add_subscription": lambda it, timeout: it.aeron.add_subscription(CHANNEL, 3, timeout=timeout),
    "add_counter": lambda it, timeout: it.aeron.add_counter(1001, "c", timeout=timeout),
    "requester": lambda it, timeout: it.variant.Requester(it.aeron, CHANNEL, 4, **BACK, timeout=timeout),
    "responder": lambda it, timeout: it.variant.Responder(it.aeron, CHANNEL, 4, **BACK, timeout=timeout),
    "add_static_counter": lambda it, timeout: it.aeron.add_static_counter(
        1001, "c", registration_id=7, timeout=timeout
    ),
    "add_persistent_subscription": lambda it, timeout: it.aeron.add_persistent_subscription(
        CHANNEL, 3, recordings=it.recordings, timeout=timeout
    ),
    "add_destination": lambda it, timeout: it.many.add_destination(DESTINATION, timeout=timeout),
    "remove_destination": lambda it, timeout: it.many.remove_destination(DESTINATION, timeout=timeout),
    "next_session_id": lambda it, timeout: it.aeron.next_session_id(1, timeout=timeout),
    "send": lambda it, timeout: it.publication.send(b"x", timeout),
    "messages": lambda it, timeout: it.subscription.messages(timeout=timeout),
    "wait_for_data": lambda it, timeout: it.subscription.wait_for_data(timeout=timeout),
    "next_arrow": lambda it, timeout: it.subscription.next_arrow(timeout=timeout),
    "poller": lambda it, timeout: it.poller.messages(timeout=timeout),
}
if find_spec("pyarrow") is None:  # as in the wheel's test
    del CALLS["add_persistent_subscription"], CALLS["next_arrow"]


@pytest.mark.parametrize("name", VARIANTS)
async def test_an_infinite_timeout_waits_forever(name: str, directory: str) -> None:
    it = World(VARIANTS[name], directory)
    await it.open()
    for call in CALLS.values():
        await outcome(it.publication.send(b"x", STALL_S))
        result = await outcome(call(it, math.inf))
        if call is not CALLS["send"] and hasattr(result, "close"):
            await outcome(result.close())
    await it.close()


@pytest.mark.parametrize("name", VARIANTS)
async def test_nan_is_refused_even_where_nothing_would_wait(name: str, directory: str) -> None:
    it = World(VARIANTS[name], directory)
    await it.open()
    requests: dict[str, Callable[[World, float], Any]] = {
        "request": lambda it, timeout: it.requester.request(b"x", timeout),
        "reject": lambda it, timeout: it.subscription.images[0].reject("no", timeout=timeout),
        "requests": lambda it, timeout: it.responder.requests(timeout=timeout),
    }
    position = await outcome(it.publication.send(b"x", STALL_S))
    await outcome(it.many.add_destination(DESTINATION))
    for call in (CALLS | requests).values():
        with pytest.raises(ValueError, match="NaN is not a number of seconds"):
            await outcome(call(it, math.nan))
    assert it.publication.position == position, "nothing was sent"
    assert it.aeron.stats().pending == 0
    await outcome(it.many.remove_destination(DESTINATION))  # the call with NaN did not remove it
    await it.close()


@pytest.mark.parametrize("name", VARIANTS)
async def test_connecting_waits_no_longer_than_its_timeout(name: str, tmp_path: Any) -> None:
    with pytest.raises(DriverTimeout, match=r"within 0\.05 s"):
        await outcome(VARIANTS[name].connect(tmp_path, timeout=0.05))

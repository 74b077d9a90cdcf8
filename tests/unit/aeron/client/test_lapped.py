"""A client that the driver lapped has lost responses: it closes, and every waiting or later call says why."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.waiting import STALL_S, wait_for
from tests.unit.aeron.client.hand_driver import DIRECTORY, HandDriver

import mainstem
from mainstem.aeron.client import Aeron, ClientContext, ClientSettings, OfferStatus
from mainstem.aeron.command import commands, responses
from mainstem.errors import ClientTimeout

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

CHANNEL = "aeron:ipc"
BACK: dict[str, Any] = {"response_channel": CHANNEL, "response_stream_id": 2}


def lap(driver: HandDriver, client_lock: threading.RLock) -> None:
    """Overwrite the whole broadcast buffer while the client's conductor is not running."""
    with client_lock:
        for _ in range(10_000):
            driver.answer(responses.OnCounterReady(correlation_id=77, counter_id=0))


def run(driver: HandDriver, errors: list[BaseException]) -> Aeron:
    context = ClientContext(
        settings=ClientSettings(dir=DIRECTORY),
        files=driver.files,
        clock=driver.clock,
        use_invoker=True,
        driver_invoker=driver.do_work,
        on_error=errors.append,
    )
    return Aeron.connect(context=context)


def test_a_client_that_was_lapped_ends_and_the_driver_is_notified_at_once():
    driver, errors = HandDriver(), []
    aeron = run(driver, errors)
    publication = aeron.add_publication(CHANNEL, 1)
    subscription = aeron.add_subscription(CHANNEL, 1)
    driver.take_image(publication.registration_id)  # this response is lost
    lap(driver, aeron._conductor.lock)
    aeron.invoke()
    driver.do_work()
    assert aeron.closed
    assert isinstance(aeron.error, ClientTimeout)
    assert "responses of the driver were lost" in str(aeron.error)
    assert errors == [aeron.error]
    assert subscription.closed
    assert publication.offer(b"x") == OfferStatus.CLOSED
    assert isinstance(driver.commands[-1], commands.ClientClose)
    assert driver.commands[-1].client_id == aeron.client_id


BLOCKING: dict[str, Callable[[Any], Any]] = {
    "send": lambda it: it.publication.send(b"x" * 4000),
    "messages": lambda it: list(it.subscription.messages()),
    "poller": lambda it: list(it.poller.messages()),
    "requests": lambda it: list(it.responder.requests()),
    "request": lambda it: it.requester.request(b"x"),
    "add_publication": lambda it: it.aeron.add_publication(CHANNEL, 5),
    "add_subscription": lambda it: it.aeron.add_subscription(CHANNEL, 5),
    "add_counter": lambda it: it.aeron.add_counter(1001, "c"),
    "add_destination": lambda it: it.publication.add_destination("aeron:udp?endpoint=localhost:1"),
    "remove_destination": lambda it: it.subscription.remove_destination("aeron:udp?endpoint=localhost:1"),
}


class Threads:
    """The resources of a client whose conductor runs in a thread and whose driver is silent from now on."""

    def __init__(self, driver: HandDriver) -> None:
        self.driver = driver
        driver.tick_ns = 10_000
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._drive)
        self._thread.start()
        self.aeron = Aeron.connect(DIRECTORY, files=driver.files, clock=driver.clock, on_error=lambda error: None)
        self.publication = self.aeron.add_publication(CHANNEL, 1)
        self.subscription = self.aeron.add_subscription(CHANNEL, 3)
        self.poller = mainstem.Poller([self.aeron.add_subscription(CHANNEL, 4)])
        self.requester = mainstem.Requester(self.aeron, CHANNEL, 6, **BACK)
        self.responder = mainstem.Responder(self.aeron, CHANNEL, 7, **BACK)
        for ready in driver.publications.values():
            driver.counters.cell(ready.position_limit_id).set(0)
        driver.silent = True

    def _drive(self) -> None:
        while not self._ending.wait(0.0005):
            self.driver.do_work()

    def close(self) -> None:
        self.aeron.close()
        self._ending.set()
        self._thread.join()


@pytest.mark.parametrize("name", BLOCKING)
def test_blocking_calls_that_wait_and_those_that_follow_raise_the_failure(name: str):
    it = Threads(HandDriver())
    try:
        raised: list[BaseException] = []

        def call() -> None:
            try:
                BLOCKING[name](it)
            except mainstem.MainstemError as error:
                raised.append(error)

        waiting = threading.Thread(target=call)
        waiting.start()
        waiting.join(0.05)
        assert waiting.is_alive()
        lap(it.driver, it.aeron._conductor.lock)
        wait_for(lambda: it.aeron.closed)
        waiting.join(STALL_S)
        assert raised == [it.aeron.error]
        for _ in range(2):
            with pytest.raises(ClientTimeout, match="responses of the driver were lost"):
                BLOCKING[name](it)
    finally:
        it.close()


async def all_of(iterator: Any) -> list[Any]:
    return [each async for each in iterator]


ASYNCHRONOUS: dict[str, Callable[[Any], Awaitable[Any]]] = {
    "send": lambda it: it.publication.send(b"x" * 4000),
    "messages": lambda it: all_of(it.subscription),
    "next_arrow": lambda it: it.subscription.next_arrow(),
    "poller": lambda it: all_of(it.poller.messages()),
    "requests": lambda it: all_of(it.responder.requests()),
    "serve": lambda it: it.responder.serve(None),
    "request": lambda it: it.requester.request(b"x"),
    "add_publication": lambda it: it.aeron.add_publication(CHANNEL, 5),
    "add_subscription": lambda it: it.aeron.add_subscription(CHANNEL, 5),
    "add_counter": lambda it: it.aeron.add_counter(1001, "c"),
}


async def test_asynchronous_calls_that_wait_and_those_that_follow_raise_the_failure():
    driver = HandDriver()
    driver.tick_ns = 10_000

    async def drive() -> None:
        while True:
            driver.do_work()
            await asyncio.sleep(0)

    class It:
        pass

    it: Any = It()
    driving = asyncio.create_task(drive())
    try:
        async with mainstem.aio.connect(
            DIRECTORY, files=driver.files, clock=driver.clock, on_error=lambda error: None
        ) as it.aeron:
            it.publication = await it.aeron.add_publication(CHANNEL, 1)
            it.subscription = await it.aeron.add_subscription(CHANNEL, 3)
            it.poller = mainstem.aio.Poller([await it.aeron.add_subscription(CHANNEL, 4)])
            it.requester = await mainstem.aio.Requester(it.aeron, CHANNEL, 6, **BACK)
            it.responder = await mainstem.aio.Responder(it.aeron, CHANNEL, 7, **BACK)
            for ready in driver.publications.values():
                driver.counters.cell(ready.position_limit_id).set(0)
            driver.silent = True
            waiting = [asyncio.ensure_future(call(it)) for call in ASYNCHRONOUS.values()]
            await asyncio.sleep(0.05)
            assert not any(task.done() for task in waiting)
            lap(driver, it.aeron._conductor.lock)
            raised = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), STALL_S)
            failure = it.aeron.error
            assert isinstance(failure, ClientTimeout)
            assert dict(zip(ASYNCHRONOUS, raised, strict=True)) == dict.fromkeys(ASYNCHRONOUS, failure)
            for call in ASYNCHRONOUS.values():
                with pytest.raises(ClientTimeout, match="responses of the driver were lost"):
                    await call(it)
    finally:
        driving.cancel()

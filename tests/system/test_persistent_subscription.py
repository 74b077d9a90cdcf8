"""Replay followed by live data, over a real driver with a real recorder."""

from __future__ import annotations

import asyncio
import gc
import random
import threading
import time
from typing import TYPE_CHECKING

import pytest
from tests.support.live_driver import TIMEOUT_S, wait_for
from tests.support.waiting import StallTimeout, until

from mainstem import Aeron, MediaDriver, aio
from mainstem.errors import Timeout
from mainstem.recording import Recorder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.system

MESSAGES = 60_000
CHANNEL = "aeron:udp?endpoint=localhost:{port}|term-length=256k"


@pytest.fixture
def driver() -> Iterator[MediaDriver]:
    with MediaDriver.launch() as launched:
        yield launched


@pytest.fixture
def recording(driver: MediaDriver, tmp_path: Path) -> Iterator[Callable[[str], None]]:
    """Record stream 1001 of a channel into ``tmp_path`` until the test ends."""
    stop, threads = threading.Event(), []

    def record(channel: str) -> None:
        ready = threading.Event()

        def run() -> None:
            with Aeron.connect(driver.directory) as aeron, Recorder(tmp_path) as recorder:
                recorder.add_subscription(aeron.add_subscription(channel, 1001))
                ready.set()
                while not stop.is_set():
                    if not recorder.do_work():
                        time.sleep(0.0005)

        threads.append(threading.Thread(target=run))
        threads[-1].start()
        assert ready.wait(TIMEOUT_S)

    yield record
    stop.set()
    for thread in threads:
        thread.join(TIMEOUT_S)


def payload(number: int) -> bytes:
    return b"%d:" % number + bytes(number * 7919 % 900)


def publish(driver: MediaDriver, channel: str, half: threading.Event) -> threading.Thread:
    def run() -> None:
        with Aeron.connect(driver.directory) as aeron, aeron.add_exclusive_publication(channel, 1001) as publication:
            wait_for(lambda: publication.is_connected)
            for number in range(MESSAGES):
                publication.send(payload(number), timeout=TIMEOUT_S)
                if number == MESSAGES // 2:
                    half.set()
            # While the publication lingers, the driver repairs what a late subscriber has not read.
            wait_for(lambda: finished.is_set())

    finished = threading.Event()
    thread = threading.Thread(target=run)
    thread.finished = finished  # type: ignore[attr-defined]
    thread.start()
    return thread


@pytest.mark.long
@pytest.mark.parametrize("tether", ["true", "false"])
def test_a_late_and_slow_reader_gets_everything_once(
    driver: MediaDriver, recording: Callable[[str], None], tmp_path: Path, tether: str, unused_udp_port: int
) -> None:
    channel = CHANNEL.format(port=unused_udp_port)
    recording(channel)
    half = threading.Event()
    publisher = publish(driver, channel, half)
    assert half.wait(TIMEOUT_S)
    received: list[bytes] = []
    rng = random.Random(3)
    with (
        Aeron.connect(driver.directory) as aeron,
        aeron.add_persistent_subscription(f"{channel}|tether={tether}", 1001, recordings=tmp_path,
                                          recorded_channel=channel) as subscription,
    ):  # fmt: skip
        stall = StallTimeout(f"{MESSAGES} messages")
        while len(received) < MESSAGES:
            stall.check(len(received))
            got = subscription.poll_bytes(rng.choice([1, 100, 1000]))
            received += got
            if not got or rng.random() < 0.02:
                time.sleep(rng.choice([0.0005, 0.02]))
        publisher.finished.set()  # type: ignore[attr-defined]
        assert subscription.poll_bytes() == []
    publisher.join(TIMEOUT_S)
    assert received == [payload(number) for number in range(MESSAGES)]


def test_a_cancelled_reader_loses_nothing(
    driver: MediaDriver, recording: Callable[[str], None], tmp_path: Path, unused_udp_port: int
) -> None:
    channel = CHANNEL.format(port=unused_udp_port)
    recording(channel)
    half = threading.Event()
    publisher = publish(driver, channel, half)
    assert half.wait(TIMEOUT_S)

    async def read() -> list[bytes]:
        received: list[bytes] = []
        rng = random.Random(4)
        async with (
            aio.connect(driver.directory) as aeron,
            await aeron.add_persistent_subscription(channel, 1001, recordings=tmp_path) as subscription,
        ):

            async def some() -> None:
                async for message in subscription:
                    received.append(message)
                    if len(received) == MESSAGES:
                        return

            async with asyncio.timeout(2 * TIMEOUT_S):
                while len(received) < MESSAGES:
                    task = asyncio.create_task(some())
                    await asyncio.wait([task], timeout=rng.choice([0.0, 0.001, 0.01, 0.1]))
                    task.cancel()
                    await asyncio.wait([task])
                    assert task.cancelled() or task.exception() is None
        return received

    received = asyncio.run(read())
    publisher.finished.set()  # type: ignore[attr-defined]
    publisher.join(TIMEOUT_S)
    assert received == [payload(number) for number in range(MESSAGES)]


def test_a_persistent_subscription_that_is_dropped_warns_and_is_closed(driver: MediaDriver, tmp_path: Path) -> None:
    Recorder(tmp_path).close()
    with Aeron.connect(driver.directory) as aeron:
        subscription = aeron.add_persistent_subscription("aeron:ipc", 1001, recordings=tmp_path)
        assert len(aeron.stats().subscriptions) == 1
        with pytest.warns(ResourceWarning, match="<PersistentSubscription aeron:ipc stream 1001> was not closed"):  # noqa: PT031
            del subscription
            gc.collect()
        assert aeron.stats().subscriptions == ()


@pytest.mark.parametrize("is_reading", [False, True])
async def test_a_persistent_subscription_that_is_dropped_for_asyncio(
    driver: MediaDriver, tmp_path: Path, is_reading: bool
) -> None:
    Recorder(tmp_path).close()
    async with aio.connect(driver.directory) as aeron:
        subscription = await aeron.add_persistent_subscription("aeron:ipc", 1001, recordings=tmp_path)
        if is_reading:
            with pytest.raises(Timeout):
                await anext(subscription.messages(timeout=0))
        with pytest.warns(ResourceWarning, match="<PersistentSubscription aeron:ipc stream 1001> was not closed"):  # noqa: PT031
            del subscription
            gc.collect()
        await until(lambda: aeron.stats().subscriptions == ())

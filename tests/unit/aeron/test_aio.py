from __future__ import annotations

import asyncio
import subprocess
import sys
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.waiting import STALL_S, until
from tests.unit.aeron.client.hand_driver import DIRECTORY, HandDriver

import mainstem
from mainstem.errors import BackPressured, ClosedError, DriverTimeout, RegistrationError, Timeout

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

CHANNEL = "aeron:ipc"


@asynccontextmanager
async def running(driver: HandDriver) -> AsyncIterator[Any]:
    # The client's conductor is a thread. If a turn of the loop took more of the driver's time, the client would time out whenever
    # it waited for a processor.
    driver.tick_ns = 10_000

    async def drive() -> None:
        while True:
            driver.do_work()
            await asyncio.sleep(0)

    task = asyncio.create_task(drive())
    try:
        async with mainstem.aio.connect(
            DIRECTORY, files=driver.files, clock=driver.clock, client_idle_sleep_duration_ns=1_000_000
        ) as aeron:
            yield aeron
    finally:
        task.cancel()
    assert aeron.closed


async def test_messages_are_sent_and_iterated_until_the_stream_ends():
    driver = HandDriver()
    async with running(driver) as aeron:
        subscription = await aeron.add_subscription(CHANNEL, 1001)
        publication = await aeron.add_publication(CHANNEL, 1001)
        for each in (subscription, publication):
            assert (each.channel, each.stream_id, each.closed, each.error) == (CHANNEL, 1001, False, None)
            assert f"{CHANNEL} stream 1001" in repr(each)
        assert aeron.directory == DIRECTORY
        assert len(aeron.stats().publications) == 1
        sent = [bytes([i]) * i * 100 for i in range(20)]
        position = 0
        for message in sent:
            position = await publication.send(message, timeout=STALL_S)
        log = driver.files.map(f"{DIRECTORY}/{publication.registration_id}.logbuffer")
        log.put_i64(3 * 65536 + 128, position)
        assert [message async for message in subscription] == sent
        assert subscription.is_end_of_stream
        async with subscription:
            pass
        assert subscription.closed


async def test_waiting_times_out():
    driver = HandDriver()
    async with running(driver) as aeron:
        async with aeron.add_exclusive_publication(CHANNEL, 1) as publication:
            driver.counters.cell(driver.publications[publication.registration_id].position_limit_id).set(0)
            with pytest.raises(BackPressured, match=r"for 0\.01 s"):
                await publication.send(b"x", timeout=0.01)
        with pytest.raises(ClosedError):
            await publication.send(b"x")
        subscription = await aeron.add_subscription(CHANNEL, 7)
        with pytest.raises(Timeout):
            async for _ in subscription.messages(timeout=0.01):
                pass
        with pytest.raises(Timeout):
            await subscription.next_arrow(timeout=0.01)


async def test_batches_counters_and_refusals_come_without_blocking_the_loop():
    pytest.importorskip("pyarrow")
    driver = HandDriver()
    async with running(driver) as aeron:
        subscription = await aeron.add_subscription(CHANNEL, 1)
        publication = await aeron.add_publication(CHANNEL, 1)
        assert publication.offer(b"one") == 64
        batch = await subscription.next_arrow(timeout=STALL_S)
        assert batch.column("payload").to_pylist() == [b"one"]
        counter = await aeron.add_counter(1001, "mine")
        assert counter.get() == 0
        driver.refusal = (1, "no")
        with pytest.raises(RegistrationError):
            await aeron.add_publication("aeron:none", 1)


@pytest.mark.parametrize(
    "add",
    [
        lambda aeron: aeron.add_publication(CHANNEL, 1),
        lambda aeron: aeron.add_exclusive_publication(CHANNEL, 1),
        lambda aeron: aeron.add_subscription(CHANNEL, 1),
        lambda aeron: aeron.add_counter(1001, "c"),
        lambda aeron: aeron.add_static_counter(1002, "c", registration_id=1),
    ],
)
async def test_adds_can_be_awaited_or_entered(add: Any):
    driver = HandDriver()
    async with running(driver) as aeron:
        awaited = await add(aeron)
        assert not awaited.closed
        async with add(aeron) as entered:
            assert type(entered) is type(awaited)
            assert not entered.closed
        assert entered.closed
        await awaited.close()
        commands = len(driver.commands)
        with pytest.warns(RuntimeWarning, match=r"add_\w+\(\) was never awaited"):
            add(aeron)
        assert len(driver.commands) == commands


@pytest.mark.parametrize(
    ("add", "removal"),
    [
        (lambda aeron: aeron.add_publication(CHANNEL, 1), "RemovePublication"),
        (lambda aeron: aeron.add_exclusive_publication(CHANNEL, 1), "RemovePublication"),
        (lambda aeron: aeron.add_subscription(CHANNEL, 1), "RemoveSubscription"),
        (lambda aeron: aeron.add_counter(1001, "c"), "RemoveCounter"),
    ],
)
async def test_a_cancelled_add_leaves_nothing_in_the_driver(add: Any, removal: str):
    driver = HandDriver()
    async with running(driver) as aeron:
        for turns in (1, 2, 5, 20, 40):
            driver.commands.clear()
            task = asyncio.ensure_future(add(aeron))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await (await task).close()  # the operation was already complete
            await until(lambda: [type(command).__name__ for command in driver.commands][-1:] == [removal])
            assert len(driver.commands) == 2
            assert driver.commands[1].registration_id == driver.commands[0].correlation_id
            assert not aeron._conductor.resources


@pytest.mark.parametrize("kind", ["Requester", "Responder"])
async def test_opening_gives_up_after_its_timeout(kind: str):
    driver = HandDriver()
    async with running(driver) as aeron:
        driver.silent = True
        back = {"response_channel": CHANNEL, "response_stream_id": 1002}
        with pytest.raises(DriverTimeout, match=r"within 0\.01 s"):
            await getattr(mainstem.aio, kind)(aeron, CHANNEL, 1001, **back, timeout=0.01)


async def test_connecting_without_a_driver_ends_in_a_timeout():
    driver = HandDriver(ready=False)
    connecting = mainstem.aio.connect(DIRECTORY, files=driver.files, clock=driver.clock, driver_timeout_ns=1_000_000)
    task = asyncio.ensure_future(connecting)
    await asyncio.sleep(0)
    driver.clock.advance_ns(2_000_000)
    with pytest.raises(DriverTimeout):
        await task
    driver = HandDriver()
    aeron = await mainstem.aio.connect(DIRECTORY, files=driver.files, clock=driver.clock)
    await aeron.close()
    assert aeron.closed


@pytest.mark.parametrize(
    "statement", ["import mainstem.aio", "from mainstem import aio", "import mainstem; mainstem.aio.Requester"]
)
def test_the_asyncio_client_is_a_module_however_it_is_imported(statement: str):
    code = f"{statement}; import sys; print(sys.modules['mainstem.aio'].__name__)"
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=STALL_S, check=True
    ).stdout
    assert out == "mainstem.aio\n"


def test_the_asyncio_classes_have_the_names_of_the_blocking_ones():
    classes = {name for name in mainstem.aio.__all__ if isinstance(getattr(mainstem.aio, name), type)}
    assert classes <= set(mainstem.__all__)
    assert {getattr(mainstem.aio, name).__name__ for name in classes} == classes

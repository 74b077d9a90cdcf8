"""Many subscriptions in one loop, and the stats of a client."""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import TYPE_CHECKING

import pytest
from tests.support.waiting import STALL_S, until, wait_for

import mainstem
from mainstem.errors import ConfigurationError, DriverTimeout, Timeout

if TYPE_CHECKING:
    from collections.abc import Iterator

CHANNEL = "aeron:ipc?term-length=64k"
STREAMS = (1001, 1002, 1003)


@pytest.fixture
def driver() -> Iterator[mainstem.MediaDriver]:
    with mainstem.MediaDriver.launch(threading_mode="INVOKER") as running:
        yield running


@pytest.fixture
def aeron(driver: mainstem.MediaDriver) -> Iterator[mainstem.Aeron]:
    with mainstem.Aeron.connect(driver.directory, driver_invoker=driver.do_work, client_name="prices") as client:
        yield client


def publish(aeron: mainstem.Aeron, stream_id: int, *messages: bytes) -> mainstem.Publication:
    publication = aeron.add_publication(CHANNEL, stream_id)
    for message in messages:
        publication.send(message, timeout=STALL_S)
    return publication


def test_a_busy_stream_does_not_delay_another(driver: mainstem.MediaDriver, aeron: mainstem.Aeron) -> None:
    busy, quiet, silent = (aeron.add_subscription(CHANNEL, each) for each in STREAMS)
    publish(aeron, busy.stream_id, *(b"%d" % number for number in range(100)))
    publish(aeron, quiet.stream_id, b"quiet")
    # The client learns of images in its own thread, and of this one last.
    wait_for(lambda: driver.do_work() >= 0 and busy.is_connected and quiet.is_connected)
    poller = mainstem.Poller([busy, silent, quiet], batch=8)
    messages = poller.messages(timeout=STALL_S)
    got = [next(messages) for _ in range(101)]
    assert [message for subscription, message in got if subscription is busy] == [b"%d" % n for n in range(100)]
    assert [index for index, (subscription, _) in enumerate(got) if subscription is quiet] == [8]


def test_messages_left_in_an_iterator_are_not_lost(aeron: mainstem.Aeron) -> None:
    first, second = (aeron.add_subscription(CHANNEL, each) for each in STREAMS[:2])
    publish(aeron, first.stream_id, b"1", b"2", b"3")
    publish(aeron, second.stream_id, b"4")
    poller = mainstem.Poller([first, second])
    assert next(poller.messages(timeout=STALL_S)) == (first, b"1")
    poller.remove(first)
    poller.remove(first)
    assert next(poller.messages(timeout=STALL_S)) == (second, b"4")
    with pytest.raises(Timeout, match=r"on <Poller of 1 subscriptions> within 0.01 s"):
        next(poller.messages(timeout=0.01))
    assert list(islice(first.messages(timeout=STALL_S), 2)) == [b"2", b"3"]
    publish(aeron, first.stream_id, b"5")
    poller.add(first)
    poller.add(first)
    assert poller.subscriptions == (second, first)
    [(subscription, message)] = [next(poller.messages(timeout=STALL_S, metadata=True))]
    assert (subscription, message.payload, message.stream_id) == (first, b"5", first.stream_id)


def test_it_ends_when_every_subscription_has_ended_or_is_closed(aeron: mainstem.Aeron) -> None:
    first, second = (aeron.add_subscription(CHANNEL, each) for each in STREAMS[:2])
    poller = mainstem.Poller([first, second])
    publish(aeron, first.stream_id, b"last").close()
    messages = poller.messages(timeout=STALL_S)
    assert next(messages) == (first, b"last")
    assert not poller.is_finished
    second.close()
    assert list(messages) == []
    assert poller.subscriptions == (first,)
    assert list(mainstem.Poller().messages()) == []


def test_subscriptions_are_one_clients_and_a_turn_is_a_message_at_least(
    aeron: mainstem.Aeron, driver: mainstem.MediaDriver
) -> None:
    with mainstem.Aeron.connect(driver.directory, driver_invoker=driver.do_work) as other:
        mine, others = aeron.add_subscription(CHANNEL, 1), other.add_subscription(CHANNEL, 1)
        with pytest.raises(ConfigurationError, match="another client"):
            mainstem.Poller([mine, others])
    with pytest.raises(ConfigurationError, match="batch"):
        mainstem.Poller(batch=0)


def test_the_end_of_the_driver_is_raised() -> None:
    with mainstem.MediaDriver.launch(threads=True) as ending, mainstem.Aeron.connect(ending.directory) as aeron:
        poller = mainstem.Poller([aeron.add_subscription(CHANNEL, 1)])
        ending.close()
        with pytest.raises(DriverTimeout):
            next(poller.messages(timeout=STALL_S))


async def test_a_cancelled_iterator_loses_nothing_and_other_tasks_continue() -> None:
    with mainstem.MediaDriver.launch(threads=True) as running:
        async with mainstem.aio.connect(running.directory) as aeron:
            subscriptions = [await aeron.add_subscription(CHANNEL, each) for each in STREAMS]
            publication = await aeron.add_publication(CHANNEL, STREAMS[1])
            poller = mainstem.aio.Poller(subscriptions)
            got: list[bytes] = []

            async def read() -> None:
                async for subscription, message in poller.messages():
                    assert subscription is subscriptions[1]
                    got.append(message)
                    await asyncio.sleep(0)

            for number in range(20):
                task = asyncio.create_task(read())
                await publication.send(b"%d" % number, timeout=STALL_S)
                await publication.send(b"%d" % -number, timeout=STALL_S)
                await until(lambda number=number: len(got) > number, progress=lambda: len(got))  # type: ignore[misc]
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            task = asyncio.create_task(read())
            await until(lambda: len(got) == 40, progress=lambda: len(got))
            for each in subscriptions:
                await each.close()
            await task
            assert [each async for each in mainstem.aio.Poller(subscriptions).messages()] == []
            assert got == [b"%d" % each for number in range(20) for each in (number, -number)]
            assert poller.subscriptions == ()


def test_client_stats_match_its_streams(aeron: mainstem.Aeron) -> None:
    subscription = aeron.add_subscription(CHANNEL, 7)
    publication = publish(aeron, 7, bytes(100), bytes(100))
    assert next(subscription.messages(timeout=STALL_S)) == bytes(100)
    counter = aeron.add_counter(1001, "tides")
    stats = aeron.stats()
    [shown], [read] = stats.publications, stats.subscriptions
    assert (stats.client_id, stats.name, stats.directory) == (aeron.client_id, "prices", aeron.directory)
    assert (stats.counters, stats.pending) == (1, 0)
    assert 0 <= stats.driver_heartbeat_age_ms < STALL_S * 1000
    assert (shown.channel, shown.stream_id, shown.session_id) == (CHANNEL, 7, publication.session_id)
    assert (shown.is_connected, shown.is_exclusive, shown.position) == (True, False, 320)
    assert shown.available_window == publication.available_window > 0
    [image] = read.images
    assert (image.session_id, image.source_identity, image.join_position) == (publication.session_id, "aeron:ipc", 0)
    assert (image.position, image.is_end_of_stream) == (320, False)
    assert "publication of stream 7" in str(stats)
    assert f"session {image.session_id} from aeron:ipc: position 320, joined at 0" in str(stats)
    counter.close()
    subscription.close()
    assert (aeron.stats().counters, aeron.stats().subscriptions) == (0, ())
    aeron.close()
    assert aeron.stats().publications == ()
    assert aeron.stats().driver_heartbeat_age_ms == -1

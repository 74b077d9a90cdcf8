"""Messages with their metadata, and iterators abandoned before their end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from tests.support.waiting import STALL_S, wait_for

import mainstem
from mainstem.errors import LocalProtocolError, Timeout

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

CHANNEL = "aeron:ipc?term-length=64k"


@pytest.fixture
def aeron() -> Iterator[mainstem.Aeron]:
    with (
        mainstem.MediaDriver.launch(threading_mode="INVOKER") as driver,
        mainstem.Aeron.connect(driver.directory, driver_invoker=driver.do_work) as client,
    ):
        yield client


@pytest.fixture
async def client(aeron: mainstem.Aeron) -> AsyncIterator[mainstem.aio.Aeron]:
    async with mainstem.aio.connect(aeron.directory, driver_invoker=aeron.context.driver_invoker) as client:
        yield client


def test_a_message_has_the_fields_of_its_frames(aeron: mainstem.Aeron) -> None:
    subscription = aeron.add_subscription(CHANNEL, 1001)
    publication = aeron.add_exclusive_publication(CHANNEL, 1001)
    values = iter(range(100, 200))
    publication.send(b"one", reserved_value=7, timeout=STALL_S)
    # A message of several frames, each with its own reserved value.
    publication.send(bytes(5000), reserved_value=lambda _: next(values), timeout=STALL_S)
    publication.send(b"", reserved_value=-(2**63), timeout=STALL_S)
    iterator = subscription.messages(metadata=True, timeout=STALL_S)
    got = [next(iterator) for _ in range(3)]
    assert [message.payload for message in got] == [b"one", bytes(5000), b""]
    first = got[1].reserved_value
    assert 100 <= first < 110
    assert [message.reserved_value for message in got] == [7, first, -(2**63)]
    assert got[0].position == 64
    assert got[2].position == publication.position == got[1].position + 32
    assert {(m.session_id, m.stream_id, m.source_identity) for m in got} == {
        (publication.session_id, 1001, "aeron:ipc")
    }
    assert got[0].image is subscription.images[0]
    assert (bytes(got[0]), len(got[0]), len(got[2])) == (b"one", 3, 0)
    assert repr(got[0]) == f"<Message of 3 bytes, session {publication.session_id}, position 64>"
    with pytest.raises(AttributeError):
        got[0].position = 1
    subscription.close()
    assert got[0].source_identity == "aeron:ipc"
    assert mainstem.Message(b"by hand", reserved_value=4).source_identity == ""


def test_leaving_an_iterator_loses_nothing(aeron: mainstem.Aeron) -> None:
    subscription = aeron.add_subscription(CHANNEL, 1001)
    publication = aeron.add_publication(CHANNEL, 1001)
    for number in range(9):
        publication.send(b"%d" % number, timeout=STALL_S)
    assert next(subscription.messages(metadata=True, timeout=1.0)).payload == b"0"
    assert next(subscription.messages(metadata=True, timeout=1.0)).payload == b"1"
    assert next(subscription.messages(timeout=1.0)) == b"2", "without metadata it goes on too"
    with pytest.raises(LocalProtocolError, match="6 messages"):
        next(subscription.messages(metadata=True, timeout=1.0))
    one, other = subscription.messages(timeout=1.0), subscription.messages(timeout=1.0)
    assert [next(one), next(other), next(one), next(other)] == [b"3", b"4", b"5", b"6"]
    rest = subscription.messages(timeout=0.01)
    assert [next(rest), next(rest)] == [b"7", b"8"]
    with pytest.raises(Timeout):
        next(rest)
    publication.send(b"9", timeout=STALL_S)
    assert next(subscription.messages(metadata=True, timeout=STALL_S)).payload == b"9"


@pytest.mark.parametrize("metadata", [True, False])
async def test_a_cancelled_iterator_loses_nothing(
    aeron: mainstem.Aeron, client: mainstem.aio.Aeron, metadata: bool
) -> None:
    subscription = await client.add_subscription(CHANNEL, 1001)
    publication = aeron.add_publication(CHANNEL, 1001)
    # Nothing reads while this thread waits for space, so the client must see the image before the window is full.
    wait_for(lambda: subscription.is_connected)
    got: list[bytes] = []

    async def read(steps: int) -> None:
        async for message in subscription.messages(metadata=metadata):
            got.append(bytes(message))
            for _ in range(steps):
                await asyncio.sleep(0)

    sent = 0
    for turns in range(60):
        while sent < 10 * (turns + 1):
            publication.send(b"%d" % sent, timeout=STALL_S)
            sent += 1
        task = asyncio.create_task(read(turns % 3))
        for _ in range(turns % 17):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert 0 < len(got) < sent
    async for message in subscription.messages(metadata=metadata, timeout=STALL_S):
        got.append(bytes(message))
        if len(got) == sent:
            break
    assert got == [b"%d" % number for number in range(sent)]


async def test_a_cancelled_receive_loses_nothing(aeron: mainstem.Aeron, client: mainstem.aio.Aeron) -> None:
    subscription = await client.add_subscription(CHANNEL, 1001)
    publication = aeron.add_publication(CHANNEL, 1001)
    wait_for(lambda: subscription.is_connected)
    got: list[bytes] = []

    async def read() -> None:
        while True:
            got.append(await subscription.receive())

    for turns in range(40):
        for number in range(5):
            publication.send(b"%d" % (5 * turns + number), timeout=STALL_S)
        task = asyncio.create_task(read())
        for _ in range(turns % 7):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    while len(got) < 200:
        got.append(await subscription.receive(timeout=STALL_S))
    assert got == [b"%d" % number for number in range(200)]
    with pytest.raises(Timeout):
        await subscription.receive(timeout=0.01)


async def test_receiving_messages_that_keep_coming_leaves_other_tasks_their_turns(
    aeron: mainstem.Aeron, client: mainstem.aio.Aeron
) -> None:
    subscription = await client.add_subscription(CHANNEL, 1001)
    publication = aeron.add_publication(CHANNEL, 1001)
    wait_for(lambda: subscription.is_connected)
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with asyncio.timeout(STALL_S):
        task = asyncio.create_task(other())
        while turns < 10:
            publication.send(b"tide", timeout=STALL_S)
            assert await subscription.receive() == b"tide"
        task.cancel()

"""An iterator does not end while the image of an already connected publisher waits for the conductor."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.waiting import STALL_S, wait_for

import mainstem
from mainstem.errors import Timeout

if TYPE_CHECKING:
    from collections.abc import Iterator


class Restarted:
    """A subscriber whose conductor runs only when it waits, and a publisher that left and returned in the meantime."""

    def __init__(self, directory: str) -> None:
        self.subscriber = mainstem.connect(directory, use_invoker=True)
        self.publisher = mainstem.connect(directory)
        self.subscription = self.subscriber.add_subscription("aeron:ipc", 1001)
        self.subscriber.invoke()

    def publish(self, message: bytes) -> mainstem.Publication:
        publication = self.publisher.add_publication("aeron:ipc", 1001)
        publication.send(message, timeout=STALL_S)
        return publication

    def restart(self) -> None:
        first = self.publish(b"before")
        assert next(self.subscription.messages(timeout=STALL_S)) == b"before"
        first.close()
        wait_for(lambda: (self.subscriber.invoke(), self.subscription.images)[1] == ())
        assert self.subscription.is_end_of_stream
        self.publish(b"after")

    def close(self) -> None:
        self.subscriber.close()
        self.publisher.close()


@pytest.fixture
def restarted() -> Iterator[Restarted]:
    with mainstem.MediaDriver.launch(
        threads=True, ipc_term_buffer_length=1 << 16, publication_linger_timeout="1ms", timer_interval="1ms"
    ) as driver:
        world = Restarted(driver.directory)
        world.restart()
        yield world
        world.close()


def test_messages_of_a_restarted_publisher_are_iterated(restarted: Restarted) -> None:
    assert next(restarted.subscription.messages(timeout=STALL_S)) == b"after"


def test_a_poller_iterates_messages_of_a_restarted_publisher(restarted: Restarted) -> None:
    poller = mainstem.Poller([restarted.subscription])
    assert next(poller.messages(timeout=STALL_S)) == (restarted.subscription, b"after")


def test_an_end_that_no_publisher_follows_ends_the_iteration(restarted: Restarted) -> None:
    assert next(restarted.subscription.messages(timeout=STALL_S)) == b"after"
    restarted.publisher.close()
    assert list(restarted.subscription.messages()) == []
    assert list(restarted.subscription.messages(timeout=0)) == []


@pytest.mark.parametrize("polled", [False, True])
async def test_an_asyncio_subscriber_iterates_messages_of_a_restarted_publisher(polled: bool) -> None:
    with (
        mainstem.MediaDriver.launch(
            threads=True, ipc_term_buffer_length=1 << 16, publication_linger_timeout="1ms", timer_interval="1ms"
        ) as driver,
        mainstem.connect(driver.directory) as publisher,
    ):
        async with (
            mainstem.aio.connect(driver.directory, use_invoker=True) as subscriber,
            subscriber.add_subscription("aeron:ipc", 1001) as subscription,
        ):
            subscriber.invoke()
            stream: Any = mainstem.aio.Poller([subscription]) if polled else subscription

            async def received() -> Any:
                message = await anext(stream.messages(timeout=STALL_S))
                return message[1] if polled else message

            first = publisher.add_publication("aeron:ipc", 1001)
            first.send(b"before", timeout=STALL_S)
            assert await received() == b"before"
            first.close()
            while subscription.images:
                subscriber.invoke()
                await asyncio.sleep(0.001)
            publisher.add_publication("aeron:ipc", 1001).send(b"after", timeout=STALL_S)
            assert await received() == b"after"


def test_a_silent_connected_publisher_is_a_timeout(restarted: Restarted) -> None:
    assert next(restarted.subscription.messages(timeout=STALL_S)) == b"after"
    with pytest.raises(Timeout):
        next(restarted.subscription.messages(timeout=0.01))

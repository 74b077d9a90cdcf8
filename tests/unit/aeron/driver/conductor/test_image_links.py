"""When subscribers are linked to a stream: before any client can move it on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.support.invoked_driver import CLIENT, InvokedDriver, count, only

from mainstem.aeron.command import commands, responses
from mainstem.aeron.counters import CounterType
from mainstem.aeron.driver.conductor.client_proxy import ClientProxy
from mainstem.aeron.driver.counters import DriverCounters

if TYPE_CHECKING:
    from mainstem._core.memory.counters import CounterCell

UDP = "aeron:udp?endpoint=127.0.0.1:40100"
SUBSCRIBERS = 3


def positions(driver: InvokedDriver) -> int:
    """Return how many subscribers are linked."""
    return sum(driver.counters.type_id(each) == CounterType.SUBSCRIBER_POSITION for each in driver.counters)


@pytest.fixture
def linked_when_announced(driver: InvokedDriver, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gets the number of linked subscribers at each announcement of a publication or an image."""
    seen: list[int] = []
    send = ClientProxy.send

    def observe(proxy: ClientProxy, response: responses.Response) -> None:
        if isinstance(response, responses.OnPublicationReady | responses.OnAvailableImage):
            seen.append(positions(driver))
        send(proxy, response)

    monkeypatch.setattr(ClientProxy, "send", observe)
    return seen


@pytest.mark.parametrize(("publication", "subscription"), [("aeron:ipc", "aeron:ipc"), (UDP, f"aeron-spy:{UDP}")])
def test_every_subscriber_is_linked_when_a_publication_is_announced(
    driver: InvokedDriver, linked_when_announced: list[int], publication: str, subscription: str
) -> None:
    for _ in range(SUBSCRIBERS):
        driver.add_subscription(subscription)
    found = driver.add_publication(publication)
    kinds = [type(response) for response in found]
    assert kinds == [responses.OnPublicationReady, *[responses.OnAvailableImage] * SUBSCRIBERS]
    assert linked_when_announced == [SUBSCRIBERS] * (1 + SUBSCRIBERS)


def test_every_subscriber_is_linked_when_the_first_image_is_announced(
    driver: InvokedDriver, linked_when_announced: list[int]
) -> None:
    for _ in range(SUBSCRIBERS):
        driver.add_subscription(UDP)
    found = driver.add_publication(UDP) + driver.run(0.5)
    assert count(found, responses.OnAvailableImage) == SUBSCRIBERS
    assert linked_when_announced == [0] + [SUBSCRIBERS] * SUBSCRIBERS


def test_every_subscriber_is_linked_again_before_a_rejected_publication_is_announced(
    driver: InvokedDriver, linked_when_announced: list[int]
) -> None:
    for _ in range(SUBSCRIBERS):
        driver.add_subscription("aeron:ipc")
    ready = only(driver.add_publication("aeron:ipc"), responses.OnPublicationReady)
    reject = commands.RejectImage(
        client_id=CLIENT,
        correlation_id=driver.next_id(),
        image_correlation_id=ready.correlation_id,
        position=0,
        reason="test",
    )
    assert count(driver.ask(reject), responses.OnOperationSuccess) == 1
    linked_when_announced.clear()
    driver.run(15)
    assert linked_when_announced == [SUBSCRIBERS] * SUBSCRIBERS


def leave_counters(monkeypatch: pytest.MonkeyPatch, free: int) -> None:
    """Limit the driver to ``free`` more counters, as if the file were full after that."""
    allocate = DriverCounters.allocate
    left = [free]

    def limited(counters: DriverCounters, *args: Any, **options: Any) -> CounterCell:
        left[0] -= 1
        if left[0] < 0:
            raise BufferError("all counters are in use")
        return allocate(counters, *args, **options)

    monkeypatch.setattr(DriverCounters, "allocate", limited)


@pytest.mark.parametrize("channel", ["aeron:ipc", UDP])
def test_a_publication_whose_subscribers_cannot_all_be_linked_is_read_by_the_others(
    driver: InvokedDriver, monkeypatch: pytest.MonkeyPatch, channel: str
) -> None:
    driver.add_publication(channel, 1002)
    without = len(driver.labels())
    driver.add_publication(channel, 1003)
    needed = len(driver.labels()) - without
    for _ in range(SUBSCRIBERS):
        driver.add_subscription(channel if channel == "aeron:ipc" else f"aeron-spy:{channel}")
    leave_counters(monkeypatch, needed + SUBSCRIBERS - 1)
    found = driver.add_publication(channel)
    assert count(found, responses.OnPublicationReady) == 1
    assert count(found, responses.OnAvailableImage) == SUBSCRIBERS - 1


def test_an_image_whose_subscribers_cannot_all_be_linked_is_read_by_the_others(
    driver: InvokedDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver.add_subscription(UDP, 1002)
    driver.add_publication(UDP, 1002)
    driver.run(0.5)
    without = len(driver.labels())
    driver.add_subscription(UDP, 1003)
    driver.add_publication(UDP, 1003)
    driver.run(0.5)
    needed = len(driver.labels()) - without - 1
    for _ in range(SUBSCRIBERS):
        driver.add_subscription(UDP)
    leave_counters(monkeypatch, needed + SUBSCRIBERS - 1)
    found = driver.add_publication(UDP) + driver.run(0.5)
    assert count(found, responses.OnAvailableImage) == SUBSCRIBERS - 1
    assert driver.log(only(found, responses.OnPublicationReady).log_file).is_connected

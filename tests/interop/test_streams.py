"""Streams between Mainstem and the reference, in both directions: clients on each other's drivers, drivers on one network.

The number of messages is MAINSTEM_INTEROP_MESSAGES (20,000 when it is not set).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

MESSAGES = int(os.environ.get("MAINSTEM_INTEROP_MESSAGES", "20000"))
STREAM = 1001
LARGEST_64K = 8_192  # the longest message of a term of 64 KiB
LARGEST_1M = 131_072

# (publisher's client, its driver, subscriber's driver, subscriber's client); one driver when both are the same.
ONE_DRIVER = [
    ("mainstem", "reference", "pyaeron"),
    ("pyaeron", "reference", "mainstem"),
    ("pyaeron", "mainstem", "pyaeron"),
    ("mainstem", "mainstem", "pyaeron"),
    ("pyaeron", "mainstem", "mainstem"),
    ("mainstem", "reference", "mainstem"),
]
TWO_DRIVERS = [
    ("mainstem", "mainstem", "reference", "mainstem"),
    ("mainstem", "reference", "mainstem", "mainstem"),
    ("pyaeron", "mainstem", "reference", "pyaeron"),
    ("pyaeron", "reference", "mainstem", "pyaeron"),
]
LOSS = {
    "AERON_UDP_CHANNEL_INCOMING_INTERCEPTORS": "loss",
    "AERON_UDP_CHANNEL_TRANSPORT_BINDINGS_LOSS_ARGS": "rate=0.1|seed=42|recv-msg-mask=0xF",
}


def carry(
    start_peer: Callable[..., Any],
    publisher: tuple[str, Any, str],
    subscriber: tuple[str, Any, str],
    *,
    count: int = MESSAGES,
    largest: int = LARGEST_64K,
    exclusive: bool = False,
    slow_s: float = 0.0,
) -> dict[str, Any]:
    """Sends ``count`` messages from one end to the other; every one must arrive once, in order, whole."""
    kind, driver, channel = subscriber
    slow = {"SLOW_S": str(slow_s)}
    receiving = start_peer(kind, "sub", driver.directory, channel, STREAM, count, largest, environment=slow)
    receiving.wait_ready()
    kind, driver, channel = publisher
    arguments = ["pub", driver.directory, channel, STREAM, count, largest, *(["exclusive"] if exclusive else [])]
    sending = start_peer(kind, *arguments)
    sending.wait_ready()
    received, sent = receiving.result(), sending.result()
    assert sent["sent"] == count
    assert received == {"count": count, "fault": ""}
    return sent


@pytest.mark.parametrize(("publisher", "driver", "subscriber"), ONE_DRIVER)
def test_carries_mixed_messages_over_ipc(
    start_driver: Callable[..., Any], start_peer: Callable[..., Any], publisher: str, driver: str, subscriber: str
) -> None:
    one = start_driver(driver)
    channel = "aeron:ipc?term-length=1m"
    carry(start_peer, (publisher, one, channel), (subscriber, one, channel), largest=LARGEST_1M)


@pytest.mark.parametrize("exclusive", [False, True], ids=["concurrent", "exclusive"])
@pytest.mark.parametrize(("publisher", "driver_a", "driver_b", "subscriber"), TWO_DRIVERS)
def test_carries_mixed_messages_over_udp(
    start_driver: Callable[..., Any],
    start_peer: Callable[..., Any],
    publisher: str,
    driver_a: str,
    driver_b: str,
    subscriber: str,
    exclusive: bool,
) -> None:
    channel = "aeron:udp?endpoint=127.0.0.1:24801"
    sender, receiver = start_driver(driver_a), start_driver(driver_b)
    carry(
        start_peer,
        (publisher, sender, f"{channel}|term-length=64k"),
        (subscriber, receiver, channel),
        exclusive=exclusive,
    )


@pytest.mark.parametrize(("publisher", "driver_a", "driver_b", "subscriber"), TWO_DRIVERS[:2])
@pytest.mark.parametrize("lossy", ["sender", "receiver"])
def test_loses_nothing_while_a_tenth_of_the_datagrams_is_dropped(
    start_driver: Callable[..., Any],
    start_peer: Callable[..., Any],
    publisher: str,
    driver_a: str,
    driver_b: str,
    subscriber: str,
    lossy: str,
) -> None:
    channel = "aeron:udp?endpoint=127.0.0.1:24802"
    sender = start_driver(driver_a, **(LOSS if lossy == "sender" else {}))
    receiver = start_driver(driver_b, **(LOSS if lossy == "receiver" else {}))
    carry(start_peer, (publisher, sender, f"{channel}|term-length=1m"), (subscriber, receiver, channel))


@pytest.mark.parametrize(("publisher", "driver_a", "driver_b", "subscriber"), TWO_DRIVERS[:2])
def test_a_slow_subscriber_holds_the_publisher_back(
    start_driver: Callable[..., Any],
    start_peer: Callable[..., Any],
    publisher: str,
    driver_a: str,
    driver_b: str,
    subscriber: str,
) -> None:
    channel = "aeron:udp?endpoint=127.0.0.1:24803"
    sender, receiver = start_driver(driver_a), start_driver(driver_b)
    sent = carry(
        start_peer,
        (publisher, sender, f"{channel}|term-length=64k"),
        (subscriber, receiver, channel),
        count=5_000,
        slow_s=0.005,
    )
    assert sent["refused"] > 0


@pytest.mark.parametrize(("publisher", "driver_a", "driver_b", "subscriber"), TWO_DRIVERS[:2])
def test_carries_a_stream_over_multicast(
    start_driver: Callable[..., Any],
    start_peer: Callable[..., Any],
    publisher: str,
    driver_a: str,
    driver_b: str,
    subscriber: str,
) -> None:
    channel = "aeron:udp?endpoint=224.20.30.39:24804|interface=localhost"
    sender, receiver = start_driver(driver_a), start_driver(driver_b)
    carry(start_peer, (publisher, sender, f"{channel}|term-length=64k"), (subscriber, receiver, channel))


@pytest.mark.parametrize(("publisher", "driver_a", "driver_b", "subscriber"), TWO_DRIVERS[:2])
def test_carries_a_stream_to_a_dynamic_destination(
    start_driver: Callable[..., Any],
    start_peer: Callable[..., Any],
    publisher: str,
    driver_a: str,
    driver_b: str,
    subscriber: str,
) -> None:
    control = "control=127.0.0.1:24805|control-mode=dynamic"
    sender, receiver = start_driver(driver_a), start_driver(driver_b)
    carry(
        start_peer,
        (publisher, sender, f"aeron:udp?{control}|term-length=64k"),
        (subscriber, receiver, f"aeron:udp?endpoint=127.0.0.1:24806|{control}"),
    )

"""Refusals have the words of the reference driver, which programs match. Advice of Mainstem's may follow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.support.invoked_driver import CLIENT, InvokedDriver, only

from mainstem.aeron.command import commands, responses

if TYPE_CHECKING:
    from collections.abc import Iterator

UDP = "aeron:udp?endpoint=127.0.0.1:20161"


@pytest.fixture(scope="module")
def driver() -> Iterator[InvokedDriver]:
    driver = InvokedDriver()
    yield driver
    driver.close()


def refused(driver: InvokedDriver, kind: type[Any], **fields: Any) -> str:
    found = driver.ask(kind(client_id=CLIENT, correlation_id=driver.next_id(), **fields))
    return only(found, responses.OnError).message


LONG = f"aeron:ipc?alias={'x' * 5000}"


@pytest.mark.parametrize(
    ("channel", "words"),
    [
        ("invalidaeron:ipc", "Aeron URIs must start with 'aeron:'"),
        (LONG, LONG[:4095]),
        (LONG, "exceeds max supported length (4095)"),
        ("aeron:tcp?endpoint=localhost:1", "unknown media: "),
        (f"aeron-spy:{UDP}", "spies are invalid"),
        ("aeron:udp?mtu=1408", "URIs for UDP must specify"),
        ("aeron:udp?endpoint=127.0.0.1:0", "endpoint has port=0 for publication"),
        ("aeron:udp?endpoint=224.20.30.39:20162|interface={nowhere}", "unknown interface nowhere"),
        (f"{UDP}|term-length=64k|pub-wnd=64", "pub-wnd=64 cannot be less than the mtu="),
        (f"{UDP}|term-length=64k|pub-wnd=64k", "pub-wnd=65536 must not exceed half the term-length=65536"),
        (f"{UDP}|term-id=5", "params must be used as a complete set: init-term-id term-id term-offset"),
        (f"{UDP}|mtu=8992|so-sndbuf=8k", "MTU greater than SO_SNDBUF for channel: mtu=8992 so-sndbuf=8192"),
        (
            "aeron:udp?control-mode=response|control=127.0.0.1:20163",
            "control-mode=response was specified, but no response-correlation-id set",
        ),
        (
            "aeron:udp?control-mode=response|control=127.0.0.1:20163|response-correlation-id=777",
            "image.correlationId=777 not found",
        ),
        (f"{UDP}|response-correlation-id=777", "unable to find response subscription for response-correlation-id=777"),
    ],
)
def test_a_publication_is_refused_in_the_references_words(driver: InvokedDriver, channel: str, words: str) -> None:
    assert words in refused(driver, commands.AddExclusivePublication, channel=channel, stream_id=1001)


def test_destinations_are_refused_in_the_references_words(driver: InvokedDriver) -> None:
    manual = only(driver.add_publication("aeron:udp?control-mode=manual"), responses.OnPublicationReady)

    def add(channel: str, registration_id: int = manual.correlation_id) -> str:
        kind = commands.AddDestination
        return refused(driver, kind, registration_id=registration_id, channel=channel)

    assert "Aeron spies are invalid as send destinations" in add(f"aeron-spy:{UDP}")
    assert "endpoint has port=0 for send destination" in add("aeron:udp?endpoint=127.0.0.1:0")
    for key in ("mtu", "rcv-wnd", "so-rcvbuf", "so-sndbuf"):
        assert f"destinations must not contain the key: {key}" in add(f"{UDP}|{key}=4096")
    plain = only(driver.add_publication(UDP), responses.OnPublicationReady)
    assert "channel does not allow manual control" in add(UDP, plain.correlation_id)


def test_what_differs_from_open_streams_is_refused_in_the_references_words(driver: InvokedDriver) -> None:
    first = "aeron:udp?endpoint=127.0.0.1:20164|alias=first"
    driver.add_subscription(first)

    def subscribe(channel: str) -> str:
        return refused(
            driver, commands.AddSubscription, channel=channel, stream_id=1001, registration_correlation_id=-1
        )

    for key, value in (("reliable", "false"), ("rejoin", "false")):
        channel = f"aeron:udp?endpoint=127.0.0.1:20164|{key}={value}"
        words = f"option conflicts with existing subscription: {key}={value} existingChannel={first} channel={channel}"
        assert words in subscribe(channel)
    assert "option conflicts with existing subscription: channel-rcv-ts-offset=8 existingChannel=" in subscribe(
        "aeron:udp?endpoint=127.0.0.1:20164|channel-rcv-ts-offset=8"
    )
    buffer = subscribe("aeron:udp?endpoint=127.0.0.1:20164|so-rcvbuf=256k")
    assert "so-rcvbuf=262144 does not match existing value of " in buffer
    assert f": existingChannel={first} channel=" in buffer
    publication = "aeron:udp?endpoint=127.0.0.1:20165|session-id=5"
    driver.ask(
        commands.AddExclusivePublication(
            client_id=CLIENT, correlation_id=driver.next_id(), channel=publication, stream_id=7
        )
    )
    assert f"existing publication has clashing sessionId=5 for streamId=7 channel={publication}" in refused(
        driver, commands.AddExclusivePublication, channel=publication, stream_id=7
    )


def test_an_address_in_use_is_reported_with_the_channel(driver: InvokedDriver) -> None:
    driver.add_subscription("aeron:udp?endpoint=127.0.0.1:20166")
    channel = "aeron:udp?control=127.0.0.1:20166|control-mode=dynamic"
    text = refused(driver, commands.AddExclusivePublication, channel=channel, stream_id=1001)
    assert "Address already in use" in text
    assert channel in text


def test_a_static_counter_that_is_not_static_is_refused_in_the_references_words(driver: InvokedDriver) -> None:
    registration_id = driver.next_id()
    fields: dict[str, Any] = {"type_id": 1234, "key": b"", "label": "x"}
    ready = only(
        driver.ask(commands.AddCounter(client_id=CLIENT, correlation_id=registration_id, **fields)),
        responses.OnCounterReady,
    )
    text = refused(driver, commands.AddStaticCounter, registration_id=registration_id, **fields)
    assert "cannot add static counter, because a non-static counter exists" in text
    for part in (f"counterId={ready.counter_id}", "typeId=1234", f"registrationId={registration_id}"):
        assert part in text
    missing = refused(driver, commands.RejectImage, image_correlation_id=99_999, position=0, reason="no")
    assert "Unable to resolve image for correlationId=99999" in missing

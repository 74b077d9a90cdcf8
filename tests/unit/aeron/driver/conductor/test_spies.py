"""Which publications a spy reads: those with its tag, or those with its canonical channel and session."""

from __future__ import annotations

import pytest
from tests.support.invoked_driver import CLIENT, InvokedDriver, count, only

from mainstem.aeron.command import commands, responses
from mainstem.aeron.command.error_code import ErrorCode

UDP = "aeron:udp?endpoint=127.0.0.1:40100"
MANUAL = "aeron:udp?control-mode=manual"
PUBLICATION_FIRST = "publication first"

SEEN = {
    "the same text": (UDP, UDP),
    "a tag alone": (f"{UDP}|tags=68,67|ssc=true", "aeron:udp?tags=68"),
    "a tag and another spelling of the address": (f"{UDP}|tags=68", "aeron:udp?endpoint=localhost:40100|tags=68"),
    "a tag and another session": (f"{UDP}|tags=68|session-id=9", "aeron:udp?tags=68|session-id=5"),
    "a tag that the publication lacks": (UDP, f"{UDP}|tags=68"),
    "another tag at the same address": (f"{UDP}|tags=68", f"{UDP}|tags=69"),
    "the session": (f"{UDP}|session-id=9", f"{UDP}|session-id=9"),
    "the tag of dynamic destinations at port 0": (
        "aeron:udp?control=127.0.0.1:0|control-mode=dynamic|tags=68",
        "aeron:udp?tags=68",
    ),
    "dynamic destinations at port 0 with their tag": (
        "aeron:udp?control=127.0.0.1:0|control-mode=dynamic|tags=68",
        "aeron:udp?control=127.0.0.1:0|control-mode=dynamic|tags=68",
    ),
    "the tag of manual destinations": (f"{MANUAL}|tags=68", "aeron:udp?tags=68"),
    "a multicast group with its tag alone": (
        "aeron:udp?endpoint=224.20.30.39:40100|interface=127.0.0.1|tags=68",
        "aeron:udp?tags=68",
    ),
    "a multicast group whose interface is spelled differently": (
        "aeron:udp?endpoint=224.20.30.39:40100|interface=127.0.0.1",
        "aeron:udp?endpoint=224.20.30.39:40100|interface=127.0.0.0/8",
    ),
    "an interface that is spelled differently": (f"{UDP}|interface=127.0.0.1", f"{UDP}|interface={{lo}}"),
}
NOT_SEEN = {
    "another tag": (f"{UDP}|tags=68", "aeron:udp?tags=69"),
    "a tag that the publication lacks": (UDP, "aeron:udp?tags=68"),
    "another address": (UDP, "aeron:udp?endpoint=127.0.0.1:40101"),
    "another session": (f"{UDP}|session-id=9", f"{UDP}|session-id=5"),
    "port 0 without a tag": (
        "aeron:udp?control=127.0.0.1:0|control-mode=dynamic",
        "aeron:udp?control=127.0.0.1:0|control-mode=dynamic",
    ),
}


def add_destination(driver: InvokedDriver, registration_id: int, channel: str) -> list[responses.Response]:
    return driver.ask(
        commands.AddReceiveDestination(
            client_id=CLIENT, correlation_id=driver.next_id(), registration_id=registration_id, channel=channel
        )
    )


def remove_destination(driver: InvokedDriver, registration_id: int, channel: str) -> list[responses.Response]:
    return driver.ask(
        commands.RemoveReceiveDestination(
            client_id=CLIENT, correlation_id=driver.next_id(), registration_id=registration_id, channel=channel
        )
    )


def manual_subscription(driver: InvokedDriver) -> int:
    return only(driver.add_subscription(MANUAL), responses.OnSubscriptionReady).correlation_id


def images(found: list[responses.Response]) -> int:
    return count(found, responses.OnAvailableImage)


def add_both(
    driver: InvokedDriver, publication: str, spy: str, order: str
) -> tuple[list[responses.Response], list[responses.Response]]:
    if order == PUBLICATION_FIRST:
        return driver.add_publication(publication), driver.add_subscription(f"aeron-spy:{spy}")
    return driver.add_subscription(f"aeron-spy:{spy}"), driver.add_publication(publication)


@pytest.mark.parametrize("order", [PUBLICATION_FIRST, "spy first"])
@pytest.mark.parametrize("case", SEEN)
def test_a_spy_reads_the_publication_that_it_names(driver: InvokedDriver, case: str, order: str) -> None:
    publication, spy = SEEN[case]
    first, second = add_both(driver, publication, spy, order)
    assert count(first + second, responses.OnError) == 0
    assert images(second) == 1


@pytest.mark.parametrize("order", [PUBLICATION_FIRST, "spy first"])
@pytest.mark.parametrize("case", NOT_SEEN)
def test_a_spy_reads_no_other_publication(driver: InvokedDriver, case: str, order: str) -> None:
    publication, spy = NOT_SEEN[case]
    first, second = add_both(driver, publication, spy, order)
    assert count(first + second, responses.OnError) == 0
    assert images(first + second) == 0


@pytest.mark.parametrize("case", SEEN)
def test_a_spy_that_is_a_destination_reads_the_same_publication(driver: InvokedDriver, case: str) -> None:
    publication, spy = SEEN[case]
    subscription = manual_subscription(driver)
    driver.add_publication(publication)
    assert images(add_destination(driver, subscription, f"aeron-spy:{spy}")) == 1
    assert count(remove_destination(driver, subscription, f"aeron-spy:{spy}"), responses.OnUnavailableImage) == 1
    assert images(add_destination(driver, subscription, f"aeron-spy:{spy}")) == 1


@pytest.mark.parametrize("case", NOT_SEEN)
def test_a_spy_that_is_a_destination_reads_no_other_publication(driver: InvokedDriver, case: str) -> None:
    publication, spy = NOT_SEEN[case]
    subscription = manual_subscription(driver)
    driver.add_publication(publication)
    assert images(add_destination(driver, subscription, f"aeron-spy:{spy}")) == 0
    found = remove_destination(driver, subscription, f"aeron-spy:{spy}")
    assert count(found, responses.OnOperationSuccess) == 1


@pytest.mark.parametrize("channel", ["aeron:ipc", UDP])
def test_a_local_destination_takes_the_session_of_its_own_channel(driver: InvokedDriver, channel: str) -> None:
    join = "|" if "?" in channel else "?"
    for session_id in (5, 9):
        driver.add_publication(f"{channel}{join}session-id={session_id}", exclusive=True)
    prefix = "" if channel == "aeron:ipc" else "aeron-spy:"
    subscription = manual_subscription(driver)
    found = add_destination(driver, subscription, f"{prefix}{channel}{join}session-id=9")
    assert only(found, responses.OnAvailableImage).session_id == 9
    found = add_destination(driver, subscription, f"{prefix}{channel}{join}session-id=5")
    assert only(found, responses.OnAvailableImage).session_id == 5


def test_removing_a_local_destination_keeps_what_another_one_reads(driver: InvokedDriver) -> None:
    subscription = manual_subscription(driver)
    driver.add_publication(f"{UDP}|tags=68")
    by_tag, by_address = "aeron-spy:aeron:udp?tags=68", f"aeron-spy:{UDP}"
    assert images(add_destination(driver, subscription, by_tag)) == 1
    assert images(add_destination(driver, subscription, by_address)) == 0
    assert count(remove_destination(driver, subscription, by_tag), responses.OnUnavailableImage) == 0
    found = remove_destination(driver, subscription, by_address)
    assert only(found, responses.OnUnavailableImage).channel == by_address


def test_a_local_destination_is_removed_by_its_text(driver: InvokedDriver) -> None:
    subscription = manual_subscription(driver)
    for channel in ("aeron:ipc?alias=a", f"aeron-spy:{UDP}"):
        add_destination(driver, subscription, channel)
    for channel in ("aeron:ipc", f"aeron-spy:{UDP}|tags=68"):
        error = only(remove_destination(driver, subscription, channel), responses.OnError)
        assert error.error_code == ErrorCode.UNKNOWN_SUBSCRIPTION
    for channel in ("aeron:ipc?alias=a", f"aeron-spy:{UDP}"):
        assert count(remove_destination(driver, subscription, channel), responses.OnOperationSuccess) == 1


def test_an_untethered_local_destination_is_disconnected_when_it_falls_behind(driver: InvokedDriver) -> None:
    subscription = manual_subscription(driver)
    driver.add_publication("aeron:ipc")
    reader = only(driver.add_subscription("aeron:ipc"), responses.OnAvailableImage)
    assert images(add_destination(driver, subscription, "aeron:ipc?tether=false")) == 1
    driver.counters.cell(reader.subscriber_position_id).set_release(1 << 16)
    gone = only(driver.run(7), responses.OnUnavailableImage)
    assert (gone.subscription_registration_id, gone.channel) == (subscription, "aeron:ipc")

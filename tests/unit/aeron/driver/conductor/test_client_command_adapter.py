"""Failing commands: their responses, and the failures that are only logged."""

from __future__ import annotations

import struct

import pytest
from tests.support.invoked_driver import CLIENT, InvokedDriver, only

from mainstem.aeron.command import commands, responses
from mainstem.aeron.command.error_code import ErrorCode


def test_logs_malformed_commands_and_sends_their_errors(driver: InvokedDriver) -> None:
    ring = driver.cnc.to_driver
    assert ring.write(0x01, struct.pack("<qq", CLIENT, 1))
    assert ring.write(0x01, bytes(15))  # without a correlation id the driver cannot respond
    assert only(driver.cycle(), responses.OnError).code is ErrorCode.MALFORMED_COMMAND
    assert driver.counters.value(15) == 2
    subscription = driver.add_subscription("aeron:ipc")
    assert only(subscription, responses.OnSubscriptionReady)


@pytest.mark.parametrize(
    ("channel", "code", "what"),
    [
        ("aeron:udp?endpoint=localhost:20121|mtu=nine", ErrorCode.INVALID_CHANNEL, "mtu"),
        ("aeron:carrier-pigeon", ErrorCode.INVALID_CHANNEL, "carrier-pigeon"),
        ("ipc", ErrorCode.INVALID_CHANNEL, "aeron:"),
        ("aeron:ipc?term-length=3", ErrorCode.INVALID_CHANNEL, "term-length"),
    ],
)
def test_reports_what_is_wrong_with_a_channel(driver: InvokedDriver, channel: str, code: ErrorCode, what: str) -> None:
    error = only(driver.add_publication(channel), responses.OnError)
    assert error.code is code
    assert what in error.message
    assert channel in error.message


def test_a_channel_that_is_too_long_has_a_response(driver: InvokedDriver) -> None:
    error = only(driver.add_publication("aeron:ipc?alias=" + "x" * 4080), responses.OnError)
    assert error.code is ErrorCode.INVALID_CHANNEL
    assert "URI length (4096)" in error.message


def test_knows_the_publications_and_subscriptions_it_has(driver: InvokedDriver) -> None:
    for command, code in (
        (commands.RemovePublication, ErrorCode.UNKNOWN_PUBLICATION),
        (commands.RemoveSubscription, ErrorCode.UNKNOWN_SUBSCRIPTION),
    ):
        found = driver.ask(command(client_id=CLIENT, correlation_id=driver.next_id(), registration_id=12345))
        error = only(found, responses.OnError)
        assert error.code is code
        assert "12345" in error.message


def test_answers_a_full_disk_with_its_own_code() -> None:
    from mainstem.aeron.files import MemoryFiles

    files = MemoryFiles(space=6 << 20)
    driver = InvokedDriver(files=files)
    error = only(driver.add_publication("aeron:ipc?term-length=4m"), responses.OnError)
    assert error.code is ErrorCode.STORAGE_SPACE
    # The attempt leaves nothing behind.
    assert not [label for label in driver.labels().values() if label.startswith("pub-")]
    assert only(driver.add_publication("aeron:ipc"), responses.OnPublicationReady)
    driver.close()


def test_hands_out_session_ids_that_are_free(driver: InvokedDriver) -> None:
    ready = only(driver.add_publication("aeron:ipc"), responses.OnPublicationReady)
    found = driver.ask(
        commands.GetNextAvailableSessionId(client_id=CLIENT, correlation_id=driver.next_id(), stream_id=1001)
    )
    session_id = only(found, responses.OnNextAvailableSessionId).session_id
    assert session_id != ready.session_id
    assert not -1 <= session_id <= 1000


@pytest.mark.parametrize("channel", ["aeron:ipc", "aeron:udp?endpoint=localhost:20121"])
def test_refuses_a_publication_when_session_ids_are_exhausted(channel: str) -> None:
    driver = InvokedDriver(
        publication_reserved_session_id_low=-(1 << 31), publication_reserved_session_id_high=(1 << 31) - 2
    )
    assert only(driver.add_publication(channel, exclusive=True), responses.OnExclusivePublicationReady)
    error = only(driver.add_publication(channel, exclusive=True), responses.OnError)
    assert error.code is ErrorCode.GENERIC_ERROR
    assert "no session id is free" in error.message
    next_id = commands.GetNextAvailableSessionId(client_id=CLIENT, correlation_id=driver.next_id(), stream_id=1001)
    assert "no session id is free" in only(driver.ask(next_id), responses.OnError).message
    assert only(
        driver.add_publication(f"{channel}{'|' if '?' in channel else '?'}session-id=5"), responses.OnPublicationReady
    )
    driver.close()


@pytest.mark.parametrize(("validator", "accepted"), [("deny", False), ("allow", True)])
def test_ends_on_request_only_where_that_is_allowed(validator: str, accepted: bool) -> None:
    driver = InvokedDriver(driver_termination_validator=validator)
    driver.ask(commands.TerminateDriver(client_id=CLIENT, correlation_id=1, token=b""))
    assert driver.core.conductor.is_termination_requested is accepted
    driver.close()

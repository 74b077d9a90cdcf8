"""A port that was just freed, requested in any spelling while its socket is still being closed."""

from __future__ import annotations

from itertools import pairwise

import pytest
from tests.support.invoked_driver import CLIENT, InvokedDriver, count, only

from mainstem.aeron.command import commands, responses
from mainstem.aeron.command.error_code import ErrorCode

SPELLINGS = [
    "aeron:udp?endpoint=localhost:40100",
    "aeron:udp?endpoint=127.0.0.1:40100",
    "aeron:udp?endpoint=127.0.0.1:40100|control=127.0.0.1:40101|control-mode=dynamic",
    "aeron:udp?endpoint=localhost:40100|tags=5",
]
MANUAL = "aeron:udp?control-mode=manual"


def add_subscription(driver: InvokedDriver, channel: str) -> int:
    """Write the command and return its id; the driver does not run yet."""
    number = driver.next_id()
    driver.write(commands.AddSubscription(client_id=CLIENT, correlation_id=number, stream_id=1001, channel=channel))
    return number


def remove_subscription(driver: InvokedDriver, registration_id: int) -> None:
    driver.write(
        commands.RemoveSubscription(client_id=CLIENT, correlation_id=driver.next_id(), registration_id=registration_id)
    )


def write_destination(
    driver: InvokedDriver,
    kind: type[commands.AddReceiveDestination | commands.RemoveReceiveDestination],
    registration_id: int,
    channel: str,
) -> None:
    driver.write(
        kind(client_id=CLIENT, correlation_id=driver.next_id(), registration_id=registration_id, channel=channel)
    )


@pytest.mark.parametrize(("old", "new"), [*pairwise(SPELLINGS), (SPELLINGS[-1], SPELLINGS[0])])
def test_a_subscription_gets_the_port_of_the_one_before(driver: InvokedDriver, old: str, new: str) -> None:
    first = add_subscription(driver, old)
    driver.cycle()
    remove_subscription(driver, first)
    add_subscription(driver, new)
    found = driver.run(0.2)
    assert count(found, responses.OnError) == 0
    assert count(found, responses.OnSubscriptionReady) == 1


@pytest.mark.parametrize(("old", "new"), [(SPELLINGS[0], SPELLINGS[1]), (SPELLINGS[1], SPELLINGS[0])])
def test_a_destination_and_a_subscription_get_the_port_of_the_one_before(
    driver: InvokedDriver, old: str, new: str
) -> None:
    manual = only(driver.add_subscription(MANUAL), responses.OnSubscriptionReady).correlation_id
    write_destination(driver, commands.AddReceiveDestination, manual, old)
    write_destination(driver, commands.RemoveReceiveDestination, manual, old)
    write_destination(driver, commands.AddReceiveDestination, manual, new)
    write_destination(driver, commands.RemoveReceiveDestination, manual, new)
    subscription = add_subscription(driver, old)
    remove_subscription(driver, subscription)
    write_destination(driver, commands.AddReceiveDestination, manual, new)
    found = driver.run(0.2)
    assert count(found, responses.OnError) == 0
    assert count(found, responses.OnOperationSuccess) == 6


@pytest.mark.parametrize("closing", [False, True])
def test_a_port_that_stays_in_use_is_refused(driver: InvokedDriver, closing: bool) -> None:
    driver.network.peer(40100)
    if closing:
        remove_subscription(driver, add_subscription(driver, "aeron:udp?endpoint=127.0.0.1:40102"))
    add_subscription(driver, SPELLINGS[0])
    error = only(driver.run(0.2), responses.OnError)
    assert error.code is ErrorCode.GENERIC_ERROR
    assert "already in use" in error.message

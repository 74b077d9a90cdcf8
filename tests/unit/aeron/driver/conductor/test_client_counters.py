"""Counters that clients request from the driver."""

from __future__ import annotations

from tests.support.invoked_driver import CLIENT, InvokedDriver, count, only

from mainstem.aeron.command import commands, responses
from mainstem.aeron.command.error_code import ErrorCode


def add(driver: InvokedDriver, type_id: int = 1001) -> responses.OnCounterReady:
    command = commands.AddCounter(
        client_id=CLIENT, correlation_id=driver.next_id(), type_id=type_id, key=b"key", label="a label"
    )
    return next(
        response
        for response in driver.ask(command)
        if isinstance(response, responses.OnCounterReady) and response.correlation_id == command.correlation_id
    )


def test_allocates_a_counter_that_its_client_owns(driver: InvokedDriver) -> None:
    ready = add(driver)
    counters = driver.counters
    assert counters.type_id(ready.counter_id) == 1001
    assert counters.label(ready.counter_id) == "a label"
    assert counters.key(ready.counter_id) == b"key".ljust(112, b"\0")
    assert counters.owner_id(ready.counter_id) == CLIENT
    assert counters.registration_id(ready.counter_id) == ready.correlation_id


def test_frees_a_counter_on_request_and_notifies_all_clients(driver: InvokedDriver) -> None:
    ready = add(driver)
    found = driver.ask(
        commands.RemoveCounter(client_id=CLIENT, correlation_id=driver.next_id(), registration_id=ready.correlation_id)
    )
    assert [type(response) for response in found] == [responses.OnOperationSuccess, responses.OnUnavailableCounter]
    assert ready.counter_id not in driver.labels()


def test_refuses_to_free_a_counter_that_is_not_there(driver: InvokedDriver) -> None:
    found = driver.ask(commands.RemoveCounter(client_id=CLIENT, correlation_id=driver.next_id(), registration_id=99))
    assert only(found, responses.OnError).code is ErrorCode.UNKNOWN_COUNTER


def test_a_clients_counters_go_with_it(driver: InvokedDriver) -> None:
    ready = add(driver)
    found = driver.run(12.0, step=1.0, alive=())
    assert count(found, responses.OnUnavailableCounter) == 2
    assert ready.counter_id not in driver.labels()


def test_all_clients_share_a_static_counter_which_outlives_them(driver: InvokedDriver) -> None:
    ids = set()
    for client_id in (CLIENT, CLIENT + 1):
        found = driver.ask(
            commands.AddStaticCounter(
                client_id=client_id,
                correlation_id=driver.next_id(),
                registration_id=77,
                type_id=1002,
                key=b"",
                label="static",
            )
        )
        ids.add(only(found, responses.OnStaticCounter).counter_id)
    assert len(ids) == 1
    driver.run(12.0, step=1.0, alive=())
    assert ids <= set(driver.labels())
    assert driver.counters.owner_id(ids.pop()) == -1

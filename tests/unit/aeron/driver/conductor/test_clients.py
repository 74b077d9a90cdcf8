"""Clients of the driver: kept while their heartbeat is fresh, removed when it is stale."""

from __future__ import annotations

from tests.support.invoked_driver import CLIENT, InvokedDriver, count, only

from mainstem.aeron.command import commands, responses

IPC = "aeron:ipc"


def test_keeps_a_client_whose_heartbeat_moves(driver: InvokedDriver) -> None:
    driver.add_publication(IPC)
    assert count(driver.run(60.0, step=0.5), responses.OnClientTimeout) == 0
    assert CLIENT in driver.core.conductor.clients


def test_reaps_a_silent_client_and_what_it_owned(driver: InvokedDriver) -> None:
    other = 8
    ready = only(driver.add_publication(IPC), responses.OnPublicationReady)
    driver.add_subscription(IPC)
    driver.add_subscription(IPC, client_id=other)
    heartbeat_id = driver.counters.find(11, CLIENT)
    assert count(driver.run(9.5, step=0.5, alive=(other,)), responses.OnClientTimeout) == 0
    found = driver.run(2.5, step=0.5, alive=(other,))
    assert only(found, responses.OnClientTimeout).client_id == CLIENT
    gone = only(found, responses.OnUnavailableCounter)
    assert (gone.registration_id, gone.counter_id) == (CLIENT, heartbeat_id)
    assert driver.counters.value(24) == 1
    found += driver.run(8.0, step=0.5, alive=(other,))
    assert only(found, responses.OnUnavailableImage).image_correlation_id == ready.correlation_id
    assert not driver.files.exists(ready.log_file)


def test_a_client_that_closes_is_reaped_without_counting_as_a_timeout(driver: InvokedDriver) -> None:
    driver.add_publication(IPC)
    driver.ask(commands.ClientClose(client_id=CLIENT, correlation_id=driver.next_id()))
    found = driver.run(1.5, alive=())
    assert count(found, responses.OnClientTimeout) == 0
    assert count(found, responses.OnUnavailableCounter) == 1
    assert driver.counters.value(24) == 0


def test_a_keepalive_command_is_a_heartbeat_too(driver: InvokedDriver) -> None:
    driver.add_publication(IPC)
    for _ in range(4):
        assert count(driver.run(6.0, step=1.0, alive=()), responses.OnClientTimeout) == 0
        driver.ask(commands.ClientKeepalive(client_id=CLIENT, correlation_id=driver.next_id()))


def test_a_client_exists_once_it_has_added_a_resource(driver: InvokedDriver) -> None:
    driver.ask(commands.ClientKeepalive(client_id=CLIENT, correlation_id=driver.next_id()))
    driver.ask(commands.RemoveCounter(client_id=CLIENT, correlation_id=driver.next_id(), registration_id=5))
    assert len(driver.core.conductor.clients) == 0


def test_keeps_the_consumer_heartbeat_fresh(driver: InvokedDriver) -> None:
    for _ in range(20):
        driver.run(0.25, alive=())
        assert driver.clock.epoch_ms() - driver.cnc.to_driver.consumer_heartbeat_ms <= 1000


def test_reports_that_it_was_shut_down() -> None:
    driver = InvokedDriver()
    driver.core.close()
    assert driver.cnc.to_driver.consumer_heartbeat_ms == -1
    driver.cnc.close()


def test_unblocks_the_ring_when_a_client_died_in_the_middle_of_a_command(driver: InvokedDriver) -> None:
    assert driver.cnc.to_driver.try_claim(commands.CommandType.ADD_COUNTER, 64) >= 0
    assert driver.add_subscription(IPC) == []
    found = driver.run(12.0, step=0.5)
    assert count(found, responses.OnSubscriptionReady) == 1
    assert driver.counters.value(20) == 1

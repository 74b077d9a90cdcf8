"""Hosts that move: the driver resolves a silent peer's name again, and data follows (docs/protocols/aeron.md, 19.8)."""

from __future__ import annotations

import pytest
from tests.support.invoked_driver import CLIENT, InvokedDriver, only

from mainstem._core.system_counter import SystemCounter
from mainstem.aeron.command import commands, responses
from mainstem.aeron.driver.naming.name_resolver import CsvTableNameResolver
from mainstem.errors import ConfigurationError


def changes(driver: InvokedDriver) -> int:
    return driver.counters.cell(SystemCounter.RESOLUTION_CHANGES).get_acquire()


@pytest.mark.parametrize("connect", [True, False])
def test_a_publication_follows_a_name_that_moved(connect: bool) -> None:
    table = "server:20121,endpoint,127.0.0.1:20121,127.0.0.1:20122"
    driver = InvokedDriver(name_resolver_supplier="csv_table", name_resolver_init_args=table, driver_connect=connect)
    first, second = driver.network.peer(20121), driver.network.peer(20122)
    only(driver.add_publication("aeron:udp?endpoint=server:20121"), responses.OnPublicationReady)
    driver.run(4.0)
    assert first.take()
    assert not second.take()
    driver.run(4.0)
    assert second.take()
    first.take()
    driver.run(2.0)
    assert not first.take()
    assert changes(driver) == 1
    driver.close()


def test_a_destination_follows_a_name_that_moved() -> None:
    table = "server,endpoint,127.0.0.1:20131,127.0.0.1:20132"
    driver = InvokedDriver(name_resolver_supplier="csv_table", name_resolver_init_args=table)
    first, second = driver.network.peer(20131), driver.network.peer(20132)
    ready = only(
        driver.add_publication("aeron:udp?control-mode=manual|control=127.0.0.1:20130"), responses.OnPublicationReady
    )
    driver.ask(
        commands.AddDestination(
            client_id=CLIENT,
            correlation_id=driver.next_id(),
            registration_id=ready.correlation_id,
            channel="aeron:udp?endpoint=server:1",
        )
    )
    driver.run(2.0)
    assert first.take()
    driver.run(8.0)
    assert second.take()
    assert changes(driver) == 1
    driver.close()


def test_a_destination_with_an_unknown_name_is_kept_until_it_resolves() -> None:
    driver = InvokedDriver()
    peer = driver.network.peer(20141)
    ready = only(
        driver.add_publication("aeron:udp?control-mode=manual|control=127.0.0.1:20140"), responses.OnPublicationReady
    )
    command = commands.AddDestination(
        client_id=CLIENT,
        correlation_id=driver.next_id(),
        registration_id=ready.correlation_id,
        channel="aeron:udp?endpoint=later:20141",
    )
    only(driver.ask(command), responses.OnOperationSuccess)
    driver.run(7.0)
    assert not peer.take()
    driver.network.names["later"] = "127.0.0.1"
    driver.run(7.0)
    assert peer.take()
    driver.close()


def test_a_subscription_follows_a_control_name_that_moved() -> None:
    table = "server,control,127.0.0.1:20151,127.0.0.1:20152"
    driver = InvokedDriver(name_resolver_supplier="csv_table", name_resolver_init_args=table)
    first, second = driver.network.peer(20151), driver.network.peer(20152)
    channel = "aeron:udp?endpoint=127.0.0.1:20150|control=server:1|control-mode=dynamic"
    only(driver.add_subscription(channel), responses.OnSubscriptionReady)
    driver.run(3.0)
    assert first.take()
    driver.run(7.0)
    assert second.take()
    assert changes(driver) == 1
    driver.close()


def test_a_table_has_rows_of_four() -> None:
    assert CsvTableNameResolver("a,endpoint,b:1,c").lookup("a:5", "endpoint", again=False) == "b:1"
    assert CsvTableNameResolver("a,endpoint,b:1,c").lookup("a:5", "endpoint", again=True) == "c:5"
    assert CsvTableNameResolver("a,endpoint,b:1,c").lookup("a:5", "control", again=True) == "a:5"
    for text in ("", "a,endpoint,b", "a,endpoint,,c"):
        with pytest.raises(ConfigurationError):
            CsvTableNameResolver(text)

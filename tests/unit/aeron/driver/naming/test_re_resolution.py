"""Hosts that move: the driver resolves a silent peer's name again, and data follows (docs/protocols/aeron.md, 19.8)."""

from __future__ import annotations

import pytest
from tests.support.invoked_driver import CLIENT, DIRECTORY, InvokedDriver, only

from mainstem._core.system_counter import SystemCounter
from mainstem.aeron.command import commands, responses
from mainstem.aeron.command.error_code import ErrorCode
from mainstem.aeron.counters import CounterType
from mainstem.aeron.driver.naming.csv_table import parse_rows
from mainstem.aeron.error_log import read_errors
from mainstem.aeron.files import MemoryFiles
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
    assert list(read_errors(driver.cnc.error_log)) == []  # its host may start later
    driver.run(7.0)
    (recorded,) = read_errors(driver.cnc.error_log)
    words = "could not re-resolve: endpoint=later:20141: Unable to resolve host=(later): unknown host"
    assert recorded.text == f"(-9) unknown host: {words}"
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


def test_a_row_of_a_table_is_for_every_parameter_or_for_one() -> None:
    assert parse_rows("a,b,c| d , control , e , f |") == [("a", None, "b", "c"), ("d", "control", "e", "f")]
    for text in ("", "|", "a,b", "a,b,,c", "a,b,c,d,e"):
        with pytest.raises(ConfigurationError, match="AERON_NAME_RESOLVER_INIT_ARGS"):
            parse_rows(text)


def test_a_driver_with_a_malformed_table_does_not_start() -> None:
    files = MemoryFiles()
    with pytest.raises(ConfigurationError, match="must be NAME,ADDRESS,SECOND-ADDRESS"):
        InvokedDriver(files=files, name_resolver_supplier="csv_table", name_resolver_init_args="a,b")
    assert not files.exists(DIRECTORY)


@pytest.mark.parametrize(
    ("row", "key"), [("server,127.0.0.1,127.0.0.2", b"\x06\0\0\0server"), ("server,endpoint,127.0.0.1,127.0.0.2", None)]
)
def test_a_counter_switches_the_address_of_a_name(row: str, key: bytes | None) -> None:
    driver = InvokedDriver(name_resolver_supplier="csv_table", name_resolver_init_args=row)
    switch = driver.counters.find(CounterType.NAME_TABLE_ROW, 0)
    label = "NameEntry{name='server', initialResolutionHost='127.0.0.1', reResolutionHost='127.0.0.2'}"
    assert driver.counters.label(switch) == label
    assert key is None or driver.counters.key(switch)[: len(key)] == key
    for value, port, host in ((0, 20161, "127.0.0.1"), (1, 20162, "127.0.0.2")):
        driver.counters.cell(switch).set_release(value)
        receiver = driver.network.peer(port, host)
        only(driver.add_publication(f"aeron:udp?endpoint=server:{port}"), responses.OnPublicationReady)
        driver.run(0.3)
        assert receiver.take()
    driver.counters.cell(switch).set_release(-1)
    error = only(driver.add_publication("aeron:udp?endpoint=server:20163"), responses.OnError)
    assert error.error_code == ErrorCode.UNKNOWN_HOST
    assert f"Unable to resolve host=(server): (forced), by counter {switch}" in error.message
    driver.close()


@pytest.mark.parametrize(
    "channel", ["aeron:udp?endpoint=server:20171|tags=5", "aeron:udp?endpoint=127.0.0.2:20171|tags=5"]
)
def test_a_tag_stands_for_the_address_that_a_name_has_moved_to(channel: str) -> None:
    driver = InvokedDriver(name_resolver_supplier="csv_table", name_resolver_init_args="server,127.0.0.1,127.0.0.2")
    only(driver.add_publication("aeron:udp?endpoint=server:20171|tags=5"), responses.OnPublicationReady)
    driver.counters.cell(driver.counters.find(CounterType.NAME_TABLE_ROW, 0)).set_release(1)
    driver.run(8.0)
    assert changes(driver) == 1
    only(driver.add_publication(channel), responses.OnPublicationReady)
    driver.close()


def test_a_tag_stands_for_the_control_address_that_a_name_has_moved_to() -> None:
    driver = InvokedDriver(name_resolver_supplier="csv_table", name_resolver_init_args="server,127.0.0.1,127.0.0.2")
    channel = "aeron:udp?endpoint=127.0.0.1:20181|control={}:20182|control-mode=dynamic|tags=5"
    only(driver.add_subscription(channel.format("server")), responses.OnSubscriptionReady)
    driver.counters.cell(driver.counters.find(CounterType.NAME_TABLE_ROW, 0)).set_release(1)
    driver.run(8.0)
    assert changes(driver) == 1
    only(driver.add_subscription(channel.format("127.0.0.2")), responses.OnSubscriptionReady)
    only(driver.add_subscription(channel.format("127.0.0.1")), responses.OnError)
    driver.close()

"""Drivers that exchange names: what they send, accept and forget, and when."""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import TYPE_CHECKING

import pytest
from tests.support.invoked_driver import DIRECTORY, InvokedDriver, only

from mainstem._core.system_counter import SystemCounter
from mainstem.aeron.command import responses
from mainstem.aeron.counters import CounterType, snapshot
from mainstem.aeron.driver.media.addresses import InetAddress
from mainstem.aeron.driver.naming.driver_name_resolver import MAX_ENTRIES_PER_CYCLE, MAX_SENDS_PER_CYCLE
from mainstem.aeron.error_log import read_errors
from mainstem.aeron.files import MemoryFiles
from mainstem.aeron.protocol.frames import Resolution, ResolutionEntry
from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator

BOUND = InetAddress("127.0.0.1", 40991)
BOOTSTRAP = 40992
# The frame that a reference driver named alpha sends from that address.
ALPHA = bytes.fromhex("2000000000000700" + "01801fa0000000007f0000010500616c7068610000000000")


@pytest.fixture
def driver() -> Iterator[InvokedDriver]:
    made = InvokedDriver(
        name_resolver_supplier="driver",
        driver_resolver_name="alpha",
        driver_resolver_interface="127.0.0.1:40991",
        driver_resolver_bootstrap_neighbor=f"127.0.0.1:{BOOTSTRAP}",
    )
    yield made
    made.close()


def told(name: str, ip: str, port: int, **others: int | bool) -> bytes:
    entry = ResolutionEntry(name=name, address=ip_address(ip), port=port, **others)  # type: ignore[arg-type]
    return Resolution(entries=(entry,)).encode()


def value(driver: InvokedDriver, kind: CounterType) -> int:
    return driver.counters.cell(driver.counters.find(kind, 0)).get_acquire()


def test_announces_its_name_once_a_second_like_the_reference(driver: InvokedDriver) -> None:
    peer = driver.network.peer(BOOTSTRAP)
    driver.run(3.05, step=0.01)
    assert peer.take() == [ALPHA] * 4


def test_its_counters_have_the_references_labels(driver: InvokedDriver) -> None:
    labels = [label for label in driver.labels().values() if label.startswith("Resolver ")]
    (neighbors, entries) = sorted(labels, reverse=True)
    assert re.fullmatch(r"Resolver neighbors: bound [0-9.]+:[0-9]+", neighbors)
    assert entries == "Resolver cache entries: name=alpha"


def test_reports_the_address_of_a_bootstrap_neighbor(driver: InvokedDriver) -> None:
    driver.run(0.1, step=0.01)
    label = f"Bootstrap neighbor: name=127.0.0.1:{BOOTSTRAP} resolved=127.0.0.1:{BOOTSTRAP}"
    assert label in driver.labels().values()


def test_learns_a_name_and_uses_it_for_a_channel(driver: InvokedDriver) -> None:
    peer = driver.network.peer(BOOTSTRAP)
    driver.network.send(peer, BOUND, told("beta", "0.0.0.0", BOOTSTRAP, is_self=True))
    driver.run(0.1, step=0.01)
    assert value(driver, CounterType.RESOLVER_NEIGHBORS) == 1
    assert value(driver, CounterType.RESOLVER_CACHE_ENTRIES) == 1
    assert value(driver, CounterType.BOOTSTRAP_NEIGHBOR) == 1
    only(driver.add_publication("aeron:udp?endpoint=beta:20199"), responses.OnPublicationReady)
    receiver = driver.network.peer(20199)
    driver.run(0.2, step=0.01)
    assert receiver.take()


def test_tells_neighbors_about_each_other(driver: InvokedDriver) -> None:
    first, second = driver.network.peer(BOOTSTRAP), driver.network.peer(40993)
    driver.network.send(first, BOUND, told("beta", "127.0.0.1", BOOTSTRAP, is_self=True))
    driver.network.send(second, BOUND, told("gamma", "127.0.0.1", 40993, is_self=True))
    driver.run(2.5, step=0.01)
    names = {entry.name for frame in second.take() for entry in Resolution.decode(frame).entries}
    assert names == {"alpha", "beta"}


def test_forgets_a_silent_neighbor(driver: InvokedDriver) -> None:
    peer = driver.network.peer(BOOTSTRAP)
    driver.network.send(peer, BOUND, told("beta", "127.0.0.1", BOOTSTRAP, is_self=True))
    driver.run(9.0)
    assert value(driver, CounterType.RESOLVER_NEIGHBORS) == 1
    driver.run(2.0)
    assert value(driver, CounterType.RESOLVER_NEIGHBORS) == 0
    assert value(driver, CounterType.RESOLVER_CACHE_ENTRIES) == 0
    error = only(driver.add_publication("aeron:udp?endpoint=beta:20199"), responses.OnError)
    assert error.error_code == 9


def test_ignores_its_own_name_and_outdated_entries(driver: InvokedDriver) -> None:
    peer = driver.network.peer(BOOTSTRAP)
    driver.network.send(peer, BOUND, told("alpha", "127.0.0.1", 40991, is_self=True))
    driver.network.send(peer, BOUND, told("beta", "127.0.0.1", 40995, age_ms=10_001))
    driver.run(0.1, step=0.01)
    assert value(driver, CounterType.RESOLVER_CACHE_ENTRIES) == 0


def test_counts_malformed_frames(driver: InvokedDriver) -> None:
    peer = driver.network.peer(BOOTSTRAP)
    before = driver.counters.cell(SystemCounter.INVALID_PACKETS).get_acquire()
    for frame in (b"abc", ALPHA[:-1], ALPHA[:4] + b"\1" + ALPHA[5:], ALPHA[:8] + b"\7" + ALPHA[9:]):
        driver.network.send(peer, BOUND, frame)
    driver.run(0.1, step=0.01)
    assert driver.counters.cell(SystemCounter.INVALID_PACKETS).get_acquire() == before + 4


@pytest.mark.parametrize("ip", ["0.0.0.0", "::", "224.0.0.1", "ff02::1", "255.255.255.255"])
def test_counts_and_forgets_an_address_where_no_driver_can_be(driver: InvokedDriver, ip: str) -> None:
    peer = driver.network.peer(BOOTSTRAP)
    before = driver.counters.value(SystemCounter.INVALID_PACKETS)
    driver.network.send(peer, BOUND, told("beta", ip, BOOTSTRAP))
    driver.run(0.1, step=0.01)
    assert driver.counters.value(SystemCounter.INVALID_PACKETS) == before + 1
    assert value(driver, CounterType.RESOLVER_CACHE_ENTRIES) == value(driver, CounterType.RESOLVER_NEIGHBORS) == 0


@pytest.mark.parametrize(("ip", "port"), [("::1", 40993), ("127.0.0.1", 0)])
def test_an_unreachable_driver_is_still_found_by_name(driver: InvokedDriver, ip: str, port: int) -> None:
    driver.network.send(driver.network.peer(BOOTSTRAP), BOUND, told("beta", ip, port, is_self=True))
    driver.run(3.0)
    assert value(driver, CounterType.RESOLVER_CACHE_ENTRIES) == 1
    assert value(driver, CounterType.RESOLVER_NEIGHBORS) == 0
    assert driver.counters.value(SystemCounter.SHORT_SENDS) == 0


def test_a_resolver_needs_a_name() -> None:
    with pytest.raises(ConfigurationError, match="AERON_DRIVER_RESOLVER_NAME"):
        InvokedDriver(name_resolver_supplier="driver")
    with pytest.raises(ConfigurationError, match="must be one of"):
        InvokedDriver(name_resolver_supplier="oracle")


def crowd(first: int, count: int) -> bytes:
    """Return a frame that introduces ``count`` drivers that do not exist."""
    entries = (
        ResolutionEntry(name=f"n{n}", address=ip_address(f"127.{n >> 8 & 255}.{n & 255}.9"), port=40000, is_self=True)
        for n in range(first, first + count)
    )
    return Resolution(entries=tuple(entries)).encode()


def test_a_flood_of_invented_drivers_costs_a_bounded_part_of_each_duty_cycle(driver: InvokedDriver) -> None:
    peer, honest = driver.network.peer(BOOTSTRAP), driver.network.peer(40993)
    for first in range(0, 20_000, 50):
        driver.network.send(peer, BOUND, crowd(first, 50))
    driver.network.send(honest, BOUND, told("gamma", "127.0.0.1", 40993, is_self=True))
    known, sent = 0, driver.network.sent
    most_entries = most_sent = 0
    for _ in range(1000):
        driver.run(0.01, step=0.01)
        before, known = known, value(driver, CounterType.RESOLVER_CACHE_ENTRIES)
        most_entries = max(most_entries, known - before)
        before, sent = sent, driver.network.sent
        most_sent = max(most_sent, sent - before)
    assert 0 < most_entries <= MAX_ENTRIES_PER_CYCLE + 50
    assert 0 < most_sent <= MAX_SENDS_PER_CYCLE


def test_a_round_that_takes_many_duty_cycles_reaches_every_neighbor(driver: InvokedDriver) -> None:
    peers = [driver.network.peer(41000 + n) for n in range(200)]
    for n, peer in enumerate(peers):
        driver.network.send(peer, BOUND, told(f"n{n}", "127.0.0.1", 41000 + n, is_self=True))
        driver.run(0.02, step=0.01)
    for peer in peers:
        peer.take()
    driver.run(4.5, step=0.01)
    for n, peer in enumerate(peers):
        names = {entry.name for frame in peer.take() for entry in Resolution.decode(frame).entries}
        assert names == {"alpha", *(f"n{m}" for m in range(200) if m != n)}


def test_counts_a_frame_that_is_longer_than_a_jumbo_frame(driver: InvokedDriver) -> None:
    peer = driver.network.peer(BOOTSTRAP)
    before = driver.counters.value(SystemCounter.INVALID_PACKETS)
    driver.network.send(peer, BOUND, crowd(0, 1000))
    driver.run(0.1, step=0.01)
    assert driver.counters.value(SystemCounter.INVALID_PACKETS) == before + 1
    assert value(driver, CounterType.RESOLVER_CACHE_ENTRIES) == 0


def test_a_malformed_bootstrap_neighbor_is_an_error_and_the_next_one_is_used() -> None:
    driver = InvokedDriver(
        name_resolver_supplier="driver",
        driver_resolver_name="alpha",
        driver_resolver_interface="127.0.0.1:40991",
        driver_resolver_bootstrap_neighbor=f"just:wrong,nowhere:1,127.0.0.1:{BOOTSTRAP}",
    )
    peer = driver.network.peer(BOOTSTRAP)
    driver.run(0.1, step=0.01)
    assert peer.take() == [ALPHA]
    recorded = [error.text for error in read_errors(driver.cnc.error_log)]
    assert [text.split(":")[0:2] for text in recorded] == [
        ["(-9) unknown host", " bootstrap neighbor just"],
        ["(-9) unknown host", " bootstrap neighbor nowhere"],
    ]
    counters = [each for each in snapshot(driver.counters) if each.type_id == CounterType.BOOTSTRAP_NEIGHBOR]
    assert [int.from_bytes(each.key[:4], "little") for each in counters] == [0, 1, 2]
    driver.close()


def test_a_driver_whose_resolver_cannot_bind_leaves_no_directory() -> None:
    files = MemoryFiles()
    with pytest.raises(LookupError, match="nowhere"):
        InvokedDriver(
            files=files,
            name_resolver_supplier="driver",
            driver_resolver_name="alpha",
            driver_resolver_interface="nowhere:40991",
        )
    assert not files.exists(DIRECTORY)

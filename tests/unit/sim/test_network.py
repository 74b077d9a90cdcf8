"""The simulated network: loss, duplication, delay and delivery."""

from __future__ import annotations

import itertools
from collections import Counter
from random import Random

import pytest

from mainstem._internal.clock import NS_PER_MS
from mainstem.aeron.driver.media.addresses import InetAddress
from mainstem.errors import ConfigurationError
from mainstem.sim.clock import ManualClock
from mainstem.sim.faults import Faults
from mainstem.sim.network import Arrival, Link, SimNetwork

A = InetAddress("10.0.0.1", 1_000)
B = InetAddress("10.0.0.2", 2_000)
DELAY_NS = 1 * NS_PER_MS


def pair(faults: Faults, seed: int = 1):
    network = SimNetwork(Random(seed), faults=faults)
    return network, network.open(A, connected=B), network.open(B)


def received(one) -> list[bytes]:
    return [datagram for datagram, _ in one.transport.read()]


def test_delivers_a_datagram_once_its_delay_has_passed() -> None:
    network, sender, receiver = pair(Faults(delay_ns=DELAY_NS))
    sender.transport.send(b"tide")
    network.pump(0)
    network.pump(DELAY_NS - 1)
    assert received(receiver) == []
    network.pump(DELAY_NS)
    assert received(receiver) == [b"tide"]
    assert network.next_arrival_ns() is None


def test_drops_everything_on_a_link_that_loses_everything() -> None:
    network, sender, receiver = pair(Faults(loss=1.0))
    sender.transport.send(b"tide")
    network.pump(0)
    network.pump(NS_PER_MS)
    assert received(receiver) == []
    assert (network.sent, network.lost, network.delivered) == (1, 1, 0)


def test_duplicates_everything_on_a_link_that_duplicates_everything() -> None:
    network, sender, receiver = pair(Faults(duplication=1.0, delay_ns=0))
    sender.transport.send(b"tide")
    network.pump(0)
    assert received(receiver) == [b"tide", b"tide"]


def test_later_datagrams_overtake_delayed_ones() -> None:
    network, sender, receiver = pair(Faults(reorder=0.5, delay_ns=DELAY_NS, reorder_ns=5 * DELAY_NS))
    for number in range(40):
        sender.transport.send(bytes([number]))
    network.pump(0)
    order = []
    for now_ns in range(0, 10 * DELAY_NS, DELAY_NS // 4):
        network.pump(now_ns)
        order += received(receiver)
    assert sorted(order) == [bytes([number]) for number in range(40)]
    assert order != sorted(order)


def test_loses_in_one_direction_while_a_link_is_cut() -> None:
    network, sender, receiver = pair(Faults(delay_ns=0))
    network.partition(A.ip, B.ip)
    sender.transport.send(b"lost")
    network.pump(0)
    network.heal(A.ip, B.ip)
    sender.transport.send(b"kept")
    network.pump(1)
    assert received(receiver) == [b"kept"]


def test_delivers_to_every_member_of_a_group() -> None:
    network = SimNetwork(Random(1), faults=Faults(delay_ns=0))
    group = InetAddress("224.10.9.7", 4_050)
    sender = network.open(A, connected=group)
    members = [network.open(InetAddress(f"10.0.0.{n}", 4_050), group=group) for n in (2, 3)]
    outsider = network.open(InetAddress("10.0.0.4", 4_050))
    sender.transport.send(b"tide")
    network.pump(0)
    assert [received(member) for member in members] == [[b"tide"], [b"tide"]]
    assert received(outsider) == []


def test_refuses_an_address_that_is_taken() -> None:
    network, _, _ = pair(Faults())
    with pytest.raises(ConfigurationError, match="already bound"):
        network.open(B)


def test_datagrams_without_a_receiver_are_counted() -> None:
    network = SimNetwork(Random(1), faults=Faults(delay_ns=0))
    network.open(A, connected=B).transport.send(b"tide")
    network.pump(0)
    assert network.unroutable == 1


def test_the_same_seed_draws_the_same_network() -> None:
    def run(seed: int) -> list[bytes]:
        network, sender, receiver = pair(Faults(loss=0.3, duplication=0.2, jitter_ns=DELAY_NS), seed)
        for number in range(60):
            sender.transport.send(bytes([number]))
        network.pump(0)
        order = []
        for now_ns in range(0, 4 * DELAY_NS, DELAY_NS // 4):
            network.pump(now_ns)
            order += received(receiver)
        return order

    assert run(5) == run(5)
    assert run(5) != run(6)


def test_a_probability_outside_zero_and_one_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="loss"):
        Faults(loss=1.5)


def test_a_manual_clock_moves_both_its_readings_and_never_back() -> None:
    clock = ManualClock(start_ns=5, epoch_ms=1_000)
    assert clock.advance_ns(3 * NS_PER_MS) == 5 + 3 * NS_PER_MS
    assert (clock.monotonic_ns(), clock.epoch_ms()) == (5 + 3 * NS_PER_MS, 1_003)
    with pytest.raises(ConfigurationError):
        clock.advance_ns(-1)


def arrivals(
    faults: Faults, count: int, *, length: int = 100, spacing_ns: int = 0
) -> tuple[list[Arrival], Counter[str]]:
    counts: Counter[str] = Counter()
    link = Link(faults, counts, Random(1))
    results = [link.carry(bytes(length), number * spacing_ns) for number in range(count)]
    return [each for result in results for each in result], counts


def test_a_burst_loses_datagrams_in_a_row() -> None:
    counts: Counter[str] = Counter()
    link = Link(Faults(burst=0.01, burst_length=10), counts, Random(1))
    fates = [not link.carry(b"tide", 0) for _ in range(10_000)]
    beginnings = sum(lost and not before for before, lost in itertools.pairwise([False, *fates]))
    assert counts["burst"] == sum(fates)
    assert 7 < sum(fates) / beginnings < 13


def test_a_checksum_drops_damaged_datagrams() -> None:
    arrived, counts = arrivals(Faults(corruption=0.5, truncation=0.5), 1_000)
    assert counts["corruption"] > 400
    assert counts["truncation"] > 200
    assert len(arrived) == 1_000 - counts["corruption"] - counts["truncation"]
    assert not any(each.is_damaged for each in arrived)


def test_without_a_checksum_damaged_datagrams_arrive_marked() -> None:
    flipped, _ = arrivals(Faults(corruption=1.0, checksum=False), 100)
    assert len(flipped) == 100
    assert all(each.is_damaged and len(each.datagram) == 100 for each in flipped)
    cut, _ = arrivals(Faults(truncation=1.0, checksum=False), 100)
    assert all(each.is_damaged and len(each.datagram) < 100 for each in cut)


def test_a_datagram_above_the_mtu_is_dropped() -> None:
    faults = Faults(mtu=1_000)
    assert len(arrivals(faults, 10, length=1_000)[0]) == 10
    assert arrivals(faults, 10, length=1_001) == ([], Counter(mtu=10))


def test_a_clogged_link_delays_what_its_queue_holds_and_drops_the_rest() -> None:
    # The link carries 100 bytes per millisecond and queues five datagrams.
    arrived, counts = arrivals(Faults(rate=100_000, queue_length=500, delay_ns=0), 8)
    assert [each.due_ns for each in arrived] == [number * NS_PER_MS for number in range(1, 6)]
    assert counts == Counter(clog=3)
    # Datagrams sent no faster than the link do not wait.
    paced, _ = arrivals(Faults(rate=100_000, queue_length=500, delay_ns=0), 8, spacing_ns=NS_PER_MS)
    assert [each.due_ns for each in paced] == [number * NS_PER_MS for number in range(1, 9)]


def test_disabled_faults_never_occur() -> None:
    network, sender, receiver = pair(Faults(loss=1.0, delay_ns=0))
    network.without = ("loss",)
    network.link(A.ip, B.ip, Faults(loss=1.0, delay_ns=0))
    sender.transport.send(b"tide")
    network.pump(0)
    assert received(receiver) == [b"tide"]
    assert network.counts["loss"] == 0

"""The destinations of a multi-destination channel: how many there are, and which command added each."""

from __future__ import annotations

from mainstem._core.driver.datagram import Transport
from mainstem._core.driver.send_path import SendEndpointCore
from mainstem._core.memory.buffer import AtomicBuffer
from mainstem.aeron.driver.media.addresses import InetAddress
from mainstem.aeron.driver.media.destinations import DestinationTracker

ADDRESS = InetAddress("127.0.0.1", 9).packed


class Gauge:
    value = 0

    def set_release(self, value: int) -> None:
        self.value = value


def tracker(*, is_manual: bool) -> tuple[DestinationTracker, Gauge]:
    core = SendEndpointCore(Transport(1), AtomicBuffer(bytearray(1 << 16)), 1, True, None)
    made, gauge = DestinationTracker(core, is_manual=is_manual), Gauge()
    made.gauge = gauge
    return made, gauge


def test_a_name_without_an_address_is_not_counted_until_it_has_one() -> None:
    destinations, gauge = tracker(is_manual=True)
    destinations.add_unresolved(name="nowhere:9", registration_id=7)
    assert gauge.value == 0
    destinations.move(7, ADDRESS, 1)
    assert gauge.value == 1
    assert destinations.remove(lambda each: each.registration_id == 7)
    assert gauge.value == 0


def test_a_receivers_frame_is_that_of_the_destination_at_its_address() -> None:
    destinations, _ = tracker(is_manual=True)
    destinations.add(ADDRESS, name="localhost:9", registration_id=7, now_ns=1)
    assert destinations.registration_of(ADDRESS, 5) == 7
    destinations.on_status(ADDRESS, 5, 2)
    assert destinations.registration_of(ADDRESS, 5) == 7
    assert destinations.registration_of(ADDRESS, 6) == -1, "another receiver there has the address"
    assert destinations.registration_of(InetAddress("127.0.0.1", 10).packed, 5) == -1


def test_a_learned_destination_has_no_command() -> None:
    destinations, gauge = tracker(is_manual=False)
    destinations.on_status(ADDRESS, 5, 1)
    assert gauge.value == 1
    assert destinations.registration_of(ADDRESS, 5) == -1

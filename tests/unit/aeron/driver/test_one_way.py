"""One-way latency: a burst for a new receiver, estimates that see through jitter, counters in a driver."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.invoked_driver import InvokedDriver, only

from mainstem.aeron.command import responses
from mainstem.aeron.driver.one_way import MAX_CLOCK_DIFFERENCE_NS, MeasurementBurst, OneWayLatency


@given(
    drift_ppb=st.integers(-200_000, 200_000),
    latency_ns=st.integers(1_000, 100_000_000),
    jitter=st.lists(st.integers(0, 2_000), min_size=64, max_size=64),
)
def test_the_drift_is_found_through_jitter(drift_ppb: int, latency_ns: int, jitter: list[int]) -> None:
    one_way = OneWayLatency()
    for number, noise in enumerate(jitter):
        sent = number * 100_000_000
        one_way.observe(sent, sent + latency_ns + sent * drift_ppb // 10**9 + noise)
    assert one_way.drift_ppb is not None
    # Noise of 2 µs over 6.4 s bends the line by a few parts per billion.
    assert abs(one_way.drift_ppb - drift_ppb) < 2_000


def test_nothing_is_known_before_the_first_measurement() -> None:
    one_way = OneWayLatency()
    assert one_way.latency_ns is None
    one_way.observe(100, 150)
    assert (one_way.latency_ns, one_way.drift_ppb) == (50, None)
    one_way.observe(90, 1_000)
    assert (one_way.latency_ns, one_way.count) == (50, 1)


@pytest.mark.parametrize("sent_ns", [-(1 << 63), (1 << 63) - 1, -2 * MAX_CLOCK_DIFFERENCE_NS])
def test_an_invalid_timestamp_is_ignored(sent_ns: int) -> None:
    one_way = OneWayLatency()
    one_way.observe(100, 150)
    assert not one_way.observe(sent_ns, 200)
    assert (one_way.latency_ns, one_way.count) == (50, 1)


def test_a_clock_jump_restarts_the_estimate() -> None:
    one_way = OneWayLatency()
    hour = 3600 * 10**9
    for number in range(10):
        assert one_way.observe(number * 10**8, number * 10**8 + 50)
    assert one_way.observe(10**9 + 5 * hour, 10**9)
    assert one_way.observe(10**9, 10**9 + 70)
    assert (one_way.latency_ns, one_way.count) == (70, 1)


def test_measurements_come_in_a_burst_and_then_rarely() -> None:
    burst, times = MeasurementBurst(1_000_000_000, 0, lambda: 0), []
    for _ in range(MeasurementBurst.BURST + 2):
        times.append(burst.due_ns)
        burst.sent(burst.due_ns)
    steps = [after - before for before, after in pairwise(times)]
    assert steps == [5_000_000] * 15 + [1_000_000_000] * 2


def test_a_driver_shows_latency_and_drift_of_its_images() -> None:
    driver = InvokedDriver(one_way_latency_interval_ns=1_000_000_000)
    channel = "aeron:udp?endpoint=127.0.0.1:20121"
    only(driver.add_subscription(channel), responses.OnSubscriptionReady)
    only(driver.add_publication(channel), responses.OnPublicationReady)
    driver.run(3.0, step=0.005)
    ((image, _),) = driver.core.receiver._images.values()
    assert image.one_way is not None
    assert image.one_way.count >= MeasurementBurst.BURST + 2
    assert image.one_way.drift_ppb == 0
    labels = [label.split(":")[0] for label in driver.labels().values()]
    assert {"rcv-one-way-latency", "rcv-clock-drift"} <= set(labels)
    driver.close()

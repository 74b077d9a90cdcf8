"""Histograms, rates and pace."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mainstem.aeron.tools.latency import LatencyHistogram, Pacer, RateMeter

durations = st.lists(st.integers(0, 10**13), min_size=1, max_size=200)


@given(durations, st.floats(0.1, 100))
def test_a_percentile_is_within_a_64th_of_the_true_one(values: list[int], percent: float) -> None:
    histogram = LatencyHistogram()
    for value in values:
        histogram.record(value)
    rank = max(1, -(-len(values) * percent // 100))
    true = sorted(values)[int(rank) - 1]
    told = histogram.percentile_ns(percent)
    assert true <= told <= true + true // 64 + 1


@given(durations)
def test_the_bars_count_everything_once(values: list[int]) -> None:
    histogram = LatencyHistogram()
    for value in values:
        histogram.record(value)
    bars = histogram.bars(40)
    assert sum(count for _, _, count, _ in bars) == len(values) == histogram.count
    assert max(len(bar) for *_, bar in bars) == 40
    assert (histogram.min_ns, histogram.max_ns) == (min(values), max(values))


def test_an_empty_histogram_is_not_an_error() -> None:
    empty = LatencyHistogram()
    assert (empty.count, empty.mean_ns, empty.percentile_ns(99), empty.bars(10)) == (0, 0.0, 0, [])


def test_a_clock_that_was_set_back_counts_as_nothing() -> None:
    histogram = LatencyHistogram()
    histogram.record(-5)
    assert histogram.max_ns == 0


def test_rates_are_measured_per_step_and_overall() -> None:
    meter = RateMeter(0)
    for _ in range(10):
        meter.add(100)
    assert meter.step(1_000_000_000) == (10.0, 1000.0)
    for _ in range(30):
        meter.add(100)
    assert meter.step(3_000_000_000) == (15.0, 1500.0)
    assert meter.overall(4_000_000_000) == (10.0, 1000.0)


def test_a_pace_is_kept_to_the_message() -> None:
    pacer = Pacer(1000.0, 0)
    sent = sum(pacer.due(ms * 1_000_000) for ms in range(100))
    assert sent == 100
    assert pacer.next_ns() == 100_000_000


def test_a_stall_is_not_followed_by_a_flood() -> None:
    pacer = Pacer(1_000_000.0, 0, burst=64)
    assert pacer.due(0) == 1
    assert pacer.due(1_000_000_000) == 64
    assert pacer.due(1_000_001_000) == 1


def test_a_pace_of_zero_does_not_limit_the_rate() -> None:
    assert [Pacer(0.0, 0, burst=9).due(0) for _ in range(2)] == [9, 9]

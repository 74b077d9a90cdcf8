"""The charts of the demo's page: rates and lags during the run, and a bar for each carrier."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from mainstem.analysis.page import formatting, svg
from mainstem.analysis.page.svg import Series

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mainstem.demo.figures import CarrierMonth
    from mainstem.demo.sampling import Sample

# Points per line: enough to be readable, however long the run was.
POINTS = 80
COLORS = {"sender": "orange", "receiver": "green", "subscriber": "blue"}


def _thinned(samples: Sequence[Sample]) -> list[Sample]:
    """Return about ``POINTS`` of the samples, including the first and the last."""
    seconds = max(0.2, samples[-1].seconds / POINTS)
    chosen = [samples[0]]
    for sample in samples[1:]:
        if sample.seconds - chosen[-1].seconds >= seconds or sample is samples[-1]:
            chosen.append(sample)
    return chosen


def throughput(samples: Sequence[Sample]) -> str:
    """Return the chart of bytes per second: of the stream as the subscriber read it, and on the wire."""
    points = _thinned(samples)

    def rates(value: Callable[[Sample], int]) -> list[float]:
        return [0.0] + [
            (value(later) - value(sooner)) / max(later.seconds - sooner.seconds, 1e-9)
            for sooner, later in pairwise(points)
        ]

    lines = [
        Series("stream, as recorded", "blue", rates(lambda s: s.positions["subscriber"]), is_filled=True),
        Series("sent, repairs included", "orange", rates(lambda s: s.bytes_sent)),
    ]
    return svg.chart([s.seconds for s in points], lines, formatting.short, title="Throughput")


def repairs(samples: Sequence[Sample]) -> str:
    """Return the chart of cumulative NAKs, retransmits and lost datagrams."""
    lines = [
        Series("datagrams dropped", "red", [s.dropped for s in samples]),
        Series("NAKs sent", "blue", [s.naks for s in samples]),
        Series("retransmits sent", "green", [s.retransmits for s in samples]),
    ]
    return svg.chart([s.seconds for s in samples], lines, formatting.short, title="Loss and repair")


def in_flight(samples: Sequence[Sample]) -> str:
    """Return the chart of how far sender, receiver and subscriber were behind the publisher."""
    lines = [
        Series(name, color, [max(s.positions["publisher"] - s.positions[name], 0) for s in samples])
        for name, color in COLORS.items()
    ]
    return svg.chart([s.seconds for s in samples], lines, formatting.short, title="In flight")


def delays(months: Sequence[CarrierMonth]) -> str:
    """Return the chart of the mean departure delay of each carrier over all months."""
    sums: dict[str, tuple[float, int]] = {}
    for month in months:
        total, count = sums.get(str(month.carrier), (0.0, 0))
        sums[str(month.carrier)] = (total + month.delay_sum, count + month.delayed)
    means = sorted((total / count, carrier) for carrier, (total, count) in sums.items() if count)
    return svg.bars(
        [(carrier, mean) for mean, carrier in means], lambda value: f"{value:.1f}", title="Delay by carrier"
    )

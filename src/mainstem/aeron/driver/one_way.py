"""One-way latency and clock drift, from measurements without a reply (receiver id 0)."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainstem.aeron.counters import Gauge

# Measurements that an estimate rests on: a burst and some of those that follow.
MAX_SAMPLES = 64
# A drift needs some time between its first and its last measurement.
MIN_SPAN_NS = 10_000_000
PPB = 1_000_000_000
# Clocks are never further apart than this, a century: a frame that implies it was not written by a sender.
MAX_CLOCK_DIFFERENCE_NS = 100 * 365 * 86_400 * 1_000_000_000
# A clock that jumps by more was set again, or the frame came from another sender: the estimate begins again.
MAX_STEP_NS = 60 * 1_000_000_000


class OneWayLatency:
    """Estimates latency and clock drift from a sender's timestamps and their times of arrival.

    Times are epoch nanoseconds of either machine. The latency is only as accurate as the clocks agree; the drift does not
    depend on their offset. ``drift_gauge`` shows parts per billion by which the sender's clock is slower.
    """

    def __init__(self, *, latency_gauge: Gauge | None = None, drift_gauge: Gauge | None = None) -> None:
        self._samples: deque[tuple[int, int]] = deque(maxlen=MAX_SAMPLES)
        self._latency_gauge = latency_gauge
        self._drift_gauge = drift_gauge

    @property
    def count(self) -> int:
        return len(self._samples)

    @property
    def latency_ns(self) -> int | None:
        return self._samples[-1][1] if self._samples else None

    @property
    def drift_ppb(self) -> int | None:
        """The drift in parts per billion, the slope of the least-squares line; None until it is known."""
        if len(self._samples) < 2 or self._samples[-1][0] - self._samples[0][0] < MIN_SPAN_NS:
            return None
        first = self._samples[0][0]
        xs = [sent - first for sent, _ in self._samples]
        ys = [latency for _, latency in self._samples]
        x_mean, y_mean = sum(xs) / len(xs), sum(ys) / len(ys)
        spread = sum((x - x_mean) ** 2 for x in xs)
        return round(PPB * sum((x - x_mean) * (y - y_mean) for x, y in zip(xs, ys, strict=True)) / spread)

    def observe(self, sent_ns: int, received_ns: int) -> bool:
        latency_ns = received_ns - sent_ns
        if abs(latency_ns) > MAX_CLOCK_DIFFERENCE_NS:
            return False
        if self._samples:
            before_ns, before = self._samples[-1]
            if abs(latency_ns - before) > MAX_STEP_NS:
                self._samples.clear()
            elif sent_ns <= before_ns:
                return True
        self._samples.append((sent_ns, latency_ns))
        if self._latency_gauge is not None:
            self._latency_gauge.set_release(latency_ns)
        drift = self.drift_ppb
        if self._drift_gauge is not None and drift is not None:
            self._drift_gauge.set_release(drift)
        return True


class MeasurementBurst:
    """When a sender measures: ``BURST`` times close together for each new receiver, then every ``interval_ns``."""

    BURST = 16
    SPACING_NS = 5_000_000

    def __init__(self, interval_ns: int, now_ns: int, epoch_ns: Callable[[], int]) -> None:
        self.epoch_ns = epoch_ns  # the clock that is announced
        self._interval_ns = interval_ns
        self._left = self.BURST
        self.due_ns = now_ns

    def begin(self, now_ns: int) -> None:
        self._left = self.BURST
        self.due_ns = now_ns

    def sent(self, now_ns: int) -> None:
        self._left = max(0, self._left - 1)
        self.due_ns = now_ns + (self.SPACING_NS if self._left else self._interval_ns)

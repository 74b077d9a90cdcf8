"""One-way latency and clock drift, measured with RTTM frames without a request (receiver id 0)."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainstem.aeron.counters import Gauge

# Number of measurements in an estimate: a burst and some later ones.
MAX_SAMPLES = 64
# Minimum time between the first and the last measurement of a drift estimate.
MIN_SPAN_NS = 10_000_000
PPB = 1_000_000_000
# Two clocks never differ by more than this, a century. A frame that implies a larger difference did not come from a sender.
MAX_CLOCK_DIFFERENCE_NS = 100 * 365 * 86_400 * 1_000_000_000
# If the latency changes by more than this, a clock was set or the frame came from another sender, so the estimate starts over.
MAX_STEP_NS = 60 * 1_000_000_000


class OneWayLatency:
    """An estimate of latency and clock drift from a sender's timestamps and their arrival times.

    Times are epoch nanoseconds of the sender's and the receiver's host. The latency is only as accurate as their clocks agree; the
    drift doesn't depend on the offset between them. ``drift_gauge`` shows by how many parts per billion the sender's clock is
    slower.
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
        """The drift in parts per billion, as the slope of the least-squares line, or None if it isn't known yet."""
        if len(self._samples) < 2 or self._samples[-1][0] - self._samples[0][0] < MIN_SPAN_NS:
            return None
        first = self._samples[0][0]
        xs = [sent - first for sent, _ in self._samples]
        ys = [latency for _, latency in self._samples]
        x_mean, y_mean = sum(xs) / len(xs), sum(ys) / len(ys)
        spread = sum((x - x_mean) ** 2 for x in xs)
        return round(PPB * sum((x - x_mean) * (y - y_mean) for x, y in zip(xs, ys, strict=True)) / spread)

    def observe(self, sent_ns: int, received_ns: int) -> bool:
        """Add a measurement; return False if its times are impossible."""
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
    """The schedule of a sender's time announcements.

    For each new receiver, there are ``BURST`` announcements ``SPACING_NS`` apart. After that, there is one every ``interval_ns``.
    """

    BURST = 16
    SPACING_NS = 5_000_000

    def __init__(self, interval_ns: int, now_ns: int, epoch_ns: Callable[[], int]) -> None:
        self.epoch_ns = epoch_ns  # the clock whose time is announced
        self._interval_ns = interval_ns
        self._left = self.BURST
        self.due_ns = now_ns

    def begin(self, now_ns: int) -> None:
        self._left = self.BURST
        self.due_ns = now_ns

    def sent(self, now_ns: int) -> None:
        self._left = max(0, self._left - 1)
        self.due_ns = now_ns + (self.SPACING_NS if self._left else self._interval_ns)

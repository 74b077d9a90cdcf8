"""A histogram of durations, a rate meter and a pacer."""

from __future__ import annotations

from dataclasses import dataclass

PERCENTILES = (50.0, 90.0, 99.0, 99.9)
SUB_BUCKETS = 64  # a value is accurate to within 1/64


class LatencyHistogram:
    """A histogram of durations, accurate to 1/64, in a table of fixed size."""

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self.count = 0
        self.total_ns = 0
        self.min_ns = 0
        self.max_ns = 0

    def record(self, duration_ns: int) -> None:
        duration_ns = max(0, duration_ns)
        bucket = _bucket(duration_ns)
        self._counts[bucket] = self._counts.get(bucket, 0) + 1
        self.min_ns = duration_ns if self.count == 0 else min(self.min_ns, duration_ns)
        self.max_ns = max(self.max_ns, duration_ns)
        self.count += 1
        self.total_ns += duration_ns

    @property
    def mean_ns(self) -> float:
        return self.total_ns / self.count if self.count else 0.0

    def percentile_ns(self, percent: float) -> int:
        """Return the duration in nanoseconds that ``percent`` of all did not exceed, rounded up to the end of its bucket."""
        rank = max(1, -(-self.count * percent // 100))
        seen = 0
        for bucket in sorted(self._counts):
            seen += self._counts[bucket]
            if seen >= rank:
                return min(_upper(bucket), self.max_ns)
        return self.max_ns

    def bars(self, width: int) -> list[tuple[int, int, int, str]]:
        """Return (from ns, to ns, count, bar) for each doubling in the observed range. The longest bar has ``width`` characters."""
        octaves: dict[int, int] = {}
        for bucket, count in self._counts.items():
            octave = max(1, _upper(bucket)).bit_length()
            octaves[octave] = octaves.get(octave, 0) + count
        if not octaves:
            return []
        most = max(octaves.values())
        return [
            (1 << (o - 1), (1 << o) - 1, octaves.get(o, 0), "█" * -(-octaves.get(o, 0) * width // most))
            for o in range(min(octaves), max(octaves) + 1)
        ]


def _bucket(value: int) -> int:
    if value < SUB_BUCKETS:
        return value
    shift = value.bit_length() - SUB_BUCKETS.bit_length()
    return (shift + 1) * SUB_BUCKETS + (value >> shift) - SUB_BUCKETS


def _upper(bucket: int) -> int:
    if bucket < SUB_BUCKETS:
        return bucket
    shift = bucket // SUB_BUCKETS - 1
    return ((bucket % SUB_BUCKETS + SUB_BUCKETS + 1) << shift) - 1


@dataclass(slots=True)
class RateMeter:
    """A meter for messages and bytes per second, for each step and in total."""

    start_ns: int
    messages: int = 0
    nbytes: int = 0
    _then_ns: int = 0
    _then_messages: int = 0
    _then_nbytes: int = 0

    def __post_init__(self) -> None:
        self._then_ns = self.start_ns

    def add(self, length: int) -> None:
        self.messages += 1
        self.nbytes += length

    def step(self, now_ns: int) -> tuple[float, float]:
        seconds = max(1, now_ns - self._then_ns) / 1e9
        rates = (self.messages - self._then_messages) / seconds, (self.nbytes - self._then_nbytes) / seconds
        self._then_ns, self._then_messages, self._then_nbytes = now_ns, self.messages, self.nbytes
        return rates

    def overall(self, now_ns: int) -> tuple[float, float]:
        seconds = max(1, now_ns - self.start_ns) / 1e9
        return self.messages / seconds, self.nbytes / seconds


@dataclass(slots=True)
class Pacer:
    """A pacer that tells how many messages are due at a steady rate. If ``per_second`` is 0, the rate is unlimited.

    After a stall, it makes up for at most ``burst`` messages.
    """

    per_second: float
    start_ns: int
    burst: int = 256
    _released: int = 0

    def due(self, now_ns: int) -> int:
        if self.per_second <= 0:
            return self.burst
        should = int((now_ns - self.start_ns) * self.per_second / 1e9) + 1
        count = min(should - self._released, self.burst)
        self._released = should
        return count

    def next_ns(self) -> int:
        return self.start_ns + int(self._released * 1e9 / self.per_second) if self.per_second > 0 else self.start_ns

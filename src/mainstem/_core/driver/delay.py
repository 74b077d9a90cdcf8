"""How long to wait before requesting a gap, and before requesting it again (docs/protocols/aeron.md, 16.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import cython

if TYPE_CHECKING:
    from random import Random

if cython.compiled:
    from cython.cimports.libc.math import log
else:
    from math import log

import math

# A gap is requested again after this many times the first delay.
UNICAST_RETRY_RATIO = 100
UNICAST_DELAY_NS = 1_000


@cython.cclass
class DelayGenerator:
    """Two delays, in nanoseconds: before a gap is requested, and before it is requested again. This base class never waits."""

    def first(self) -> cython.longlong:
        return 0

    def retry(self) -> cython.longlong:
        return self.first()

    def first_ns(self) -> int:
        return self.first()

    def retry_ns(self) -> int:
        return self.retry()


@cython.cclass
class StaticDelay(DelayGenerator):
    """Fixed delays, for unicast; zero if gaps are filled instead of repaired."""

    delay_ns: cython.longlong
    again_ns: cython.longlong

    def __init__(self, delay_ns: cython.longlong, retry_ns: cython.longlong) -> None:
        self.delay_ns = delay_ns
        self.again_ns = retry_ns

    @classmethod
    def unicast(
        cls, delay_ns: cython.longlong = UNICAST_DELAY_NS, ratio: cython.longlong = UNICAST_RETRY_RATIO
    ) -> StaticDelay:
        """Return the delays of unicast: ``delay_ns``, at least 1 µs, and ``ratio`` times that before a retry."""
        delay_ns = max(delay_ns, UNICAST_DELAY_NS)
        return cls(delay_ns, delay_ns * ratio)

    def first(self) -> cython.longlong:
        return self.delay_ns

    def retry(self) -> cython.longlong:
        return self.again_ns


@cython.cclass
class BackoffDelay(DelayGenerator):
    """Random delays, so that few receivers of a group request what all of them miss (RFC 5401, 3.2.3.2).

    ``max_backoff_ns`` is the longest delay, ``group_size`` the expected number of receivers. ``rng`` only provides the seed.
    """

    state: cython.ulonglong
    low: cython.double
    width: cython.double
    factor: cython.double
    unit_ns: cython.double

    def __init__(
        self, rng: Random, max_backoff_ns: cython.longlong = 10000000, group_size: cython.longlong = 10
    ) -> None:
        scale = math.log(group_size) + 1
        # Numbers are drawn without the GIL, by xorshift64*, whose state must not be zero.
        self.state = rng.getrandbits(63) or 1
        self.low = scale / (max_backoff_ns * (math.exp(scale) - 1))
        self.width = scale / max_backoff_ns
        self.factor = (math.exp(scale) - 1) * (max_backoff_ns / scale)
        self.unit_ns = max_backoff_ns / scale

    def first(self) -> cython.longlong:
        x: cython.ulonglong = self.state
        uniform: cython.double
        delay: cython.double
        x ^= x >> 12
        if cython.compiled:
            x ^= x << 25
        else:
            x ^= (x << 25) & 0xFFFFFFFFFFFFFFFF
        x ^= x >> 27
        self.state = x
        uniform = cython.cast(cython.double, cython.cast(cython.longlong, (x >> 20) & 0x7FFFFFFF)) / 2147483648.0
        delay = self.unit_ns * log((self.low + uniform * self.width) * self.factor)
        return cython.cast(cython.longlong, delay) if delay > 0 else 0

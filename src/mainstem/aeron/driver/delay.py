"""How long to wait before a gap is asked for, and asked for again (behaviour, 16.2)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from random import Random

# A gap is asked for again after this many times the first delay.
UNICAST_RETRY_RATIO = 100
UNICAST_DELAY_NS = 1_000


class DelayGenerator(Protocol):
    """Two delays, in nanoseconds: before a gap is reported, and before it is reported again."""

    def first_ns(self) -> int: ...

    def retry_ns(self) -> int: ...


class StaticDelay:
    """Fixed delays: unicast, or none at all where gaps are filled instead of repaired."""

    def __init__(self, delay_ns: int, retry_ns: int) -> None:
        self._delay_ns = delay_ns
        self._retry_ns = retry_ns

    @classmethod
    def unicast(cls, delay_ns: int = UNICAST_DELAY_NS, ratio: int = UNICAST_RETRY_RATIO) -> StaticDelay:
        """``delay_ns`` is 1 µs at least; the retry comes ``ratio`` times later."""
        delay_ns = max(delay_ns, UNICAST_DELAY_NS)
        return cls(delay_ns, delay_ns * ratio)

    def first_ns(self) -> int:
        return self._delay_ns

    def retry_ns(self) -> int:
        return self._retry_ns


class BackoffDelay:
    """Random delays, so that of a group of receivers few ask for what all of them miss (RFC 5401, 3.2.3.2).

    ``max_backoff_ns`` is the longest delay, ``group_size`` the receivers that are expected.
    """

    def __init__(self, random: Random, *, max_backoff_ns: int = 10_000_000, group_size: int = 10) -> None:
        self._random = random
        scale = math.log(group_size) + 1
        self._low = scale / (max_backoff_ns * (math.exp(scale) - 1))
        self._width = scale / max_backoff_ns
        self._factor = (math.exp(scale) - 1) * (max_backoff_ns / scale)
        self._unit_ns = max_backoff_ns / scale

    def first_ns(self) -> int:
        x = self._low + self._random.random() * self._width
        return max(0, int(self._unit_ns * math.log(x * self._factor)))

    def retry_ns(self) -> int:
        return self.first_ns()

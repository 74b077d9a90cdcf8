"""Where in the recordings a condition can be true, for planning: sets of ids, and ranges of two columns.

Bounds may be too large but never too small; the condition is applied to the rows again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

Ids = frozenset[int] | None
"""Whole numbers, or None: all of them."""

IDS = ("recording_id", "stream_id", "session_id")
RANGES = ("position", "recorded_at")


@dataclass(frozen=True)
class Range:
    """Integers from ``low`` to ``high``, inclusive; None is unbounded."""

    low: int | None = None
    high: int | None = None

    def __and__(self, other: Range) -> Range:
        lows = [low for low in (self.low, other.low) if low is not None]
        highs = [high for high in (self.high, other.high) if high is not None]
        return Range(max(lows, default=None), min(highs, default=None))

    def __or__(self, other: Range) -> Range:
        low = None if self.low is None or other.low is None else min(self.low, other.low)
        high = None if self.high is None or other.high is None else max(self.high, other.high)
        return Range(low, high)


@dataclass(frozen=True)
class PredicateBounds:
    """Bounds outside of which there are no rows. ``recorded_at`` is in microseconds of the epoch."""

    recording_id: Ids = None
    stream_id: Ids = None
    session_id: Ids = None
    position: Range = Range()
    recorded_at: Range = Range()

    def __and__(self, other: PredicateBounds) -> PredicateBounds:
        return PredicateBounds(
            _both(self.recording_id, other.recording_id),
            _both(self.stream_id, other.stream_id),
            _both(self.session_id, other.session_id),
            self.position & other.position,
            self.recorded_at & other.recorded_at,
        )

    def __or__(self, other: PredicateBounds) -> PredicateBounds:
        return PredicateBounds(
            _either(self.recording_id, other.recording_id),
            _either(self.stream_id, other.stream_id),
            _either(self.session_id, other.session_id),
            self.position | other.position,
            self.recorded_at | other.recorded_at,
        )


EVERYTHING = PredicateBounds()


def compared(column: str, operator: str, value: int) -> PredicateBounds:
    if operator == "=":
        return among(column, [value])
    if column not in RANGES:
        return EVERYTHING
    bounds = {
        "<": Range(high=value - 1),
        "<=": Range(high=value),
        ">": Range(low=value + 1),
        ">=": Range(low=value),
    }[operator]
    return _only(column, bounds)


def among(column: str, values: Iterable[int]) -> PredicateBounds:
    """Where ``column in (values)`` may be true."""
    chosen = frozenset(values)
    if column in IDS:
        return _only(column, chosen)
    if column in RANGES and chosen:
        return _only(column, Range(min(chosen), max(chosen)))
    return EVERYTHING


def _only(column: str, values: Any) -> PredicateBounds:
    return replace(EVERYTHING, **{column: values})


def _both(one: Ids, other: Ids) -> Ids:
    return other if one is None else one if other is None else one & other


def _either(one: Ids, other: Ids) -> Ids:
    return None if one is None or other is None else one | other

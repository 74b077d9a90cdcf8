"""Bounds the part of a duty cycle that work on data of any length may take, so that other clients' requests do not wait for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem._internal.clock import NS_PER_MS

if TYPE_CHECKING:
    from mainstem._internal.clock import Clock

SLICE_NS = NS_PER_MS


class Slice:
    """The time that all such work may take in one duty cycle. Work that finds it over goes on in the next cycle."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._end_ns = 0

    def begin(self) -> None:
        self._end_ns = self._clock.monotonic_ns() + SLICE_NS

    @property
    def is_over(self) -> bool:
        return self._clock.monotonic_ns() >= self._end_ns

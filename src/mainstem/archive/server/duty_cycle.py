"""A duty cycle of the archive: its time, the slice of it for long work, and how a step that fails is contained."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, TypeVar

from mainstem._internal.clock import NS_PER_MS
from mainstem._internal.log_throttle import LogThrottle
from mainstem.archive.server.request_errors import reason_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mainstem._internal.clock import Clock

    _T = TypeVar("_T")

SLICE_NS = NS_PER_MS
_throttle = LogThrottle(logging.getLogger("mainstem.archive"))


class DutyCycle:
    """The current duty cycle, which began at ``now_ns``.

    Work on data of any length shares a slice of the cycle, so that other clients' requests do not wait for it. Work that finds the
    slice over goes on in the next cycle.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.now_ns = clock.monotonic_ns()
        self._end_ns = 0

    def begin(self, now_ns: int) -> None:
        self.now_ns = now_ns
        self._end_ns = self._clock.monotonic_ns() + SLICE_NS

    @property
    def is_over(self) -> bool:
        return self._clock.monotonic_ns() >= self._end_ns

    def run(self, steps: Iterable[Callable[[], int | None]]) -> int:
        """Run every step, even if one fails, which is logged. Return the sum of the work counts."""
        return step_each(steps, lambda step: step() or 0, self.note_failure)

    def note_failure(self, step: object, text: str) -> None:
        _throttle.log(logging.ERROR, step, f"a part of the archive's duty cycle failed: {text}", self.now_ns)


def step_each(items: Iterable[_T], step: Callable[[_T], int], fail: Callable[[_T, str], None]) -> int:
    """Call ``step`` for each item. Return the sum of the work counts.

    If it raises, call ``fail`` with the item and the reason, and go on with the other items.
    """
    work = 0
    for item in items:
        try:
            work += step(item)
        except Exception as error:
            work += 1
            try:
                fail(item, reason_of(error))
            except Exception as another:
                reason_of(another)
    return work

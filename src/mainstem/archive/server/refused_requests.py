"""Requests that are refused without a response: they are counted and logged."""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Any

from mainstem._internal.log_throttle import LogThrottle
from mainstem._internal.printable import printable

if TYPE_CHECKING:
    from mainstem.archive.server.duty_cycle import DutyCycle

_throttle = LogThrottle(logging.getLogger("mainstem.archive"))


class RefusedRequests:
    """Counts what is refused without a response, by reason, and logs it."""

    def __init__(self, cycle: DutyCycle) -> None:
        self._cycle = cycle
        self.counts: Counter[str] = Counter()

    def note(self, rule: str, image: Any, text: str) -> None:
        self.counts[rule] += 1
        source = printable(image.source_identity)
        _throttle.log(logging.WARNING, f"refused {rule}", f"refused from {source}: {text}", self._cycle.now_ns)

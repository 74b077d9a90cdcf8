"""Raise exceptions as signal handlers do, at every moment of an operation in turn.

CPython runs signal handlers after a C call, at the start of a function and before the next iteration of a loop. It calls profilers
at the first two of these, so a profiler that raises is an interruption at a known moment.
"""

from __future__ import annotations

import sys
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType


class Alarm(Exception):
    """Raised by a signal handler."""


class Interruption:
    """Raises Alarm once, at the moment with the given number; only moments in one package's modules count."""

    def __init__(self, moment: int, package: str) -> None:
        self._left = moment
        self._package = package
        self.has_come = False

    def during(self, work: Callable[[], object]) -> None:
        """Run the work, which the exception may end. Another call continues the count."""
        sys.setprofile(None if self.has_come else self._profile)
        try:
            work()
        except Alarm:
            assert self.has_come
        finally:
            sys.setprofile(None)

    def _profile(self, frame: FrameType, event: str, argument: object) -> None:
        if event not in ("call", "c_return") or not frame.f_globals["__name__"].startswith(self._package):
            return
        self._left -= 1
        if self._left < 0:
            self.has_come = True
            raise Alarm


def interruptions(package: str) -> Iterator[Interruption]:
    """Yield an interruption for every moment, until one is never raised."""
    for moment in count():
        interruption = Interruption(moment, package)
        yield interruption
        if not interruption.has_come:
            assert moment, "nothing was interrupted"
            return

"""Exceptions of signal handlers, at every moment of a piece of work in turn.

CPython runs signal handlers behind a call of C, at the start of a function and before another turn of a loop. The first two are
where a profiler is called, too: one that raises is an interruption at a known moment.
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
    """Raises Alarm once, at the moment of a number, counted in modules of one package."""

    def __init__(self, moment: int, package: str) -> None:
        self._left = moment
        self._package = package
        self.has_come = False

    def during(self, work: Callable[[], object]) -> None:
        """Runs the work, which the exception may end; called again, it counts on."""
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
    """An interruption for every moment, until one does not come any more."""
    for moment in count():
        interruption = Interruption(moment, package)
        yield interruption
        if not interruption.has_come:
            assert moment, "nothing was interrupted"
            return

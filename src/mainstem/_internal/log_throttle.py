"""Collapses repeated log messages into one line with a count, so that a peer or a network cannot fill a log.

The first message of a kind is logged at once. Those that follow within the interval are only counted; the next one after it
is logged with the count. `LogThrottle.flush` logs messages that have only been counted.

The number of kinds and their rate are limited too. When the table is full, it evicts its oldest kind, with a log line of its
count. If the oldest kind is younger than the interval, the new message is instead counted under one common kind. So even texts
that differ each time cannot fill a log.

Peers and clients choose parts of the texts, so unprintable characters are escaped.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from mainstem._internal.clock import NS_PER_SECOND
from mainstem._internal.frozen import mutable
from mainstem._internal.printable import printable

if TYPE_CHECKING:
    import logging

DEFAULT_INTERVAL_NS = 10 * NS_PER_SECOND
MAX_KINDS = 64


@mutable
class _Repeated:
    since_ns: int
    level: int
    text: str
    count: int = 0


@lru_cache(maxsize=1024)
def warn_once(log: logging.Logger, text: str) -> None:
    """Log a warning, unless it is one of the last thousand that were logged."""
    log.warning("%s", text)


# The common kind of all messages that do not fit in the table.
_OTHERS = object()


def kind_of(error: BaseException) -> tuple[type, str, int]:
    """Return the kind of an error: its class, and the file and line that raised it, regardless of its text."""
    trace, file, line = error.__traceback__, "", 0
    while trace is not None:
        file, line = trace.tb_frame.f_code.co_filename, trace.tb_lineno
        trace = trace.tb_next
    return type(error), file, line


class LogThrottle:
    """A throttle for the messages of one logger; ``interval_ns`` is the minimum time between two lines of one kind."""

    def __init__(self, logger: logging.Logger, *, interval_ns: int = DEFAULT_INTERVAL_NS) -> None:
        self._logger = logger
        self._interval_ns = interval_ns
        self._repeated: dict[object, _Repeated] = {}

    def log(self, level: int, kind: object, text: str, now_ns: int, *, error: BaseException | None = None) -> None:
        """Log a message, or only count it if one of its kind was logged within the interval.

        ``error`` gives the first message of a kind its traceback; lines with a count have none.
        """
        entry = self._repeated.get(kind)
        if entry is not None and now_ns - entry.since_ns < self._interval_ns:
            entry.count += 1
            entry.text = text
            return
        traceback, logged = error if entry is None else None, text
        if entry is not None:
            del self._repeated[kind]
            if entry.count:
                seconds = (now_ns - entry.since_ns) / NS_PER_SECOND
                what = "other messages" if kind is _OTHERS else "times"
                logged = f"{text} ({entry.count + 1} {what} in {seconds:.0f} s)"
        elif kind is not _OTHERS and len(self._repeated) - (_OTHERS in self._repeated) >= MAX_KINDS:
            oldest = next(each for each in self._repeated if each is not _OTHERS)
            if now_ns - self._repeated[oldest].since_ns < self._interval_ns:
                self.log(level, _OTHERS, text, now_ns, error=error)
                return
            self._flush(oldest, self._repeated.pop(oldest), now_ns)
        self._repeated[kind] = _Repeated(since_ns=now_ns, level=level, text=text)
        self._logger.log(level, "%s", printable(logged), exc_info=traceback)

    def flush(self, now_ns: int) -> None:
        """Log every message that has only been counted."""
        repeated, self._repeated = self._repeated, {}
        for kind, entry in repeated.items():
            self._flush(kind, entry, now_ns)

    def _flush(self, kind: object, entry: _Repeated, now_ns: int) -> None:
        if entry.count:
            seconds = (now_ns - entry.since_ns) / NS_PER_SECOND
            what = "other messages" if kind is _OTHERS else "more times"
            self._logger.log(entry.level, "%s", printable(f"{entry.text} ({entry.count} {what} in {seconds:.0f} s)"))

"""Repeated log messages as one line with a count: a peer, or a network, must not fill a log.

The first message of a kind is logged at once. Those that follow within the interval are only counted; the next one after it
is logged with the count. `LogLimit.flush` logs what is still only counted. Kinds are bounded: the oldest is flushed and
forgotten.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mainstem.clock import NS_PER_SECOND

if TYPE_CHECKING:
    import logging

DEFAULT_INTERVAL_NS = 10 * NS_PER_SECOND
MAX_KINDS = 64


@dataclass(slots=True)
class _Repeated:
    since_ns: int
    level: int
    text: str
    count: int = 0


class LogLimit:
    """Logs messages of one logger; ``interval_ns`` is the least time between two lines of one kind."""

    def __init__(self, logger: logging.Logger, *, interval_ns: int = DEFAULT_INTERVAL_NS) -> None:
        self._logger = logger
        self._interval_ns = interval_ns
        self._repeated: dict[object, _Repeated] = {}

    def log(self, level: int, kind: object, text: str, now_ns: int) -> None:
        """Log a message, or count it where one of its kind was logged within the interval."""
        entry = self._repeated.get(kind)
        if entry is not None and now_ns - entry.since_ns < self._interval_ns:
            entry.count += 1
            entry.text = text
            return
        if entry is not None:
            del self._repeated[kind]
            if entry.count:
                seconds = (now_ns - entry.since_ns) / NS_PER_SECOND
                text = f"{text} ({entry.count + 1} times in {seconds:.0f} s)"
        elif len(self._repeated) >= MAX_KINDS:
            self._flush(self._repeated.pop(next(iter(self._repeated))), now_ns)
        self._repeated[kind] = _Repeated(now_ns, level, text)
        self._logger.log(level, "%s", text)

    def flush(self, now_ns: int) -> None:
        """Log every message that was only counted."""
        repeated, self._repeated = self._repeated, {}
        for entry in repeated.values():
            self._flush(entry, now_ns)

    def _flush(self, entry: _Repeated, now_ns: int) -> None:
        if entry.count:
            seconds = (now_ns - entry.since_ns) / NS_PER_SECOND
            self._logger.log(entry.level, "%s", f"{entry.text} ({entry.count} more times in {seconds:.0f} s)")

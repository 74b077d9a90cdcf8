"""Requests that are refused or fail: the error for the response."""

from __future__ import annotations

import logging
from collections import Counter

from mainstem._internal.clock import SYSTEM_CLOCK
from mainstem._internal.log_throttle import LogThrottle, kind_of
from mainstem.errors import ArchiveError, ArchiveErrorCode, MainstemError

log = logging.getLogger("mainstem.archive")
_throttle = LogThrottle(log)
# Errors of unexpected types by class, file and line, since the process began. Tests and the simulator expect none.
unexpected: Counter[tuple[type, str, int]] = Counter()


def request_error(text: str, code: ArchiveErrorCode = ArchiveErrorCode.GENERIC) -> ArchiveError:
    """Return the error for a request. The client receives its code and text."""
    return ArchiveError(text, code=code)


def reason_of(error: Exception) -> str:
    """Return the text for a client whose request ended with an error. Log an error of an unexpected type with its traceback."""
    if isinstance(error, (MainstemError, OSError, ValueError, IndexError)):
        return str(error)
    text = f"{type(error).__name__}: {error}"
    unexpected[kind_of(error)] += 1
    now_ns = SYSTEM_CLOCK.monotonic_ns()
    _throttle.log(logging.ERROR, kind_of(error), f"a request failed unexpectedly: {text}", now_ns, error=error)
    return text

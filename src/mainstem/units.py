"""Sizes, durations and times as people write them: ``64m``, ``10ms``, ``2026-01-31T12:00:00``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    from datetime import datetime

_SIZE = re.compile(r"(-?\d+)([kKmMgG]?)")
_SIZE_FACTORS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_DURATION = re.compile(r"(\d+)(ns|us|ms|s)?")
_DURATION_FACTORS = {None: 1, "ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}


def parse_size(text: str, *, name: str = "size") -> int:
    """Returns the bytes of ``4096``, ``64k``, ``16m`` or ``1g`` (binary multiples). Raises ConfigurationError."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ConfigurationError(f"{name}: {text!r} is not a size (a whole number with k, m or g after it, as in 64k)")
    return int(match[1]) * _SIZE_FACTORS[match[2].lower()]


def format_size(value: int) -> str:
    """Returns the shortest text that ``parse_size`` reads back as ``value``."""
    for suffix, factor in (("g", 1 << 30), ("m", 1 << 20), ("k", 1 << 10)):
        if value and value % factor == 0:
            return f"{value // factor}{suffix}"
    return str(value)


def parse_duration_ns(text: str, *, name: str = "duration") -> int:
    """Returns the nanoseconds of ``100``, ``10us``, ``200ms`` or ``5s``. Raises ConfigurationError."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ConfigurationError(
            f"{name}: {text!r} is not a duration (a whole number with ns, us, ms or s after it, as in 10ms)"
        )
    return int(match[1]) * _DURATION_FACTORS[match[2]]


def format_duration_ns(value: int) -> str:
    """Returns the shortest text that ``parse_duration_ns`` reads back as ``value``."""
    for suffix, factor in (("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000)):
        if value and value % factor == 0:
            return f"{value // factor}{suffix}"
    return f"{value}ns"


def parse_time(text: str, *, name: str = "time", expected: str = "no time as in 2026-01-31T12:00:00") -> datetime:
    """Returns an ISO 8601 time, in UTC unless it has an offset. Raises ConfigurationError."""
    from datetime import UTC, datetime

    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigurationError(f"{name}: {text!r} is {expected}") from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)

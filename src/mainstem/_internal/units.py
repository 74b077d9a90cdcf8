"""Values as people write them: sizes (``64m``), durations (``10ms``), times (``2026-01-31T12:00:00``) and ``name=value``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

_SIZE = re.compile(r"(-?\d+)([kKmMgG]?)")
_SIZE_FACTORS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ns|us|ms|s|min|h|d)?", re.IGNORECASE)
_DURATION_FACTORS = {
    "ns": 1,
    "us": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "min": 60 * 1_000_000_000,
    "h": 3600 * 1_000_000_000,
    "d": 86_400 * 1_000_000_000,
}


def parse_size(text: str, *, name: str = "size") -> int:
    """Return the bytes of ``4096``, ``64k``, ``16m`` or ``1g`` (binary multiples). Raises ConfigurationError."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ConfigurationError(f"{name}: {text!r} is not a size (a whole number with k, m or g after it, as in 64k)")
    return int(match[1]) * _SIZE_FACTORS[match[2].lower()]


def format_size(value: int) -> str:
    """Return the shortest text that ``parse_size`` reads back as ``value``."""
    for suffix, factor in (("g", 1 << 30), ("m", 1 << 20), ("k", 1 << 10)):
        if value and value % factor == 0:
            return f"{value // factor}{suffix}"
    return str(value)


def parse_duration_ns(text: str, *, name: str = "duration", plain_unit: str = "ns") -> int:
    """Return the nanoseconds of ``10us``, ``200ms``, ``1.5s``, ``5min``, ``24h`` or ``7d``. Raises ConfigurationError.

    A number without a unit is in ``plain_unit``; if that is empty, a unit is required.
    """
    match = _DURATION.fullmatch(text.strip())
    unit = (match[2] or plain_unit).lower() if match is not None else ""
    if match is None or not unit:
        raise ConfigurationError(f"{name}: {text!r} is not a duration (as in 500ms, 10s, 5min, 24h or 7d)")
    factor = _DURATION_FACTORS[unit]
    return int(match[1]) * factor if match[1].isdecimal() else round(float(match[1]) * factor)


def format_duration_ns(value: int) -> str:
    """Return the shortest text that ``parse_duration_ns`` reads back as ``value``."""
    for suffix, factor in (("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000)):
        if value and value % factor == 0:
            return f"{value // factor}{suffix}"
    return f"{value}ns"


def parse_pairs(texts: Iterable[str] | None, *, name: str) -> dict[str, str]:
    """Return texts of the form ``name=value`` as a dictionary; the last value of a name counts. Raises ConfigurationError."""
    pairs = {}
    for text in texts or ():
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise ConfigurationError(f"{name}: {text!r} is not of the form name=value")
        pairs[key.strip()] = value
    return pairs


def parse_time(text: str, *, name: str = "time", expected: str = "no time as in 2026-01-31T12:00:00") -> datetime:
    """Return an ISO 8601 time, in UTC unless it has an offset. Raises ConfigurationError."""
    from datetime import UTC, datetime

    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigurationError(f"{name}: {text!r} is {expected}") from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def parse_moment_ns(text: str, *, name: str, now_ns: int) -> int:
    """Parse a time, or an age relative to ``now_ns``, into nanoseconds since 1970. Raises ConfigurationError."""
    if re.fullmatch(r"[\d.]+[a-z]+", text):
        return now_ns - parse_duration_ns(text, name=name, plain_unit="")
    expected = "neither a time (2026-01-31T12:00:00) nor an age (24h)"
    return round(parse_time(text, name=name, expected=expected).timestamp() * 1_000_000) * 1000

"""Sizes, counts, flags and times in the options of every source. Names are compared without regard to case, as Spark does."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeVar

from mainstem.errors import ConfigurationError
from mainstem.units import parse_size

if TYPE_CHECKING:
    from collections.abc import Mapping

# As of Kafka's connector.
MAX_TRIGGER_DELAY_NS = 15 * 60 * 1_000_000_000
_DELAY = re.compile(r"(\d+)\s*(ms|s|m|min|h)")
_DELAY_UNITS_NS = {"ms": 10**6, "s": 10**9, "m": 60 * 10**9, "min": 60 * 10**9, "h": 3600 * 10**9}

D = TypeVar("D", int, None)


def positive(texts: Mapping[str, str], name: str, default: D) -> int | D:
    """A size or a count above zero, of options whose names are in lower case; ``name`` is as it is documented."""
    text = texts.get(name.lower())
    if text is None:
        return default
    value = parse_size(text, name=name)
    if value <= 0:
        raise ConfigurationError(f"{name}: {text!r} is not above zero")
    return value


def trigger_options(texts: Mapping[str, str]) -> tuple[int | None, int]:
    """``minBytesPerTrigger`` and ``maxTriggerDelay`` in nanoseconds, for names in lower case."""
    min_bytes = positive(texts, "minBytesPerTrigger", None)
    max_bytes = positive(texts, "maxBytesPerTrigger", None)
    if min_bytes is not None and max_bytes is not None and min_bytes > max_bytes:
        raise ConfigurationError(
            f"minBytesPerTrigger: {texts['minbytespertrigger']!r} is above maxBytesPerTrigger,"
            f" {texts['maxbytespertrigger']!r}"
        )
    if "maxtriggerdelay" not in texts:
        return min_bytes, MAX_TRIGGER_DELAY_NS
    text = texts["maxtriggerdelay"]
    if min_bytes is None:
        raise ConfigurationError("maxTriggerDelay: it is the delay of minBytesPerTrigger, which is not given")
    match = _DELAY.fullmatch(text.strip().lower())
    if match is None:
        raise ConfigurationError(f"maxTriggerDelay: {text!r} is no time as in 500ms, 30s, 15m or 1h")
    return min_bytes, int(match[1]) * _DELAY_UNITS_NS[match[2]]


def flag(texts: Mapping[str, str], name: str, default: bool) -> bool:
    """True or false."""
    text = texts.get(name.lower(), str(default))
    if text.lower() not in ("true", "false"):
        raise ConfigurationError(f"{name}: {text!r} is neither true nor false")
    return text.lower() == "true"

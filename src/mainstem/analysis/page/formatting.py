"""Formats numbers for people."""

from __future__ import annotations

from datetime import UTC, datetime


def size(count: float) -> str:
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= factor:
            return f"{count / factor:.{0 if count >= 100 * factor else 1}f} {unit}"
    return f"{count:.0f} B"


def duration(nanoseconds: float) -> str:
    if nanoseconds == 0:
        return "–"
    for unit, factor in (("h", 3600e9), ("min", 60e9), ("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if nanoseconds >= factor * (1 if unit not in ("h", "min") else 2):
            value = nanoseconds / factor
            return f"{value:.{0 if value >= 100 else 1}f} {unit}"
    return f"{nanoseconds:.0f} ns"


def count(number: float) -> str:
    return f"{number:,.0f}"


def several(number: int, one: str) -> str:
    return f"{number:,} {one if number == 1 else one + 's'}"


def share(part: float, whole: float) -> str:
    """Format a ratio as a percentage. A small ratio is never shown as zero."""
    if whole <= 0 or part <= 0:
        return "0 %"
    percent = 100 * part / whole
    return f"{percent:.1f} %" if percent >= 0.1 else f"{percent:.2g} %"


def moment(nanoseconds: int) -> str:
    return datetime.fromtimestamp(nanoseconds / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + " UTC"


def short(value: float) -> str:
    for unit, factor in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= factor:
            return f"{value / factor:.3g}{unit}"
    return f"{value:.3g}"

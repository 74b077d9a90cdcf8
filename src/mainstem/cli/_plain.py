"""Figures as short text, for screens: bars, sparklines, sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

LEVELS = "▁▂▃▄▅▆▇█"
EIGHTHS = " ▏▎▍▌▋▊▉█"


def spark(values: Iterable[float], width: int) -> str:
    """Returns the last values as a line of bars, the largest as high as can be; blank where there are none yet."""
    last = list(values)[-width:]
    top = max(last, default=0)
    if top <= 0:
        return (LEVELS[0] * len(last)).rjust(width)
    return "".join(LEVELS[min(len(LEVELS) - 1, int(value / top * len(LEVELS)))] for value in last).rjust(width)


def bar(share: float, width: int) -> str:
    """Returns a share from 0 to 1 as a bar; what is more than nothing shows."""
    eighths = round(min(1.0, max(0.0, share)) * width * 8)
    if share > 0:
        eighths = max(1, eighths)
    whole, rest = divmod(eighths, 8)
    return ("█" * whole + (EIGHTHS[rest] if rest else "")).ljust(width)


def short(value: float) -> str:
    """Returns a number in at most six letters, as in 12.3M."""
    for unit, factor in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= factor:
            return f"{value / factor:.1f}{unit}" if abs(value) < 100 * factor else f"{value / factor:.0f}{unit}"
    return f"{value:.0f}"


def age(milliseconds: float) -> str:
    """Returns a time that has passed, in its largest units."""
    seconds = int(milliseconds / 1000)
    if seconds < 1:
        return f"{milliseconds:.0f} ms"
    for unit, length, below, part in (("d", 86_400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1)):
        if seconds >= length:
            return f"{seconds // length} {unit} {seconds % length // part} {below}"
    return f"{seconds} s"

"""Bounds and times that a program sets: kept as they are, or refused by name. A bound of 0 would mean a wait without end."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST = (1 << 63) - 1


def check_whole(values: Mapping[str, object], *, least: int, most: int = MOST) -> None:
    """Checks whole numbers: counts, bytes, nanoseconds.

    Args:
        values: The numbers by the names that the program knows them by.
        least: The smallest that is accepted.
        most: The largest that is accepted.

    Raises:
        ConfigurationError: One is no ``int``, or lies outside.

    Example:
        >>> check_whole({"bound": 0}, least=1)
        Traceback (most recent call last):
        ConfigurationError: bound=0 is no whole number of 1 at least
    """
    for name, value in values.items():
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            bounds = f"of {least} at least" if most == MOST else f"in {least}..{most}"
            raise ConfigurationError(f"{name}={value!r} is no whole number {bounds}")


def check_seconds(values: Mapping[str, object], *, may_be_zero: bool = False, may_be_none: bool = False) -> None:
    """Checks durations in seconds.

    Args:
        values: The durations by the names that the program knows them by.
        may_be_zero: Whether 0 is accepted.
        may_be_none: Whether None, for no limit, is accepted.

    Raises:
        ConfigurationError: One is no finite number, or too small.

    Example:
        >>> check_seconds({"idle_timeout": math.nan})
        Traceback (most recent call last):
        ConfigurationError: idle_timeout=nan is no number of seconds above 0
    """
    for name, value in values.items():
        if value is None and may_be_none:
            continue
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not 0 <= value < math.inf or (value == 0 and not may_be_zero):  # type: ignore[operator]
            bounds = "of 0 at least" if may_be_zero else "above 0"
            raise ConfigurationError(f"{name}={value!r} is no number of seconds {bounds}")

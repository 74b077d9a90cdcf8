"""Checks of an application's numbers, times and data. Valid ones are kept exactly.

Data to send must be bytes-like: ``bytes(5)`` is five zeroes, which nobody meant to send.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

INT32_MIN, INT32_MAX = -(1 << 31), (1 << 31) - 1
INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1


def check_int(values: Mapping[str, object], *, min_value: int, max_value: int = INT64_MAX) -> None:
    """Raise ConfigurationError unless each value is an ``int`` from ``min_value`` to ``max_value``."""
    for name, value in values.items():
        if not isinstance(value, int) or isinstance(value, bool) or not min_value <= value <= max_value:
            limits = f">= {min_value}" if max_value == INT64_MAX else f"from {min_value} to {max_value}"
            raise ConfigurationError(f"{name}={value!r}: must be an integer {limits}")


def check_seconds(values: Mapping[str, object], *, may_be_zero: bool = False, may_be_none: bool = False) -> None:
    """Raise ConfigurationError unless each value is a finite number of seconds above 0, or 0 or None if allowed."""
    for name, value in values.items():
        if value is None and may_be_none:
            continue
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not 0 <= value < math.inf or (value == 0 and not may_be_zero):  # type: ignore[operator]
            raise ConfigurationError(f"{name}={value!r}: must be a number of seconds {'>=' if may_be_zero else '>'} 0")


def as_bytes(data: bytes | bytearray | memoryview) -> bytes:
    """Return the bytes of a bytes-like object, copied unless they are ``bytes``. Raises TypeError."""
    return data if type(data) is bytes else bytes(memoryview(data))


def as_message(message: bytes | bytearray | memoryview | str) -> bytes:
    """Return the bytes of a message, which may be text; text is encoded as UTF-8. Raises TypeError."""
    return message.encode() if isinstance(message, str) else as_bytes(message)

"""Converts numbers in text form, as in JSON and CSV, and checks whether a column can hold them.

A column holds an integer only if it has exactly that value. A floating-point column holds any other number if it returns the same
digits: it holds 0.1, although no binary fraction equals it, but not 0.12345678901234567890, because a double returns
0.12345678901234568.
"""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

from mainstem.codecs.exact import DECIMAL_DIGITS, exact_leaf, or_misfit, shown
from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

INTEGER = re.compile(r"[+-]?[0-9]+")
NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
NOT_FINITE = re.compile(r"nan|[+-]?inf(?:inity)?", re.IGNORECASE)
# For each of Arrow's time units, the number of digits after the point, and the unit's name.
TIME_UNITS = {"s": (0, "seconds"), "ms": (3, "milliseconds"), "us": (6, "microseconds"), "ns": (9, "nanoseconds")}
# The number of digits, without an exponent, that always survive in a float with this many bits.
SAFE_DIGITS = {16: 3, 32: 6, 64: 15}
# The end of a number near zero in JSON, from the minus sign of its exponent. Such a number loses digits, or all of its value.
TINY = re.compile(rb"-[0-9]{3,}[ \t]*[,\]}]")
# Runs of digits are measured up to this length. Longer ones are compared one by one.
LONGEST_RUN = 20
SCANNED_AT_ONCE = 1 << 18
_MINUS, _DOT, _ZERO, _NINE, _E = b"-.09e"
_AFTER_NUMBER = b",]} \teE"
# This bit is set in lower-case letters.
_LOWER = 0x20


def float_name(value: float) -> str:
    """Return the text for a NaN or an infinity, which JSON has no number for: the text that Spark and Java read as that number."""
    return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"


def number_of(text: str) -> float | Decimal:
    """Parse a number with a fraction or an exponent. Returns a float if it prints the same number, else a Decimal."""
    value = float(text)
    if len(text) <= SAFE_DIGITS[64] + 1 and "e" not in text and "E" not in text:
        return value
    exact = decimal_of(text)
    return value if Decimal(repr(value)) == exact else exact


def decimal_of(text: str) -> Decimal:
    """Parse a number as a Decimal. Raises ValueError for an exponent that Python does not support."""
    try:
        return Decimal(text)
    except InvalidOperation:
        raise ValueError(f"{shown(text)} has an exponent that no number holds") from None


def text_array(values: list[Any], kind: pa.DataType) -> pa.Array:
    return or_misfit(_text_array, values, kind)


def _text_array(values: list[Any], kind: Any) -> Any:
    import pyarrow as pa
    import pyarrow.types as is_

    texts = pa.array(values, pa.string())
    if texts.null_count == len(texts):
        return pa.nulls(len(texts), kind)
    if is_.is_integer(kind):
        _require(values, INTEGER.fullmatch, kind)
        return exact_leaf([None if text is None else integer_of(text) for text in values], kind)
    if is_.is_floating(kind):
        _require(values, _is_float, kind)
        array = texts.cast(kind)
        safe = SAFE_DIGITS[kind.bit_width]
        for text, number in zip(values, array.to_pylist(), strict=True):
            if text is not None and (len(text) > safe or "e" in text or "E" in text) and not is_held(text, number):
                raise ValueError(f"{shown(text)} has more digits than a {kind} holds")
        return array
    if is_.is_decimal(kind):
        _require(values, NUMBER.fullmatch, kind)
        return exact_leaf([None if text is None else decimal_of(text) for text in values], kind)
    return times_of(texts, kind) if is_.is_temporal(kind) else texts.cast(kind)


def integer_of(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{shown(text)} has {len(text)} digits, more than any number column holds") from None


def times_of(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Parse dates and times in ISO 8601. Raises ValueError for an invalid text or one more precise than the unit."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.types as is_

    if is_.is_timestamp(kind):
        with suppress(pa.ArrowInvalid):
            return texts.cast(kind)
    if is_.is_timestamp(kind) or is_.is_time(kind):
        # Times of day are converted through Python's times, which have only microseconds.
        unit = "us" if is_.is_time(kind) and kind.unit == "ns" else kind.unit
        digits, word = TIME_UNITS[unit]
        fraction = rf"(\.[0-9]{{{digits}}})" if digits else r"()\."
        texts = pc.replace_substring_regex(texts, rf"{fraction}0+([zZ]|[+-][0-9:]*)?$", r"\1\2")
        longer = texts.filter(pc.match_substring_regex(texts, rf"\.[0-9]{{{digits + 1}}}"))
        if len(longer):
            raise ValueError(f"{shown(longer[0].as_py())} is not in whole {word}, the unit of {kind}")
    if is_.is_time(kind):
        return exact_leaf([None if text is None else _time(text, kind) for text in texts.to_pylist()], kind)
    return or_misfit(lambda values, kind: pa.array(values, pa.string()).cast(kind), texts.to_pylist(), kind, _no_time)


def _time(text: str, kind: Any) -> time:
    try:
        return time.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{shown(text)} is not of type {kind}") from None


def _no_time(text: Any, kind: Any) -> str:
    """Explain why a text is not a date or time of a type."""
    import pyarrow as pa
    import pyarrow.types as is_

    if is_.is_timestamp(kind):
        with suppress(pa.ArrowException):
            pa.array([text]).cast(pa.timestamp(kind.unit, None if kind.tz else "UTC"))
            return (
                f"{shown(text)} has no time zone, which {kind} needs"
                if kind.tz
                else f"{shown(text)} has a time zone, which {kind} lacks"
            )
    return f"{shown(text)} is not of type {kind}"


def is_held(text: str, number: float) -> bool:
    """Return whether a floating-point number holds the number in the text."""
    if NOT_FINITE.fullmatch(text):
        return True
    exact = decimal_of(text)
    if INTEGER.fullmatch(text):
        return Decimal(number) == exact
    digits = "".join(map(str, exact.as_tuple().digits)).rstrip("0")
    return Decimal(format(number, f".{max(len(digits) - 1, 0)}e")) == exact


def as_text(value: Any, name: str, where: str) -> str:
    """Format times in ISO 8601 and decimals in digits, as ``text_array`` reads them. Raises ConfigurationError for other types."""
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, Decimal):
        return decimal_text(value)
    raise ConfigurationError(f"{name}: {where} has no {type(value).__name__}")


def decimal_text(value: Decimal) -> str:
    """Format a decimal in digits, or with an exponent if it would have far more digits than a column can hold."""
    is_short = value.is_finite() and abs(int(value.as_tuple().exponent)) <= 2 * DECIMAL_DIGITS
    return f"{value:f}" if is_short else str(value)


def inexact_lines(bounds: Any, data: pa.Buffer, *, narrow: bool) -> set[int]:
    """Return the lines with a fraction or a negative exponent that a double may not hold.

    ``bounds`` are the offsets in ``data`` at which the lines start, and the end of the last one. No number may be at the end of a
    line. With ``narrow``, the double must print as the same number, because it is converted to a narrower type later.
    """
    import numpy as np

    raw = np.frombuffer(data, np.uint8)
    # Find dots and minus signs at once, because they are adjacent in ASCII.
    places = places_of(raw, lambda part: part - np.uint8(_MINUS) <= _DOT - _MINUS)
    is_dot = raw[places] == _DOT
    found = [*_long_fractions(data, raw, places[is_dot], narrow=narrow), *_tiny(data, raw, places[~is_dot])]
    if not found:
        return set()
    return set((np.searchsorted(bounds, found, "right") - 1).tolist())


def places_of(raw: Any, is_wanted: Callable[[Any], Any]) -> Any:
    """Return the indexes of the bytes for which ``is_wanted`` is true. Works in blocks that fit into the processor's cache."""
    import numpy as np

    starts = range(0, len(raw), SCANNED_AT_ONCE)
    return np.concatenate([start + np.flatnonzero(is_wanted(raw[start : start + SCANNED_AT_ONCE])) for start in starts])


def _digits(raw: Any, places: Any) -> Any:
    """Return whether there is a digit at each place. Places outside the data are clipped to it."""
    import numpy as np

    at = raw[np.clip(places, 0, len(raw) - 1)]
    return (at >= _ZERO) & (at <= _NINE)


def _tiny(data: pa.Buffer, raw: Any, signs: Any) -> list[int]:
    """Return the minus signs in exponents of numbers that are so near zero that they lose digits."""
    before = raw[signs - 1] | _LOWER
    signs = signs[(before == _E) & _digits(raw, signs + 3)]
    return [place for place in signs.tolist() if TINY.match(data, place)]


def _long_fractions(data: pa.Buffer, raw: Any, dots: Any, *, narrow: bool) -> list[int]:
    """Return the decimal points of numbers that a double may not hold."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    def run(step: int) -> Any:
        length, inside = np.zeros(len(dots), np.int64), np.ones(len(dots), bool)
        for distance in range(1, LONGEST_RUN + 1):
            inside &= _digits(raw, dots + step * distance)
            length += inside
        return length

    # At least half of the digits are on one side of the point.
    half = (SAFE_DIGITS[64] + 1) // 2
    dots = dots[_digits(raw, dots - half) | _digits(raw, dots + half)]
    before, after = run(-1), run(1)
    has_zero = (before == 1) & (raw[dots - 1] == _ZERO)
    chosen = (before > 0) & (after > 0) & (before + after - has_zero > SAFE_DIGITS[64])
    # In a string, other bytes follow the digits.
    chosen &= (after == LONGEST_RUN) | np.isin(raw[np.clip(dots + after + 1, 0, len(raw) - 1)], list(_AFTER_NUMBER))
    dots, before, after = dots[chosen], before[chosen], after[chosen]
    if not len(dots):
        return []
    bounds = np.empty(2 * len(dots), np.int64)
    bounds[::2], bounds[1::2] = dots - before, dots + after + 1
    buffers = [None, pa.py_buffer(bounds), data]
    slices = pa.Array.from_buffers(pa.large_binary(), len(bounds) - 1, buffers)
    texts = slices.take(pa.array(np.arange(0, len(bounds) - 1, 2))).cast(pa.large_string())
    # A double holds a number if it prints as the same text. The text lacks any exponent, and may be truncated.
    prints = pc.equal(texts.cast(pa.float64()).cast(pa.large_string()), texts).to_numpy(zero_copy_only=False)
    is_whole = (before < LONGEST_RUN) & (after < LONGEST_RUN) & ((raw[dots + after + 1] | _LOWER) != _E)
    doubtful = ~(prints & is_whole)
    if not narrow:
        for i in np.flatnonzero(doubtful & is_whole).tolist():
            text = texts[i].as_py()
            doubtful[i] = not is_held(text, float(text))
    return dots[doubtful].tolist()  # type: ignore[no-any-return]


def _is_float(text: str) -> Any:
    return NUMBER.fullmatch(text) or NOT_FINITE.fullmatch(text)


def _require(values: Sequence[Any], is_right: Callable[[str], Any], kind: Any) -> None:
    for text in values:
        if text is not None and not is_right(text):
            raise ValueError(f"{shown(text)} is not of type {kind}")

"""Makes Arrow arrays with exactly the given values: nothing is rounded, truncated, wrapped or converted.

``pyarrow.array`` is not that strict: it rounds to float32, truncates 2.5 to 2 and microseconds to milliseconds, and treats a
time without a zone as UTC.
"""

from __future__ import annotations

import json
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    Leaf = Callable[[list[Any], Any], Any]

# Digits of the widest decimal. A number with a larger exponent is refused, before it becomes an integer with a billion digits.
DECIMAL_DIGITS = 38
_SHOWN = 60


def exact_leaf(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Make an array of a type that is not nested. Raises ValueError for the first value that the type cannot hold."""
    return or_misfit(_exact, values, kind)


def or_misfit(
    make: Leaf, values: list[Any], kind: pa.DataType, explain: Callable[[Any, Any], str] | None = None
) -> pa.Array:
    """Call ``make(values, kind)``. If Arrow or Python refuses a value, raise ValueError with the value and the type's limits.

    ``explain`` describes why the type cannot hold a value. None uses a text that suits numbers and times.
    """
    import pyarrow as pa

    refusals = (OverflowError, TypeError, pa.ArrowException)
    try:
        return make(values, kind)
    except refusals:
        while len(values) > 1:
            half = values[: len(values) // 2]
            try:
                make(half, kind)
                values = values[len(half) :]
            except refusals:
                values = half
            except ValueError:
                break
        raise ValueError((explain or _misfit)(values[0], kind)) from None


def _misfit(value: Any, kind: Any) -> str:
    import pyarrow.types as is_

    text = shown(value)
    if is_.is_integer(kind) and isinstance(value, int | float | Decimal):
        least = 0 if is_.is_unsigned_integer(kind) else -1 << kind.bit_width - 1
        return f"{text} is outside the range of {kind}, {least} to {least + (1 << kind.bit_width) - 1}"
    if is_.is_decimal(kind) and isinstance(value, int | Decimal):
        return (
            f"{text} is not exactly a {kind}, which has {kind.precision} digits, {kind.scale} of them after the point"
        )
    if (is_.is_timestamp(kind) or is_.is_time(kind) or is_.is_duration(kind)) and not isinstance(value, str):
        return f"{text} is not exactly a {kind}: its unit is {kind.unit}"
    return f"{text} is not of type {kind}"


def _exact(values: list[Any], kind: Any) -> Any:
    import pyarrow as pa
    import pyarrow.types as is_

    if is_.is_integer(kind):
        _require(values, (int, float, Decimal), kind)
        return pa.array(
            [_integer(value, kind) for value in values] if set(map(type, values)) - _INTEGERS else values, kind
        )
    if is_.is_floating(kind):
        _require(values, (int, float, Decimal), kind)
        return _floats(values, kind)
    if is_.is_decimal(kind):
        _require(values, (int, Decimal), kind)
        return pa.array([_decimal(value, kind) if isinstance(value, Decimal) else value for value in values], kind)
    if is_.is_boolean(kind):
        _require(values, bool, kind)
    elif str(kind) in ("string", "large_string", "string_view"):
        _require(values, str, kind)
    elif is_.is_temporal(kind):
        return _temporal(values, kind)
    elif "binary" in str(kind):
        _require(values, (bytes, bytearray, memoryview, str), kind)
    elif is_.is_dictionary(kind):
        return exact_array(values, kind.value_type).dictionary_encode().cast(kind)
    return pa.array(values, kind)


def exact_array(values: list[Any], kind: pa.DataType, leaf: Leaf = exact_leaf) -> pa.Array:
    """Make an array with exactly these Python values. Maps are dictionaries or lists of pairs, and None is null.

    ``leaf`` makes arrays of types that are not nested. Does not check whether fields may be null. Raises ValueError.
    """
    import pyarrow as pa
    import pyarrow.types as is_

    if is_.is_struct(kind) and kind.num_fields:
        _require(values, dict, kind)
        fields = list(kind)
        members = [
            exact_array([None if each is None else each.get(item.name) for each in values], item.type, leaf)
            for item in fields
        ]
        return pa.StructArray.from_arrays(members, fields=fields, mask=_nulls(values))
    if is_.is_fixed_size_list(kind):
        _require(values, (list, tuple), kind)
        if wrong := [each for each in values if each is not None and len(each) != kind.list_size]:
            raise ValueError(f"{shown(wrong[0])} has {len(wrong[0])} items, not {kind.list_size}")
        items = [item for each in values for item in (each if each is not None else [None] * kind.list_size)]
        return pa.FixedSizeListArray.from_arrays(
            exact_array(items, kind.value_type, leaf), type=kind, mask=_nulls(values)
        )
    if is_.is_list(kind) or is_.is_large_list(kind):
        _require(values, (list, tuple), kind)
        items = exact_array([item for each in values for item in each or ()], kind.value_type, leaf)
        array_type = pa.ListArray if is_.is_list(kind) else pa.LargeListArray
        return array_type.from_arrays(_offsets(values), items, type=kind, mask=_nulls(values))
    if is_.is_map(kind):
        _require(values, (dict, list), kind)
        pairs = [None if each is None else _pairs(each) for each in values]
        flat = [pair for each in pairs for pair in each or ()]
        arrays = (
            exact_array([key for key, _ in flat], kind.key_type, leaf),
            exact_array([item for _, item in flat], kind.item_type, leaf),
        )
        return pa.MapArray.from_arrays(_offsets(pairs), *arrays, type=kind, mask=_nulls(values))
    return leaf(values, kind)


def shown(value: Any) -> str:
    """Format a value for an error message, shortened. Literals are in JSON."""
    if value is None or isinstance(value, bool):
        text = json.dumps(value)
    elif isinstance(value, Decimal | datetime | date | time):
        text = str(value)
    else:
        text = repr(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


def to_integer(value: Any) -> int:
    """Convert a number to an integer. Raises ValueError for a fraction, or for more digits than any column holds."""
    if isinstance(value, Decimal) and not (value.is_finite() and value.adjusted() <= DECIMAL_DIGITS):
        raise ValueError(f"{shown(value)} has more than {DECIMAL_DIGITS} digits")
    if value != value or value in (float("inf"), float("-inf")) or value != int(value):
        raise ValueError(f"{shown(value)} is not an integer")
    return int(value)


def is_float_32(value: float) -> bool:
    import numpy as np

    with np.errstate(over="ignore"):
        return value != value or float(np.float32(value)) == value


_INTEGERS = {int, type(None)}


def _integer(value: Any, kind: Any) -> int | None:
    try:
        return None if value is None else to_integer(value)
    except ValueError as error:
        raise ValueError(f"{shown(value)} is not of type {kind}") from error


def _decimal(value: Decimal, kind: Any) -> Decimal:
    """Return the same number without an exponent, because some exponents crash Arrow."""
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise ValueError(f"{value} is not of type {kind}")
    if -kind.scale <= exponent <= 0:
        return value
    text = "".join(map(str, digits)).rstrip("0")
    if not text:
        return Decimal(0)
    exponent += len(digits) - len(text)
    if exponent < -kind.scale or value.adjusted() >= kind.precision - kind.scale:
        raise ValueError(_misfit(value, kind))
    return Decimal((sign, tuple(map(int, text)), exponent))


def _floats(values: Sequence[Any], kind: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    others = set(map(type, values)) - {float, type(None)}
    array = pa.array([_float(value, kind) for value in values] if others else values, pa.float64())
    if kind == array.type:
        return array
    narrow = array.cast(kind, safe=False)
    kept = pc.or_(pc.equal(narrow.cast(array.type), array), pc.is_nan(array))
    if pc.any(pc.invert(kept)).as_py():
        raise ValueError(f"{array.filter(pc.invert(kept))[0].as_py()!r} is not exactly a {kind}")
    return narrow


def _float(value: Any, kind: Any) -> float | None:
    if value is None:
        return None
    try:
        number = float(value)
    except OverflowError:
        number = float("inf")
    if number != value and value == value:
        raise ValueError(f"{shown(value)} is not exactly a {kind}")
    return number


def _temporal(values: list[Any], kind: Any) -> Any:
    import pyarrow as pa
    import pyarrow.types as is_

    if is_.is_timestamp(kind):
        _require(values, datetime, kind)
        if wrong := [each for each in values if each is not None and (each.tzinfo is None) != (kind.tz is None)]:
            raise ValueError(
                f"{shown(wrong[0])} has {'no' if kind.tz else 'a'} time zone, and {kind} {'needs one' if kind.tz else 'has none'}"
            )
        # This cast refuses values that the coarser unit cannot hold. pa.array would truncate them.
        return pa.array(values, pa.timestamp("us", kind.tz)).cast(kind)
    if is_.is_date(kind):
        _require(values, date, kind)
        if wrong := [each for each in values if isinstance(each, datetime)]:
            raise ValueError(f"{shown(wrong[0])} is not of type {kind}")
        return pa.array(values, kind)
    if is_.is_time(kind):
        _require(values, time, kind)
        if wrong := [each for each in values if each is not None and each.tzinfo is not None]:
            raise ValueError(f"{shown(wrong[0])} has a time zone, and {kind} has none")
        return pa.array(values, pa.time64("us")).cast(kind)
    if is_.is_duration(kind):
        _require(values, timedelta, kind)
        return pa.array(values, pa.duration("us")).cast(kind)
    return pa.array(values, kind)


def _require(values: Sequence[Any], allowed: Any, kind: Any) -> None:
    # There are few types among many values, so check each type once.
    wrong = {
        each
        for each in set(map(type, values)) - {type(None)}
        if not issubclass(each, allowed) or (each is bool and allowed is not bool)
    }
    if wrong:
        value = next(value for value in values if type(value) in wrong)
        raise ValueError(f"{shown(value)} is not of type {kind}")


def _pairs(value: Any) -> list[tuple[Any, Any]]:
    pairs = list(value.items()) if isinstance(value, dict) else value
    if wrong := [pair for pair in pairs if not isinstance(pair, tuple | list) or len(pair) != 2 or pair[0] is None]:
        raise ValueError(f"{shown(wrong[0])} is not a key with a value")
    return pairs


def _offsets(values: Sequence[Any]) -> Any:
    import numpy as np
    import pyarrow as pa

    lengths = [0, *(0 if each is None else len(each) for each in values)]
    return pa.array(np.cumsum(lengths, dtype=np.int64), pa.int64() if sum(lengths) >= 1 << 31 else pa.int32())


def _nulls(values: Sequence[Any]) -> Any:
    import pyarrow as pa

    return pa.array([each is None for each in values], pa.bool_())

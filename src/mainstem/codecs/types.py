"""Values and Arrow types: whether a value is of a type as it is, which type holds some values, and what a schema leaves out."""

from __future__ import annotations

import base64
import json
import math
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa

MAX_FLOAT_32 = (2 - 2**-23) * 2.0**127
# Digits of the widest decimal: for whole numbers beyond 64 bits.
DECIMAL_DIGITS = 38
_SHOWN = 60


def check(values: Sequence[Any], kind: Any) -> None:
    """Raises ValueError for the first value that is none of the Arrow type ``kind`` as it is; None is always one."""
    import pyarrow.types as is_

    if is_.is_struct(kind):
        _all(values, dict, kind)
        for i in range(kind.num_fields):
            item = kind.field(i)
            check([value.get(item.name) for value in values if value is not None], item.type)
    elif is_.is_list(kind) or is_.is_large_list(kind) or is_.is_fixed_size_list(kind):
        _all(values, (list, tuple), kind)
        check([each for value in values if value is not None for each in value], kind.value_type)
    elif is_.is_map(kind):
        _all(values, (dict, list), kind)
        pairs = [pair for value in values if value is not None for pair in items_of(value)]
        check([key for key, _ in pairs], kind.key_type)
        check([each for _, each in pairs], kind.item_type)
    elif is_.is_integer(kind):
        # 2.0 is the integer 2 in formats that have one kind of number.
        _all((value for value in values if not (type(value) is float and value.is_integer())), int, kind)
    elif is_.is_floating(kind):
        _all(values, (int, float), kind)
        if kind.bit_width < 64:
            for value in values:
                if value is not None and abs(value) > MAX_FLOAT_32 and not math.isinf(value):
                    raise ValueError(f"{_shown(value)} is no {kind}")
    elif is_.is_boolean(kind):
        _all(values, bool, kind)
    elif is_.is_string(kind) or is_.is_large_string(kind):
        _all(values, str, kind)
    elif is_.is_binary(kind) or is_.is_large_binary(kind):
        _all(values, (bytes, bytearray, memoryview, str), kind)
    elif is_.is_decimal(kind):
        _all(values, (int, Decimal), kind)
    elif is_.is_temporal(kind):
        _all(values, (datetime, date, time, timedelta), kind)


def items_of(value: Any) -> list[Any]:
    """The pairs of a map, which is a dictionary or a list of pairs."""
    return list(value.items()) if isinstance(value, dict) else value


def _all(values: Iterable[Any], allowed: Any, kind: Any) -> None:
    values = list(values)
    # Few types among many values: each type is compared once.
    wrong = {
        each
        for each in set(map(type, values)) - {type(None)}
        if not issubclass(each, allowed) or (each is bool and allowed is not bool)
    }
    if wrong:
        value = next(value for value in values if type(value) in wrong)
        raise ValueError(f"{_shown(value)} is no {kind}")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


def widest(name: str, values: Sequence[Any]) -> pa.DataType:
    """The narrowest Arrow type that holds all these values of a field; text where all are None.

    Raises ValueError that names the field where there is none.
    """
    import pyarrow as pa

    present = [value for value in values if value is not None]
    types = set(map(type, present))
    if types == {dict}:
        fields = dict.fromkeys(each for value in present for each in value)
        return pa.struct([(each, widest(f"{name}.{each}", [value.get(each) for value in present])) for each in fields])
    if types and types <= {list, tuple}:
        return pa.list_(widest(f"{name}[]", [each for value in present for each in value]))
    if types == {int}:
        fits = min(present) >= -(1 << 63) and max(present) < 1 << 63
        return pa.int64() if fits else pa.decimal128(DECIMAL_DIGITS, 0)
    if types and types <= {int, float}:
        return pa.float64()
    if len(types) > 1:
        both = " and ".join(sorted(each.__name__ for each in types))
        raise ValueError(f"field {name!r} holds values of {both}")
    return pa.array(present).type if present else pa.string()


def rescue(rows: Sequence[dict[str, Any]], schema: pa.Schema) -> dict[int, str]:
    """The fields of each row that the schema lacks, as JSON, by the row's index. A field that is null is not kept."""
    import pyarrow as pa

    known = set(schema.names)
    nested = {item.name: item.type for item in schema if pa.types.is_nested(item.type)}
    surplus = {}
    for index, row in enumerate(rows):
        fields = {str(name): row[name] for name in row if name not in known and row[name] is not None}
        for name, kind in nested.items():
            if (part := _surplus(row.get(name), kind)) is not None:
                fields[name] = part
        if fields:
            surplus[index] = as_json(fields)
    return surplus


def as_json(value: Any) -> str:
    """A value as JSON; bytes in base64, what JSON lacks as text."""
    return _ENCODER.encode(value)


def _text(value: Any) -> str:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)


_ENCODER = json.JSONEncoder(default=_text, ensure_ascii=False, separators=(",", ":"))


def _surplus(value: Any, kind: Any) -> Any:
    """What of a value has no place in its type; None where all has."""
    import pyarrow as pa

    if isinstance(value, dict) and pa.types.is_struct(kind):
        fields = {kind.field(i).name: kind.field(i).type for i in range(kind.num_fields)}
        parts = {str(name): _surplus(each, fields[name]) if name in fields else each for name, each in value.items()}
        return {name: part for name, part in parts.items() if part is not None} or None
    if isinstance(value, dict) and pa.types.is_map(kind):
        parts = {str(name): _surplus(each, kind.item_type) for name, each in value.items()}
        return {name: part for name, part in parts.items() if part is not None} or None
    if isinstance(value, list | tuple) and pa.types.is_list(kind):
        items = [_surplus(each, kind.value_type) for each in value]
        return items if any(item is not None for item in items) else None
    return None

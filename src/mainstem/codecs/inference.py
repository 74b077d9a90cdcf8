"""Infers columns from a sample of rows. Each field gets the type that most of its values have.

Values of other types become problems when they are decoded. Fields that no column can hold are rescued.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from mainstem.codecs.exact import DECIMAL_DIGITS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    import pyarrow as pa

# Maximum number of fields in a schema, nested ones included, and maximum depth of structs and lists. Engines plan for each field.
MAX_FIELDS = 1000
MAX_DEPTH = 32
# Maximum length of a name, in characters. Several catalogs have this limit.
MAX_NAME = 255


def fields_of(rows: Sequence[dict[Any, Any]], depth: int = 0) -> list[tuple[str, pa.DataType]]:
    """Return the fields that columns can hold, in order of first occurrence. If there are too many, keeps the most frequent."""
    counts = Counter(name for row in rows for name in row if _is_name(name))
    kinds: dict[str, pa.DataType] = {}
    left = MAX_FIELDS
    for name, _ in counts.most_common():
        kind = widest([row.get(name) for row in rows], depth)
        if kind is not None and (size := _size(kind)) <= left:
            kinds[name] = kind
            left -= size
    return [(name, kinds[name]) for name in counts if name in kinds]


def widest(values: Sequence[Any], depth: int = 0) -> pa.DataType | None:
    """Return the narrowest type that holds all values of the most frequent kind.

    ``depth`` is the number of structs and lists around the values. The result is string if all values are None, and None if no
    column can hold the values.
    """
    import pyarrow as pa

    present = [value for value in values if value is not None]
    if not present:
        return pa.string()
    kind, _ = Counter(map(_kind, present)).most_common(1)[0]
    chosen = [value for value in present if _kind(value) == kind]
    if kind in (dict, list):
        if depth >= MAX_DEPTH:
            return None
        if kind is dict:
            fields = fields_of(chosen, depth + 1)
            return pa.struct(fields) if fields else None
        item = widest([each for value in chosen for each in value], depth + 1)
        return None if item is None else pa.list_(item)
    if kind is int:
        return _number(chosen)
    try:
        return pa.array(chosen).type
    except (ValueError, TypeError, OverflowError, pa.ArrowException):
        return pa.string() if kind is str else None


def distinct(
    schema: pa.Schema, taken: Collection[str] = (), key: Callable[[str], str] = lambda name: name
) -> pa.Schema:
    """Return a schema without fields whose name was used earlier or is in ``taken``, at any depth of structs.

    Names are compared by their ``key``. Structs that lose all fields are omitted.
    """
    import pyarrow as pa

    return pa.schema(_distinct(list(schema), {key(name) for name in taken}, key))


def _distinct(fields: Sequence[Any], taken: set[str], key: Callable[[str], str]) -> list[Any]:
    kept = []
    for item in fields:
        kind = _distinct_type(item.type, key)
        if key(item.name) not in taken and kind is not None:
            taken.add(key(item.name))
            kept.append(item if kind is item.type else item.with_type(kind))
    return kept


def _distinct_type(kind: Any, key: Callable[[str], str]) -> Any:
    import pyarrow as pa

    if pa.types.is_struct(kind):
        fields = _distinct(list(kind), set(), key)
        return pa.struct(fields) if fields else None
    if pa.types.is_list(kind):
        item = _distinct_type(kind.value_type, key)
        return None if item is None else pa.list_(kind.value_field.with_type(item))
    return kind


def _is_name(name: Any) -> bool:
    if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME:
        return False
    # A lone surrogate is not valid UTF-8, and engines written in C end a name at NUL.
    return not any(each == "\0" or "\ud800" <= each <= "\udfff" for each in name)


def _kind(value: Any) -> Any:
    kind = type(value)
    if kind in (float, Decimal):
        return int
    if kind is tuple:
        return list
    return (kind, value.tzinfo is None) if isinstance(value, datetime) else kind


def _number(values: Sequence[Any]) -> pa.DataType:
    import pyarrow as pa

    if any(type(value) is float for value in values):
        return pa.float64()
    decimals = [value if isinstance(value, Decimal) else Decimal(value) for value in values]
    digits, scale = 0, 0
    for each in decimals:
        if not each.is_finite() or each.adjusted() >= DECIMAL_DIGITS:
            # No type can hold this value, so it becomes a problem in any column.
            continue
        digits, scale = max(digits, each.adjusted() + 1), max(scale, -int(each.as_tuple().exponent))
    if all(type(value) is int for value in values):
        fits = all(-(1 << 63) <= value < 1 << 63 for value in values if abs(value) < 10**DECIMAL_DIGITS)
        return pa.int64() if fits else pa.decimal128(DECIMAL_DIGITS, 0)
    return pa.decimal128(DECIMAL_DIGITS, scale) if digits + scale <= DECIMAL_DIGITS else pa.float64()


def _size(kind: Any) -> int:
    """Return the number of fields that a type counts as."""
    import pyarrow as pa

    if pa.types.is_struct(kind):
        return 1 + sum(_size(item.type) for item in kind)
    return _size(kind.value_type) if pa.types.is_list(kind) else 1

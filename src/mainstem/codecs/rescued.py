"""Fields that the schema lacks, as JSON beside the row."""

from __future__ import annotations

import base64
import math
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from json.encoder import encode_basestring, encode_basestring_ascii
from typing import TYPE_CHECKING, Any
from uuid import UUID

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa


def rescue(rows: Sequence[dict[str, Any]], schema: pa.Schema) -> tuple[dict[int, str], dict[int, str]]:
    """The fields of each row that the schema lacks, except null ones.

    Returns, by the row's index, the fields as a JSON object, and why JSON cannot hold them.
    """
    import pyarrow as pa

    known = set(schema.names)
    nested = {item.name: item.type for item in schema if pa.types.is_nested(item.type)}
    texts: dict[int, str] = {}
    reasons: dict[int, str] = {}
    for index, row in enumerate(rows):
        if not nested and known.issuperset(row):
            continue
        try:
            fields = {name: row[name] for name in row if name not in known and row[name] is not None}
            for name, kind in nested.items():
                if (part := _surplus(row.get(name), kind)) is not None:
                    fields[name] = part
            if fields:
                texts[index] = as_json(fields)
        except ValueError as error:
            reasons[index] = f"a field that the schema lacks: {error}"
        except RecursionError:
            reasons[index] = "a field that the schema lacks is nested too deeply"
    return texts, reasons


def as_json(value: Any) -> str:
    """A value as JSON: bytes in base64, times in ISO 8601, numbers with all their digits. Raises ValueError for any other type."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, int):
        return int.__repr__(value)
    if isinstance(value, Decimal):
        return str(value) if value.is_finite() else f'"{value}"'
    if isinstance(value, float):
        return float.__repr__(value) if math.isfinite(value) else f'"{value}"'
    if isinstance(value, dict):
        if wrong := [name for name in value if not isinstance(name, str)]:
            raise ValueError(f"the name {wrong[0]!r:.60} is not text")
        return "{" + ",".join(f"{_text(name)}:{as_json(each)}" for name, each in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(as_json, value)) + "]"
    if isinstance(value, bytes):
        return f'"{base64.b64encode(value).decode()}"'
    if isinstance(value, datetime | date | time):
        return f'"{value.isoformat()}"'
    if isinstance(value, timedelta | UUID):
        return f'"{value}"'
    raise ValueError(f"JSON has no {type(value).__name__}")


def _text(value: str) -> str:
    """A JSON string; lone surrogates, which UTF-8 cannot hold, are escaped."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return encode_basestring_ascii(value)
    return encode_basestring(value)


def _surplus(value: Any, kind: Any) -> Any:
    """The part of a value that its type cannot hold; None if there is none."""
    import pyarrow as pa

    if isinstance(value, dict) and pa.types.is_struct(kind):
        fields = {kind.field(i).name: kind.field(i).type for i in range(kind.num_fields)}
        parts = {name: _surplus(each, fields[name]) if name in fields else each for name, each in value.items()}
        return {name: part for name, part in parts.items() if part is not None} or None
    if isinstance(value, dict) and pa.types.is_map(kind):
        parts = {name: _surplus(each, kind.item_type) for name, each in value.items()}
        return {name: part for name, part in parts.items() if part is not None} or None
    if isinstance(value, list | tuple) and (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        items = [_surplus(each, kind.value_type) for each in value]
        return items if any(item is not None for item in items) else None
    return None

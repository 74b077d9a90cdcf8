"""Enforces the limits of a table: no null in a required column, and only years 1 to 9999, the range of Spark and Python.

A schema marks required columns with ``nullable=False``. The table's columns are nullable anyway, because a row for a problem has
nothing in the codec's columns.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from mainstem.codecs.decoded import Decoded

FIRST, LAST = date(1, 1, 1).toordinal(), date.max.toordinal()
EPOCH = date(1970, 1, 1).toordinal()
DAY_S = 86_400
UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def as_nullable(kind: Any) -> Any:
    import pyarrow as pa
    import pyarrow.types as is_

    if isinstance(kind, pa.Schema):
        return pa.schema([as_nullable(item) for item in kind], kind.metadata)
    if isinstance(kind, pa.Field):
        return kind.with_type(as_nullable(kind.type)).with_nullable(True)
    if is_.is_struct(kind):
        return pa.struct(list(map(as_nullable, kind)))
    if is_.is_map(kind):
        return pa.map_(as_nullable(kind.key_type), as_nullable(kind.item_field), kind.keys_sorted)
    if is_.is_fixed_size_list(kind):
        return pa.list_(as_nullable(kind.value_field), kind.list_size)
    if is_.is_list(kind) or is_.is_large_list(kind):
        return (pa.list_ if is_.is_list(kind) else pa.large_list)(as_nullable(kind.value_field))
    return kind


def within_limits(decoded: Decoded, schema: pa.Schema) -> Decoded:
    """Turn messages whose rows exceed a limit into problems, and return the other rows.

    ``decoded`` has a column for each field of ``schema``, which marks required fields with ``nullable=False``. Never raises because
    of a value.
    """
    import numpy as np
    import pyarrow as pa

    reasons: dict[int, str] = {}
    for column, item in zip(decoded.columns, schema, strict=True):
        for path, reason, mask in _faults(column, item, item.name):
            for row in np.flatnonzero(mask).tolist():
                reasons.setdefault(decoded.origins[row], f"{path}: {reason}")
    if not reasons:
        return decoded
    kept = [row for row, origin in enumerate(decoded.origins) if origin not in reasons]
    places = {row: place for place, row in enumerate(kept)}
    return replace(
        decoded,
        columns=[column.take(pa.array(kept, pa.int64())) for column in decoded.columns],
        origins=[decoded.origins[row] for row in kept],
        problems=decoded.problems | reasons,
        rescued={places[row]: text for row, text in decoded.rescued.items() if row in places},
    )


def _faults(column: Any, item: Any, path: str) -> Iterator[tuple[str, str, Any]]:
    import numpy as np
    import pyarrow.types as is_

    kind = item.type
    if not _is_limited(item):
        return
    if not item.nullable and column.null_count:
        yield path, "the value is missing, and the column is not null", column.is_null().to_numpy(False)
    if is_.is_date(kind) or is_.is_timestamp(kind):
        mask = _outside_years(column, kind)
        if mask.any():
            yield path, "the time is not in the years 1 to 9999", mask
    elif is_.is_struct(kind):
        present = column.is_valid().to_numpy(False)
        for member, part in zip(column.flatten(), kind, strict=True):
            for where, reason, mask in _faults(member, part, f"{path}.{part.name}"):
                if (inside := mask & present).any():
                    yield where, reason, inside
    elif is_.is_nested(kind):
        rows, parts = _items(column, kind)
        for part, field, name in parts:
            for where, reason, mask in _faults(part, field, f"{path}{name}"):
                inside = np.zeros(len(column), bool)
                inside[rows[mask]] = True
                yield where, reason, inside


def _items(column: Any, kind: Any) -> tuple[Any, list[tuple[Any, Any, str]]]:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.types as is_

    if is_.is_map(kind):
        offsets = column.offsets.to_numpy()
        rows = np.repeat(np.arange(len(column)), np.diff(offsets))
        start, length = int(offsets[0]), len(rows)
        fields = kind.key_field, kind.item_field
        arrays = column.keys, column.items
        # Depending on its version, pyarrow's keys and items start at the offsets or at the start of the buffers.
        arrays = tuple(each if len(each) == length else each.slice(start, length) for each in arrays)
        return rows, [(arrays[0], fields[0], ".key"), (arrays[1], fields[1], ".value")]
    lengths = pc.fill_null(pc.list_value_length(column), pa.scalar(0)).to_numpy(False)
    return np.repeat(np.arange(len(column)), lengths), [(column.flatten(), kind.value_field, "[]")]


def _is_limited(item: Any) -> bool:
    import pyarrow.types as is_

    kind = item.type
    if not item.nullable or is_.is_date(kind) or is_.is_timestamp(kind):
        return True
    if is_.is_struct(kind):
        return any(map(_is_limited, kind))
    if is_.is_map(kind):
        return _is_limited(kind.key_field.with_nullable(True)) or _is_limited(kind.item_field)
    return (is_.is_list(kind) or is_.is_large_list(kind) or is_.is_fixed_size_list(kind)) and _is_limited(
        kind.value_field
    )


def _outside_years(column: Any, kind: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.types as is_

    if is_.is_date32(kind):
        numbers, unit = column.view(pa.int32()), 1
    else:
        numbers, unit = column.view(pa.int64()), DAY_S * (10**3 if is_.is_date64(kind) else UNITS[kind.unit])
    first, end = (FIRST - EPOCH) * unit, (LAST + 1 - EPOCH) * unit
    if unit == DAY_S * UNITS["ns"]:
        # 64-bit nanoseconds cover only the years 1677 to 2262.
        return pc.and_(pc.is_valid(numbers), pa.scalar(False)).to_numpy(False)
    outside = pc.or_(pc.less(numbers, first), pc.greater_equal(numbers, end))
    return pc.fill_null(outside, False).to_numpy(False)

"""From the footer of a Parquet file to the statistics of a Delta table's log, which readers pass over files by.

Only what is exact is stated: of columns that are no struct, list or map; no floating columns with NaN, no long texts, no
decimals that JSON's numbers would round. Times are in milliseconds there: rounded down below, up above.
"""

from __future__ import annotations

import json
from datetime import date, datetime, timedelta
from decimal import Decimal
from math import isfinite
from typing import Any

# As of the first columns of a table only: the log is read whole by every reader.
MAX_COLUMNS = 32
MAX_TEXT = 32
MAX_DIGITS = 15


def statistics(metadata: Any, schema: Any, nans: frozenset[str]) -> str:
    """The statistics of a file, as JSON.

    Args:
        metadata: The file's footer.
        schema: Its Arrow schema.
        nans: Columns with NaN.
    """
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    leaf = 0
    for item in list(schema)[:MAX_COLUMNS]:
        width = _leaves(item.type)
        if item.type.num_fields == 0:
            groups = [metadata.row_group(i).column(leaf).statistics for i in range(metadata.num_row_groups)]
            if groups and all(group is not None and group.has_null_count for group in groups):
                nulls[item.name] = sum(group.null_count for group in groups)
            bounds = None if item.name in nans else _bounds(groups, item.type, metadata.num_rows)
            if bounds is not None:
                least[item.name], greatest[item.name] = bounds
        leaf += width
    return json.dumps({"numRecords": metadata.num_rows, "minValues": least, "maxValues": greatest, "nullCount": nulls})


def _leaves(kind: Any) -> int:
    return sum(_leaves(kind.field(i).type) for i in range(kind.num_fields)) if kind.num_fields else 1


def _bounds(groups: list[Any], kind: Any, rows: int) -> tuple[Any, Any] | None:
    """The least and the greatest value as the log has them; None where they are not known exactly."""
    import pyarrow as pa

    if pa.types.is_boolean(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or not rows:
        return None
    # A row group of nulls only has no bounds, and needs none.
    groups = [group for group in groups if group is None or group.num_values]
    if not groups or any(group is None or not group.has_min_max for group in groups):
        return None
    try:
        low = _value(min(group.min for group in groups), up=False)
        high = _value(max(group.max for group in groups), up=True)
    except (OverflowError, ValueError):
        # A time that Python's types do not hold.
        return None
    return None if low is None or high is None else (low, high)


def _value(value: Any, *, up: bool) -> Any:
    if isinstance(value, datetime):
        rest = timedelta(microseconds=value.microsecond % 1000)
        if rest:
            value = value - rest + timedelta(milliseconds=1 if up else 0)
        text = value.replace(tzinfo=None).isoformat(timespec="milliseconds")
        return text + ("Z" if value.tzinfo is not None else "")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return float(value) if len(value.as_tuple().digits) <= MAX_DIGITS else None
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, str):
        return value if len(value) <= MAX_TEXT else None
    return value if isinstance(value, int) else None

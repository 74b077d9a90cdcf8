"""The statistics of a data file in a Delta table's log, by which readers skip files.

deltalake takes a column without bounds for one in which no value matches, if the file states bounds of any column. So the table's
property ``delta.dataSkippingStatsColumns`` names the columns whose bounds every file states, and a file that cannot state
one of them states none. The property leaves out columns whose bounds deltalake cannot state either when it compacts files: floating
columns, because bounds exclude NaN, and decimals that it writes with an exponent or fewer digits.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from mainstem.spark.formats.text_bounds import upper_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mainstem.spark.formats.column_bounds import ColumnBounds

PROPERTY = "delta.dataSkippingStatsColumns"
# Every reader reads all statistics of the log, so it has those of the first columns and of the start of a text.
MAX_COLUMNS = 32
MAX_TEXT = 32
# Decimals up to here go through a float and its shortest text unchanged.
MAX_DIGITS, MAX_SCALE = 15, 5
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def indexable(schema: Any) -> list[str]:
    """The columns of an Arrow schema whose bounds can be stated whatever their values are."""
    # deltalake splits the property at commas, quoted or not.
    return [item.name for item in schema if "," not in item.name and _is_indexable(item.type)]


def _is_indexable(kind: Any) -> bool:
    import pyarrow as pa

    if pa.types.is_decimal(kind):
        return bool(kind.precision <= MAX_DIGITS and kind.scale <= MAX_SCALE)
    return any(
        is_kind(kind)
        for is_kind in (
            pa.types.is_boolean,
            pa.types.is_integer,
            pa.types.is_date,
            pa.types.is_timestamp,
            pa.types.is_string,
            pa.types.is_large_string,
        )
    )


def property_of(names: Iterable[str]) -> str:
    """The table's property that names these columns."""
    return ",".join(map(_quoted, names))


def _quoted(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else "`{}`".format(name.replace("`", "``"))


def indexed(schema: Any, properties: Mapping[str, str]) -> tuple[str, ...]:
    """The columns whose bounds each file of a table has to state; none if the table names others too, or no columns at all."""
    named = {_quoted(name): name for name in indexable(schema)}
    entries = [each.strip() for each in properties.get(PROPERTY, "").split(",")]
    return tuple(named[entry] for entry in entries) if named.keys() >= set(entries) else ()


def statistics(bounds: ColumnBounds) -> str:
    """The statistics of a file, as JSON."""
    counts = {"numRecords": bounds.rows, "nullCount": bounds.nulls}
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    for name in bounds.nulls:
        try:
            values = bounds.of(name)
        except OverflowError:
            # A time that the log has no text for.
            return _json(counts)
        if values is None:
            continue
        least[name], greatest[name] = _lower(values[0]), _upper(values[1])
        if greatest[name] is None:
            return _json(counts)
    return _json({**counts, "minValues": least, "maxValues": greatest} if least else counts)


def _json(value: Any) -> str:
    """JSON with the exact digits of decimals, and no exponents."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(name)}:{_json(each)}" for name, each in value.items()) + "}"
    return format(value, "f") if isinstance(value, Decimal) else json.dumps(value)


def _lower(value: Any) -> Any:
    """A value, or one below it, as the log has it."""
    if isinstance(value, datetime):
        return _time(value - timedelta(microseconds=value.microsecond % 1000))
    if isinstance(value, date):
        return value.isoformat()
    return value[:MAX_TEXT] if isinstance(value, str) else value


def _upper(value: Any) -> Any:
    """A value, or one above it, as the log has it; None if there is none."""
    if isinstance(value, datetime):
        # Readers add a millisecond for writers that round down, as happens here at the end of the year 9999.
        with suppress(OverflowError):
            value += timedelta(microseconds=-value.microsecond % 1000)
        return _time(value)
    return upper_text(value, MAX_TEXT) if isinstance(value, str) else _lower(value)


def _time(value: datetime) -> str:
    text = value.replace(tzinfo=None).isoformat(timespec="milliseconds")
    return text + ("Z" if value.tzinfo is not None else "")

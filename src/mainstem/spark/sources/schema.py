"""The columns of ``mainstem.recording``: their types for Spark and for Arrow, and what each costs to read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem._core import layout
from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql.types import StructType

Names = dict[str, bool]
"""The columns asked for, in order, and whether the schema lets each be null: Spark requires its own schema back."""

# name: (Spark type, bit of _core.columns; 0 where the value is the recording's own and no frame is read for it)
MESSAGE_COLUMNS: dict[str, tuple[str, int]] = {
    "recording_id": ("bigint", 0),
    "session_id": ("int", 0),
    "stream_id": ("int", 0),
    "position": ("bigint", layout.COLUMN_POSITION),
    "term_id": ("int", layout.COLUMN_TERM_ID),
    "term_offset": ("int", layout.COLUMN_TERM_OFFSET),
    "flags": ("smallint", layout.COLUMN_FLAGS),
    "reserved_value": ("bigint", layout.COLUMN_RESERVED_VALUE),
    "recorded_at": ("timestamp", layout.COLUMN_POSITION),
    "length": ("int", layout.COLUMN_LENGTH),
    "payload": ("binary", layout.COLUMN_PAYLOAD),
}
FRAME_COLUMNS = {
    name: column
    for key, value in MESSAGE_COLUMNS.items()
    for name, column in (
        {key: value, "type": ("smallint", layout.COLUMN_TYPE)} if key == "flags" else {key: value}
    ).items()
}
# A row for each fault of a recording; no frame's columns are gathered for it.
PROBLEM_COLUMNS = {
    "recording_id": ("bigint", 0),
    "position": ("bigint", 0),
    "kind": ("string", 0),
    "text": ("string", 0),
}
# Where an option names what gives it, among the columns of messages and frames.
TIMESTAMP = "timestamp"
_TIMESTAMP_COLUMN = {TIMESTAMP: ("timestamp", layout.COLUMN_POSITION | layout.COLUMN_RESERVED_VALUE)}
# What is null where it is not known. A row costs less where the schema declares that a column never is.
NULLABLE = {"recorded_at", TIMESTAMP}
_COLUMNS = {"messages": MESSAGE_COLUMNS, "frames": FRAME_COLUMNS, "problems": PROBLEM_COLUMNS}


def columns_of(rows: str, timestamp_from: str = "") -> dict[str, tuple[str, int]]:
    """The columns of a row for each message, for each frame, or for each problem."""
    has_timestamp = timestamp_from and rows != "problems"
    return _COLUMNS[rows] | (_TIMESTAMP_COLUMN if has_timestamp else {})


def ddl(rows: str, timestamp_from: str = "") -> str:
    """The whole schema, as Spark's DDL."""
    columns = columns_of(rows, timestamp_from).items()
    return ", ".join(f"{name} {kind}{'' if name in NULLABLE else ' NOT NULL'}" for name, (kind, _) in columns)


def names_of(schema: StructType, rows: str, timestamp_from: str = "") -> Names:
    """The columns that a schema asks for, in its order. Raises ConfigurationError for one that there is not."""
    columns = columns_of(rows, timestamp_from)
    for item in schema.fields:
        if item.name not in columns:
            raise ConfigurationError(f"mainstem.recording has no column {item.name!r}; it has {', '.join(columns)}")
        kind, _ = columns[item.name]
        if item.dataType.simpleString() != kind:
            raise ConfigurationError(f"column {item.name!r} is of type {kind}, not {item.dataType.simpleString()}")
    return {item.name: item.nullable for item in schema.fields}


def wanted_bits(names: Iterable[str], rows: str) -> int:
    """What ``_core.columns`` must gather for these columns; at least something, so that rows are counted."""
    columns, bits = columns_of(rows, TIMESTAMP), 0
    for name in names:
        bits |= columns[name][1]
    return bits or layout.COLUMN_LENGTH

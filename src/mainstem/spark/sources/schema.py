"""The columns of ``mainstem.recording`` with their Spark types, and the columns that a query requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.recording.rows.schema import FRAME_COLUMNS, MESSAGE_COLUMNS, NULLABLE, TIMESTAMP, TIMESTAMP_COLUMN
from mainstem.spark.sources.decoding import check_columns

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql.types import StructType

    from mainstem.recording.rows.schema import Column

Names = dict[str, bool]
"""The requested columns in order, and whether each is nullable, because Spark requires exactly its own schema."""

# Spark's names for Arrow types.
_SPARK_TYPES = {"int16": "smallint", "int32": "int", "int64": "bigint", "timestamp": "timestamp", "binary": "binary"}


def _with_spark_types(columns: Mapping[str, Column]) -> dict[str, tuple[str, int]]:
    return {name: (_SPARK_TYPES[column.kind], column.bits) for name, column in columns.items()}


# One row per problem of a recording. Reading problems needs no column of frames.
PROBLEM_COLUMNS = {
    "recording_id": ("bigint", 0),
    "position": ("bigint", 0),
    "kind": ("string", 0),
    "text": ("string", 0),
}
# Columns for queries over several archives, or if the option is set: the row's archive, and the host that recorded it.
ARCHIVE_COLUMNS = {"archive": ("string", 0), "host": ("string", 0)}
_TIMESTAMP_COLUMN = _with_spark_types({TIMESTAMP: TIMESTAMP_COLUMN})
# These columns are null if the value is unknown. Spark processes the others faster, because they are declared never null.
_NULLABLE = {*NULLABLE, "host"}
_COLUMNS = {
    "messages": _with_spark_types(MESSAGE_COLUMNS),
    "frames": _with_spark_types(FRAME_COLUMNS),
    "problems": PROBLEM_COLUMNS,
}


def columns_of(rows: str, timestamp_from: str = "", *, archives: bool = False) -> dict[str, tuple[str, int]]:
    """Return the columns of rows of messages, frames or problems, with Spark type and bits."""
    has_timestamp = timestamp_from and rows != "problems"
    has_archives = archives and rows != "problems"
    return _COLUMNS[rows] | (_TIMESTAMP_COLUMN if has_timestamp else {}) | (ARCHIVE_COLUMNS if has_archives else {})


def fields(rows: str, timestamp_from: str = "", *, archives: bool = False) -> list[tuple[str, str, bool]]:
    """Return the whole schema: name, type and nullability of each column."""
    columns = columns_of(rows, timestamp_from, archives=archives).items()
    return [(name, kind, name in _NULLABLE) for name, (kind, _) in columns]


def names_of(schema: StructType, rows: str, timestamp_from: str = "") -> Names:
    """Return the columns of a query's schema, in order. Raises ConfigurationError for an unknown column or a wrong type."""
    columns = columns_of(rows, timestamp_from, archives=True).items()
    check_columns("mainstem.recording", schema, {name: kind for name, (kind, _) in columns})
    return {item.name: item.nullable for item in schema.fields}

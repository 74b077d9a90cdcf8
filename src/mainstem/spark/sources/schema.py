"""The columns of ``mainstem.recording`` with their Spark types, and the columns that a query requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.recording.rows.schema import FRAME_COLUMNS, MESSAGE_COLUMNS, NULLABLE, TIMESTAMP, TIMESTAMP_COLUMN
from mainstem.spark.sources.decoding import check_columns

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql.types import StructType

    from mainstem.recording.rows.schema import Column
    from mainstem.spark.sources.options import RecordingOptions

Names = dict[str, bool]
"""The requested columns in order, and whether each is nullable, because Spark requires exactly its own schema."""

# Spark's names for Arrow types.
_SPARK_TYPES = {"int16": "smallint", "int32": "int", "int64": "bigint", "timestamp": "timestamp", "binary": "binary"}


def _with_spark_types(columns: Mapping[str, Column]) -> dict[str, str]:
    return {name: _SPARK_TYPES[column.kind] for name, column in columns.items()}


# One row per problem of a recording.
PROBLEM_COLUMNS = {"recording_id": "bigint", "position": "bigint", "kind": "string", "text": "string"}
# Columns for queries over several archives, or if the option is set: the row's archive, and the host that recorded it.
ARCHIVE_COLUMNS = {"archive": "string", "host": "string"}
_TIMESTAMP_COLUMN = _with_spark_types({TIMESTAMP: TIMESTAMP_COLUMN})
# These columns are null if the value is unknown. Spark processes the others faster, because they are declared never null.
_NULLABLE = {*NULLABLE, "host"}
_COLUMNS = {
    "messages": _with_spark_types(MESSAGE_COLUMNS),
    "frames": _with_spark_types(FRAME_COLUMNS),
    "problems": PROBLEM_COLUMNS,
}


def columns_of(options: RecordingOptions, *, archives: bool = True) -> dict[str, str]:
    """Return the columns that the source has with these options, with their Spark types."""
    columns = _COLUMNS[options.rows]
    if options.rows == "problems":
        return columns
    return columns | (_TIMESTAMP_COLUMN if options.timestamp_from else {}) | (ARCHIVE_COLUMNS if archives else {})


def fields(options: RecordingOptions) -> list[tuple[str, str, bool]]:
    """Return the whole schema: name, type and nullability of each column."""
    columns = columns_of(options, archives=options.archive_columns)
    return [(name, kind, name in _NULLABLE) for name, kind in columns.items()]


def names_of(schema: StructType, options: RecordingOptions) -> Names:
    """Return the columns of a query's schema, in order. Raises ConfigurationError for an unknown column or a wrong type."""
    check_columns("mainstem.recording", schema, columns_of(options))
    return {item.name: item.nullable for item in schema.fields}

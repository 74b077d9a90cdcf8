"""The columns of a recording's rows: their Arrow types, and which data of a frame they need."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from mainstem._core import layout
from mainstem.errors import ConfigurationError, needs_extras

if TYPE_CHECKING:
    from collections.abc import Iterable


class Column(NamedTuple):
    kind: str
    bits: int


MESSAGE_COLUMNS = {
    "recording_id": Column("int64", 0),
    "session_id": Column("int32", 0),
    "stream_id": Column("int32", 0),
    "position": Column("int64", layout.COLUMN_POSITION),
    "term_id": Column("int32", layout.COLUMN_TERM_ID),
    "term_offset": Column("int32", layout.COLUMN_TERM_OFFSET),
    "flags": Column("int16", layout.COLUMN_FLAGS),
    "reserved_value": Column("int64", layout.COLUMN_RESERVED_VALUE),
    "recorded_at": Column("timestamp", layout.COLUMN_POSITION),
    "length": Column("int32", layout.COLUMN_LENGTH),
    "payload": Column("binary", layout.COLUMN_PAYLOAD),
}
FRAME_COLUMNS = {
    name: column
    for key, value in MESSAGE_COLUMNS.items()
    for name, column in (
        {key: value, "type": Column("int16", layout.COLUMN_TYPE)} if key == "flags" else {key: value}
    ).items()
}
# The column that ``timestamp_from`` fills, for messages and frames.
TIMESTAMP = "timestamp"
TIMESTAMP_COLUMN = Column("timestamp", layout.COLUMN_POSITION | layout.COLUMN_RESERVED_VALUE)
# These columns are null if the value is unknown. Rows cost less if the schema declares the other columns as never null.
NULLABLE = {"recorded_at", TIMESTAMP}


def columns_of(*, frames: bool) -> dict[str, Column]:
    return FRAME_COLUMNS if frames else MESSAGE_COLUMNS


def bits_of(names: Iterable[str], *, frames: bool) -> int:
    """Return the bits of the data to gather for these columns. At least one bit is set, so that rows are counted."""
    columns, bits = columns_of(frames=frames) | {TIMESTAMP: TIMESTAMP_COLUMN}, 0
    for name in names:
        bits |= columns[name].bits
    return bits or layout.COLUMN_LENGTH


@cache
def arrow_types() -> dict[str, Any]:
    with needs_extras():
        import pyarrow as pa

    return {
        "int16": pa.int16(),
        "int32": pa.int32(),
        "int64": pa.int64(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "binary": pa.binary(),
    }


def arrow_schema(names: Iterable[str], *, frames: bool) -> Any:
    """Return the Arrow schema of these columns. Raises ConfigurationError if a column is unknown."""
    with needs_extras():
        import pyarrow as pa

    columns, types = columns_of(frames=frames), arrow_types()
    fields = []
    for name in names:
        if name not in columns:
            raise ConfigurationError(f"recordings have no column {name!r}; they have {', '.join(columns)}")
        fields.append(pa.field(name, types[columns[name].kind], name in NULLABLE))
    return pa.schema(fields)

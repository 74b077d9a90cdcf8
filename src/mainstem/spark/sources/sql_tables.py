"""SQL tables (``CREATE TABLE ... USING mainstem.recording``): how a source gets the table's options when it is read.

Spark stores a table's options in its catalog, but passes only the columns and the options of ``WITH (...)`` to a Python source. It
does keep the metadata of columns. So when a source infers the columns for ``CREATE TABLE``, it stores the options as metadata of
the first column. Columns that the statement lists itself carry no options.

If a statement uses a table several times, Spark plans the table once, with the options of one use: ``t WITH (streamId = '1') UNION
ALL t`` would read stream 1 twice, and the source cannot notice. So ``WITH`` may only set options that do not change the rows.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from mainstem.errors import ConfigurationError
from mainstem.spark.option_table import tuning_names
from mainstem.spark.sources.capture_options import CaptureOptions
from mainstem.spark.sources.options import RecordingOptions

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

KEY = "mainstem.options"
# Keys, and a prefix, that Spark adds to the options in CREATE TABLE.
PROVIDER = "provider"
LOCATION = "location"
PREFIX = "option."
SECRETS = ("secret", "password", "access_key", "account_key", "session_token", "access_token", "sas_", "registry_user")
TUNING = tuning_names(RecordingOptions, CaptureOptions)
TYPES: dict[str, type[DataType]] = {
    "smallint": ShortType,
    "int": IntegerType,
    "bigint": LongType,
    "boolean": BooleanType,
    "string": StringType,
    "binary": BinaryType,
    "timestamp": TimestampType,
}


def user_options(source: str, options: Mapping[str, str]) -> tuple[dict[str, str], bool]:
    """Return the user's options, and whether they come from ``CREATE TABLE``. ``LOCATION`` becomes the option ``path``.

    Raises ConfigurationError for a secret in ``CREATE TABLE``, which must not be stored.
    """
    lowered = {name.lower(): value for name, value in options.items()}
    if lowered.get(PROVIDER, "").lower() != source:
        return dict(options), False
    texts = {name[len(PREFIX) :]: value for name, value in options.items() if name.lower().startswith(PREFIX)}
    location = lowered.get(LOCATION) or lowered.get("path")
    if location and not {"path", "paths"} & {name.lower() for name in texts}:
        texts["path"] = location
    for name in texts:
        if is_secret(name):
            raise ConfigurationError(
                f"{name} is a secret, but a table's options are stored readably with its columns; set it in the environment, or"
                f" when the table is read: SELECT ... FROM ... WITH ({name} = '...')"
            )
    return texts, True


def is_secret(name: str) -> bool:
    """Return whether an option's value must not be stored."""
    plain = name.lower().replace(".", "_").replace("-", "_")
    return plain in ("token", "tail_token") or any(word in plain for word in SECRETS)


def struct_fields(columns: Iterable[tuple[str, str, bool]]) -> list[StructField]:
    """Make Spark columns from names, types and nullability."""
    return [StructField(name, TYPES[kind](), nullable) for name, kind, nullable in columns]


def table_schema(fields: Sequence[StructField], options: Mapping[str, str]) -> StructType:
    """Make a schema that carries a table's options in the metadata of the first column."""
    first = fields[0]
    stored = {KEY: json.dumps(dict(options), sort_keys=True)}
    return StructType([StructField(first.name, first.dataType, first.nullable, stored), *fields[1:]])


def read_options(source: str, options: Mapping[str, str], schema: StructType) -> dict[str, str]:
    """Return the options for reading a table: its own, overridden by those in ``WITH (...)``.

    Raises ConfigurationError for an option that only the table may set, such as a path. A path also indicates a ``load`` with
    columns copied from a table.
    """
    texts, _ = user_options(source, options)
    carrying = [field for field in schema.fields if KEY in (field.metadata or {})]
    if not carrying:
        return texts
    lowered = {name.lower() for name in texts}
    if lowered & {"path", "paths"}:
        raise ConfigurationError(
            "path: the columns are those of a table, which has its own path; create another table, or pass load() the columns as"
            " text: schema('position bigint, length int')"
        )
    for name in texts:
        if name.lower() not in TUNING and not is_secret(name):
            raise ConfigurationError(
                f"{name} can only be set for the whole table, because Spark would apply it wherever the statement names the table;"
                f" use CREATE TEMPORARY VIEW ... USING {source} OPTIONS (path '...', {name} '...')"
            )
    stored: dict[str, str] = json.loads(carrying[0].metadata[KEY])
    return {name: value for name, value in stored.items() if name.lower() not in lowered} | texts

"""Tables of ``CREATE TABLE ... USING mainstem.recording``: how a source gets its options back when the table is read.

Spark stores a table's options in its catalog, and does not hand them to a source in Python when the table is read: only the
columns, and what a query gives by ``WITH (...)``. It keeps the metadata of columns. So the columns that a source infers for
``CREATE TABLE`` carry the options, as metadata of the first one; columns that a statement names itself carry none.

Of the places where a statement names a table Spark plans one, by the options of that place, and takes its tasks for the others:
``t WITH (streamId = '1') UNION ALL t`` would read stream 1 twice. A source cannot notice, as it is not called again. What decides
which rows there are belongs to the table, and ``WITH`` may give the rest.
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
# What Spark adds to the options of a statement that creates a table, and to those of the user.
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
    """The options of a user, and whether they are those of a ``CREATE TABLE``, among which Spark puts its own.

    ``LOCATION`` is the option ``path``. Raises ConfigurationError for an option that must not be stored.
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
                f"{name}: the options of a table are stored with its columns, for all to see; leave it out, and give it by the"
                f" environment, or where the table is read: SELECT ... FROM ... WITH ({name} = '...')"
            )
    return texts, True


def is_secret(name: str) -> bool:
    """Whether an option's value is one that is not to be written anywhere."""
    plain = name.lower().replace(".", "_").replace("-", "_")
    return plain in ("token", "tail_token") or any(word in plain for word in SECRETS)


def struct_fields(columns: Iterable[tuple[str, str, bool]]) -> list[StructField]:
    """Columns (name, type, whether it may be null) as Spark has them."""
    return [StructField(name, TYPES[kind](), nullable) for name, kind, nullable in columns]


def table_schema(fields: Sequence[StructField], options: Mapping[str, str]) -> StructType:
    """Columns that carry the options of a table."""
    first = fields[0]
    stored = {KEY: json.dumps(dict(options), sort_keys=True)}
    return StructType([StructField(first.name, first.dataType, first.nullable, stored), *fields[1:]])


def read_options(source: str, options: Mapping[str, str], schema: StructType) -> dict[str, str]:
    """The options with which a table is read: those that it was created with, and over them those of ``WITH (...)``.

    Raises ConfigurationError for an option that only the table may have. A path is also the sign of a ``load``
    with columns that were copied from a table, which is no different from here.
    """
    texts, _ = user_options(source, options)
    carrying = [field for field in schema.fields if KEY in (field.metadata or {})]
    if not carrying:
        return texts
    lowered = {name.lower() for name in texts}
    if lowered & {"path", "paths"}:
        raise ConfigurationError(
            "path: the columns are those of a table, which has a path of its own; create another table, or for load() give"
            " the columns as text: schema('position bigint, length int')"
        )
    for name in texts:
        if name.lower() not in TUNING and not is_secret(name):
            raise ConfigurationError(
                f"{name}: only the table itself may have it, as Spark would apply it wherever the statement names the table;"
                f" CREATE TEMPORARY VIEW ... USING {source} OPTIONS (path '...', {name} '...') reads such rows only"
            )
    stored: dict[str, str] = json.loads(carrying[0].metadata[KEY])
    return {name: value for name, value in stored.items() if name.lower() not in lowered} | texts

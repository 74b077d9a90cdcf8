"""Converts a codec's columns to Spark types. Columns that Spark cannot represent are rescued."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mainstem.codecs.base import NoRowsError
from mainstem.codecs.inference import distinct
from mainstem.codecs.rows import PROBLEM, RESCUE_COLUMNS
from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructField, StructType

    from mainstem.codecs import Codec


class UnknownColumnsError(ConfigurationError):
    """The error if a codec cannot determine its columns, by itself or from the sample messages."""


def inferred_columns(codec: Codec, sample: Sequence[bytes] | None, taken: Collection[str]) -> StructType:
    """Return the columns that a codec infers from messages, without those that have no Spark type or whose name is taken.

    None instead of a sample means that there may be messages, but the codec must know its columns without them. Raises
    UnknownColumnsError if it does not, or if the sample does not determine the columns.
    """
    from pyspark.sql.types import StructType

    try:
        schema = distinct(codec.schema(sample or ()), taken, folded)
    except NoRowsError as error:
        raise UnknownColumnsError("its columns are in the messages" if sample is None else str(error)) from None
    except ConfigurationError:
        raise
    except ValueError as error:
        raise UnknownColumnsError(str(error)) from None
    return StructType([column for item in schema if (column := _column(item)) is not None])


def folded(name: str) -> str:
    """Return a name in the form that Spark compares, which ignores case."""
    return name.upper().lower()


def check_distinct(names: Sequence[str], taken: Collection[str]) -> None:
    """Raise ConfigurationError if two names are equal, or one is in ``taken``, ignoring case."""
    own = {folded(name) for name in taken}
    seen: dict[str, str] = {}
    for name in names:
        key = folded(name)
        if key in own:
            raise ConfigurationError(f"the codec's column {name!r} has a reserved name: {', '.join(taken)}")
        if key in seen:
            raise ConfigurationError(f"the codec's columns {seen[key]!r} and {name!r} have the same name in Spark")
        seen[key] = name


def as_nullable(columns: StructType) -> StructType:
    """Return the columns as nullable at every depth, because rows with a problem have nulls."""

    def nullable(value: Any) -> Any:
        if isinstance(value, dict):
            flags = ("nullable", "containsNull", "valueContainsNull")
            return {name: True if name in flags else nullable(each) for name, each in value.items()}
        return [nullable(each) for each in value] if isinstance(value, list) else value

    return type(columns).fromJson(nullable(columns.jsonValue()))


def row_columns(known: Sequence[StructField], columns: StructType) -> StructType:
    """Return the columns of decoded rows: the message's, ``problem``, the codec's, ``rescued`` and ``payload``."""
    from pyspark.sql.types import BinaryType, StringType, StructField, StructType

    problem, rescued = StructField(PROBLEM, StringType()), StructField(RESCUE_COLUMNS[0], StringType())
    payload = StructField(RESCUE_COLUMNS[1], BinaryType())
    return StructType([*known, problem, *as_nullable(columns).fields, rescued, payload])


def with_required(columns: StructType, given: StructType) -> StructType:
    """Return the columns with those that ``given`` requires marked as not null."""
    from pyspark.sql.types import StructField, StructType

    def required(kind: Any, wanted: Any) -> Any:
        if not isinstance(kind, StructType) or not isinstance(wanted, StructType):
            return kind
        members = {item.name: item for item in wanted.fields}
        return StructType(
            [
                StructField(
                    item.name,
                    required(item.dataType, members[item.name].dataType),
                    members[item.name].nullable,
                    item.metadata,
                )
                if item.name in members
                else item
                for item in kind.fields
            ]
        )

    result: StructType = required(columns, given)
    return result


def _column(item: pa.Field) -> Any:
    """Return the field with its Spark type, or None if Spark has no such type."""
    from pyspark.errors import PySparkTypeError
    from pyspark.sql.pandas.types import from_arrow_type
    from pyspark.sql.types import NullType, StructField

    try:
        kind = from_arrow_type(_signed(item.type))
    except PySparkTypeError:
        return None
    return None if isinstance(kind, NullType) else StructField(item.name, kind)


def _signed(kind: Any) -> Any:
    """Return a Spark-compatible type for the same values. Spark has no unsigned integers, dictionaries or 16-bit floats."""
    import pyarrow as pa
    import pyarrow.types as is_

    wider = {
        pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.uint64(): pa.decimal128(20, 0),
        pa.float16(): pa.float32(),
    }  # fmt: skip
    if is_.is_dictionary(kind):
        return _signed(kind.value_type)
    if is_.is_struct(kind):
        return pa.struct([item.with_type(_signed(item.type)) for item in kind])
    if is_.is_map(kind):
        return pa.map_(_signed(kind.key_type), _signed(kind.item_type))
    if is_.is_list(kind) or is_.is_large_list(kind):
        return pa.list_(_signed(kind.value_type))
    return wider.get(kind, kind)

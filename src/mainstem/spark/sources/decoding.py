"""The option ``codec`` of the sources: a task decodes the payloads that it reads, so they never go through the JVM.

The rows are those of ``mainstem.spark.decode``: the message's columns, ``problem``, the codec's columns, ``rescued`` and
``payload``. The codec's columns come from ``codecSchema``, or else are the columns in the query's schema that the source lacks.
Columns that the query's schema does not contain are neither read nor decoded.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mainstem.codecs import find_codec
from mainstem.codecs.rows import PROBLEM, RESCUE_COLUMNS, ROW, DecodedRows
from mainstem.errors import ConfigurationError
from mainstem.spark.codec_columns import (
    UnknownColumnsError,
    as_nullable,
    check_distinct,
    folded,
    inferred_columns,
    row_columns,
)
from mainstem.spark.option_table import option, text
from mainstem.store.options import is_store_option

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructField, StructType

PAYLOAD, SKIP = "payload", "skip"
PREFIX = "codec."
# A codec's column hides a source's column of the same name. The latter is available under this prefix.
QUALIFIER = "mainstem."


def _struct(value: str, name: str) -> Any:
    """Parse a schema in Spark's JSON. It cannot be DDL, because only the JVM parses that, and a source has no access to it."""
    from pyspark.sql.types import StructType

    try:
        return StructType.fromJson(json.loads(value))
    except Exception:
        raise ConfigurationError(
            f"{name}: {value:.60} is not a schema in JSON, as StructType.json() writes it;"
            " for DDL use StructType.fromDDL(...).json()"
        ) from None


@dataclass(frozen=True, kw_only=True)
class CodecOptions:
    """The options for decoding a source's payloads."""

    codec: str = option(
        "codec",
        text,
        "decode payloads in the task that reads them ([how](spark-options.md#decode-while-reading)): a [codec](codecs.md), with "
        "its options as `codec.…`",
        default="",
        shown="none",
    )
    codec_schema: Any = option(  # noqa: RUF009
        "codecSchema",
        _struct,
        "the codec's columns, as the JSON of a Spark schema, if some of them must not be null",
    )
    codec_options: dict[str, str] = field(default_factory=dict, repr=False)


def split_options(options: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
    """Return a source's own options, those of its store, and those of its codec without their prefix."""
    own, store, codec = {}, {}, {}
    for name, value in options.items():
        if is_store_option(name):
            store[name] = value
        elif name.lower().startswith(PREFIX):
            codec[name[len(PREFIX) :]] = value
        else:
            own[name] = value
    return own, store, codec


def check_codec(options: CodecOptions) -> None:
    """Raise ConfigurationError if there are codec options but no codec."""
    if options.codec:
        return
    if options.codec_options:
        raise ConfigurationError(
            f"{PREFIX}{min(options.codec_options)} is an option of the codec, but codec is not set"
        )
    if options.codec_schema is not None:
        raise ConfigurationError("codecSchema lists the columns of the codec, but codec is not set")


def decoded_schema(columns: Sequence[StructField], options: CodecOptions) -> StructType:
    """Return the schema of a source with a codec, given the source's own columns. Raises ConfigurationError."""
    known = [item for item in columns if item.name != PAYLOAD]
    reserved = (PROBLEM, *RESCUE_COLUMNS)
    kind = options.codec_schema
    if kind is None:
        codec = find_codec(options.codec, options.codec_options)
        try:
            kind = inferred_columns(codec, None, [*(item.name for item in known), *reserved])
        except UnknownColumnsError as error:
            raise ConfigurationError(
                f"codec {options.codec!r}: {error}, and a source does not infer columns; name them, as in"
                " schema('position bigint, id bigint, problem string') or with codecSchema, or leave out codec and call"
                f" mainstem.spark.decode(df, {options.codec!r}), which infers them from the first messages of a batch"
            ) from None
    check_distinct(kind.names, reserved)
    hidden = set(map(folded, kind.names))
    return row_columns([item for item in known if folded(item.name) not in hidden], kind)


class PayloadDecoder:
    """A decoder from batches of messages to the batches that Spark requested. It is pickled to the tasks.

    ``rows`` expects the message's columns under names that start with ``QUALIFIER``. ``sources`` are the decoded columns for the
    requested ones, whose exact types are in ``schema``.
    """

    def __init__(self, rows: DecodedRows, sources: Sequence[str], schema: pa.Schema) -> None:
        self._rows, self._sources, self._schema = rows, list(sources), schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for batch in self._rows(_qualified(each) for each in batches):
            yield pa.RecordBatch.from_arrays([batch.column(name) for name in self._sources], schema=self._schema)


def _qualified(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.rename_columns([QUALIFIER + name for name in batch.schema.names])


def decoder_of(
    schema: StructType, options: CodecOptions, own_names: Collection[str], *, skips: bool = False
) -> tuple[StructType, PayloadDecoder | None]:
    """Return the message columns to read for a query's schema, and the decoder, or None without a codec.

    ``own_names`` are the source's columns. With ``skips``, the messages have a column ``SKIP`` with the
    reason why they are not decoded (``DecodedRows``). Raises ConfigurationError if a column has the wrong type or is not nullable,
    or if the codec or one of its options is invalid.
    """
    from pyspark.sql.types import BinaryType, StructField, StructType

    from mainstem.spark.sources.features import arrow_schema

    if not options.codec:
        return schema, None
    declared = options.codec_schema
    known: dict[str, StructField] = {}
    sources: list[str] = []
    own: list[StructField] = []
    for item in schema.fields:
        if item.name in _RESERVED:
            _check_type(item, _RESERVED[item.name])
            if not item.nullable:
                raise ConfigurationError(f"column {item.name!r} must be nullable: it is null in most rows")
            sources.append(item.name)
            continue
        name = item.name.removeprefix(QUALIFIER)
        if declared is None:
            is_known = name != item.name or name in own_names
        else:
            is_known = item.name not in declared.names
        if not is_known:
            own.append(item)
        elif QUALIFIER + name == ROW:
            _check_type(item, "int")
        else:
            known.setdefault(name, StructField(name, item.dataType, item.nullable))
        sources.append(QUALIFIER + name if is_known else name)
    wanted = StructType(own)
    kind = wanted if declared is None else declared
    _check_codec_columns(wanted, kind)
    names = [QUALIFIER + name for name in known]
    check_distinct(kind.names, (*_RESERVED, *names, ROW))
    codec = find_codec(options.codec, options.codec_options)
    rows = DecodedRows(
        codec,
        arrow_schema(kind),
        names,
        QUALIFIER + PAYLOAD,
        columns=sources,
        skips=QUALIFIER + SKIP if skips else "",
    )
    known.setdefault(PAYLOAD, StructField(PAYLOAD, BinaryType()))
    return StructType(list(known.values())), PayloadDecoder(rows, sources, arrow_schema(schema))


_RESERVED = {PROBLEM: "string", RESCUE_COLUMNS[0]: "string", RESCUE_COLUMNS[1]: "binary"}


def check_columns(source: str, schema: StructType, types: Mapping[str, str]) -> None:
    """Raise ConfigurationError if a query's schema has a column that the source lacks or that has another type."""
    for item in schema.fields:
        if item.name not in types:
            raise ConfigurationError(f"{source} has no column {item.name!r}; it has {', '.join(types)}")
        _check_type(item, types[item.name])


def _check_type(item: StructField, kind: str) -> None:
    if item.dataType.simpleString() != kind:
        raise ConfigurationError(f"column {item.name!r} is of type {kind}, not {item.dataType.simpleString()}")


def _check_codec_columns(wanted: StructType, kind: StructType) -> None:
    """Raise ConfigurationError unless every requested column is one of the codec's, and nullable at every depth."""
    whole = {item.name: item.dataType for item in as_nullable(kind).fields}
    for item in wanted.fields:
        if not item.nullable or whole[item.name] != item.dataType:
            given = f"{item.dataType.simpleString()}{'' if item.nullable else ' not null'}"
            raise ConfigurationError(
                f"column {item.name!r} must be {whole[item.name].simpleString()} and nullable at every depth, because rows with a"
                f" problem have nulls (got {given}); use codecSchema to reject messages without a value"
            )

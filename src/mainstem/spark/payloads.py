"""Decodes payloads in DataFrames into typed columns, and encodes columns into payloads, in batch and streaming."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mainstem.codecs import find_codec
from mainstem.codecs.rows import PROBLEM, RESCUE_COLUMNS, DecodedRows
from mainstem.errors import ConfigurationError
from mainstem.spark.codec_columns import UnknownColumnsError, check_distinct, inferred_columns, row_columns

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from mainstem.codecs import Codec

# The number of messages from which columns are inferred.
SAMPLE = 4000


def decode(
    df: DataFrame,
    codec: Codec | str,
    schema: StructType | str | None = None,
    *,
    codec_options: Mapping[str, str] | None = None,
    payload: str = "payload",
) -> DataFrame:
    """Decode payloads into typed columns, in batch or streaming, like ``mainstem ingest``.

    A message that cannot be decoded becomes a row with the error in ``problem`` and the message in ``payload``. Fields that the
    schema lacks go to ``rescued``, as JSON.

    Args:
        df: A DataFrame with a column of messages, such as one from a Mainstem source.
        codec: A name from ``mainstem.codecs.codec_names()``, ``module:Class``, or a codec.
        schema: The codec's columns, as Spark DDL or a Spark type. None uses the codec's own schema, or else infers one from the
            first messages. Inference runs a job, so it is not possible for a stream.
        codec_options: Options for a codec that is given by name.
        payload: The column with the messages: binary or string.

    Returns:
        A DataFrame with the other columns of ``df``, then ``problem``, the codec's columns, ``rescued`` and ``payload``.

    Raises:
        ConfigurationError: The codec, an option, a column or the schema is invalid.

    Example:
        >>> messages = spark.read.format("mainstem.recording").load("/data/recordings")
        >>> trades = decode(messages, "json", "id bigint, price double")
        >>> trades.where("problem is null").groupBy("id").avg("price").show()
    """
    from pyspark.sql import functions as f
    from pyspark.sql.types import BinaryType, StringType, StructType

    from mainstem.spark.sources.features import arrow_schema

    reader = _codec(codec, codec_options)
    kinds = _kinds(df, [payload])
    if not isinstance(kinds[payload], BinaryType | StringType):
        raise ConfigurationError(f"column {payload!r} must be binary or string (got {kinds[payload].simpleString()})")
    messages = df.withColumn(payload, f.col(payload).cast("binary"))
    known = [item for item in df.schema.fields if item.name != payload]
    names = [item.name for item in known]
    taken = (*names, PROBLEM, *RESCUE_COLUMNS)
    kind = StructType.fromDDL(schema) if isinstance(schema, str) else schema
    if kind is None:
        kind = _columns(messages, reader, payload, taken)
    check_distinct(kind.names, taken)
    if reserved := sorted({PROBLEM, *RESCUE_COLUMNS} & set(names)):
        raise ConfigurationError(f"column {reserved[0]!r} has the name of a column of the result; rename it")
    arrow = arrow_schema(kind, timezone=df.sparkSession.conf.get("spark.sql.session.timeZone"))
    return messages.mapInArrow(DecodedRows(reader, arrow, names, payload), row_columns(known, kind))


def encode(
    df: DataFrame,
    codec: Codec | str,
    *,
    columns: Sequence[str] | None = None,
    codec_options: Mapping[str, str] | None = None,
    payload: str = "payload",
) -> DataFrame:
    """Encode rows into a column of payloads for the sink ``mainstem.channel``, in batch or streaming.

    If the format cannot hold a value, the query fails. Values are never silently changed.

    Args:
        df: The rows.
        codec: A name from ``mainstem.codecs.codec_names()``, ``module:Class``, or a codec.
        columns: The columns to encode, in order. The others are kept beside the payload. None encodes all.
        codec_options: Options for a codec that is given by name.
        payload: The name of the new column.

    Returns:
        A DataFrame with the other columns of ``df`` and the payload.

    Raises:
        ConfigurationError: The codec, an option or a column is invalid.

    Example:
        >>> messages = encode(df, "avro", codec_options={"schema": "trade.avsc"})
        >>> messages.write.format("mainstem.channel").option("channel", "aeron:ipc").mode("append").save()
    """
    from pyspark.sql.types import BinaryType, StructField, StructType

    names = df.columns if columns is None else list(columns)
    _kinds(df, names)
    others = [item for item in df.schema.fields if item.name not in names]
    if payload in (item.name for item in others):
        raise ConfigurationError(f"there is already a column {payload!r}; pass another name as payload=")
    writer, kept = _codec(codec, codec_options), [item.name for item in others]

    def encoded(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for batch in batches:
            payloads = pa.array(writer.encode_batch(batch.select(names)), pa.binary())
            yield pa.RecordBatch.from_arrays([*(batch.column(name) for name in kept), payloads], names=[*kept, payload])

    return df.mapInArrow(encoded, StructType([*others, StructField(payload, BinaryType(), nullable=False)]))


def _codec(codec: Codec | str, options: Mapping[str, str] | None) -> Codec:
    if isinstance(codec, str):
        return find_codec(codec, options)
    if options:
        raise ConfigurationError("codec_options need the name of a codec; this codec has its own")
    return codec


def _kinds(df: DataFrame, names: Sequence[str]) -> dict[str, Any]:
    """Return the types of the columns. Raises ConfigurationError if one does not exist."""
    kinds = {item.name: item.dataType for item in df.schema.fields}
    for name in names:
        if name not in kinds:
            raise ConfigurationError(f"there is no column {name!r}; there are {', '.join(kinds)}")
    return kinds


def _columns(df: DataFrame, codec: Codec, payload: str, taken: Sequence[str]) -> StructType:
    """Return the codec's own columns, or columns inferred from the first messages. Raises ConfigurationError."""
    try:
        return inferred_columns(codec, None, taken)
    except UnknownColumnsError as error:
        if df.isStreaming:
            raise ConfigurationError(
                f"{error}, and the columns of a stream are not inferred; pass them as schema="
            ) from None
    rows = df.select(payload).where(df[payload].isNotNull()).limit(SAMPLE).collect()
    try:
        return inferred_columns(codec, [bytes(row[0]) for row in rows], taken)
    except UnknownColumnsError as error:
        raise ConfigurationError(f"{error}; pass the columns as schema=") from None

"""The streaming query: from the messages to the rows of the table, into the table."""

from __future__ import annotations

from datetime import date as date_type
from typing import TYPE_CHECKING, Any

from mainstem.codecs import find_codec
from mainstem.codecs.limits import as_nullable
from mainstem.codecs.rows import DecodedRows
from mainstem.errors import ConfigurationError
from mainstem.recording import RecordingReader
from mainstem.spark.ingest.options import META, META_DDL, OBSERVED, RESCUE_DDL
from mainstem.spark.ingest.schema import arrow_schema
from mainstem.spark.ingest.target import open_target
from mainstem.spark.sources.archives import recordings_at

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from mainstem.spark.ingest.options import IngestOptions
    from mainstem.spark.ingest.target import Target

NO_TIMES = (
    "it keeps no times, as it has no index, and the table is partitioned by date: --timestamp-from names "
    "reserved_value_ns, _us or _ms, or a field of the codec"
)


def source(spark: SparkSession, options: IngestOptions) -> DataFrame:
    """The messages as a streaming DataFrame."""
    reader = spark.readStream.format("mainstem.live" if options.is_live else "mainstem.recording")
    if options.has_event_time:
        reader = reader.option("timestampFrom", options.timestamp_from)
    for name, value in options.source_options.items():
        reader = reader.option(name, value)
    if not options.is_live:
        streams = ",".join(map(str, options.streams))
        return (reader.option("streamId", streams) if streams else reader).load(options.source)
    reader = reader.option("channel", options.source).option("streamId", ",".join(map(str, options.streams)))
    for name, value in (("directory", options.driver_directory), ("recordTo", options.record_to)):
        reader = reader.option(name, value) if value else reader
    return reader.load()


def table(spark: SparkSession, options: IngestOptions, target: Target) -> DataFrame:
    """The rows of the table to be, as a streaming DataFrame."""
    import pyarrow as pa
    from pyspark.sql import functions as f
    from pyspark.sql.pandas.types import from_arrow_schema
    from pyspark.sql.types import StructType

    df = source(spark, options)
    time = f.col("timestamp" if options.has_event_time else "recorded_at")
    date = f.to_date(time)
    if not options.keeps_null_dates:
        date = f.when(time.isNull(), f.raise_error(NO_TIMES).cast("date")).otherwise(date)
    df = df.withColumn("date", date)
    if not options.codec:
        return df.withColumn("problem", f.lit(None).cast("string")).select(*META, "payload")
    codec = find_codec(options.codec, options.codec_options)
    schema = arrow_schema(spark, options, codec, target)
    columns = from_arrow_schema(as_nullable(schema)).fields
    own = (StructType.fromDDL(ddl).fields for ddl in (META_DDL, RESCUE_DDL))
    whole = StructType([*next(own), *columns, *next(own)])
    rows = df.select(*META[:-1], "payload").mapInArrow(DecodedRows(codec, schema, META[:-1]), whole)
    if not options.timestamp_from or options.has_event_time:
        return rows
    if options.timestamp_from not in schema.names or not pa.types.is_temporal(
        schema.field(options.timestamp_from).type
    ):
        raise ConfigurationError(f"--timestamp-from: the codec has no field {options.timestamp_from!r} that is a time")
    date = f.to_date(f.col(f"`{options.timestamp_from.replace('`', '``')}`"))
    # A partition's date has four digits of a year in every format: what lies outside is as unknown as null.
    known = f.when(f.year(date).between(date_type.min.year, date_type.max.year), date)
    return rows.withColumn("date", f.coalesce(known, f.to_date("recorded_at")))


def start(spark: SparkSession, options: IngestOptions) -> StreamingQuery:
    """Starts the query. Its checkpoint is in ``out/_checkpoint``, so the same command goes on where it was."""
    from pyspark.sql import functions as f

    options.check()
    _check_times(options)
    target = open_target(options)
    rows = table(spark, options, target)
    rescued = f.count("rescued") if "rescued" in rows.columns else f.lit(0)
    rows = rows.observe(
        OBSERVED, f.count(f.lit(1)).alias("rows"), f.count("problem").alias("problems"), rescued.alias("rescued")
    )
    writer = target.writer(rows).option("checkpointLocation", options.checkpoint_location)
    trigger: dict[str, Any] = (
        {"processingTime": f"{round(options.trigger_interval * 1000)} milliseconds"}
        if options.follow
        else {"availableNow": True}
    )
    query: StreamingQuery = writer.trigger(**trigger).start()
    target.started(rows)
    return query


def _check_times(options: IngestOptions) -> None:
    """Raises ConfigurationError where the table's dates would not be known."""
    if options.keeps_null_dates or options.is_live:
        return
    with recordings_at(options.reading) as recordings:
        for archive, descriptor in recordings:
            if options.streams and descriptor.stream_id not in options.streams:
                continue
            with RecordingReader(archive, descriptor) as reader:
                if not reader.has_times:
                    raise ConfigurationError(f"recording {descriptor.recording_id} of {archive.url}: {NO_TIMES}")

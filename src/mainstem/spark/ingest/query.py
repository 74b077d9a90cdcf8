"""Builds the streaming query that turns messages into rows of the table."""

from __future__ import annotations

from contextlib import closing, suppress
from datetime import date as date_type
from typing import TYPE_CHECKING, Any

from mainstem.codecs import find_codec
from mainstem.codecs.rows import RESCUE_COLUMNS, ROW
from mainstem.errors import ConfigurationError, RecordingError
from mainstem.recording import RecordingReader
from mainstem.recording.rows.decoding import sampled
from mainstem.spark.codec_columns import as_nullable, check_distinct, inferred_columns, with_required
from mainstem.spark.formats.columns import difference, split_by_name, united
from mainstem.spark.ingest.options import META, META_DDL, OBSERVED, RESCUE_DDL
from mainstem.spark.ingest.resume import Locks
from mainstem.spark.ingest.target import open_target
from mainstem.spark.lags import lags_of
from mainstem.spark.sources.archives import recordings_at
from mainstem.spark.sources.decoding import PREFIX, QUALIFIER

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery
    from pyspark.sql.types import StructType

    from mainstem.codecs import Codec
    from mainstem.spark.ingest.options import IngestOptions
    from mainstem.spark.ingest.target import Target

EVENT_TIME = f"{QUALIFIER}timestamp"
NO_TIMES = (
    "it has no index and so no times, but the table is partitioned by date; set `timestamp_from` to reserved_value_ns, _us or _ms,"
    " or to a field of the codec"
)


def source(spark: SparkSession, options: IngestOptions, columns: StructType | None = None) -> DataFrame:
    """Return the messages as a streaming DataFrame. With the codec's ``columns``, Spark gets decoded rows."""
    reader = spark.readStream.format("mainstem.live" if options.is_live else "mainstem.recording")
    if options.has_event_time:
        reader = reader.option("timestampFrom", options.timestamp_from)
    for name, value in options.source_options.items():
        reader = reader.option(name, value)
    if columns is not None:
        reader = reader.schema(_read_schema(options, columns)).option("codec", options.codec)
        reader = reader.option("codecSchema", columns.json())
        for name, value in options.codec_options.items():
            reader = reader.option(PREFIX + name, value)
    if not options.is_live:
        streams = ",".join(map(str, options.streams))
        return (reader.option("streamId", streams) if streams else reader).load(options.source)
    reader = reader.option("channel", options.source).option("streamId", ",".join(map(str, options.streams)))
    for name, value in (("directory", options.driver_directory), ("recordTo", options.record_to)):
        reader = reader.option(name, value) if value else reader
    return reader.load()


def _read_schema(options: IngestOptions, columns: StructType) -> StructType:
    """Return the source's columns for the table. All are nullable, like the table's."""
    from pyspark.sql.types import IntegerType, StructField, StructType, TimestampType

    known = [item for item in StructType.fromDDL(META_DDL).fields if item.name != "date"]
    time = [StructField(EVENT_TIME, TimestampType())] if options.has_event_time else []
    rest = StructType.fromDDL(RESCUE_DDL).fields
    return StructType([*known, *time, StructField(ROW, IntegerType()), *as_nullable(columns).fields, *rest])


def table(spark: SparkSession, options: IngestOptions, target: Target) -> DataFrame:
    """Return the rows of the table as a streaming DataFrame whose progress counts them."""
    from pyspark.sql import functions as f
    from pyspark.sql.pandas.types import from_arrow_schema
    from pyspark.sql.types import DateType, TimestampNTZType, TimestampType

    from mainstem.spark.sources.features import arrow_schema

    columns = None
    if options.codec:
        found = codec_columns(options, find_codec(options.codec, options.codec_options), target)
        # Use the types that Spark gives to Arrow values: varchar(10), for example, becomes string.
        columns = from_arrow_schema(arrow_schema(found), prefer_timestamp_ntz=True)
    df = source(spark, options, columns)
    time = f.col("recorded_at")
    if options.has_event_time:
        time = f.col("timestamp" if columns is None else f"`{EVENT_TIME}`")
    date = f.to_date(time)
    if not options.keeps_null_dates:
        date = f.when(time.isNull(), f.raise_error(NO_TIMES).cast("date")).otherwise(date)
    if columns is None:
        rows = df.withColumn("date", date).withColumn("problem", f.lit(None).cast("string")).select(*META, "payload")
        return _counted(rows, f.lit(0), f.lit(None))
    if options.timestamp_from and not options.has_event_time:
        name = options.timestamp_from
        if name not in columns.names or not isinstance(
            columns[name].dataType, DateType | TimestampType | TimestampNTZType
        ):
            raise ConfigurationError(f"`timestamp_from`: the codec has no time field {name!r}")
        date = f.to_date(f.col(f"`{name.replace('`', '``')}`"))
        # A partition's date has a year with four digits. Treat other dates as unknown.
        known = f.when(f.year(date).between(date_type.min.year, date_type.max.year), date)
        date = f.coalesce(known, f.to_date("recorded_at"))
    rows = _counted(df.withColumn("date", date), f.col(f"`{ROW}`"), f.col("rescued"))
    names = (*META, *columns.names, *RESCUE_COLUMNS)
    return rows.select(*(f"`{name.replace('`', '``')}`" for name in names))


def _counted(rows: DataFrame, row_of_message: Column, rescued: Column) -> DataFrame:
    from pyspark.sql import functions as f

    return rows.observe(
        OBSERVED,
        f.count_if(row_of_message == 0).alias("messages"),
        f.count(f.lit(1)).alias("rows"),
        f.count("problem").alias("problems"),
        f.count(rescued).alias("rescued"),
    )


class Ingest:
    """An ingest that was checked before anything slow is started. It holds its locks until it is closed or its query ends."""

    def __init__(self, options: IngestOptions) -> None:
        options.check()
        self._options = options
        self._target = open_target(options)
        self._query: StreamingQuery | None = None
        # Of a running query, table and checkpoint need not agree.
        self._locks = Locks(options.locked_directories)
        try:
            self._target.check()
        except BaseException:
            self.close()
            raise

    def start(self, spark: SparkSession) -> StreamingQuery:
        """Start the query. With the same options, it resumes from its checkpoint."""
        options, target = self._options, self._target
        _check_times(options)
        rows = table(spark, options, target)
        writer = target.writer(rows).option("checkpointLocation", options.checkpoint_location)
        query = self._query = _triggered(writer, options)
        self._locks.hold_for(query)
        target.started(rows, query)
        return query

    def close(self) -> None:
        """Release the locks, unless a query was started."""
        if self._query is None:
            self._locks.release()


def start(spark: SparkSession, options: IngestOptions) -> StreamingQuery:
    """Start an ingest whose source is known to be readable."""
    with closing(Ingest(options)) as ingest:
        return ingest.start(spark)


def _triggered(writer: DataStreamWriter, options: IngestOptions) -> StreamingQuery:
    trigger: dict[str, Any] = (
        {"processingTime": f"{round(options.trigger_interval * 1000)} milliseconds"}
        if options.follow
        else {"availableNow": True}
    )
    return writer.trigger(**trigger).start()


def _check_times(options: IngestOptions) -> None:
    """Raise ConfigurationError if a recording has no times to derive the table's dates from."""
    if options.keeps_null_dates or options.is_live:
        return
    with recordings_at(options.reading) as recordings:
        for archive, descriptor in recordings:
            if options.streams and descriptor.stream_id not in options.streams:
                continue
            with RecordingReader(archive, descriptor) as reader:
                if not reader.has_times:
                    raise ConfigurationError(f"recording {descriptor.recording_id} of {archive.url}: {NO_TIMES}")


# -- the codec's columns -----------------------------------------------------------------------------------------------


# Fields with these names are rescued when columns are inferred.
TAKEN = (*META, *RESCUE_COLUMNS, ROW, *(QUALIFIER + name for name in (*META, "timestamp")))


def codec_columns(options: IngestOptions, codec: Codec, target: Target) -> StructType:
    """Return the codec's columns: from ``options.schema``, else from the table, else inferred from messages.

    With ``options.evolve``, the table's columns come first, then the new ones. Raises ConfigurationError if the schema differs
    from the table, or if there are no messages to infer from.
    """
    from pyspark.sql.types import StructType

    before = target.columns()
    if options.schema:
        kind = StructType.fromDDL(options.schema)
    elif before is not None and not options.evolve:
        kind = before
    else:
        kind, _ = split_by_name(_inferred(options, codec, before), target.rules.name_key, before)
    check_distinct(kind.names, (*META, *RESCUE_COLUMNS))
    kind = target.rules.stored(kind)
    if before is not None:
        if options.evolve:
            kind = united(before, kind, target.rules.widens, strict=bool(options.schema))
        elif change := difference(before, kind):
            raise ConfigurationError(
                f"`schema`: {options.out} has other columns: {change}; use `evolve` to add columns, or another `out`"
            )
    if options.schema:
        # The table's own columns are nullable, because it may have rows with problems.
        kind = with_required(kind, StructType.fromDDL(options.schema))
    return kind


def _inferred(options: IngestOptions, codec: Codec, before: StructType | None) -> StructType:
    try:
        return inferred_columns(codec, sample(options), TAKEN)
    except ConfigurationError as error:
        if before is not None:
            return before
        raise ConfigurationError(f"codec {options.codec!r}: {error}; pass the columns as `schema`") from None


def sample(options: IngestOptions) -> list[bytes]:
    """Return messages from several points of each recording."""
    payloads: list[bytes] = []
    if not options.recordings:
        return payloads
    with recordings_at(options.reading) as recordings:
        chosen = [each for each in recordings if not options.streams or each[1].stream_id in options.streams]
        for archive, descriptor in chosen:
            # Ignore problems here. They are found again when the query reads the messages.
            with suppress(RecordingError), RecordingReader(archive, descriptor) as reader:
                payloads += sampled(reader, len(chosen))
    return payloads


# -- progress ----------------------------------------------------------------------------------------------------------


COUNTS = ("messages", "rows", "problems", "rescued")


class Count:
    """The totals of a query, summed over its progress, because Spark remembers only the most recent micro-batches.

    ``messages`` counts the messages read, and ``rows`` the rows written. ``problems`` counts unreadable messages, whose rows are
    included in ``rows``. ``rescued`` counts rows with fields that the schema lacks.
    """

    def __init__(self) -> None:
        self._seen: dict[int, tuple[int, ...]] = {}
        self.messages = self.rows = self.problems = self.rescued = 0

    def update(self, query: StreamingQuery) -> None:
        for progress in query.recentProgress:
            observed = progress["observedMetrics"].get(OBSERVED)
            if observed is not None and observed["rows"]:
                self._seen[progress["batchId"]] = tuple(observed[name] for name in COUNTS)
        if self._seen:
            self.messages, self.rows, self.problems, self.rescued = map(sum, zip(*self._seen.values(), strict=True))


def remaining(query: StreamingQuery, options: IngestOptions) -> tuple[int, int]:
    """Return the bytes of the recordings that were read, and all bytes recorded; zeros if nothing is recorded."""
    if not options.recordings:
        return 0, 0
    progress = query.lastProgress
    lags = lags_of(progress["sources"] if progress else [], options.reading)
    return sum(each.position for each in lags), sum(each.recorded_position for each in lags)

"""Recordings, or a live channel, into partitioned Parquet: once or for as long as it runs, each message once.

The table has the columns ``date``, ``stream_id`` (its partitions), ``recording_id``, ``session_id``, ``position``,
``recorded_at``, ``problem``, those of the parser, ``rescued`` and ``payload``. Every message is in it, at least once:

- A message that the parser cannot read, that has a value of another type than its column, or that has no rows at all, is a row
  with its reason in ``problem``, the message in ``payload``, and nothing in the parser's columns.
- Fields that the schema does not have are in ``rescued``, as JSON.

The schema is kept in the table's folder: a restart reads with the same one, and is refused when another one is given.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any

from mainstem.errors import ConfigurationError, RecordingError
from mainstem.recording import messages, open_recordings
from mainstem.spark.lags import lag
from mainstem.spark.parsers import find_parser
from mainstem.spark.sources.options import TIMESTAMPS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from mainstem.spark.parsers import Parser

META = ("date", "stream_id", "recording_id", "session_id", "position", "recorded_at", "problem")
META_DDL = "date date, stream_id int, recording_id bigint, session_id int, position bigint, recorded_at timestamp, problem string"
# After the parser's columns: fields that the schema lacks, as JSON, and the message where there is a problem.
REST = ("rescued", "payload")
REST_DDL = "rescued string, payload binary"
PARTITIONS = ("date", "stream_id")
# Messages that a schema is inferred from where none is given: from all recordings, at these places of each.
SAMPLE = 4000
SAMPLE_PLACES = 4
LEAST_SAMPLE = 64
OBSERVED = "ingested"
NO_TIMES = (
    "it keeps no times, as it has no index, and the table is partitioned by date: --timestamp-from names "
    "reserved_value_ns, _us or _ms, or a field of the parser"
)
EMPTY, NO_ROWS = "the message is empty", "the message has no rows"
# Beside the checkpoint, which Spark's readers of the table pass over alike.
CHECKPOINT, SCHEMA_FILE = "_checkpoint", "_schema.json"


@dataclass(frozen=True, kw_only=True)
class IngestOptions:
    """What goes where. ``source`` is a directory of recordings or an Aeron channel (with ``streams``)."""

    source: str
    out: Path
    parser: str = ""
    parser_options: dict[str, str] = field(default_factory=dict)
    schema: str = ""
    streams: tuple[int, ...] = ()
    record_to: str = ""
    directory: str = ""
    continuous: bool = False
    trigger: str = "1 second"
    source_options: dict[str, str] = field(default_factory=dict)
    timestamp_from: str = ""

    @property
    def is_live(self) -> bool:
        """Whether the source is a channel."""
        return self.source.startswith("aeron:")

    @property
    def recordings(self) -> str:
        """The directory that is read; empty for a live channel that is not recorded."""
        return self.record_to if self.is_live else self.source

    @property
    def has_event_time(self) -> bool:
        """Whether the source gives a column ``timestamp``."""
        return self.timestamp_from in TIMESTAMPS

    @property
    def keeps_null_dates(self) -> bool:
        """Whether a row without a time is possible, and kept: the time is the publisher's."""
        return self.timestamp_from not in ("", "recorded_at")

    def check(self) -> None:
        """Raises ConfigurationError for what cannot be."""
        if self.is_live and not self.streams:
            raise ConfigurationError("--stream: an Aeron channel has streams; say which")
        if self.is_live and not self.continuous:
            raise ConfigurationError("a live channel has no end: --continuous")
        if self.schema and not self.parser:
            raise ConfigurationError("--schema says what a parser finds: --parser says which one")
        if self.timestamp_from and not self.has_event_time and not self.parser:
            names = ", ".join(TIMESTAMPS)
            raise ConfigurationError(
                f"--timestamp-from: {self.timestamp_from!r} is none of {names}, nor a parser's field"
            )


class Parsing:
    """What a Spark task does to the messages. Pickled to the workers."""

    def __init__(self, parser: Parser, schema: pa.Schema) -> None:
        self._parser, self._schema = parser, schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Batches of messages into batches of rows."""
        for batch in batches:
            if batch.num_rows:
                yield self._parse(batch)

    def _parse(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        import pyarrow as pa

        payloads: Any = batch.column("payload").to_pylist()
        parsed = self._parser.parse(payloads, self._schema)
        # The rows, then the messages that have none.
        without = {i: NO_ROWS if payloads[i] else EMPTY for i in set(range(len(payloads))).difference(parsed.origins)}
        reasons = without | parsed.problems
        failed, count = sorted(reasons), len(parsed.origins)
        origins = pa.array([*parsed.origins, *failed], pa.int64())
        problems = pa.array([None] * count + [reasons[i] for i in failed], pa.string())
        rescued = pa.array([*(parsed.rescued.get(row) for row in range(count)), *([None] * len(failed))], pa.string())
        messages = pa.array([*([None] * count), *(payloads[i] for i in failed)], pa.binary())
        columns: list[Any] = [batch.column(name).take(origins) for name in META[:-1]]
        columns.append(problems)
        for values, item in zip(parsed.columns, self._schema, strict=True):
            whole = pa.chunked_array([values, pa.nulls(len(failed), item.type)], item.type)
            columns.append(whole.combine_chunks())
        return pa.RecordBatch.from_arrays([*columns, rescued, messages], names=[*META, *self._schema.names, *REST])


def arrow_schema(spark: SparkSession, options: IngestOptions, parser: Parser) -> pa.Schema:
    """The parser's columns, in Spark's types: those of the table, else of the option, else inferred from messages.

    Raises ConfigurationError where the option differs from the table, or there is nothing to infer from.
    """
    from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
    from pyspark.sql.types import StructType

    file = options.out / SCHEMA_FILE
    before = StructType.fromJson(json.loads(file.read_text())) if file.exists() else None
    if options.schema:
        kind = StructType.fromDDL(options.schema)
    elif before is not None:
        kind = before
    else:
        try:
            kind = from_arrow_schema(parser.schema(sample(options)))
        except ValueError as error:
            raise ConfigurationError(
                f"parser {options.parser!r}: {error}; --schema says what the columns are"
            ) from None
    if reserved := sorted(set(kind.names) & {*META, *REST}):
        names = ", ".join((*META, *REST))
        raise ConfigurationError(f"the parser's column {reserved[0]!r} has the name of one of ours: {names}")
    if before is not None and (change := _change(before, kind)):
        raise ConfigurationError(f"--schema: {options.out} was begun with another one: {change}; name another --out")
    schema: pa.Schema = to_arrow_schema(kind, timezone=spark.conf.get("spark.sql.session.timeZone"))
    return schema


def _change(before: Any, now: Any) -> str:
    """How two schemas differ, in words; empty where they do not."""
    old, new = ({item.name: item.dataType.simpleString() for item in kind.fields} for kind in (before, now))
    types = [{item.name: item.dataType.json() for item in kind.fields} for kind in (before, now)]
    different = [name for name in old if name in new and types[0][name] != types[1][name]]
    changes = [f"{name} is {old[name]} there and {new[name]} here" for name in different]
    changes += [f"{name} {old[name]} is only there" for name in old if name not in new]
    changes += [f"{name} {new[name]} is only here" for name in new if name not in old]
    return ", ".join(changes)


def sample(options: IngestOptions) -> list[bytes]:
    """Messages of every recording that is read, from several places of each; none where there are none."""
    payloads: list[bytes] = []
    if not options.recordings:
        return payloads
    with open_recordings(options.recordings) as recordings:
        readers = [each for each in recordings if not options.streams or each.descriptor.stream_id in options.streams]
        count = max(SAMPLE // max(len(readers), 1), LEAST_SAMPLE) // SAMPLE_PLACES
        for reader in readers:
            # A fault is met again when the messages are read.
            with suppress(RecordingError):
                begin, end = reader.start_position, reader.end_position()
                places = [
                    reader.advance(begin, begin + (end - begin) * i // SAMPLE_PLACES) for i in range(SAMPLE_PLACES)
                ]
                for place, until in pairwise([*places, end]):
                    payloads += (payload for _, payload in islice(messages(reader, place, until), count))
    return payloads


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
    for name, value in (("directory", options.directory), ("recordTo", options.record_to)):
        reader = reader.option(name, value) if value else reader
    return reader.load()


def table(spark: SparkSession, options: IngestOptions) -> DataFrame:
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
    if not options.parser:
        return df.withColumn("problem", f.lit(None).cast("string")).select(*META, "payload")
    parser = find_parser(options.parser, options.parser_options)
    schema = arrow_schema(spark, options, parser)
    own = (StructType.fromDDL(ddl).fields for ddl in (META_DDL, REST_DDL))
    whole = StructType([*next(own), *from_arrow_schema(schema).fields, *next(own)])
    rows = df.select(*META[:-1], "payload").mapInArrow(Parsing(parser, schema), whole)
    if not options.timestamp_from or options.has_event_time:
        return rows
    if options.timestamp_from not in schema.names or not pa.types.is_temporal(
        schema.field(options.timestamp_from).type
    ):
        raise ConfigurationError(f"--timestamp-from: the parser has no field {options.timestamp_from!r} that is a time")
    return rows.withColumn("date", f.to_date(f.coalesce(options.timestamp_from, "recorded_at")))


def start(spark: SparkSession, options: IngestOptions) -> StreamingQuery:
    """Starts the query. Its checkpoint is in ``out/_checkpoint``, so the same command goes on where it was."""
    from pyspark.sql import functions as f

    options.check()
    _check_times(options)
    rows = table(spark, options)
    rescued = f.count("rescued") if "rescued" in rows.columns else f.lit(0)
    rows = rows.observe(
        OBSERVED, f.count(f.lit(1)).alias("rows"), f.count("problem").alias("problems"), rescued.alias("rescued")
    )
    writer = rows.writeStream.format("parquet").partitionBy(*PARTITIONS).option("path", str(options.out))
    writer = writer.option("checkpointLocation", str(options.out / CHECKPOINT))
    trigger: dict[str, Any] = {"processingTime": options.trigger} if options.continuous else {"availableNow": True}
    query: StreamingQuery = writer.trigger(**trigger).start()
    if options.parser:
        fields = [item for item in rows.schema.fields if item.name not in (*META, *REST)]
        (options.out / SCHEMA_FILE).write_text(type(rows.schema)(fields).json())
    return query


def _check_times(options: IngestOptions) -> None:
    """Raises ConfigurationError where the table's dates would not be known."""
    if options.keeps_null_dates or options.is_live:
        return
    for reader in open_recordings(options.recordings):
        with reader:
            is_read = not options.streams or reader.descriptor.stream_id in options.streams
            if is_read and not reader.has_times:
                raise ConfigurationError(
                    f"recording {reader.descriptor.recording_id} of {options.recordings}: {NO_TIMES}"
                )


class Count:
    """What a query has done so far, gathered from its progress, which remembers only the last micro-batches."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[int, int, int, int]] = {}

    def update(self, query: StreamingQuery) -> None:
        """Adds the micro-batches that are new."""
        for progress in query.recentProgress:
            observed = progress["observedMetrics"].get(OBSERVED)
            counts = [observed[name] if observed is not None else 0 for name in ("rows", "problems", "rescued")]
            if progress["numInputRows"] or counts[0]:
                self._seen[progress["batchId"]] = (progress["numInputRows"], counts[0], counts[1], counts[2])

    def _sum(self, which: int) -> int:
        return sum(counts[which] for counts in self._seen.values())

    @property
    def messages(self) -> int:
        """Read so far."""
        return self._sum(0)

    @property
    def rows(self) -> int:
        """Written so far, those of unreadable messages among them."""
        return self._sum(1)

    @property
    def problems(self) -> int:
        """Messages that could not be read."""
        return self._sum(2)

    @property
    def rescued(self) -> int:
        """Rows with fields that the schema lacks."""
        return self._sum(3)


def remaining(query: StreamingQuery, options: IngestOptions) -> tuple[int, int]:
    """(bytes of the recordings that were read, bytes that there are); (0, 0) where nothing is recorded."""
    if not options.recordings:
        return 0, 0
    lags = lag(query, options.recordings)
    return sum(each.position for each in lags), sum(each.recorded_position for each in lags)

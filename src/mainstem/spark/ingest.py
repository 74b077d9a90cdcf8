"""Recordings, or a live channel, into partitioned Parquet: once or for as long as it runs, each message once.

The table has the columns ``date``, ``stream_id`` (its partitions), ``recording_id``, ``session_id``, ``position``,
``recorded_at``, ``problem``, and those of the parser. A message that the parser cannot read is a row with its reason in
``problem`` and nothing in the parser's columns: nothing is dropped in silence.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mainstem.errors import ConfigurationError
from mainstem.recording import messages, open_recordings
from mainstem.spark.lags import lag
from mainstem.spark.parsers import find_parser

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from mainstem.spark.parsers import Parser

META = ("date", "stream_id", "recording_id", "session_id", "position", "recorded_at", "problem")
META_DDL = "date date, stream_id int, recording_id bigint, session_id int, position bigint, recorded_at timestamp, problem string"
PARTITIONS = ("date", "stream_id")
# Messages that a schema is inferred from where none is given.
SAMPLE = 1000
OBSERVED = "ingested"


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

    @property
    def is_live(self) -> bool:
        """Whether the source is a channel."""
        return self.source.startswith("aeron:")

    @property
    def recordings(self) -> str:
        """The directory that is read; empty for a live channel that is not recorded."""
        return self.record_to if self.is_live else self.source

    def check(self) -> None:
        """Raises ConfigurationError for what cannot be."""
        if self.is_live and not self.streams:
            raise ConfigurationError("--stream: an Aeron channel has streams; say which")
        if self.is_live and not self.continuous:
            raise ConfigurationError("a live channel has no end: --continuous")
        if self.schema and not self.parser:
            raise ConfigurationError("--schema says what a parser finds: --parser says which one")


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
        # The rows, then those messages that gave none because they could not be read.
        failed = sorted(parsed.problems)
        origins = pa.array([*parsed.origins, *failed], pa.int64())
        problems = pa.array([None] * len(parsed.origins) + [parsed.problems[i] for i in failed], pa.string())
        columns: list[Any] = [batch.column(name).take(origins) for name in META[:-1]]
        columns.append(problems)
        for values, item in zip(parsed.columns, self._schema, strict=True):
            whole = pa.chunked_array([values, pa.nulls(len(failed), item.type)], item.type)
            columns.append(whole.combine_chunks())
        return pa.RecordBatch.from_arrays(columns, names=[*META, *self._schema.names])


def arrow_schema(spark: SparkSession, options: IngestOptions, parser: Parser) -> pa.Schema:
    """The parser's columns, in Spark's types: those of the option, else inferred from the first messages of the recordings."""
    from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
    from pyspark.sql.types import StructType

    if options.schema:
        kind = StructType.fromDDL(options.schema)
    else:
        try:
            kind = from_arrow_schema(parser.schema(sample(options.recordings)))
        except ValueError as error:
            raise ConfigurationError(
                f"parser {options.parser!r}: {error}; --schema says what the columns are"
            ) from None
    if reserved := sorted(set(kind.names) & set(META)):
        raise ConfigurationError(f"the parser's column {reserved[0]!r} has the name of one of ours: {', '.join(META)}")
    schema: pa.Schema = to_arrow_schema(kind, timezone=spark.conf.get("spark.sql.session.timeZone"))
    return schema


def sample(directory: str) -> list[bytes]:
    """The first messages of a directory of recordings; none where there are none."""
    payloads: list[bytes] = []
    if not directory:
        return payloads
    for reader in open_recordings(directory):
        with reader:
            for _, payload in messages(reader, reader.start_position, reader.end_position()):
                payloads.append(payload)
                if len(payloads) == SAMPLE:
                    return payloads
    return payloads


def source(spark: SparkSession, options: IngestOptions) -> DataFrame:
    """The messages as a streaming DataFrame."""
    reader = spark.readStream.format("mainstem.live" if options.is_live else "mainstem.recording")
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
    from pyspark.sql import functions as f
    from pyspark.sql.pandas.types import from_arrow_schema
    from pyspark.sql.types import StructType

    df = source(spark, options).withColumn("date", f.to_date("recorded_at"))
    if not options.parser:
        return df.withColumn("problem", f.lit(None).cast("string")).select(*META, "payload")
    parser = find_parser(options.parser, options.parser_options)
    schema = arrow_schema(spark, options, parser)
    whole = StructType(StructType.fromDDL(META_DDL).fields + from_arrow_schema(schema).fields)
    return df.select(*META[:-1], "payload").mapInArrow(Parsing(parser, schema), whole)


def start(spark: SparkSession, options: IngestOptions) -> StreamingQuery:
    """Starts the query. Its checkpoint is in ``out/_checkpoint``, so the same command goes on where it was."""
    from pyspark.sql import functions as f

    options.check()
    rows = table(spark, options).observe(
        OBSERVED, f.count(f.lit(1)).alias("rows"), f.count("problem").alias("problems")
    )
    writer = rows.writeStream.format("parquet").partitionBy(*PARTITIONS).option("path", str(options.out))
    writer = writer.option("checkpointLocation", str(options.out / "_checkpoint"))
    if options.continuous:
        return writer.trigger(processingTime=options.trigger).start()
    return writer.trigger(availableNow=True).start()


class Count:
    """What a query has done so far, gathered from its progress, which remembers only the last micro-batches."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[int, int, int]] = {}

    def update(self, query: StreamingQuery) -> None:
        """Adds the micro-batches that are new."""
        for progress in query.recentProgress:
            observed = progress["observedMetrics"].get(OBSERVED)
            rows, problems = (observed["rows"], observed["problems"]) if observed is not None else (0, 0)
            if progress["numInputRows"] or rows:
                self._seen[progress["batchId"]] = (progress["numInputRows"], rows, problems)

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


def remaining(query: StreamingQuery, options: IngestOptions) -> tuple[int, int]:
    """(bytes of the recordings that were read, bytes that there are); (0, 0) where nothing is recorded."""
    if not options.recordings:
        return 0, 0
    lags = lag(query, options.recordings)
    return sum(each.position for each in lags), sum(each.recorded_position for each in lags)

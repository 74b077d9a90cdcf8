"""Load recordings or a live channel into a typed table, once or continuously."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

from mainstem._internal.clock import NS_PER_SECOND, SYSTEM_CLOCK
from mainstem._internal.units import parse_pairs
from mainstem.cli._options import (
    FORMAT_HELP,
    CodecChoice,
    DirectoryOption,
    FollowOption,
    JsonOption,
    MasterOption,
    OutOption,
    StreamsOption,
    TableChoice,
    argument,
    choice,
    duration,
    flag,
    integer,
    option,
    require_directory,
)
from mainstem.cli._output import ProgressBars, print_json
from mainstem.cli._process import say, stopping
from mainstem.errors import needs_extras

if TYPE_CHECKING:
    from mainstem.cli._process import Stop
    from mainstem.spark.ingest.options import IngestOptions

POLL_S = 0.2
FORMATS = ("parquet", "delta", "iceberg")
SUMMARY = "{messages:,} messages, {rows:,} rows, {problems:,} not readable, in {seconds:.1f} s: {out}"


def run(
    *,
    location: Annotated[str, argument("Path or URL of recordings, a pattern of them, or an Aeron channel.")],
    out: OutOption = "",
    table_format: Annotated[str, choice("--format", FORMATS, FORMAT_HELP)] = "parquet",
    codec: CodecChoice,
    schema: Annotated[
        str, option("--schema", "DDL", "The codec's columns, as in 'id bigint, name string'.", "inferred")
    ] = "",
    source_option: Annotated[
        list[str] | None,
        option(
            "--source-option",
            "NAME=VALUE",
            "An option of the Spark source, or of the store it reads, as in maxBytesPerTrigger=64m.",
        ),
    ] = None,
    stream: StreamsOption = None,
    record_to: Annotated[
        str, option("--record-to", "PATH", "Record a live channel here, so that each message is loaded exactly once.")
    ] = "",
    timestamp_from: Annotated[
        str,
        option(
            "--timestamp-from",
            "FIELD",
            "The time of a row: recorded_at, reserved_value_ns, _us or _ms, or a field of the codec.",
            "recorded_at",
        ),
    ] = "",
    directory: DirectoryOption = "",
    follow: FollowOption = False,
    trigger_interval: Annotated[
        float, duration("--trigger-interval", "With --follow: the time from one micro-batch to the next.")
    ] = 1.0,
    table: TableChoice,
    checkpoint: Annotated[str, option("--checkpoint", "PATH", "The directory for Spark's progress.", "in --out")] = "",
    evolve: Annotated[bool, flag("--evolve", "Add columns that the table lacks.")] = False,
    append: Annotated[
        bool,
        flag("--append", "Add to a Delta or Iceberg table that already has rows of another checkpoint or program."),
    ] = False,
    compact_every: Annotated[
        int,
        integer("--compact-every", "For Delta and Iceberg: join small files after every N micro-batches (0 = never)."),
    ] = 0,
    master: MasterOption = "",
    as_json: JsonOption = False,
) -> None:
    """Load recordings or a live channel into a typed table, once or continuously.

    The table is Parquet, Delta or Iceberg. Started again, the same command continues where it stopped, with each message
    once. A message that the codec cannot read becomes a row with the reason in `problem` and the message in `payload`;
    fields beyond the schema are in `rescued`.

    Example: mainstem ingest recordings --out tables --codec json --schema 'id bigint, price double'
    """
    with needs_extras():
        import pyspark  # noqa: F401

        from mainstem.spark.ingest.options import IngestOptions
    options = IngestOptions(
        source=location,
        out=out,
        codec=codec.codec,
        codec_options=codec.options,
        schema=schema,
        streams=tuple(stream or ()),
        record_to=record_to,
        driver_directory=directory,
        follow=follow,
        trigger_interval=trigger_interval,
        source_options=parse_pairs(source_option, name="--source-option"),
        timestamp_from=timestamp_from,
        format=table_format,
        checkpoint=checkpoint,
        evolve=evolve,
        append=append,
        compact_every=compact_every,
        **table.arguments(out),
    )
    _check(options)
    result = _in_session(options, master)
    print_json(result) if as_json else say(SUMMARY.format(**result))


def _in_session(options: IngestOptions, master: str) -> dict[str, Any]:
    from pyspark.errors import PySparkException

    from mainstem.spark.error_text import as_own_error
    from mainstem.spark.session import create_session
    from mainstem.spark.session import stop as stop_session

    spark = create_session("mainstem ingest", master=master or None)
    try:
        with stopping() as stop:
            return _ingest(spark, options, stop)
    except PySparkException as error:
        # Spark gets the error's text from the JVM, which is gone once the session is stopped.
        raise as_own_error(error) from None
    finally:
        stop_session(spark)


def _check(options: IngestOptions) -> None:
    """Check everything that can be checked before anything slow is started."""
    from mainstem.spark.ingest.resume import Locks
    from mainstem.spark.ingest.target import open_target
    from mainstem.spark.sources.archives import recordings_at

    options.check()
    if not options.is_live:
        with recordings_at(options.reading):
            pass  # report unreadable recordings before Spark starts
    if options.is_local:
        require_directory(options.local_directory, "--out")
    target = open_target(options)
    # Of a running query, table and checkpoint need not agree.
    locks = Locks(options.locked_directories)
    try:
        target.check()
    finally:
        locks.release()


def _ingest(spark: Any, options: IngestOptions, stop: Stop) -> dict[str, Any]:
    from mainstem.spark.ingest.query import Count, remaining, start

    begin_ns, count = SYSTEM_CLOCK.monotonic_ns(), Count()
    query = start(spark, options)
    with ProgressBars() as bars:
        bars.stage("ingest [bytes]", None)
        while query.isActive and not stop.requested:
            time.sleep(POLL_S)
            count.update(query)
            done, total = remaining(query, options)
            if total:
                bars.stage("ingest [bytes]", total)
                bars.progress("ingest [bytes]", done)
        if query.isActive:
            query.stop()
        query.awaitTermination()
        count.update(query)
        bars.done("ingest [bytes]")
    seconds = (SYSTEM_CLOCK.monotonic_ns() - begin_ns) / NS_PER_SECOND
    counts = {"messages": count.messages, "rows": count.rows, "problems": count.problems, "rescued": count.rescued}
    return {**counts, "seconds": round(seconds, 3), "out": options.table or str(options.out)}

"""Load recordings or a live channel into a typed table, once or continuously."""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Any

from mainstem._internal.clock import NS_PER_SECOND, SYSTEM_CLOCK
from mainstem.cli._options import (
    CODEC_OPTIONS,
    FORMAT_HELP,
    TABLE_OPTIONS,
    DirectoryOption,
    FollowOption,
    JsonOption,
    MasterOption,
    OutOption,
    StreamsOption,
    argument,
    check_store_options,
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
from mainstem.spark.ingest.options import FORMATS, IngestOptions

if TYPE_CHECKING:
    from mainstem.cli._process import Stop
    from mainstem.spark.ingest.query import Ingest

POLL_S = 0.2
SUMMARY = "{messages:,} messages, {rows:,} rows, {problems:,} not readable, in {seconds:.1f} s: {out}"
OPTIONS: dict[str, Any] = {
    "source": argument("Path or URL of recordings, a pattern of them, or an Aeron channel.", "LOCATION"),
    "out": OutOption,
    "format": choice("--format", FORMATS, FORMAT_HELP),
    **CODEC_OPTIONS,
    "schema": option("--schema", "DDL", "The codec's columns, as in 'id bigint, name string'.", "inferred"),
    "source_options": option(
        "--source-option",
        "NAME=VALUE",
        "An option of the Spark source, or of the store it reads, as in maxBytesPerTrigger=64m.",
    ),
    "streams": StreamsOption,
    "record_to": option(
        "--record-to", "PATH", "Record a live channel here, so that each message is loaded exactly once."
    ),
    "timestamp_from": option(
        "--timestamp-from",
        "FIELD",
        "The time of a row: recorded_at, reserved_value_ns, _us or _ms, or a field of the codec.",
        "recorded_at",
    ),
    "driver_directory": DirectoryOption,
    "follow": FollowOption,
    "trigger_interval": duration("--trigger-interval", "With --follow: the time from one micro-batch to the next."),
    **TABLE_OPTIONS,
    "checkpoint": option("--checkpoint", "PATH", "The directory for Spark's progress.", "in --out"),
    "evolve": flag("--evolve", "Add columns that the table lacks."),
    "append": flag(
        "--append", "Add to a Delta or Iceberg table that already has rows of another checkpoint or program."
    ),
    "compact_every": integer(
        "--compact-every", "For Delta and Iceberg: join small files after every N micro-batches (0 = never)."
    ),
}


def run(*, options: Annotated[IngestOptions, OPTIONS], master: MasterOption = "", as_json: JsonOption = False) -> None:
    """Load recordings or a live channel into a typed table, once or continuously.

    The table is Parquet, Delta or Iceberg. Started again, the same command continues where it stopped, with each message
    once. A message that the codec cannot read becomes a row with the reason in `problem` and the message in `payload`;
    fields beyond the schema are in `rescued`.

    Example: mainstem ingest recordings --out tables --codec json --schema 'id bigint, price double'
    """
    with needs_extras():
        import pyspark  # noqa: F401
    with closing(open_ingest(options)) as ingest:
        result = _in_session(ingest, options, master)
    print_json(result) if as_json else say(SUMMARY.format(**result))


def open_ingest(options: IngestOptions) -> Ingest:
    """Check everything that can be checked before anything slow is started."""
    from mainstem.spark.ingest.query import Ingest
    from mainstem.spark.sources.archives import recordings_at

    check_store_options(options.store_options, str(options.out))
    options.check()
    if not options.is_live:
        with recordings_at(options.reading):
            pass  # report unreadable recordings before Spark starts
    if options.is_local:
        require_directory(options.local_directory, "--out")
    return Ingest(options)


def _in_session(ingest: Ingest, options: IngestOptions, master: str) -> dict[str, Any]:
    from pyspark.errors import PySparkException

    from mainstem.spark.error_text import as_own_error
    from mainstem.spark.session import create_session
    from mainstem.spark.session import stop as stop_session

    spark = create_session("mainstem ingest", master=master or None)
    try:
        with stopping() as stop:
            return _ingest(spark, ingest, options, stop)
    except PySparkException as error:
        # Spark gets the error's text from the JVM, which is gone once the session is stopped.
        raise as_own_error(error) from None
    finally:
        stop_session(spark)


def _ingest(spark: Any, ingest: Ingest, options: IngestOptions, stop: Stop) -> dict[str, Any]:
    from mainstem.spark.ingest.query import Count, remaining

    begin_ns, count = SYSTEM_CLOCK.monotonic_ns(), Count()
    query = ingest.start(spark)
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

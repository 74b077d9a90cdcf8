"""Load recordings or a live channel into a typed table, once or continuously."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mainstem._internal.clock import NS_PER_SECOND, SYSTEM_CLOCK
from mainstem._internal.units import parse_pairs
from mainstem.cli._options import (
    FORMAT_HELP,
    CatalogOption,
    CatalogOptions,
    CodecOption,
    CodecOptions,
    DirectoryOption,
    FileSizeOption,
    FollowOption,
    JsonOption,
    MasterOption,
    OutOption,
    StoreOption,
    StreamsOption,
    TableOption,
    choice,
    duration,
    require_directory,
    store_options,
)
from mainstem.cli._output import ProgressBars
from mainstem.cli._process import say, stopping
from mainstem.errors import needs_extras

if TYPE_CHECKING:
    from mainstem.cli._process import Stop
    from mainstem.spark.ingest import IngestOptions

POLL_S = 0.2
FORMATS = ("parquet", "delta", "iceberg")
SUMMARY = "{messages:,} messages, {rows:,} rows, {problems:,} not readable, in {seconds:.1f} s: {out}"


def run(
    location: Annotated[str, typer.Argument(help="Path or URL of recordings, a pattern of them, or an Aeron channel.")],
    out: OutOption = "",
    codec: CodecOption = "",
    codec_option: CodecOptions = None,
    schema: Annotated[
        str,
        typer.Option(
            "--schema",
            metavar="DDL",
            help="The codec's columns, as in 'id bigint, name string'.",
            show_default="inferred",
        ),
    ] = "",
    source_option: Annotated[
        list[str] | None,
        typer.Option(
            "--source-option",
            metavar="NAME=VALUE",
            help="An option of the Spark source, or of the store it reads, as in maxBytesPerTrigger=64m.",
        ),
    ] = None,
    stream: StreamsOption = None,
    record_to: Annotated[
        str, typer.Option("--record-to", metavar="PATH", help="Record a live channel here, for exactly once.")
    ] = "",
    timestamp_from: Annotated[
        str,
        typer.Option(
            "--timestamp-from",
            metavar="FIELD",
            help="The time of a row: recorded_at, reserved_value_ns, _us or _ms, or a field of the codec.",
            show_default="recorded_at",
        ),
    ] = "",
    directory: DirectoryOption = "",
    follow: FollowOption = False,
    trigger_interval: Annotated[
        float, duration("--trigger-interval", help="With --follow: the time from one micro-batch to the next.")
    ] = 1.0,
    table_format: Annotated[str, choice("--format", FORMATS, help=FORMAT_HELP)] = "parquet",
    table: TableOption = "",
    catalog: CatalogOption = "",
    catalog_option: CatalogOptions = None,
    checkpoint: Annotated[
        str,
        typer.Option(
            "--checkpoint", metavar="PATH", help="The directory for Spark's progress.", show_default="in --out"
        ),
    ] = "",
    store_option: StoreOption = None,
    evolve: Annotated[bool, typer.Option("--evolve", help="Add columns that the table lacks.")] = False,
    target_file_size: FileSizeOption = 128 << 20,
    compact_every: Annotated[
        int,
        typer.Option(
            "--compact-every",
            metavar="N",
            min=0,
            help="For Delta and Iceberg: join small files after every N micro-batches (0 = never).",
        ),
    ] = 0,
    master: MasterOption = "",
    as_json: JsonOption = False,
) -> None:
    """Load recordings or a live channel into a typed table, once or continuously.

    The table is Parquet, Delta or Iceberg. The same command started again continues where it was; each message comes once.
    What the codec cannot read becomes a row with the reason in the column `problem` and the message in `payload`; fields
    beyond the schema are in `rescued`.

    Example: mainstem ingest recordings --out tables --codec json --schema 'id bigint, price double'
    """
    with needs_extras():
        import pyspark  # noqa: F401

        from mainstem.spark.ingest import IngestOptions
    options = IngestOptions(
        source=location,
        out=out,
        codec=codec,
        codec_options=parse_pairs(codec_option, name="--codec-option"),
        schema=schema,
        streams=tuple(stream or ()),
        record_to=record_to,
        driver_directory=directory,
        follow=follow,
        trigger_interval=trigger_interval,
        source_options=parse_pairs(source_option, name="--source-option"),
        timestamp_from=timestamp_from,
        format=table_format,
        table=table,
        catalog=catalog,
        catalog_options=parse_pairs(catalog_option, name="--catalog-option"),
        checkpoint=checkpoint,
        store_options=store_options(store_option),
        evolve=evolve,
        target_file_size=target_file_size,
        compact_every=compact_every,
    )
    _check(options)
    result = _in_session(options, master)
    print(json.dumps(result)) if as_json else say(SUMMARY.format(**result))


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
        # Spark asks the JVM for the text, which is gone once the session is stopped.
        raise as_own_error(error) from None
    finally:
        stop_session(spark)


def _check(options: IngestOptions) -> None:
    """Whatever can be checked before anything slow is started."""
    from mainstem.spark.ingest.target import open_target
    from mainstem.spark.sources.archives import recordings_at

    options.check()
    if not options.is_live:
        with recordings_at(options.reading):
            pass  # what cannot be read is an error before Spark starts
    if options.is_local:
        require_directory(options.local_directory, "--out")
    open_target(options)


def _ingest(spark: Any, options: IngestOptions, stop: Stop) -> dict[str, Any]:
    from mainstem.spark.ingest import Count, remaining, start

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

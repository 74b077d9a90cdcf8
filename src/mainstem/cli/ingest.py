"""Bring recordings or a live channel into a table, parsed, once or continuously."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mainstem.cli._codecs import CodecOption  # noqa: TC001 - typer reads the annotations
from mainstem.cli._directory import DirectoryOption, JsonOption  # noqa: TC001 - typer reads the annotations
from mainstem.cli._files import require_folder
from mainstem.cli._logs import say
from mainstem.cli._recordings import StoreOption, pairs
from mainstem.cli._stream import stopping
from mainstem.cli._tables import (  # noqa: TC001 - typer reads the annotations
    CatalogOption,
    CatalogOptions,
    CheckpointOption,
    CompactEveryOption,
    EvolveOption,
    FileSizeOption,
    FormatOption,
    OutOption,
    TableOption,
)
from mainstem.clock import NS_PER_SECOND, SYSTEM_CLOCK
from mainstem.errors import needs_extras
from mainstem.units import parse_size

if TYPE_CHECKING:
    from mainstem.cli._stream import Stop
    from mainstem.spark.ingest import IngestOptions

POLL_S = 0.2
SUMMARY = "{messages:,} messages, {rows:,} rows, {problems:,} not readable, in {seconds:.1f} s: {out}"


def run(
    source: Annotated[
        str, typer.Argument(help="A directory or URL of recordings, a pattern of them, or an Aeron channel.")
    ],
    out: OutOption = "",
    codec: CodecOption = "",
    schema: Annotated[
        str, typer.Option(help="The codec's columns, as in 'id bigint, name string'; else they are inferred.")
    ] = "",
    option: Annotated[
        list[str] | None, typer.Option("--option", "-O", help="An option of the codec, as in xml=car.xml.")
    ] = None,
    read: Annotated[
        list[str] | None,
        typer.Option("--read", "-R", help="An option of the source or its store, as in maxBytesPerTrigger=64m."),
    ] = None,
    stream: Annotated[list[int] | None, typer.Option("--stream", "-s", help="Only these stream ids.")] = None,
    record_to: Annotated[str, typer.Option(help="For a live channel: record there, for exactly once.")] = "",
    timestamp_from: Annotated[
        str,
        typer.Option(help="The time of a row: recorded_at, reserved_value_ns, _us or _ms, or a field of the codec."),
    ] = "",
    directory: DirectoryOption = "",
    continuous: Annotated[bool, typer.Option("--continuous", "-c", help="Go on until Ctrl-C.")] = False,
    trigger: Annotated[str, typer.Option(help="With --continuous: the interval.")] = "1 second",
    table_format: FormatOption = "parquet",
    table: TableOption = "",
    catalog: CatalogOption = "",
    catalog_option: CatalogOptions = None,
    checkpoint: CheckpointOption = "",
    store_option: StoreOption = None,
    evolve: EvolveOption = False,
    target_file_size: FileSizeOption = "128m",
    compact_every: CompactEveryOption = 0,
    master: Annotated[str, typer.Option(help="Spark's master; spark-submit's own under spark-submit.")] = "",
    as_json: JsonOption = False,
) -> None:
    """Bring recordings or a live channel into a table (Parquet, Delta or Iceberg), parsed, once or continuously.

    Started again with the same folder it continues where it was; each message comes once. What the codec cannot read becomes a
    row with the reason in the column `problem` and the message in `payload`; fields beyond the schema are in `rescued`.

    Example: mainstem ingest recordings --out tables
    """
    with needs_extras():
        import pyspark  # noqa: F401

        from mainstem.spark.ingest import IngestOptions
    options = IngestOptions(
        source=source,
        out=out,
        codec=codec,
        codec_options=pairs(option, "--option"),
        schema=schema,
        streams=tuple(stream or ()),
        record_to=record_to,
        driver_directory=directory,
        continuous=continuous,
        trigger=trigger,
        source_options=pairs(read, "--read"),
        timestamp_from=timestamp_from,
        format=table_format,
        table=table,
        catalog=catalog,
        catalog_options=pairs(catalog_option, "--catalog-option"),
        checkpoint=checkpoint,
        store_options=pairs(store_option, "--store-option"),
        evolve=evolve,
        target_file_size=parse_size(target_file_size, name="--target-file-size"),
        compact_every=compact_every,
    )
    _check(options)
    result = _in_session(options, master)
    print(json.dumps(result)) if as_json else say(SUMMARY.format(**result))


def _in_session(options: IngestOptions, master: str) -> dict[str, Any]:
    from mainstem.spark.session import create, stop

    spark = create("mainstem ingest", master=master or None)
    try:
        with stopping() as asked:
            return _ingest(spark, options, asked)
    finally:
        stop(spark)


def _check(options: IngestOptions) -> None:
    """Whatever can be checked before anything slow is started."""
    from mainstem.spark.ingest.target import open_target
    from mainstem.spark.sources.archives import recordings_at

    options.check()
    if not options.is_live:
        with recordings_at(options.reading):
            pass  # what cannot be read is an error before Spark starts
    if options.is_local:
        require_folder(options.local_directory, "--out")
    open_target(options)


def _ingest(spark: Any, options: IngestOptions, asked: Stop) -> dict[str, Any]:
    from mainstem.cli._progress import ProgressBars
    from mainstem.spark.ingest import Count, remaining, start

    begin_ns, count = SYSTEM_CLOCK.monotonic_ns(), Count()
    query = start(spark, options)
    with ProgressBars() as bars:
        bars.stage("ingest [bytes]", None)
        while query.isActive and not asked.asked:
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

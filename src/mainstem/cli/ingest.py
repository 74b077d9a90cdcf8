"""Bring recordings or a live channel into partitioned Parquet, parsed, once or continuously."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mainstem.cli._directory import DirectoryOption, JsonOption  # noqa: TC001 - typer reads the annotations
from mainstem.cli._files import require_folder
from mainstem.cli._stream import say, stopping
from mainstem.clock import NS_PER_SECOND, SYSTEM_CLOCK
from mainstem.errors import ConfigurationError
from mainstem.recording import read_catalog

if TYPE_CHECKING:
    from mainstem.cli._stream import Stop
    from mainstem.spark.ingest import IngestOptions

POLL_S = 0.2


def run(
    source: Annotated[str, typer.Argument(help="A directory of recordings, or an Aeron channel.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder of the table.")],
    parser: Annotated[
        str, typer.Option("--parser", "-p", help="json, csv, msgpack, arrow, sbe, an entry point, or module:Class.")
    ] = "",
    schema: Annotated[
        str, typer.Option(help="The parser's columns, as in 'id bigint, name string'; else they are inferred.")
    ] = "",
    option: Annotated[
        list[str] | None, typer.Option("--option", "-O", help="An option of the parser, as in xml=car.xml.")
    ] = None,
    read: Annotated[
        list[str] | None, typer.Option("--read", "-R", help="An option of the source, as in maxBytesPerTrigger=64m.")
    ] = None,
    stream: Annotated[list[int] | None, typer.Option("--stream", "-s", help="Only these stream ids.")] = None,
    record_to: Annotated[str, typer.Option(help="For a live channel: record there, for exactly once.")] = "",
    timestamp_from: Annotated[
        str,
        typer.Option(help="The time of a row: recorded_at, reserved_value_ns, _us or _ms, or a field of the parser."),
    ] = "",
    directory: DirectoryOption = "",
    continuous: Annotated[bool, typer.Option("--continuous", "-c", help="Go on until Ctrl-C.")] = False,
    trigger: Annotated[str, typer.Option(help="With --continuous: the interval.")] = "1 second",
    master: Annotated[str, typer.Option(help="Spark's master; spark-submit's own under spark-submit.")] = "",
    as_json: JsonOption = False,
) -> None:
    """Bring recordings or a live channel into partitioned Parquet, parsed, once or continuously.

    Started again with the same folder it continues where it was; each message comes once. What the parser cannot read becomes a
    row with the reason in the column `problem` and the message in `payload`; fields beyond the schema are in `rescued`.
    """
    try:
        from mainstem.spark.ingest import IngestOptions
        from mainstem.spark.session import create, stop
    except ImportError as error:
        raise ConfigurationError(f"ingest needs {error.name}: pip install 'mainstem[spark]'") from None
    options = IngestOptions(
        source=source,
        out=out,
        parser=parser,
        parser_options=_pairs(option or [], "--option"),
        schema=schema,
        streams=tuple(stream or ()),
        record_to=record_to,
        directory=directory,
        continuous=continuous,
        trigger=trigger,
        source_options=_pairs(read or [], "--read"),
        timestamp_from=timestamp_from,
    )
    options.check()
    if not options.is_live:
        read_catalog(Path(source))
    require_folder(out, "--out")
    spark = create("mainstem ingest", master=master or None)
    try:
        with stopping() as asked:
            result = _ingest(spark, options, asked)
    finally:
        stop(spark)
    if as_json:
        print(json.dumps(result))
    else:
        say(
            "{messages:,} messages, {rows:,} rows, {problems:,} not readable, in {seconds:.1f} s: {out}".format(
                **result
            )
        )


def _pairs(texts: list[str], name: str) -> dict[str, str]:
    for text in texts:
        if "=" not in text:
            raise ConfigurationError(f"{name}: {text!r} is not of the form name=value")
    return dict(text.split("=", 1) for text in texts)


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
    return {**counts, "seconds": round(seconds, 3), "out": str(options.out)}

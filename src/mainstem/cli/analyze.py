"""Analyse captures and recordings: what was lost, where and why, and what held streams back."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mainstem.cli import EXIT_INTERRUPTED
from mainstem.cli._files import require_captures, require_folder
from mainstem.cli._table import console
from mainstem.errors import MissingExtraError

if TYPE_CHECKING:
    from mainstem.analysis.options import AnalyzeOptions
    from mainstem.analysis.run import Analysis
    from mainstem.cli._progress import ProgressBars


def run(
    inputs: Annotated[
        list[str], typer.Argument(help="Captures, folders of captures, patterns, or directories of recordings.")
    ],
    out: Annotated[Path, typer.Option(help="Where the tables and the report go.")] = Path("out/analyze"),
    aeron_ports: Annotated[
        str, typer.Option(help="UDP ports that speak Aeron: auto, none, or as in 20121,20122.")
    ] = "auto",
    bymux_ports: Annotated[str, typer.Option(help="TCP ports that speak bymux, as in 4000,4001.")] = "",
    jmux_ports: Annotated[str, typer.Option(help="TCP ports that speak Jmux.")] = "",
    master: Annotated[
        str,
        typer.Option(
            help="Where Spark runs, for recordings and for captures above 256 MiB: local[*], or a cluster's address."
        ),
    ] = "local[*]",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Analyse captures and recordings: what was lost, where and why, and what held streams back.

    Writes every table as Parquet to OUT/tables, and OUT/report.html, which needs nothing else.

    Example: mainstem analyze capture.pcap --out report
    """
    try:
        from mainstem.analysis.options import AnalyzeOptions
        from mainstem.analysis.program import analyze_here, needs_spark, ports_of
        from mainstem.cli._progress import ProgressBars
    except ImportError as error:
        raise MissingExtraError(str(error.name), "cli,report") from None

    options = AnalyzeOptions(
        inputs=tuple(inputs), out=out, ports=ports_of(aeron=aeron_ports, bymux=bymux_ports, jmux=jmux_ports)
    )
    inputs_by_kind = options.split()
    require_captures(inputs_by_kind.captures)
    for directory in inputs_by_kind.recordings:
        from mainstem.recording import read_catalog

        read_catalog(Path(directory))
    require_folder(out, "--out")
    try:
        with ProgressBars() as bars:
            if needs_spark(inputs_by_kind, options.ports):
                analysis = _with_spark(options, master, bars)
            else:
                analysis = analyze_here(options, bars)
    except KeyboardInterrupt:
        raise typer.Exit(EXIT_INTERRUPTED) from None
    if as_json:
        import json

        print(json.dumps(analysis.as_json()))
    else:
        _show(analysis)


def _with_spark(options: AnalyzeOptions, master: str, bars: ProgressBars) -> Analysis:
    from mainstem.spark.report.program import analyze
    from mainstem.spark.session import create, stop

    bars.stage("start Spark", None)
    spark = create("mainstem analyze", master=master, log_file=options.out / "spark.log")
    bars.done("start Spark")
    try:
        return analyze(spark, options, bars)
    finally:
        # What is left is short; a second Ctrl-C would only cut it in two.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        stop(spark)


def _show(analysis: Analysis) -> None:
    from mainstem.analysis.verdict import is_bad

    out = console()
    for sentence in analysis.verdict:
        out.print(f"• {sentence}", style="bold red" if is_bad(analysis.summary) else None)
        if analysis.verdict[0] is sentence:
            out.print()
    out.print(f"\nReport: {analysis.report}", soft_wrap=True)

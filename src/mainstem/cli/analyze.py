"""Analyze captures and recordings: what was lost, where and why, and what held streams back."""

from __future__ import annotations

import signal
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mainstem.cli import EXIT_INTERRUPTED
from mainstem.cli._options import JsonOption, MasterOption, OutDirectoryOption, argument, option, require_directory
from mainstem.cli._output import ProgressBars, console, print_json
from mainstem.errors import CaptureError, MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mainstem.analysis.options import AnalyzeOptions
    from mainstem.analysis.program import Analysis


def run(
    inputs: Annotated[
        list[str], argument("Captures, directories of them, patterns, or directories of recordings.", "INPUT")
    ],
    out: OutDirectoryOption = Path("out/analyze"),
    aeron_ports: Annotated[
        str, option("--aeron-ports", "PORTS", "UDP ports that speak Aeron: auto, none, or 20121,20122.")
    ] = "auto",
    bymux_ports: Annotated[str, option("--bymux-ports", "PORTS", "TCP ports that speak bymux, as in 4000,4001.")] = "",
    jmux_ports: Annotated[str, option("--jmux-ports", "PORTS", "TCP ports that speak Jmux, as in 4000,4001.")] = "",
    master: MasterOption = "local[*]",
    as_json: JsonOption = False,
) -> None:
    """Analyze captures and recordings: what was lost, where and why, and what held streams back.

    Writes every table as Parquet to OUT/tables, and OUT/report.html, which needs nothing else. Recordings, and captures above
    256 MiB, are analyzed with Spark. INPUT - is standard input; it and pipes are copied to a temporary file.

    Example: mainstem analyze capture.pcap --out report
    """
    is_first = "pyarrow" not in sys.modules
    try:
        from mainstem.analysis.options import AnalyzeOptions
        from mainstem.analysis.program import analyze_here, needs_spark, ports_of
        from mainstem.capture.files import spooled
    except ModuleNotFoundError as error:
        raise MissingExtraError(str(error.name), "tables") from None

    with ExitStack() as stack:
        paths = tuple(stack.enter_context(spooled(path)) for path in inputs)
        ports = ports_of(aeron=aeron_ports, bymux=bymux_ports, jmux=jmux_ports)
        options = AnalyzeOptions(inputs=paths, out=out, ports=ports, shown=tuple(inputs))
        inputs_by_kind = options.split()
        _require_captures(inputs_by_kind.captures)
        for directory in inputs_by_kind.recordings:
            from mainstem.recording import read_catalog

            read_catalog(Path(directory))
        require_directory(out, "--out")
        try:
            with ProgressBars() as bars:
                if needs_spark(inputs_by_kind, options.ports):
                    analysis = _with_spark(options, master, bars)
                else:
                    if is_first:
                        _leave_out_pandas()
                    analysis = analyze_here(options, bars)
        except KeyboardInterrupt:
            raise typer.Exit(EXIT_INTERRUPTED) from None
    print_json(analysis.as_json()) if as_json else _show(analysis)


class _NoPandas:
    """An import finder that hides pandas even if it is installed."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:  # noqa: ARG002 - as Python calls it
        if name == "pandas":
            raise ModuleNotFoundError(name=name)


def _leave_out_pandas() -> None:
    """Keep pyarrow from importing pandas for its first array from a list, which takes 0.2 s and is not needed here."""
    import pyarrow as pa

    finder: Any = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        pa.array([None])
    finally:
        sys.meta_path.remove(finder)


def _with_spark(options: AnalyzeOptions, master: str, bars: ProgressBars) -> Analysis:
    from mainstem.spark.report import analyze
    from mainstem.spark.session import create_session, stop

    bars.stage("start Spark", None)
    spark = create_session("mainstem analyze", master=master, log_file=options.out / "spark.log")
    bars.done("start Spark")
    try:
        return analyze(spark, options, bars)
    finally:
        # The remaining work is short. A second Ctrl-C would only interrupt it halfway.
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


def _require_captures(paths: Iterable[str]) -> None:
    """Raise CaptureError if a path has no readable capture."""
    from mainstem.capture.files import captures
    from mainstem.capture.formats import HEAD_LENGTH, recognize
    from mainstem.capture.unpacking import head_of

    for path in paths:
        problems = []
        for name in captures(path):
            try:
                recognize(head_of(name, HEAD_LENGTH)[1])
                break
            except (CaptureError, OSError) as error:
                problems.append(f"{name}: {getattr(error, 'strerror', None) or error}")
        else:
            raise CaptureError(problems[0])

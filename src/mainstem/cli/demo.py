"""Publish real flights over a lossy network, record, analyze with Spark, and check every row."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mainstem._internal.platforms import require_linux
from mainstem.cli import EXIT_ERROR, EXIT_INTERRUPTED
from mainstem.cli._options import CountOption, JsonOption, LossOption, OutDirectoryOption, option, require_directory
from mainstem.cli._output import Column, ProgressBars, Table, console, print_json, print_table
from mainstem.demo.options import DemoOptions
from mainstem.errors import MissingExtraError

if TYPE_CHECKING:
    from mainstem.demo.result import Result


OPTIONS: dict[str, Any] = {
    "loss": LossOption,
    "count": CountOption,
    "data": option("--data", "FILE", "A table of your own: .parquet, .csv or .jsonl."),
    "out": OutDirectoryOption,
}


def run(options: Annotated[DemoOptions, OPTIONS], as_json: JsonOption = False) -> None:
    """Publish real flights over a lossy network, record, analyze with Spark, and check every row.

    Exits 0 only if nothing was lost, duplicated or out of order and every row and figure equals the source.

    Example: mainstem demo --out demo
    """
    try:
        from mainstem.demo.run import run as run_demo
    except ModuleNotFoundError as error:
        raise MissingExtraError(str(error.name), "all") from None
    require_linux("the demo")  # check this before Spark starts
    require_directory(options.out, "--out")
    try:
        with ProgressBars() as bars:
            try:
                result = run_demo(options, bars)
            finally:
                # The remaining work is short. A second Ctrl-C would only interrupt it halfway.
                signal.signal(signal.SIGINT, signal.SIG_IGN)
    except KeyboardInterrupt:
        raise typer.Exit(EXIT_INTERRUPTED) from None
    print_json(result.as_json()) if as_json else _show(result)
    if not result.is_success:
        sys.exit(EXIT_ERROR)


def _show(result: Result) -> None:
    from mainstem.demo.report import busiest, verdict

    out = console()
    out.print("The run", style="bold")
    stages = [(name, f"{seconds:.2f} s") for name, seconds in result.stages.items()]
    print_table(out, Table((Column(""), Column("", "right")), [*result.counts(), *stages]))
    headings, rows = busiest(result.figures)
    out.print("\nThe busiest carrier-months" if "carrier" in headings else "\nThe columns", style="bold")
    print_table(out, Table([Column(headings[0]), *(Column(heading, "right") for heading in headings[1:])], rows))
    out.print(f"\n{verdict(result)}", style="bold green" if result.is_success else "bold red")
    out.print(f"Report: {result.report}", soft_wrap=True)
    out.print(f"Recording: {result.recording}", soft_wrap=True)

"""Publish real flights over a lossy network, record, analyse with Spark, and check every row."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mainstem.cli import EXIT_ERROR, EXIT_INTERRUPTED
from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    from rich.console import Console

    from mainstem.demo.result import Result


def run(
    loss: Annotated[float, typer.Option(help="The share of datagrams to drop, of data and of control alike.")] = 0.02,
    messages: Annotated[int | None, typer.Option(help="Only so many rows of the table.")] = None,
    file: Annotated[Path | None, typer.Option(help="A table of your own: .parquet, .csv or .jsonl.")] = None,
    out: Annotated[Path, typer.Option(help="Where the report, the table and the recording go.")] = Path("out/demo"),
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Publish real flights over a lossy network, record, analyse with Spark, and check every row.

    Exits 0 only if nothing was lost, doubled or out of order and every row and figure equals the source.
    """
    try:
        from mainstem.cli._progress import ProgressBars
        from mainstem.demo.run import DemoOptions
        from mainstem.demo.run import run as run_demo
    except ImportError as error:
        raise ConfigurationError(f"the demo needs {error.name}: pip install 'mainstem[demo]'") from None
    options = DemoOptions(out=out, loss=loss, messages=messages, file=file)
    try:
        with ProgressBars() as bars:
            try:
                result = run_demo(options, bars)
            finally:
                # What is left is short; a second Ctrl-C would only cut it in two.
                signal.signal(signal.SIGINT, signal.SIG_IGN)
    except KeyboardInterrupt:
        raise typer.Exit(EXIT_INTERRUPTED) from None
    if as_json:
        print(json.dumps(result.as_json()))
    else:
        _show(result)
    if not result.is_success:
        sys.exit(EXIT_ERROR)


def _show(result: Result) -> None:
    from rich.console import Console
    from rich.table import Table

    from mainstem.demo.report import busiest, verdict

    console = Console()
    facts = Table(title="The run", show_header=False)
    facts.add_column()
    facts.add_column(justify="right")
    for row in result.facts():
        facts.add_row(*row)
    facts.add_section()
    for name, seconds in result.stages.items():
        facts.add_row(name, f"{seconds:.2f} s")
    console.print(facts)
    head, rows = busiest(result.figures)
    figures = Table(*head, title="The busiest carrier-months" if "carrier" in head else "The columns")
    for cells in rows:
        figures.add_row(*cells)
    console.print(figures)
    _sentence(console, verdict(result), good=result.is_success)
    console.print(f"Report: {result.report}")


def _sentence(console: Console, text: str, *, good: bool) -> None:
    console.print(text, style="bold green" if good else "bold red")

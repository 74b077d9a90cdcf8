"""Show a driver's distinct errors."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from mainstem._internal.clock import NS_PER_MS, SYSTEM_CLOCK
from mainstem.aeron.tools.reading import read_error_file
from mainstem.cli._drivers import open_directory
from mainstem.cli._options import CsvOption, DirectoryOption, JsonOption, SinceOption, time_ns
from mainstem.cli._output import console, moment, print_csv, print_json

if TYPE_CHECKING:
    from mainstem.aeron.error_log import ErrorObservation

COLUMNS = ("observation_count", "first_observation_ms", "last_observation_ms", "text")


def run(
    directory: DirectoryOption = "",
    log_file: Annotated[
        str,
        typer.Option("--log-file", metavar="FILE", help="Read this file, which has an error log, instead of --dir."),
    ] = "",
    offset: Annotated[
        int,
        typer.Option(
            "--offset", metavar="N", min=0, max=(1 << 63) - 1, help="Where in that file the error log begins."
        ),
    ] = 0,
    since: SinceOption = "",
    as_csv: CsvOption = False,
    as_json: JsonOption = False,
) -> None:
    """Show a driver's distinct errors, each once: how often, since when, and when last.

    Example: mainstem errors --since 1h
    """
    since_ms = time_ns(since, name="--since", now_ns=SYSTEM_CLOCK.epoch_ns()) // NS_PER_MS if since else 0
    if log_file:
        errors = [e for e in read_error_file(log_file, offset=offset) if e.last_observation_ms >= since_ms]
    else:
        with open_directory(directory) as reader:
            errors = reader.errors(since_ms=since_ms)
    if as_json:
        print_json([asdict(e) for e in errors])
    elif as_csv:
        print_csv([asdict(e) for e in errors], COLUMNS)
    else:
        _show(errors)


def _show(errors: list[ErrorObservation]) -> None:
    out = console()
    for error in errors:
        times = f"{error.observation_count:,} observations" if error.observation_count != 1 else "1 observation"
        first, last = moment(error.first_observation_ms), moment(error.last_observation_ms)
        when = f"from {first} to {last}" if first != last else f"at {first}"
        out.print(Text(f"{times} {when}", style="bold"))
        out.print(Text(error.text.rstrip()))
        out.print()
    out.print(f"{len(errors)} distinct error{'' if len(errors) == 1 else 's'}")

"""Show a driver's distinct errors."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from mainstem.aeron.tools.reading import read_error_file
from mainstem.cli._directory import DirectoryOption, JsonOption, moment, open_directory, print_csv, print_json
from mainstem.cli._numbers import finite
from mainstem.cli._table import console
from mainstem.clock import SYSTEM_CLOCK

if TYPE_CHECKING:
    from mainstem.aeron.error_log import ErrorObservation

COLUMNS = ("observation_count", "first_observation_ms", "last_observation_ms", "text")


def run(
    directory: DirectoryOption = "",
    file: Annotated[
        str, typer.Option("--file", "-f", help="Read this file instead, which has an error log in it.")
    ] = "",
    offset: Annotated[
        int, typer.Option("--offset", "-o", min=0, max=(1 << 63) - 1, help="Where in that file the log begins.")
    ] = 0,
    last: Annotated[
        float, typer.Option("--last", callback=finite, help="Only errors of the last so many seconds; 0: all.")
    ] = 0.0,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show a driver's distinct errors, each once: how often, since when, and when last.

    Example: mainstem errors --last 3600
    """
    since_ms = SYSTEM_CLOCK.epoch_ms() - round(last * 1000) if last > 0 else 0
    if file:
        errors = [e for e in read_error_file(file, offset=offset) if e.last_observation_ms >= since_ms]
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

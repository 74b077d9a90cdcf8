"""Show a driver's distinct errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from rich.text import Text

from mainstem._internal.clock import NS_PER_MS, SYSTEM_CLOCK
from mainstem._internal.units import parse_moment_ns
from mainstem.aeron.tools.reading import read_error_file
from mainstem.cli._drivers import open_directory
from mainstem.cli._options import CsvOption, DirectoryOption, JsonOption, SinceOption, integer, option
from mainstem.cli._output import Column, console, moment, print_rows

if TYPE_CHECKING:
    from mainstem.aeron.error_log import ErrorObservation

COLUMNS = (Column("observation_count"), Column("first_observation_ms"), Column("last_observation_ms"), Column("text"))


def run(
    directory: DirectoryOption = "",
    log_file: Annotated[
        str, option("--log-file", "FILE", "Read this file, which has an error log, instead of --dir.")
    ] = "",
    offset: Annotated[int, integer("--offset", "Where in that file the error log begins.", max=(1 << 63) - 1)] = 0,
    since: SinceOption = "",
    as_csv: CsvOption = False,
    as_json: JsonOption = False,
) -> None:
    """Show a driver's distinct errors, each once: how often, since when, and when last.

    Example: mainstem errors --since 1h
    """
    since_ms = parse_moment_ns(since, name="--since", now_ns=SYSTEM_CLOCK.epoch_ns()) // NS_PER_MS if since else 0
    if log_file:
        errors = [e for e in read_error_file(log_file, offset=offset) if e.last_observation_ms >= since_ms]
    else:
        with open_directory(directory) as reader:
            errors = reader.errors(since_ms=since_ms)
    if not print_rows(errors, COLUMNS, as_json=as_json, as_csv=as_csv):
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

"""A live view of drivers, clients and streams, in the whole terminal."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from mainstem.aeron.directory import default_directory
from mainstem.cli._directory import IntervalOption, running_drivers
from mainstem.errors import ConfigurationError, needs_extras


def run(
    directory: Annotated[
        list[str] | None,
        typer.Option("--dir", "-d", help="A driver's directory (default: AERON_DIR, or this user's own); repeatable."),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", "-a", help="Every driver of this user that runs.")] = False,
    interval: IntervalOption = 1.0,
    text: Annotated[
        str, typer.Option("--filter", "-f", help="Begin with the streams that have this text in a column.")
    ] = "",
) -> None:
    """A live view of drivers, clients and streams, in the whole terminal.

    Streams with their lag as a bar, rates, NAKs and losses with their last minutes; clients by name; errors. Enter opens a
    stream: where its bytes wait, and what holds it back. It only reads, any driver's directory, and `?` lists the keys.

    Example: mainstem top

    Example: mainstem top --all --filter localhost:20121
    """
    with needs_extras():
        from mainstem.cli._top_app import TopApp
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise ConfigurationError("top needs a terminal; in a pipe there is mainstem streams --watch --json")
    places = (running_drivers() if everything else []) + [place or default_directory() for place in directory or ()]
    TopApp(list(dict.fromkeys(places)) or [default_directory()], interval=interval, text=text).run()

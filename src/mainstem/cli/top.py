"""Show drivers, clients and streams live, in the whole terminal."""

from __future__ import annotations

import sys
from typing import Annotated

from mainstem.cli._drivers import chosen_directories
from mainstem.cli._options import AllDriversOption, DirectoriesOption, IntervalOption, option
from mainstem.errors import ConfigurationError, needs_extras


def run(
    directory: DirectoriesOption = None,
    all_drivers: AllDriversOption = False,
    interval: IntervalOption = 1.0,
    text: Annotated[
        str, option("--filter", "TEXT", "Start with only the streams that have this text in a column.")
    ] = "",
) -> None:
    """Show drivers, clients and streams live, in the whole terminal.

    Streams with their lag as a bar, rates, NAKs and losses with their last minutes; clients by name; errors. Enter opens a
    stream: where its bytes wait, and what stalls it. It reads any driver's directory, and changes nothing; `?` lists the keys.

    Example: mainstem top

    Example: mainstem top --all-drivers --filter localhost:20121
    """
    with needs_extras():
        from mainstem.cli._top_app import TopApp
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise ConfigurationError("top needs a terminal; in a pipe use `mainstem streams --watch --json`")
    TopApp(chosen_directories(directory, all_drivers=all_drivers), interval=interval, text=text).run()

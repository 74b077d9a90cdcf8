"""Run a media driver until Ctrl-C or SIGTERM."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import Annotated

import typer

from mainstem.aeron.driver.settings import ThreadingMode  # noqa: TC001 - typer reads the annotations
from mainstem.cli import _driver
from mainstem.cli._settings import SetOption  # noqa: TC001 - typer reads the annotations


def run(
    directory: Annotated[
        Path | None, typer.Option("--dir", "-d", help="The driver's directory (AERON_DIR, /dev/shm/aeron-USER).")
    ] = None,
    mode: Annotated[
        ThreadingMode | None, typer.Option("--mode", "-m", help="Which agents share a thread.", case_sensitive=False)
    ] = None,
    loss: Annotated[float, typer.Option(help="Share of datagrams to lose, both ways, for tests.")] = 0.0,
    seed: Annotated[int, typer.Option(help="Seed of the loss.")] = _driver.DEFAULT_SEED,
    config: Annotated[Path | None, typer.Option(help="A TOML file with a table of settings named driver.")] = None,
    set_: SetOption = None,
    print_config: Annotated[bool, typer.Option("--print-config", help="Print every setting at start.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log events to standard error.")] = False,
) -> None:
    """Run a media driver until Ctrl-C or SIGTERM.

    Settings come from the defaults, the TOML file, the environment (AERON_...), then these options.

    Example: mainstem driver --mode SHARED --set term_buffer_length=1m --print-config
    """
    _driver.run(directory, mode, loss, seed, config, set_, print_config, verbose)

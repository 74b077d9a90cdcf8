"""Check this machine: shared memory, socket buffers, multicast, processors, clock, Java, extras, and what to type."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer
from rich.text import Text

from mainstem.aeron.directory import default_directory
from mainstem.aeron.driver.settings import DriverSettings
from mainstem.cli._checks import Check, State, all_checks
from mainstem.cli._directory import DirectoryOption, JsonOption, print_json, running_drivers
from mainstem.cli._table import console

STYLES = {State.OK: "green", State.NOTE: "cyan", State.WARN: "yellow bold", State.FAIL: "red bold"}
WIDTH = 18  # of the names


def run(
    directory: DirectoryOption = "",
    problems: Annotated[bool, typer.Option("--problems", "-p", help="Show only what is not ok.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Check this machine: shared memory, socket buffers, multicast, processors, clock, Java, extras, and what to type.

    Nothing is changed and nothing is sent. The exit code is 1 where something will not work at all; a warning will be felt,
    and a note may not matter to you.

    Example: mainstem doctor

    Example: mainstem doctor --problems --json
    """
    checks = [_driver(directory or default_directory()), *all_checks(DriverSettings.load())]
    shown = [check for check in checks if not problems or check.state is not State.OK]
    if as_json:
        print_json([asdict(check) for check in shown])
    else:
        _show(shown)
    if any(check.state is State.FAIL for check in checks):
        raise typer.Exit(1)


def _driver(place: str) -> Check:
    running = running_drivers()
    if place in running:
        return Check("media driver", State.OK, f"runs in {place}")
    others = f"; others: {', '.join(running)}" if running else ""
    return Check("media driver", State.NOTE, f"none in {place}{others}", f"mainstem driver --dir {place}")


def _show(checks: list[Check]) -> None:
    out = console()
    for check in checks:
        state = (f"{check.state:5}", STYLES[check.state])
        out.print(Text.assemble(state, (f"{check.name:{WIDTH}}", "bold"), " ", check.figure), soft_wrap=True)
        if check.remedy:
            out.print(Text(f"     {'':{WIDTH}} {check.remedy}", style="italic"), soft_wrap=True)
    if not checks:
        out.print("all is well")

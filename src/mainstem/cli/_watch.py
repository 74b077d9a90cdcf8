"""Showing something again and again: in place in a terminal, one after the other in a pipe."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from mainstem.cli._stream import stopping
from mainstem.cli._table import console
from mainstem.clock import NS_PER_SECOND, SYSTEM_CLOCK

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

WatchOption = Annotated[
    bool,
    typer.Option("--watch", "-w", help="Go on until Ctrl-C, in place in a terminal; with --json one document a line."),
]
STEP_S = 0.05  # between two checks for a signal
HOME, REST_OF_LINE, REST_OF_SCREEN = "\x1b[H", "\x1b[K", "\x1b[J"


def show_again(show: Callable[[Console], None], *, watch: bool, interval: float, as_json: bool) -> None:
    """Calls ``show`` once, or with ``watch`` every ``interval`` seconds until a signal."""
    out = console()
    if not watch:
        show(out)
        return
    in_place = sys.stdout.isatty() and not as_json
    with stopping() as stop:
        if in_place:
            sys.stdout.write(HOME + REST_OF_SCREEN)
        while not stop.asked:
            due_ns = SYSTEM_CLOCK.monotonic_ns() + round(interval * NS_PER_SECOND)
            if in_place:
                _show_in_place(show, out)
            else:
                show(out)
            sys.stdout.flush()
            while not stop.asked and (left_ns := due_ns - SYSTEM_CLOCK.monotonic_ns()) > 0:
                time.sleep(min(STEP_S, left_ns / NS_PER_SECOND))


def _show_in_place(show: Callable[[Console], None], out: Console) -> None:
    with out.capture() as capture:
        show(out)
    lines = capture.get().splitlines()
    room = max(out.height - 1, 1)
    if len(lines) > room:
        lines = [*lines[: room - 1], f"… {len(lines) - room + 1} more lines"]
    # One write: the screen never shows half of a sample.
    sys.stdout.write(HOME + "".join(f"{line}{REST_OF_LINE}\n" for line in lines) + REST_OF_SCREEN)

"""Print a driver's counters for Prometheus, or serve them to it."""

from __future__ import annotations

import sys
import threading
from typing import Annotated

import typer

from mainstem.aeron.directory import default_directory
from mainstem.aeron.tools.reading import DirectoryReader
from mainstem.cli._directory import DirectoryOption  # noqa: TC001 - typer reads the annotations
from mainstem.cli._logs import say
from mainstem.clock import SYSTEM_CLOCK
from mainstem.metrics.page_server import PageServer
from mainstem.metrics.prometheus import render


def run(
    directory: DirectoryOption = "",
    listen: Annotated[
        str, typer.Option("--listen", "-l", help="Serve at HOST:PORT, path /metrics, until Ctrl-C.")
    ] = "",
) -> None:
    """Print a driver's counters for Prometheus, or serve them to it.

    Reads the directory of any driver, Mainstem's or the reference's, from outside; it needs read permission only.

    Example: mainstem metrics --listen 127.0.0.1:9100
    """
    place = directory or default_directory()

    def page() -> str:
        # Opened anew for each scrape: the driver may have restarted meanwhile.
        with DirectoryReader(place) as reader:
            return render(reader.snapshot(epoch_ms=SYSTEM_CLOCK.epoch_ms(), now_ns=SYSTEM_CLOCK.monotonic_ns()))

    if not listen:
        sys.stdout.write(page())
        return
    with PageServer(listen, page, name="--listen") as server:
        say(f"serving {server.url}")
        threading.Event().wait()

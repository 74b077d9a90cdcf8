"""Print a driver's counters for Prometheus, or serve them to it."""

from __future__ import annotations

import sys
import threading

from mainstem.aeron.directory import default_directory
from mainstem.aeron.tools.reading import DirectoryReader
from mainstem.cli._drivers import open_directory, take_snapshot
from mainstem.cli._options import DirectoryOption, InsecureOption, ListenOption
from mainstem.cli._process import say
from mainstem.metrics.families import render
from mainstem.metrics.page_server import PageServer


def run(directory: DirectoryOption = "", listen: ListenOption = "", insecure: InsecureOption = False) -> None:
    """Print a driver's counters for Prometheus, or serve them to it.

    With --listen it serves them, path /metrics, until Ctrl-C. It reads the directory of any driver, Mainstem's or the reference's,
    from outside, and needs read permission only. The page has no password, so beyond loopback it needs --insecure.

    Example: mainstem metrics --listen 127.0.0.1:9100
    """
    if not listen:
        with open_directory(directory) as reader:
            sys.stdout.write(render(take_snapshot(reader)))
        return

    def page() -> str:
        # Open the directory for each scrape, because the driver may have restarted.
        with DirectoryReader(directory or default_directory()) as reader:
            return render(take_snapshot(reader))

    with PageServer(listen, page, name="--listen", insecure=insecure) as server:
        say(f"serving {server.url}")
        threading.Event().wait()

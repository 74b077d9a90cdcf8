"""Print a driver's counters for Prometheus, or serve them to it."""

from __future__ import annotations

import sys
import threading

from mainstem._internal.clock import SYSTEM_CLOCK
from mainstem.aeron.directory import default_directory
from mainstem.aeron.tools.reading import DirectoryReader
from mainstem.cli._options import DirectoryOption, ListenOption
from mainstem.cli._process import say
from mainstem.metrics.page_server import PageServer
from mainstem.metrics.prometheus import render


def run(directory: DirectoryOption = "", listen: ListenOption = "") -> None:
    """Print a driver's counters for Prometheus, or serve them to it.

    With --listen it serves them, path /metrics, until Ctrl-C. It reads the directory of any driver, Mainstem's or the reference's,
    from outside, and needs read permission only.

    Example: mainstem metrics --listen 127.0.0.1:9100
    """
    directory = directory or default_directory()

    def page() -> str:
        # Open the directory for each scrape, because the driver may have restarted.
        with DirectoryReader(directory) as reader:
            return render(reader.snapshot(epoch_ms=SYSTEM_CLOCK.epoch_ms(), now_ns=SYSTEM_CLOCK.monotonic_ns()))

    if not listen:
        sys.stdout.write(page())
        return
    with PageServer(listen, page, name="--listen") as server:
        say(f"serving {server.url}")
        threading.Event().wait()

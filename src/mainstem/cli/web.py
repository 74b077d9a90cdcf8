"""Show drivers, clients and streams live on a page in the browser, read-only."""

from __future__ import annotations

import asyncio

from mainstem.aeron.channel_values import listen_address
from mainstem.cli._drivers import chosen_directories
from mainstem.cli._options import AllDriversOption, DirectoriesOption, InsecureOption, IntervalOption, ListenOption
from mainstem.cli._process import say, stop_event
from mainstem.serve.live_server import LiveServer


def run(
    directory: DirectoriesOption = None,
    all_drivers: AllDriversOption = False,
    listen: ListenOption = "127.0.0.1:8490",
    interval: IntervalOption = 1.0,
    insecure: InsecureOption = False,
) -> None:
    """Show drivers, clients and streams live on a page in the browser, read-only.

    It shows what `mainstem top` does, with plots. Nothing is loaded from elsewhere, nothing can be changed, and the page has no
    password. On another machine: ssh -L 8490:localhost:8490 HOST.

    Example: mainstem web

    Example: mainstem web --all-drivers --listen 127.0.0.1:9000
    """
    host, port = listen_address(listen, "--listen")
    asyncio.run(_serve(chosen_directories(directory, all_drivers=all_drivers), host, port, interval, insecure))


async def _serve(directories: list[str], host: str, port: int, interval: float, insecure: bool) -> None:
    stop = stop_event()
    async with LiveServer(directories, host, port, interval=interval, insecure=insecure) as server:
        say(f"{', '.join(directories)} at {server.url}")
        await stop.wait()

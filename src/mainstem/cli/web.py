"""Show drivers, clients and streams live on a page in the browser, read-only."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from mainstem.aeron.channel_values import parse_address
from mainstem.aeron.directory import default_directory
from mainstem.cli._directory import IntervalOption, running_drivers
from mainstem.cli._logs import say
from mainstem.cli._signals import asked_to_end
from mainstem.errors import ConfigurationError
from mainstem.serve.live import LiveServer


def run(
    directory: Annotated[
        list[str] | None,
        typer.Option("--dir", "-d", help="A driver's directory (default: AERON_DIR, or this user's own); repeatable."),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", "-a", help="Every driver of this user that runs.")] = False,
    listen: Annotated[
        str, typer.Option("--listen", "-l", help="Serve at HOST:PORT; port 0 for any.")
    ] = "127.0.0.1:8490",
    interval: IntervalOption = 1.0,
    insecure: Annotated[
        bool,
        typer.Option("--insecure", help="Listen beyond loopback, and for any host name: the page has no password."),
    ] = False,
) -> None:
    """Show drivers, clients and streams live on a page in the browser, read-only.

    What mainstem top shows, with plots. Nothing is loaded from elsewhere and nothing can be changed. On another machine:
    ssh -L 8490:localhost:8490 HOST.

    Example: mainstem web

    Example: mainstem web --all --listen 127.0.0.1:9000
    """
    try:
        host, port = parse_address(listen if not listen.startswith(":") else f"127.0.0.1{listen}")
    except ValueError as error:
        raise ConfigurationError(f"--listen: {listen!r}: {error}") from None
    places = (running_drivers() if everything else []) + [place or default_directory() for place in directory or ()]
    asyncio.run(_serve(list(dict.fromkeys(places)) or [default_directory()], host, port, interval, insecure))


async def _serve(directories: list[str], host: str, port: int, interval: float, insecure: bool) -> None:
    asked = asked_to_end()
    async with LiveServer(directories, host, port, interval=interval, insecure=insecure) as server:
        say(f"{', '.join(directories)} at {server.url}")
        await asked.wait()

"""Serve recordings over HTTP, read-only, so that other machines read them while they grow."""

from __future__ import annotations

import asyncio
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import Annotated

import typer

from mainstem.aeron.channel_values import parse_address
from mainstem.cli._logs import say
from mainstem.cli._signals import asked_to_end
from mainstem.clock import NS_PER_SECOND
from mainstem.errors import ConfigurationError
from mainstem.serve.access import TOKEN_VARIABLE, Access, read_tokens
from mainstem.serve.limits import Limits
from mainstem.serve.server import RecordingServer, tls_context
from mainstem.units import parse_duration_ns


def run(
    directory: Annotated[Path, typer.Argument(help="The directory of the recordings; a recorder may be writing it.")],
    listen: Annotated[
        str, typer.Option("--listen", "-l", help="Serve at HOST:PORT; port 0 for any.")
    ] = "127.0.0.1:8480",
    token_file: Annotated[
        Path | None,
        typer.Option(
            help=f"Requests need a token of this file, one a line (default: of {TOKEN_VARIABLE}, if it is set)."
        ),
    ] = None,
    tls_cert: Annotated[Path | None, typer.Option(help="The server's certificate (PEM).")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Its key (PEM).")] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Listen beyond loopback without TLS or without a token.")
    ] = False,
    connections: Annotated[int, typer.Option(min=1, help="The most connections.")] = Limits.connections,
    connections_per_address: Annotated[
        int, typer.Option(min=1, help="The most connections of one address; behind a proxy they all have its.")
    ] = Limits.connections_per_address,
    idle: Annotated[str, typer.Option(help="Close a connection without a request after this time.")] = "75s",
) -> None:
    """Serve recordings over HTTP, read-only, so that other machines read them while they grow.

    The URL that it prints is read by everything that reads a directory of recordings: the Spark source, ingest, the readers. Only
    the files of recordings are served, by range; nothing is written. Beyond loopback it needs --tls-cert, --tls-key and a
    token.

    Example: mainstem serve tides --listen 0.0.0.0:8480 --tls-cert cert.pem --tls-key key.pem --token-file token
    """
    try:
        host, port = parse_address(listen if not listen.startswith(":") else f"127.0.0.1{listen}")
    except ValueError as error:
        raise ConfigurationError(f"--listen: {listen!r}: {error}") from None
    if (tls_cert is None) != (tls_key is None):
        raise ConfigurationError("--tls-cert and --tls-key belong together")
    if not directory.is_dir():
        raise ConfigurationError(f"{directory} is no directory")
    limits = Limits(
        connections=connections,
        connections_per_address=connections_per_address,
        idle_seconds=parse_duration_ns(idle, name="--idle") / NS_PER_SECOND,
    )
    access = Access(read_tokens(token_file))
    tls = tls_context(tls_cert, tls_key) if tls_cert is not None and tls_key is not None else None
    server = RecordingServer(directory, host, port, access=access, tls=tls, limits=limits, insecure=insecure)
    asyncio.run(_serve(server, directory))


async def _serve(server: RecordingServer, directory: Path) -> None:
    asked = asked_to_end()
    async with server:
        say(f"serving {directory} at {server.url}")
        await asked.wait()

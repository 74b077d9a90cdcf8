"""Serve recordings over HTTP, read-only, so that other machines read them while they grow."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

from mainstem.aeron.channel_values import listen_address
from mainstem.cli._options import (
    MAX_NUMBER,
    IdleTimeoutOption,
    InsecureOption,
    ListenOption,
    TlsCertOption,
    TlsKeyOption,
    argument,
    max_connections,
    token_file_option,
)
from mainstem.cli._process import say, stop_event
from mainstem.errors import ConfigurationError
from mainstem.serve.access import TOKEN_VARIABLE, Access, read_tokens
from mainstem.serve.limits import Limits
from mainstem.serve.recording_server import RecordingServer, tls_context


def run(
    directory: Annotated[Path, argument("A local directory of recordings; a recorder may be writing it.", "LOCATION")],
    listen: ListenOption = "127.0.0.1:8480",
    token_file: Annotated[Path | None, token_file_option(TOKEN_VARIABLE)] = None,
    tls_cert: TlsCertOption = None,
    tls_key: TlsKeyOption = None,
    insecure: InsecureOption = False,
    connections: Annotated[int, max_connections()] = Limits.connections,
    connections_per_address: Annotated[int, max_connections("address")] = Limits.connections_per_address,
    idle_timeout: IdleTimeoutOption = Limits.idle_seconds,
) -> None:
    """Serve recordings over HTTP, read-only, so that other machines read them while they grow.

    Everything that reads a directory of recordings also reads the URL that this prints: the Spark source, ingest and the
    readers. Only files of recordings are served, by range, and nothing is written. To listen beyond loopback, it needs
    --tls-cert, --tls-key and a token. The token file has one token per line; each is accepted.

    Example: mainstem serve tides --listen 0.0.0.0:8480 --tls-cert cert.pem --tls-key key.pem --token-file token
    """
    host, port = listen_address(listen, "--listen")
    if (tls_cert is None) != (tls_key is None):
        raise ConfigurationError("--tls-cert and --tls-key belong together")
    if not directory.is_dir():
        raise ConfigurationError(f"{directory} is not a directory")
    limits = Limits(
        connections=connections,
        connections_per_address=connections_per_address,
        idle_seconds=idle_timeout or MAX_NUMBER,
    )
    access = Access(read_tokens(token_file))
    tls = tls_context(tls_cert, tls_key) if tls_cert is not None and tls_key is not None else None
    server = RecordingServer(directory, host, port, access=access, tls=tls, limits=limits, insecure=insecure)
    asyncio.run(_serve(server, directory))


async def _serve(server: RecordingServer, directory: Path) -> None:
    stop = stop_event()
    async with server:
        say(f"serving {directory} at {server.url}")
        await stop.wait()

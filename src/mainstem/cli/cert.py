"""Make certificates for development: an authority for clients, a certificate and a key for a server."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mainstem.cli._options import argument, duration, flag, option
from mainstem.errors import ConfigurationError

DAY_S = 86_400


def run(
    directory: Annotated[Path, argument("Where ca.pem, cert.pem and key.pem go.")] = Path(),
    name: Annotated[
        list[str] | None, option("--name", "NAME", "A host name or address of the server.", "localhost, 127.0.0.1, ::1")
    ] = None,
    client: Annotated[
        list[str] | None, option("--client", "NAME", "The name of a client that gets a certificate.")
    ] = None,
    valid_for: Annotated[float, duration("--valid-for", "How long they are valid.", minimum=DAY_S)] = 30 * DAY_S,
    force: Annotated[bool, flag("--force", "Overwrite existing files.")] = False,
) -> None:
    """Make certificates for development: an authority for clients, a certificate and a key for a server.

    Example: mainstem cert certificates
    """
    from mainstem.aqueduct.certificates import make_certificates

    names = [
        "ca.pem",
        "cert.pem",
        "key.pem",
        *(f"{each}-{kind}.pem" for each in client or () for kind in ("cert", "key")),
    ]
    there = [path for path in names if (directory / path).exists()]
    if there and not force:
        raise ConfigurationError(f"{directory}: {', '.join(there)} already exist; --force overwrites them")
    files = make_certificates(
        directory, names=name or ("localhost", "127.0.0.1", "::1"), days=int(valid_for // DAY_S), clients=client or ()
    )
    typer.echo(f"clients trust   {files.ca}")
    typer.echo(f"the server has  {files.certificate} and {files.key}")
    for each, (certificate, key) in files.clients.items():
        typer.echo(f"{each} has  {certificate} and {key}")

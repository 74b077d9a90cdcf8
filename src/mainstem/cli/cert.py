"""Make certificates for development: an authority for clients, a certificate and a key for a server."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def run(
    directory: Annotated[Path, typer.Argument(help="Where ca.pem, cert.pem and key.pem go.")] = Path(),
    name: Annotated[
        list[str] | None, typer.Option(help="A host name or address of the server; may be repeated.")
    ] = None,
    client: Annotated[
        list[str] | None, typer.Option(help="The name of a client that gets a certificate; may be repeated.")
    ] = None,
    days: Annotated[int, typer.Option(help="How long they are valid.", min=1)] = 30,
    force: Annotated[bool, typer.Option("--force", help="Overwrite files that are there.")] = False,
) -> None:
    """Make certificates for development: an authority for clients, a certificate and a key for a server.

    Example: mainstem cert certificates
    """
    from mainstem.aqueduct.certificates import make_certificates
    from mainstem.errors import ConfigurationError

    names = [
        "ca.pem",
        "cert.pem",
        "key.pem",
        *(f"{each}-{kind}.pem" for each in client or () for kind in ("cert", "key")),
    ]
    there = [path for path in names if (directory / path).exists()]
    if there and not force:
        typer.echo(f"{directory}: {', '.join(there)} exist already; --force overwrites them", err=True)
        raise typer.Exit(1)
    try:
        files = make_certificates(
            directory, names=name or ("localhost", "127.0.0.1", "::1"), days=days, clients=client or ()
        )
    except ConfigurationError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from None
    typer.echo(f"clients trust   {files.ca}")
    typer.echo(f"the server has  {files.certificate} and {files.key}")
    for each, (certificate, key) in files.clients.items():
        typer.echo(f"{each} has  {certificate} and {key}")

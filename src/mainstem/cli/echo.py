"""Serve echoes to many clients through NAT, or be one of the clients."""

from __future__ import annotations

import logging
import secrets
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from mainstem import duologue as duologues
from mainstem.cli._files import write_secret
from mainstem.cli._options import (
    DIRECTORY_HELP,
    App,
    CountOption,
    IdleTimeoutOption,
    IntervalOption,
    TimeoutOption,
    duration,
)
from mainstem.cli._process import configure, say, stopping
from mainstem.duologue import AddressPrefixes, Duologue, Settings
from mainstem.errors import BadMessage, ClosedError, ConfigurationError

logger = logging.getLogger("mainstem.cli.echo")
app = App(__doc__)
POLL_S = 0.05  # how often a running server checks whether it is to end

DirectoryOption = Annotated[
    str, typer.Option("--dir", "-d", metavar="PATH", help=DIRECTORY_HELP, show_default="an own driver")
]
PortOption = Annotated[int, typer.Option("--port", metavar="PORT", help="The all-clients channel's port.")]
ControlOption = Annotated[
    int | None,
    typer.Option(
        "--control-port",
        metavar="PORT",
        help="The all-clients channel's control port.",
        show_default="the port after --port",
    ),
]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Do not log each step to standard error.")]
ENCRYPT_HELP = "Encrypt with this key: the server's private key file, or at a client its public key in hexadecimal."
EncryptOption = Annotated[str, typer.Option("--encrypt", metavar="KEY", help=ENCRYPT_HELP)]


def _echo(client: Duologue) -> None:
    """The guide's protocol: ``ECHO <text>`` is sent back, anything else is a bad message."""
    for message in client:
        if not message.startswith(b"ECHO "):
            raise BadMessage(f"{message[:40]!r} is not ECHO <text>")
        try:
            message.decode()
        except UnicodeDecodeError:
            raise BadMessage("the text of ECHO is not UTF-8") from None
        client.send(message)


def _log(quiet: bool) -> None:
    configure(logging.WARNING if quiet else logging.DEBUG)


@app.command()
def key(
    file: Annotated[Path, typer.Argument(help="Where the private key is written: a new file, or a pipe.")],
) -> None:
    """Make a server's key for --encrypt: the private key into a file, the public one to standard output.

    Example: mainstem echo key server.key > server.pub
    """
    from mainstem.duologue.crypto import ServerKey

    server_key = ServerKey(secrets.token_bytes(32))
    write_secret(file, server_key.private_bytes.hex() + "\n")
    typer.echo(server_key.public.hex())


@app.command()
def serve(
    address: Annotated[str, typer.Argument(help="The address to serve on.")],
    port: PortOption = 9000,
    control_port: ControlOption = None,
    base_port: Annotated[
        int | None,
        typer.Option(
            "--base-port",
            metavar="PORT",
            help="The first of two ports for each client.",
            show_default="10 above --port",
        ),
    ] = None,
    max_clients: Annotated[
        int, typer.Option("--max-clients", metavar="N", min=1, help="The most clients at a time.")
    ] = 64,
    max_clients_per_address: Annotated[
        int,
        typer.Option(
            "--max-clients-per-address",
            metavar="N",
            min=1,
            help="The most clients at a time of one IPv4 address or IPv6 prefix.",
        ),
    ] = 4,
    ipv6_prefix: Annotated[
        int, typer.Option("--ipv6-prefix", metavar="BITS", help="How many bits are the prefix of an IPv6 address.")
    ] = 64,
    join_timeout: Annotated[float, duration("--join-timeout", help="Drop a client that takes longer to join.")] = 5.0,
    idle_timeout: IdleTimeoutOption = 60.0,
    encrypt: EncryptOption = "",
    directory: DirectoryOption = "",
    quiet: QuietOption = False,
) -> None:
    """Serve echoes until Ctrl-C or SIGTERM.

    Example: mainstem echo serve 192.0.2.1 --max-clients 100
    """
    _log(quiet)
    settings = Settings(
        control_port=control_port,
        base_port=base_port,
        max_clients=max_clients,
        max_clients_per_address=max_clients_per_address,
        prefixes=AddressPrefixes(ipv6=ipv6_prefix),
        join_timeout=join_timeout,
        idle_timeout=idle_timeout or None,
    )
    server_key = None
    if encrypt:
        from mainstem.duologue.crypto import ServerKey

        server_key = ServerKey(_key_in(Path(encrypt)))
        say(f"public key {server_key.public.hex()}")
    with (
        stopping() as stop,
        duologues.serve(_echo, address, port, settings=settings, directory=directory or None, key=server_key) as server,
    ):
        say(f"serving echoes on {address}, port {port}; Ctrl-C ends it")
        while not stop.requested and server.error is None:
            time.sleep(POLL_S)
        counts = asdict(server.stats())
    say(", ".join(f"{name} {count}" for name, count in counts.items() if count))
    if server.error is not None:
        raise server.error


def _key_in(file: Path) -> bytes:
    try:
        return bytes.fromhex(file.read_text().strip())
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{file} is not a private key in hexadecimal: {error}") from error


@app.command()
def client(
    server: Annotated[str, typer.Argument(help="The server's address.")],
    port: PortOption = 9000,
    control_port: ControlOption = None,
    local: Annotated[str, typer.Option("--local", metavar="ADDRESS", help="The local address to use.")] = "",
    count: CountOption = 0,
    interval: IntervalOption = 1.0,
    timeout: TimeoutOption = 5.0,
    encrypt: EncryptOption = "",
    directory: DirectoryOption = "",
    quiet: QuietOption = False,
) -> None:
    """Send ECHO messages and check that each comes back.

    Example: mainstem echo client 192.0.2.1 --count 10
    """
    _log(quiet)
    try:
        server_key = bytes.fromhex(encrypt)
    except ValueError as error:
        raise ConfigurationError(f"--encrypt {encrypt} is not hexadecimal: {error}") from error
    done = 0
    with (
        stopping() as stop,
        duologues.connect(
            server,
            port,
            control_port=control_port,
            local_address=local,
            timeout=timeout or None,
            server_key=server_key,
            directory=directory or None,
        ) as duologue,
    ):
        while not stop.requested and (not count or done < count):
            message = f"ECHO {secrets.token_hex(8)}"
            logger.debug("[%d] send: %s", duologue.session_id, message)
            duologue.send(message)
            response = duologue.receive(timeout=timeout or None).decode(errors="replace")
            logger.debug("[%d] response: %s", duologue.session_id, response)
            if response != message:
                raise ClosedError(f"sent {message!r}, received {response!r}")
            done += 1
            until = time.monotonic() + (interval if not count or done < count else 0)
            while not stop.requested and time.monotonic() < until:
                duologue.poll()
                time.sleep(min(POLL_S, interval))
    say(f"{done} messages came back")

"""Serve echoes to many clients through NAT, or be one of the clients."""

from __future__ import annotations

import logging
import secrets
import time
from dataclasses import asdict
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import Annotated

import typer

from mainstem import duologue as duologues
from mainstem.cli._logs import configure, say
from mainstem.cli._numbers import finite
from mainstem.cli._stream import stopping
from mainstem.duologue import ClientSettings, Duologue, Prefixes, ServerSettings
from mainstem.errors import BadMessage, ClosedError, ConfigurationError

logger = logging.getLogger("mainstem.cli.echo")
app = typer.Typer(no_args_is_help=True)
POLL_S = 0.05  # how often a running server checks whether it is to end

DirectoryOption = Annotated[
    str, typer.Option("--dir", "-d", help="Use the driver in this directory instead of starting one.")
]
PortOption = Annotated[int, typer.Option("--port", help="The all-clients channel's port.")]
ControlOption = Annotated[int, typer.Option("--control-port", help="Its control port.")]
VerboseOption = Annotated[bool, typer.Option("--verbose/--quiet", "-v/-q", help="Log every step to standard error.")]


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


def _log(verbose: bool) -> None:
    configure(logging.DEBUG if verbose else logging.WARNING)


@app.command()
def key(
    file: Annotated[Path, typer.Argument(help="Where the private key is written; the file must not exist.")],
) -> None:
    """Make a server's key for --encrypt: the private key into a file, the public one to standard output.

    Example: mainstem echo key server.key > server.pub
    """
    from mainstem.duologue.crypto import ServerKey

    server_key = ServerKey(secrets.token_bytes(32))
    try:
        file.touch(mode=0o600, exist_ok=False)
        file.write_text(server_key.private_bytes.hex() + "\n")
    except OSError as error:
        raise ConfigurationError(f"the key cannot be written to {file}: {error}") from error
    typer.echo(server_key.public.hex())


@app.command()
def serve(
    address: Annotated[str, typer.Argument(help="The address to serve on.")],
    port: PortOption = 9000,
    control_port: ControlOption = 9001,
    base_port: Annotated[int, typer.Option("--base-port", help="First of two ports for each client.")] = 9010,
    clients: Annotated[int, typer.Option("--clients", "-n", min=1, help="Clients at a time.")] = 64,
    per_address: Annotated[
        int, typer.Option("--clients-per-address", "-m", min=1, help="Clients at a time of one address or prefix.")
    ] = 4,
    ipv6_prefix: Annotated[int, typer.Option("--ipv6-prefix", help="Bits that count as one IPv6 address.")] = 64,
    join_timeout: Annotated[
        float, typer.Option("--join-timeout", callback=finite, help="Seconds to join a duologue.")
    ] = 5.0,
    idle_timeout: Annotated[
        float,
        typer.Option("--idle-timeout", callback=finite, help="Seconds that a client may be silent; 0: without limit."),
    ] = 60.0,
    encrypt: Annotated[
        Path | None, typer.Option("--encrypt", help="Encrypt with the private key in this file (see the command key).")
    ] = None,
    directory: DirectoryOption = "",
    verbose: VerboseOption = True,
) -> None:
    """Serve echoes until Ctrl-C or SIGTERM.

    Example: mainstem echo serve 192.0.2.1 --clients 100
    """
    _log(verbose)
    settings = ServerSettings(
        address=address,
        initial_port=port,
        initial_control_port=control_port,
        base_port=base_port,
        max_clients=clients,
        max_per_address=per_address,
        prefixes=Prefixes(ipv6=ipv6_prefix),
        join_timeout=join_timeout,
        idle_timeout=idle_timeout or None,
    )
    server_key = None
    if encrypt is not None:
        from mainstem.duologue.crypto import ServerKey

        server_key = ServerKey(_key_in(encrypt))
        say(f"public key {server_key.public.hex()}")
    with (
        stopping() as stop,
        duologues.serve(_echo, settings=settings, directory=directory or None, key=server_key) as server,
    ):
        say(f"serving echoes on {address}, ports {port} and {control_port}, duologues from {base_port}; Ctrl-C ends it")
        while not stop.asked and not server.wait(POLL_S):
            pass
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
    control_port: ControlOption = 9001,
    local: Annotated[str, typer.Option("--local", help="The local address to use.")] = "",
    count: Annotated[int, typer.Option("--count", "-n", min=0, help="How many messages; 0: without limit.")] = 0,
    interval: Annotated[
        float, typer.Option("--interval", "-i", callback=finite, help="Seconds between two messages.")
    ] = 1.0,
    timeout: Annotated[
        float, typer.Option("--timeout", callback=finite, help="Seconds for each step, and for each response.")
    ] = 5.0,
    encrypt: Annotated[str, typer.Option("--encrypt", help="The server's public key, in hexadecimal.")] = "",
    directory: DirectoryOption = "",
    verbose: VerboseOption = True,
) -> None:
    """Send ECHO messages and check that each comes back.

    Example: mainstem echo client 192.0.2.1 --count 10
    """
    _log(verbose)
    try:
        server_key = bytes.fromhex(encrypt)
    except ValueError as error:
        raise ConfigurationError(f"--encrypt {encrypt} is not hexadecimal: {error}") from error
    settings = ClientSettings(
        server=server,
        initial_port=port,
        initial_control_port=control_port,
        local_address=local,
        timeout=timeout,
        server_key=server_key,
    )
    done = 0
    with stopping() as stop, duologues.connect(settings=settings, directory=directory or None) as duologue:
        while not stop.asked and (not count or done < count):
            message = f"ECHO {secrets.token_hex(8)}"
            logger.debug("[%d] send: %s", duologue.session_id, message)
            duologue.send(message)
            response = duologue.receive(timeout=timeout).decode(errors="replace")
            logger.debug("[%d] response: %s", duologue.session_id, response)
            if response != message:
                raise ClosedError(f"sent {message!r}, received {response!r}")
            done += 1
            until = time.monotonic() + (interval if not count or done < count else 0)
            while not stop.asked and time.monotonic() < until:
                duologue.poll()
                time.sleep(min(POLL_S, interval))
    say(f"{done} messages came back")

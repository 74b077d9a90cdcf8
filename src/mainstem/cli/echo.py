"""Serve echoes to many clients through NAT, or be one of the clients."""

from __future__ import annotations

import ipaddress
import logging
import secrets
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from mainstem import duologue as duologues
from mainstem._internal.exposure import check_host_exposure
from mainstem.cli._options import (
    DIRECTORY_HELP,
    App,
    CountOption,
    IdleTimeoutOption,
    InsecureOption,
    IntervalOption,
    TimeoutOption,
    argument,
    duration,
    flag,
    integer,
    option,
)
from mainstem.cli._output import write_secret
from mainstem.cli._process import configure, say, stopping
from mainstem.duologue import AddressPrefixes, Duologue, Settings
from mainstem.errors import BadMessage, ClosedError, ConfigurationError

logger = logging.getLogger("mainstem.cli")
app = App(__doc__)
POLL_S = 0.05  # seconds between a running server's checks whether to stop


@dataclass
class End:
    """The options of both ends."""

    port: Annotated[int, option("--port", "PORT", "The all-clients channel's port.")] = 9000
    control_port: Annotated[
        int | None, option("--control-port", "PORT", "The all-clients channel's control port.", "the port after --port")
    ] = None
    encrypt: Annotated[
        str,
        option(
            "--encrypt",
            "KEY",
            "Encrypt with this key: the server's private key file, or at a client its public key in hexadecimal.",
        ),
    ] = ""
    directory: Annotated[str, option("--dir -d", "PATH", DIRECTORY_HELP, "an own driver")] = ""
    quiet: Annotated[bool, flag("--quiet -q", "Do not log each step to standard error.")] = False

    def log(self) -> None:
        configure(logging.WARNING if self.quiet else logging.DEBUG)


def _echo(client: Duologue) -> None:
    """Serve the guide's protocol: send back ``ECHO <text>``, and treat anything else as a bad message."""
    for message in client:
        if not message.startswith(b"ECHO "):
            raise BadMessage(f"{message[:40]!r} is not ECHO <text>")
        try:
            message.decode()
        except UnicodeDecodeError:
            raise BadMessage("the text of ECHO is not UTF-8") from None
        client.send(message)


def _host(text: str) -> str:
    """Return a host or address without brackets. Raises ConfigurationError if its end may be meant as a port."""
    if text.startswith("[") and text.endswith("]"):
        return text[1:-1]
    shorter, _, port = text.rpartition(":")
    if port.isdecimal() and _is_ipv6(text) and _is_ipv6(shorter):
        raise ConfigurationError(
            f"{text} may be an address, or {shorter} and a port: write [{text}], or [{shorter}] --port {port}"
        )
    return text


def _is_ipv6(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True


@app.command()
def key(file: Annotated[Path, argument("Where the private key is written: a new file, or a pipe.")]) -> None:
    """Make a server's key for --encrypt: the private key into a file, the public one to standard output.

    Example: mainstem echo key server.key > server.pub
    """
    from mainstem.duologue.crypto import ServerKey

    server_key = ServerKey(secrets.token_bytes(32))
    write_secret(file, server_key.private_bytes.hex() + "\n")
    typer.echo(server_key.public.hex())


@app.command()
def serve(
    address: Annotated[str, argument("The address to serve on.")],
    end: End,
    base_port: Annotated[
        int | None, option("--base-port", "PORT", "The first of two ports for each client.", "10 above --port")
    ] = None,
    max_clients: Annotated[int, integer("--max-clients", "At most N clients at a time.", minimum=1)] = 64,
    max_clients_per_address: Annotated[
        int,
        integer(
            "--max-clients-per-address", "At most N clients at a time from one IPv4 address or IPv6 prefix.", minimum=1
        ),
    ] = 4,
    ipv6_prefix: Annotated[
        int, option("--ipv6-prefix", "BITS", "The number of bits in the prefix of an IPv6 address.")
    ] = 64,
    join_timeout: Annotated[float, duration("--join-timeout", "Drop a client that takes longer to join.")] = 5.0,
    idle_timeout: IdleTimeoutOption = 60.0,
    insecure: InsecureOption = False,
) -> None:
    """Serve echoes until Ctrl-C or SIGTERM. Beyond loopback it needs --encrypt or --insecure.

    Example: mainstem echo serve 192.0.2.1 --max-clients 100 --encrypt server.key
    """
    end.log()
    host = _host(address)
    check_host_exposure(host, insecure=insecure, protection={"--encrypt": bool(end.encrypt)}, name="ADDRESS")
    settings = Settings(
        control_port=end.control_port,
        base_port=base_port,
        max_clients=max_clients,
        max_clients_per_address=max_clients_per_address,
        prefixes=AddressPrefixes(ipv6=ipv6_prefix),
        join_timeout=join_timeout,
        idle_timeout=idle_timeout or None,
    )
    server_key = None
    if end.encrypt:
        from mainstem.duologue.crypto import ServerKey

        server_key = ServerKey(_key_in(Path(end.encrypt)))
        say(f"public key {server_key.public.hex()}")
    with (
        stopping() as stop,
        duologues.serve(
            _echo, host, end.port, settings=settings, directory=end.directory or None, key=server_key
        ) as server,
    ):
        say(f"serving echoes on {host}, port {end.port}; Ctrl-C ends it")
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
    server: Annotated[str, argument("The server's address.")],
    end: End,
    local: Annotated[str, option("--local", "ADDRESS", "The local address to use.")] = "",
    count: CountOption = 0,
    interval: IntervalOption = 1.0,
    timeout: TimeoutOption = 5.0,
) -> None:
    """Send ECHO messages and check that each comes back.

    Example: mainstem echo client 192.0.2.1 --count 10
    """
    end.log()
    try:
        server_key = bytes.fromhex(end.encrypt)
    except ValueError:
        raise ConfigurationError(f"--encrypt {end.encrypt} is not hexadecimal") from None
    done = 0
    with (
        stopping() as stop,
        duologues.connect(
            _host(server),
            end.port,
            control_port=end.control_port,
            local_address=_host(local),
            timeout=timeout or None,
            server_key=server_key,
            directory=end.directory or None,
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

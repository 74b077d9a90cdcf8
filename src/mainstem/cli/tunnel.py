"""Forward many TCP connections over one, with TLS and a shared token."""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from mainstem.bymux.tunnel import MAX_STREAMS, STALL_TIMEOUT_S, Address, TunnelClient, TunnelServer
from mainstem.bymux.tunnel_token import TOKEN_VARIABLE, check_token, new_token
from mainstem.cli._options import (
    App,
    InsecureOption,
    ListenOption,
    MetricsListenOption,
    TlsCertOption,
    TlsKeyOption,
    argument,
    duration,
    flag,
    max_connections,
    option,
    size,
    token_file_option,
)
from mainstem.cli._output import write_secret
from mainstem.cli._process import configure, say, stop_event
from mainstem.errors import ConfigurationError
from mainstem.metrics import Endpoints, render_families
from mainstem.metrics.page_server import PageServer

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from mainstem.metrics import Endpoint

T = TypeVar("T")

app = App(__doc__)

MIN_WINDOW = 1024


@dataclass
class End:
    """The options of both ends of a tunnel."""

    listen: ListenOption
    token_file: Annotated[Path | None, token_file_option(TOKEN_VARIABLE)] = None
    window: Annotated[
        int, size("--window", "Bytes buffered for each connection and direction.", minimum=MIN_WINDOW)
    ] = 256 << 10
    stall_timeout: Annotated[
        float,
        duration("--stall-timeout", "Reset a connection whose last bytes nobody takes for this long (0 = never)."),
    ] = STALL_TIMEOUT_S
    metrics_listen: MetricsListenOption = ""
    insecure: InsecureOption = False

    def limits(self) -> dict[str, Any]:
        """Return the arguments that both ends take. Raises ConfigurationError if the token cannot be read."""
        token = _secret(self.token_file)
        return {"token": token, "window": self.window, "stall_timeout": self.stall_timeout}


@app.command()
def serve(
    end: End,
    target: Annotated[str, option("--target", "ADDRESS", "Where connections go.")],
    tls_cert: TlsCertOption = None,
    tls_key: TlsKeyOption = None,
    max_streams: Annotated[int, max_connections()] = MAX_STREAMS,
) -> None:
    """Accept tunnels, and forward their connections to --target.

    Addresses are HOST:PORT, :PORT or unix:PATH. To listen beyond loopback, it needs --tls-cert, --tls-key and a
    token: anyone who can open a tunnel reaches --target.

    Example: mainstem tunnel serve --listen :9443 --target localhost:5432 --token-file secret --tls-cert cert.pem --tls-key key.pem
    """
    context = None
    if tls_cert:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        _load(lambda: context.load_cert_chain(tls_cert, tls_key), f"certificate {tls_cert}")
    elif tls_key:
        raise ConfigurationError("--tls-key needs --tls-cert")
    server = TunnelServer(Address.parse(target), max_streams=max_streams, **end.limits())
    where = Address.parse(end.listen)

    async def work() -> None:
        async with server:
            await server.start(where, ssl=context, insecure=end.insecure)
            stop = stop_event()
            with _exporting(end.metrics_listen, server, insecure=end.insecure):
                typer.echo(f"tunnel serves {where if where.path or where.port else f':{server.port}'} to {target}")
                await stop.wait()

    _run(work())


@app.command()
def connect(
    end: End,
    server: Annotated[str, option("--server", "ADDRESS", "Where the tunnel is served.")],
    tls: Annotated[bool, flag("--tls", "Use TLS, which is always used to another machine.")] = False,
    tls_ca: Annotated[
        str, option("--tls-ca", "FILE", "Trust this certificate (PEM), and use TLS.", "this machine's")
    ] = "",
    tls_name: Annotated[str, option("--tls-name", "NAME", "The name in the server's certificate.", "its host")] = "",
) -> None:
    """Listen here, and forward each connection through a tunnel that reconnects when it breaks.

    Addresses are HOST:PORT, :PORT or unix:PATH. Anyone who can connect to --listen can use the tunnel, without a token, so beyond
    loopback it needs --insecure. To another machine it uses TLS, unless --insecure: then others can read and change everything.

    Example: mainstem tunnel connect --listen localhost:5432 --server gateway:9443 --token-file secret
    """
    where, target = Address.parse(end.listen), Address.parse(server)
    context = None
    if tls or tls_ca or not (end.insecure or target.is_local):
        context = _load(lambda: ssl.create_default_context(cafile=tls_ca or None), f"certificate {tls_ca}")
    elif tls_name:
        raise ConfigurationError("--tls-name needs --tls or --tls-ca")
    limits = end.limits()

    async def work() -> None:
        async with TunnelClient(target, ssl=context, server_hostname=tls_name or None, **limits) as client:
            await client.start(where, insecure=end.insecure)
            stop = stop_event()  # not earlier, so that a signal ends the attempt to connect immediately
            with _exporting(end.metrics_listen, client, insecure=end.insecure):
                typer.echo(
                    f"tunnel listens on {where if where.path or where.port else f':{client.port}'}, goes to {server}"
                )
                await stop.wait()

    _run(work())


@app.command()
def token(
    file: Annotated[
        Path | None, argument("A new file, which only its owner can read, or a pipe; default: print it.")
    ] = None,
) -> None:
    """Make a random token for both ends of a tunnel.

    Example: mainstem tunnel token secret
    """
    text = new_token()
    if file is None:
        typer.echo(text)
        return
    write_secret(file, f"{text}\n")


@contextmanager
def _exporting(listen: str, endpoint: Endpoint, *, insecure: bool) -> Iterator[None]:
    """Serve the endpoint's metrics during the block, if ``--metrics-listen`` is given."""
    if not listen:
        yield
        return
    endpoints = Endpoints()
    endpoints.add("tunnel", endpoint)
    with PageServer(
        listen, lambda: render_families(endpoints.families()), name="--metrics-listen", insecure=insecure
    ) as server:
        say(f"serving {server.url}")
        yield


def _run(work: Coroutine[Any, Any, None]) -> None:
    configure(logging.INFO)
    asyncio.run(work)


def _secret(token_file: Path | None) -> bytes:
    """Return the token from the file, or else from the environment; empty only if neither is given.

    An empty token would let everybody in.
    """
    if token_file is not None:
        return check_token(_load(lambda: token_file.read_bytes().strip(), f"token file {token_file}"))
    text = os.environ.get(TOKEN_VARIABLE)
    return b"" if text is None else check_token(text.strip().encode())


def _load(read: Callable[[], T], what: str) -> T:
    try:
        return read()
    except OSError as error:
        raise ConfigurationError(f"{what} cannot be used: {error}") from error

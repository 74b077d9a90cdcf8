"""Forward many TCP connections over one, with TLS and a shared token."""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from mainstem.bymux.tunnel import MAX_STREAMS, STALL_TIMEOUT_S, Address, TunnelClient, TunnelServer
from mainstem.bymux.tunnel_token import TOKEN_VARIABLE, check_token, new_token
from mainstem.cli._logs import configure, say
from mainstem.cli._signals import asked_to_end
from mainstem.errors import ConfigurationError
from mainstem.metrics import Endpoints, MetricsServer
from mainstem.units import parse_size

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator
    from typing import Any

    from mainstem.metrics import Endpoint

T = TypeVar("T")

app = typer.Typer(no_args_is_help=True, help="Forward many TCP connections over one, with TLS and a shared token.")

ListenOption = Annotated[str, typer.Option("--listen", "-l", help="Where to listen: HOST:PORT, :PORT or unix:PATH.")]
TokenFileOption = Annotated[
    str | None,
    typer.Option(
        "--token-file", help=f"A file with the secret that both ends share (default: the variable {TOKEN_VARIABLE})."
    ),
]
MetricsOption = Annotated[str, typer.Option("--metrics", help="Serve metrics at HOST:PORT, path /metrics.")]
StallOption = Annotated[
    float,
    typer.Option(
        "--stall-timeout",
        min=0,
        help="Reset a connection whose last bytes nobody takes for SECONDS (0 = never).",
    ),
]
WindowOption = Annotated[str, typer.Option("--window", help="Bytes buffered for each connection and direction.")]


@app.command()
def serve(
    listen: ListenOption,
    to: Annotated[str, typer.Option("--to", help="Where connections go: HOST:PORT or unix:PATH.")],
    token_file: TokenFileOption = None,
    tls_cert: Annotated[str, typer.Option("--tls-cert", help="Our certificate (PEM); switches TLS on.")] = "",
    tls_key: Annotated[str, typer.Option("--tls-key", help="Its key (PEM).")] = "",
    window: WindowOption = "256k",
    max_streams: Annotated[
        int, typer.Option("--max-connections", min=1, help="Connections through one tunnel at once.")
    ] = MAX_STREAMS,
    stall_timeout: StallOption = STALL_TIMEOUT_S,
    metrics: MetricsOption = "",
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Listen beyond loopback without TLS or without a token.")
    ] = False,
) -> None:
    """Accept tunnels, and connect what comes out of them to --to.

    Beyond loopback it needs --tls-cert, --tls-key and a token: whoever can open a tunnel reaches --to.

    Example: mainstem tunnel serve --listen :9443 --to localhost:5432 --token-file secret --tls-cert cert.pem --tls-key key.pem
    """
    context = None
    if tls_cert:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        _load(lambda: context.load_cert_chain(tls_cert, tls_key or None), f"certificate {tls_cert}")
    elif tls_key:
        raise ConfigurationError("--tls-key needs --tls-cert")
    server = TunnelServer(
        Address.parse(to),
        token=_secret(token_file),
        window=_size(window),
        max_streams=max_streams,
        stall_timeout=stall_timeout,
    )
    where = Address.parse(listen)

    async def work() -> None:
        async with server:
            await server.start(where, ssl=context, insecure=insecure)
            asked = asked_to_end()
            with _exporting(metrics, server):
                typer.echo(f"tunnel serves {where if where.path or where.port else f':{server.port}'} to {to}")
                await asked.wait()

    _run(work())


@app.command()
def connect(
    listen: ListenOption,
    to: Annotated[str, typer.Option("--to", help="Where the tunnel is served: HOST:PORT or unix:PATH.")],
    token_file: TokenFileOption = None,
    tls: Annotated[
        bool, typer.Option("--tls", help="Use TLS, with the machine's own trust (default for other machines).")
    ] = False,
    tls_ca: Annotated[str, typer.Option("--tls-ca", help="Use TLS, and trust this certificate (PEM).")] = "",
    tls_name: Annotated[str, typer.Option("--tls-name", help="The name in the server's certificate.")] = "",
    window: WindowOption = "256k",
    stall_timeout: StallOption = STALL_TIMEOUT_S,
    metrics: MetricsOption = "",
    insecure: Annotated[
        bool,
        typer.Option(
            "--insecure", help="Connect to another machine without TLS: others can read and change everything."
        ),
    ] = False,
) -> None:
    """Listen here, and carry each connection through the tunnel; the tunnel is reconnected.

    Whoever can connect to --listen uses the tunnel: nothing is asked of them. To another machine it uses TLS, unless --insecure.

    Example: mainstem tunnel connect --listen localhost:5432 --to gateway:9443 --token-file secret
    """
    where, target = Address.parse(listen), Address.parse(to)
    context = None
    if tls or tls_ca or not (insecure or target.is_local):
        context = _load(lambda: ssl.create_default_context(cafile=tls_ca or None), f"certificate {tls_ca}")
    elif tls_name:
        raise ConfigurationError("--tls-name needs --tls or --tls-ca")
    secret, size = _secret(token_file), _size(window)

    async def work() -> None:
        client = TunnelClient(
            target,
            token=secret,
            ssl=context,
            server_hostname=tls_name or None,
            window=size,
            stall_timeout=stall_timeout,
        )
        async with client:
            await client.start(where, insecure=insecure)
            asked = asked_to_end()  # no earlier: a signal ends the attempt to connect at once
            with _exporting(metrics, client):
                typer.echo(
                    f"tunnel listens on {where if where.path or where.port else f':{client.port}'}, goes to {to}"
                )
                await asked.wait()

    _run(work())


@app.command()
def token(
    file: Annotated[
        Path | None, typer.Argument(help="A new file, which only its owner can read; default: print it.")
    ] = None,
) -> None:
    """Make a random token for both ends of a tunnel.

    Example: mainstem tunnel token secret
    """
    text = new_token()
    if file is None:
        typer.echo(text)
        return
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with os.fdopen(_load(lambda: os.open(file, flags, 0o600), f"token file {file}"), "w") as out:
        out.write(f"{text}\n")


@contextmanager
def _exporting(listen: str, endpoint: Endpoint) -> Iterator[None]:
    """Serves the endpoint's metrics inside the block, if ``--metrics`` says where."""
    if not listen:
        yield
        return
    endpoints = Endpoints()
    endpoints.add("tunnel", endpoint)
    try:
        server = MetricsServer(listen, endpoints.families)
    except ConfigurationError as error:
        raise ConfigurationError(f"--metrics: {error}") from None
    with server:
        say(f"serving {server.url}")
        yield


def _run(work: Coroutine[Any, Any, None]) -> None:
    configure(logging.INFO)
    asyncio.run(work)


def _secret(token_file: str | None) -> bytes:
    """The token of the file, else of the environment; empty only where neither is there: an empty one would let everybody in."""
    if token_file is not None:
        return check_token(_load(lambda: Path(token_file).read_bytes().strip(), f"token file {token_file}"))
    text = os.environ.get(TOKEN_VARIABLE)
    return b"" if text is None else check_token(text.strip().encode())


def _size(text: str) -> int:
    size = parse_size(text, name="--window")
    if size < 1024:
        raise ConfigurationError(f"--window: {text!r} is below 1k")
    return size


def _load(read: Callable[[], T], what: str) -> T:
    try:
        return read()
    except OSError as error:
        raise ConfigurationError(f"{what} cannot be used: {error}") from error

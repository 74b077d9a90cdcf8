"""`connect`: a client's connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from mainstem.aqueduct.aio import Connection, HeaderSource
from mainstem.aqueduct.codec import SERIALISATION_ERROR, Headers, as_headers
from mainstem.aqueduct.connection import AqueductConnection
from mainstem.aqueduct.dialing import Dialer
from mainstem.aqueduct.limits import DEFAULT_LIMITS, Limits
from mainstem.aqueduct.middleware import RAW, Serializer, choose, offer_headers
from mainstem.aqueduct.quic import DEFAULT_BACKEND, load_backend
from mainstem.aqueduct.quic.settings import QuicSettings
from mainstem.errors import ConfigurationError, RemoteProtocolError
from mainstem.instruments import NULL_INSTRUMENT, Instrument

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence

    from mainstem.aqueduct.quic.link import Link
    from mainstem.aqueduct.quic.tickets import Sessions
    from mainstem.aqueduct.session import Session


def parse_url(url: str) -> tuple[str, int]:
    """Host and port of ``aqueduct://host:port``. Raises ConfigurationError."""
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError:
        port = None
    if parts.scheme != "aqueduct" or not parts.hostname or port is None or parts.path not in ("", "/"):
        raise ConfigurationError(f"{url!r} is not an address of the form aqueduct://host:port")
    return parts.hostname, port


async def connect(
    url: str,
    *,
    headers: HeaderSource = None,
    serializers: Sequence[Serializer] = (RAW,),
    settings: QuicSettings | None = None,
    limits: Limits = DEFAULT_LIMITS,
    backend: str = DEFAULT_BACKEND,
    sessions: Sessions | None = None,
    early: bool = False,
    timeout: float | None = 10.0,
    instrument: Instrument = NULL_INSTRUMENT,
    **quic: Any,
) -> Connection:
    """Connect to a server; returns when the handshake is complete.

    If the host has several addresses, the next one is tried a quarter of a second after the one before, or as soon as that fails.
    The first handshake that completes wins, and the other attempts are closed.

    Args:
        url: ``aqueduct://host:port``.
        headers: Connection headers, which the server's handler can read.
        serializers: What messages may be encoded with, the preferred one first. With more than one, connecting waits for
            the server's choice.
        settings: QUIC settings; None for those in ``quic``.
        limits: The bounds of the connection.
        backend: The QUIC library, ``qh3`` or ``aioquic``.
        sessions: Where session tickets are kept.
        early: With a ticket in ``sessions``, return at once: what is sent goes out in the first flight (0-RTT), to the address at
            which the server was met before.
        timeout: Seconds to wait at most; None waits for as long as QUIC does.
        instrument: What observes frames and state changes.
        **quic: Fields of `QuicSettings` by name.

    Returns:
        The connection.

    Raises:
        Timeout: The server did not respond in time.
        ConnectionLost: The server, or TLS, refused the connection.
        RemoteProtocolError: The peer does not speak Aqueduct, or has none of the serialisers.
        ConfigurationError: A setting cannot be used.

    Example:
        >>> async with await connect("aqueduct://localhost:4433", ca="certs/ca.pem") as connection:
        ...     await connection.sender.send(b"tide")
    """
    settings = settings or QuicSettings(**quic)
    host, port = parse_url(url)
    origin = f"{host}:{port}"
    library = load_backend(backend)

    def make_engine() -> AqueductConnection:
        return AqueductConnection(
            is_client=True,
            headers=[*offer_headers(serializers), *as_headers(headers)],
            limits=limits,
            instrument=instrument,
            peer=origin,
        )

    def make_link() -> Link:
        return library.client(settings, server_name=host, sessions=sessions, origin=origin)

    def prepare(session: Session) -> None:
        session.on_headers = lambda response: _choose_serializer(session, serializers, response)

    dialer = Dialer(host, port, engine=make_engine, link=make_link, prepare=prepare, serializer=serializers[0])
    link = make_link()
    if sessions is not None and early and link.quic.configuration.session_ticket is not None:
        session = await dialer.dial_early(link, sessions.known_address(origin))
    else:
        session = await dialer.dial(link, timeout)
    if sessions is not None:
        _remember_address(session, sessions, origin)
    connection = Connection(session, is_client=True)
    try:
        session.expect_hello(settings.hello_timeout)
        if len(serializers) > 1:
            await session.wait_for(connection.headers(), timeout)
    except BaseException:
        connection.close()
        await session.wait_over(0)
        raise
    return connection


def _remember_address(session: Session, sessions: Sessions, origin: str) -> None:
    """Keep the address for the next connection with early data, which cannot try several."""

    def keep(established: asyncio.Future[None]) -> None:
        if not established.cancelled() and established.exception() is None:
            sessions.keep_address(origin, session.address[0])

    session.established.add_done_callback(keep)


def _choose_serializer(session: Session, serializers: Sequence[Serializer], response: Headers) -> None:
    chosen = choose(serializers, response)
    if chosen is None:
        names = ", ".join(serializer.header for serializer in serializers)
        session.fail(
            RemoteProtocolError(f"the server takes none of the serialisers {names}", rule="serialisation"),
            code=SERIALISATION_ERROR,
        )
    else:
        session.serializer = chosen

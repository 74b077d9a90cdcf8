"""`connect`: a client's connection, with a socket of its own."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from mainstem.aqueduct.aio import DRAIN_TIME, Connection, Endpoint, HeaderSource
from mainstem.aqueduct.codec import SERIALISATION_ERROR, Headers, as_headers
from mainstem.aqueduct.connection import AqueductConnection
from mainstem.aqueduct.limits import DEFAULT_LIMITS, Limits
from mainstem.aqueduct.middleware import RAW, Serializer, choose, offer_headers
from mainstem.aqueduct.quic import DEFAULT_BACKEND, load_backend
from mainstem.aqueduct.quic.settings import QuicSettings
from mainstem.aqueduct.quic.udp import UdpSocket
from mainstem.aqueduct.session import Session
from mainstem.errors import ConfigurationError, RemoteProtocolError
from mainstem.instruments import NULL_INSTRUMENT, Instrument

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mainstem.aqueduct.quic.link import Address, Link
    from mainstem.aqueduct.quic.tickets import Sessions


class _ClientEndpoint(Endpoint):
    session: Session

    def route(self, data: bytes, address: Address) -> Session | None:  # noqa: ARG002
        return self.session


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

    Args:
        url: ``aqueduct://host:port``.
        headers: Connection headers, which the server's handler can read.
        serializers: What messages may be encoded with, the preferred one first. With more than one, connecting waits for
            the server's choice.
        settings: QUIC settings; None for those in ``quic``.
        limits: The bounds of the connection.
        backend: The QUIC library, ``qh3`` or ``aioquic``.
        sessions: Where session tickets are kept.
        early: With a ticket in ``sessions``, return at once: what is sent goes out in the first flight (0-RTT).
        timeout: Seconds to wait at most; None waits for as long as QUIC does.
        instrument: What observes frames and state changes.
        **quic: Fields of `QuicSettings` by name.

    Returns:
        The connection.

    Raises:
        TimedOut: The server did not respond in time.
        ConnectionLost: The server, or TLS, refused the connection.
        RemoteProtocolError: The peer does not speak Aqueduct, or has none of the serialisers.
        ConfigurationError: A setting cannot be used.

    Example:
        >>> async with await connect("aqueduct://localhost:4433", ca="certs/ca.pem") as connection:
        ...     await connection.sender.send(b"tide")
    """
    settings = settings or QuicSettings(**quic)
    host, port = parse_url(url)
    conn = AqueductConnection(
        is_client=True,
        headers=[*offer_headers(serializers), *as_headers(headers)],
        limits=limits,
        instrument=instrument,
        peer=f"{host}:{port}",
    )
    link = load_backend(backend).client(settings, server_name=host, sessions=sessions, origin=f"{host}:{port}")
    resumes = link.quic.configuration.session_ticket is not None
    session = await _open_session(conn, link, host, port, serializers)
    connection = Connection(session, is_client=True)
    try:
        if not (early and resumes):
            await session.wait_established(timeout)
        session.expect_hello(settings.hello_timeout)
        if len(serializers) > 1:
            await session.wait_for(connection.headers(), timeout)
    except BaseException:
        connection.close()
        await session.wait_over(0)
        raise
    return connection


async def _open_session(
    conn: AqueductConnection, link: Link, host: str, port: int, serializers: Sequence[Serializer]
) -> Session:
    """Send the first packets, through a socket that is closed with the session."""
    loop = asyncio.get_running_loop()
    addresses = await loop.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
    family, _, _, _, address = addresses[0]
    udp = UdpSocket(host="::" if family == socket.AF_INET6 else "0.0.0.0", port=0, family=family)
    endpoint = _ClientEndpoint(udp)
    session = endpoint.session = Session(conn, link, udp, address, serializer=serializers[0])
    session.on_over = endpoint.shut
    _close_after(session, endpoint)
    session.on_headers = lambda response: _choose_serializer(session, serializers, response)
    conn.start(session.now_ns)
    link.connect(address, loop.time())
    session.flush()
    return session


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


def _close_after(session: Session, endpoint: _ClientEndpoint) -> None:
    """Close a client's socket once its connection is over, or a while after its close was sent."""
    session.ended.add_done_callback(lambda _: session.loop.call_later(DRAIN_TIME, endpoint.shut))

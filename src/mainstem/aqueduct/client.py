"""`connect`: a client's connection."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mainstem._internal.opening import Opening
from mainstem._internal.validation import check_int
from mainstem.aqueduct.asyncio_connection import Connection, HeaderSource
from mainstem.aqueduct.codec import SERIALISATION_ERROR, Headers, as_headers
from mainstem.aqueduct.connection import AqueductConnection
from mainstem.aqueduct.dialing import Dialer
from mainstem.aqueduct.middleware import RAW, Serializer, choose, offer_headers
from mainstem.aqueduct.quic import load_backend
from mainstem.aqueduct.settings import Settings
from mainstem.errors import ConfigurationError, RemoteProtocolError
from mainstem.instruments import NULL_INSTRUMENT, Instrument

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence

    from mainstem.aqueduct.quic.link import Link
    from mainstem.aqueduct.quic.tickets import Sessions
    from mainstem.aqueduct.session import Session


def connect(
    host: str,
    port: int,
    *,
    headers: HeaderSource = None,
    serializers: Sequence[Serializer] = (RAW,),
    sessions: Sessions | None = None,
    early: bool = False,
    timeout: float | None = 10.0,
    settings: Settings | None = None,
    instrument: Instrument = NULL_INSTRUMENT,
    **overrides: Any,
) -> Opening[Connection]:
    """Connect to a server, in asyncio; done when the handshake is complete.

    If the host has several addresses, the next one is tried a quarter of a second after the one before, or as soon as that fails.
    The first handshake that completes wins, and the other attempts are closed.

    Args:
        host: The server's name or address.
        port: Its UDP port.
        headers: Connection headers, which the server's handler can read.
        serializers: What messages may be encoded with, the preferred one first. With more than one, connecting waits for
            the server's choice.
        sessions: Where session tickets are kept.
        early: With a ticket in ``sessions``, connect at once: what is sent goes out in the first flight (0-RTT), to the address
            at which the server was met before.
        timeout: Seconds to wait at most; None waits for as long as QUIC does.
        settings: The settings; None for the defaults.
        instrument: What observes frames and state changes.
        **overrides: Fields of `Settings` by name, instead of those in ``settings``.

    Returns:
        What is awaited, or entered with ``async with``, for the connection.

    Raises:
        Timeout: The server did not respond in time.
        ConnectionLost: The server, or TLS, refused the connection.
        RemoteProtocolError: The peer does not speak Aqueduct, or has none of the serialisers.
        ConfigurationError: A setting cannot be used.

    Example:
        >>> async with connect("localhost", 4433, ca="certs/ca.pem") as connection:
        ...     await connection.sender.send(b"tide")
    """
    chosen = replace(settings or Settings(), **overrides)
    if not host:
        raise ConfigurationError("connect needs the host of a server")
    check_int({"port": port}, min_value=1, max_value=65_535)

    async def open_connection() -> Connection:
        return await _connect(host, port, headers, serializers, sessions, early, timeout, chosen, instrument)

    return Opening(open_connection, "aqueduct.aio.connect()")


async def _connect(
    host: str,
    port: int,
    headers: HeaderSource,
    serializers: Sequence[Serializer],
    sessions: Sessions | None,
    early: bool,
    timeout: float | None,
    settings: Settings,
    instrument: Instrument,
) -> Connection:
    origin = f"{host}:{port}"
    library = load_backend(settings.backend)

    def make_engine() -> AqueductConnection:
        return AqueductConnection(
            is_client=True,
            headers=[*offer_headers(serializers), *as_headers(headers)],
            limits=settings,
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
        session.expect_headers(settings.handshake_timeout)
        if len(serializers) > 1:
            await session.wait_for(connection.headers(), timeout)
    except BaseException:
        connection.abort()
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

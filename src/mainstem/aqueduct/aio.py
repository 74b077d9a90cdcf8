"""Clients and servers in asyncio: `connect`, `serve`, and the `Connection` that both have.

A `Server` owns one UDP socket and routes datagrams to sessions by connection id; a client has a socket of its own. The socket is
read in batches, and all datagrams of one connection in a batch are processed together.
"""

from __future__ import annotations

import asyncio
import socket
import warnings
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from mainstem.aqueduct.channel_id import ENTRYPOINT
from mainstem.aqueduct.codec import Headers, as_headers
from mainstem.aqueduct.connection import AqueductConnection
from mainstem.aqueduct.events import Mode
from mainstem.aqueduct.handles import DEFAULT_BOUND, Pipe, Receiver, Sender
from mainstem.aqueduct.limits import DEFAULT_LIMITS, Limits
from mainstem.aqueduct.middleware import RAW, Serializer, choose, offer_headers
from mainstem.aqueduct.quic import DEFAULT_BACKEND, load_backend
from mainstem.aqueduct.quic.settings import CID_LENGTH, QuicSettings
from mainstem.aqueduct.quic.udp import UdpSocket
from mainstem.aqueduct.remote_halves import RemoteReceiver, RemoteSender
from mainstem.aqueduct.session import Session, logger
from mainstem.errors import ConfigurationError, ConnectionLost, RemoteProtocolError
from mainstem.instruments import NULL_INSTRUMENT, Instrument

if TYPE_CHECKING:
    from mainstem.aqueduct.quic.link import Address, Link, PacketHeader, ServerContext
    from mainstem.aqueduct.quic.tickets import ServerTickets, Sessions

LONG_HEADER = 0x80
"""The first bit of a packet is set in long headers, which only handshakes have."""

HeaderSource = Mapping[str, bytes | str] | Iterable[tuple[str, bytes | str]] | None

SERIALISATION_ERROR = 3
"""QUIC application close code: the two sides have no serialiser in common."""

LINGER = 10.0
"""Seconds that a server waits, after its handler has returned, for the channels of the connection to end."""

DRAIN_TIME = 0.25
"""Seconds that a client keeps its socket after its connection has ended, so that a close that was lost is sent
again."""


class Connection:
    """One connection, from either side: what `connect` returns and what a server's handler gets.

    A client has `sender`, a server `receiver`: the two halves of the entrypoint channel. All else is sent through it. As an
    asynchronous context manager it is closed at the end of the block.

    Example:
        >>> async with await connect("aqueduct://localhost:4433", ca="ca.pem") as connection:
        ...     await connection.sender.send(b"tide")
    """

    def __init__(self, session: Session, *, is_client: bool) -> None:
        self._session = session
        self._is_client = is_client
        self._closed = False
        pipe = Pipe(mode=Mode.ORDERED, bound=DEFAULT_BOUND)
        self._sender: Sender[Any] | None = None
        self._receiver: Receiver[Any] | None = None
        if is_client:
            pipe.remote_sender = RemoteSender(session, ENTRYPOINT, pipe)
            self._sender = Sender(pipe)
        else:
            pipe.remote_receiver = RemoteReceiver(session, ENTRYPOINT, pipe)
            self._receiver = Receiver(pipe)

    @property
    def sender(self) -> Sender[Any]:
        """The entrypoint's sender, at a client. Raises ConfigurationError at a server."""
        if self._sender is None:
            raise ConfigurationError("a server's connection has the entrypoint's receiver, not its sender")
        return self._sender

    @property
    def receiver(self) -> Receiver[Any]:
        """The entrypoint's receiver, at a server. Raises ConfigurationError at a client."""
        if self._receiver is None:
            raise ConfigurationError("a client's connection has the entrypoint's sender, not its receiver")
        return self._receiver

    async def headers(self) -> Headers:
        """Wait for the peer's connection headers.

        Returns:
            Pairs of a key and a value, in the peer's order.

        Raises:
            ConnectionLost: The connection ended before they came.
            RemoteProtocolError: The peer broke the protocol before they came.

        Example:
            >>> headers = dict(await connection.headers())
        """
        return await asyncio.shield(self._session.peer_headers)

    @property
    def peer(self) -> Address:
        """The peer's address: host and port, as sockets have them."""
        return self._session.address

    @property
    def early_data_accepted(self) -> bool:
        """Whether the server accepted what was sent before the handshake was complete."""
        return self._session.link.early_data_accepted

    @property
    def engine(self) -> AqueductConnection:
        """The protocol engine, for counts and tests."""
        return self._session.conn

    async def wait_ready(self) -> None:
        """Wait until both sides' headers were exchanged.

        Raises:
            ConnectionLost: The connection ended before.
            RemoteProtocolError: The peer broke the protocol before.

        Example:
            >>> await connection.wait_ready()
        """
        await self.headers()

    async def wait_closed(self) -> None:
        """Wait until the connection is over. Returns after an orderly close by either side.

        Raises:
            ConnectionLost: The connection was lost.
            RemoteProtocolError: The peer broke the protocol, or reports that this side did.

        Example:
            >>> await connection.wait_closed()
        """
        await self._session.wait_ended()
        if self._session.error is not None:
            raise self._session.error

    async def wind_down(self, timeout: float = LINGER) -> None:
        """Wait until every channel has ended; `close` would cut them off.

        Args:
            timeout: Seconds to wait at most.

        Example:
            >>> connection.sender.finish()
            >>> await connection.wind_down()
        """
        await self._session.wind_down(timeout)

    def close(self, reason: str = "") -> None:
        """Close the connection with all its channels, at once. May be called again.

        Args:
            reason: A text for the peer.

        Example:
            >>> connection.close()
        """
        self._closed = True
        self._session.close(reason)

    async def __aenter__(self) -> Connection:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()
        await self._session.wait_over(DRAIN_TIME)

    def __del__(self) -> None:
        session = getattr(self, "_session", None)
        if session is not None and not self._closed and self._is_client and not session.conn.is_ended:
            warnings.warn("an Aqueduct connection was dropped without being closed", ResourceWarning, stacklevel=2)


class _Endpoint:
    """A UDP socket in the event loop, and the sessions behind it."""

    def __init__(self, udp: UdpSocket) -> None:
        self.udp = udp
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(udp.fileno(), self._readable)
        self._writing = False
        self._open = True

    def _readable(self) -> None:
        batches: dict[tuple[Session, Address], list[bytes]] = {}
        last: Session | None = None
        came_from: Address = ()
        batch: list[bytes] = []
        cid: bytes | None = None
        for data, address in self.udp.receive():
            if data[1 : 1 + CID_LENGTH] == cid and data[0] < LONG_HEADER and address == came_from:
                # Most packets are for the connection of the one before.
                batch.append(data)
                continue
            session = self.route(data, address)
            if session is None:
                continue
            if session is not last or address != came_from:
                last, came_from = session, address
                batch = batches.setdefault((session, address), [])
            batch.append(data)
            cid = data[1 : 1 + CID_LENGTH] if data and data[0] < LONG_HEADER else None
        for (session, address), datagrams in batches.items():
            session.datagrams_received(datagrams, address)
            self.served(session)
        if self.udp.backlog and not self._writing:
            self._writing = True
            self._loop.add_writer(self.udp.fileno(), self._writable)

    def _writable(self) -> None:
        self.udp.flush()
        if not self.udp.backlog:
            self._writing = False
            self._loop.remove_writer(self.udp.fileno())

    def route(self, data: bytes, address: Address) -> Session | None:
        """The session that a datagram is for."""
        raise NotImplementedError

    def served(self, session: Session) -> None:
        """A session has taken its datagrams."""

    def shut(self) -> None:
        """Close the socket. May be called again.

        Example:
            >>> server.shut()
        """
        if self._open:
            self._open = False
            self._loop.remove_reader(self.udp.fileno())
            if self._writing:
                self._loop.remove_writer(self.udp.fileno())
            self.udp.close()


class _ClientEndpoint(_Endpoint):
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
    loop = asyncio.get_running_loop()
    addresses = await loop.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
    family, _, _, _, address = addresses[0]
    link = load_backend(backend).client(settings, server_name=host, sessions=sessions, origin=f"{host}:{port}")
    resumes = link.quic.configuration.session_ticket is not None
    udp = UdpSocket(host="::" if family == socket.AF_INET6 else "0.0.0.0", port=0, family=family)
    endpoint = _ClientEndpoint(udp)
    offered = [*offer_headers(serializers), *as_headers(headers)]
    conn = AqueductConnection(
        is_client=True, headers=offered, limits=limits, instrument=instrument, peer=f"{host}:{port}"
    )
    session = endpoint.session = Session(conn, link, udp, address, serializer=serializers[0])
    session.on_over = endpoint.shut
    _close_after(session, endpoint)
    session.on_headers = lambda response: _choose_serializer(session, serializers, response)
    conn.start(session.now_ns)
    link.connect(address, loop.time())
    session.flush()
    connection = Connection(session, is_client=True)
    try:
        if not (early and resumes):
            await session.wait_established(timeout)
        if len(serializers) > 1:
            await asyncio.wait_for(connection.headers(), timeout)
    except BaseException:
        connection.close()
        await session.wait_over(0)
        raise
    return connection


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


Handler = Callable[[Connection], Awaitable[None]]


class Server(_Endpoint):
    """A listening server, made by `serve`. As an asynchronous context manager it is closed at the end of the block.

    Example:
        >>> async with await serve(handler, certificate=certificate, key=key) as server:
        ...     print(server.url)
        ...     await server.serve_forever()
    """

    def __init__(
        self,
        udp: UdpSocket,
        context: ServerContext,
        handler: Handler,
        *,
        headers: HeaderSource | Callable[[Headers], HeaderSource],
        serializers: Sequence[Serializer],
        limits: Limits,
        settings: QuicSettings,
        hold_early: bool,
        instrument: Instrument,
    ) -> None:
        super().__init__(udp)
        self._context = context
        self._handler = handler
        self._headers = headers
        self._serializers = serializers
        self._limits = limits
        self._settings = settings
        self._hold_early = hold_early
        self._instrument = instrument
        self._by_cid: dict[bytes, Session] = {}
        self._sessions: dict[Session, set[bytes]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing = False

    @property
    def port(self) -> int:
        """The UDP port that it listens on."""
        return int(self.udp.address[1])

    @property
    def url(self) -> str:
        """The URL for clients on this machine."""
        return f"aqueduct://localhost:{self.port}"

    @property
    def connections(self) -> int:
        """Connections that are open, or not quite closed."""
        return len(self._sessions)

    def route(self, data: bytes, address: Address) -> Session | None:
        """Find the session of a datagram; called for each. A first packet makes one.

        Args:
            data: The datagram's payload.
            address: Its source.

        Returns:
            The session; None where there is none.

        Example:
            >>> session = server.route(data, address)
        """
        if data and data[0] < LONG_HEADER:
            # Most packets: one byte, then the connection id, which is this server's own.
            return self._by_cid.get(data[1 : 1 + CID_LENGTH])
        header = self._context.parse(data)
        if header is None:
            return None
        session = self._by_cid.get(header.destination_cid)
        if session is not None:
            return session
        negotiation = self._context.negotiate(header)
        if negotiation is not None:
            self.udp.send([(negotiation, address)])
        elif header.is_initial and len(data) >= 1200 and not self._closing:
            return self._new_session(header, address)
        return None

    def _new_session(self, header: PacketHeader, address: Address) -> Session | None:
        if len(self._sessions) >= self._settings.max_connections:
            logger.warning("a handshake from %s is ignored: %d connections", address, len(self._sessions))
            return None
        link = self._context.accept(header, address, asyncio.get_running_loop().time())
        if isinstance(link, bytes):
            # A Retry.
            self.udp.send([(link, address)])
            return None
        return None if link is None else self._start_session(link, header, address)

    def _start_session(self, link: Link, header: PacketHeader, address: Address) -> Session:
        conn = AqueductConnection(
            is_client=False,
            limits=self._limits,
            instrument=self._instrument,
            peer=f"{address[0]}:{address[1]}",
            early_data=self._hold_early,
        )
        session = Session(conn, link, self.udp, address, serializer=self._serializers[0])
        session.on_headers = lambda headers: self._accept(session, headers)
        session.on_over = lambda: self._forget(session)
        cids = {header.destination_cid, bytes(link.quic.host_cid)}
        self._sessions[session] = cids
        for cid in cids:
            self._by_cid[cid] = session
        return session

    def served(self, session: Session) -> None:
        """Note the connection ids that a session has issued and retired; called after its datagrams.

        Args:
            session: The session.

        Example:
            >>> server.served(session)
        """
        link, cids = session.link, self._sessions.get(session)
        if cids is None:
            return
        for cid in link.cids_issued:
            cids.add(cid)
            self._by_cid[cid] = session
        for cid in link.cids_retired:
            cids.discard(cid)
            self._by_cid.pop(cid, None)
        link.cids_issued.clear()
        link.cids_retired.clear()

    def _accept(self, session: Session, headers: Headers) -> None:
        serializer = choose(self._serializers, headers)
        if serializer is None:
            session.fail(
                RemoteProtocolError("the client offers no serialiser that this server has", rule="serialisation"),
                code=SERIALISATION_ERROR,
            )
            return
        session.serializer = serializer
        own = self._headers(headers) if callable(self._headers) else self._headers
        connection = Connection(session, is_client=False)
        session.conn.accept([*offer_headers([serializer]), *as_headers(own)], session.now_ns)
        session.wake()
        task = asyncio.get_running_loop().create_task(self._run(connection))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, connection: Connection) -> None:
        """A connection's handler; when it has returned and the channels are over, the connection is closed."""
        try:
            await self._handler(connection)
            connection.receiver.close()
            await connection.wind_down()
        except asyncio.CancelledError:
            raise
        except ConnectionLost as error:
            logger.info("%s: %s", connection.peer, error)
        except Exception:
            logger.exception("the handler of %s failed", connection.peer)
        finally:
            connection.close()

    def _forget(self, session: Session) -> None:
        for cid in self._sessions.pop(session, ()):
            self._by_cid.pop(cid, None)

    async def close(self) -> None:
        """Close every connection, cancel their handlers and wait for them, and close the socket.

        Example:
            >>> await server.close()
        """
        self._closing = True
        for session in list(self._sessions):
            session.close("the server is shutting down")
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.sleep(0)
        self.shut()
        for session in list(self._sessions):
            session.give_up()

    async def serve_forever(self) -> None:
        """Serve until this call is cancelled.

        Example:
            >>> await server.serve_forever()
        """
        await asyncio.get_running_loop().create_future()

    async def __aenter__(self) -> Server:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


async def serve(
    handler: Handler,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    headers: HeaderSource | Callable[[Headers], HeaderSource] = None,
    serializers: Sequence[Serializer] = (RAW,),
    settings: QuicSettings | None = None,
    limits: Limits = DEFAULT_LIMITS,
    backend: str = DEFAULT_BACKEND,
    tickets: ServerTickets | None = None,
    hold_early: bool = False,
    instrument: Instrument = NULL_INSTRUMENT,
    **quic: Any,
) -> Server:
    """Listen, and run a handler for each connection.

    When the handler has returned and every channel has ended, or after ten seconds, the connection is closed.

    Args:
        handler: An asynchronous function that is called with a `Connection`.
        host: The address to bind.
        port: The UDP port to bind; 0 for any.
        headers: Connection headers, or a function of the client's headers that returns them.
        serializers: What messages may be encoded with; the client's preference decides.
        settings: QUIC settings; None for those in ``quic``.
        limits: The bounds of each connection.
        backend: The QUIC library, ``qh3`` or ``aioquic``.
        tickets: Where session tickets are kept. With it, clients may send in their first flight; that data is processed at
            once, because a ticket serves once and so nothing can be replayed. Without it there is no early data.
        hold_early: Process early data only when the handshake is complete.
        instrument: What observes frames and state changes.
        **quic: Fields of `QuicSettings` by name.

    Returns:
        The server, which is listening.

    Raises:
        ConfigurationError: A setting cannot be used.
        OSError: The address cannot be bound.

    Example:
        >>> async def handler(connection):
        ...     async for message in connection.receiver:
        ...         print(message)
        >>> server = await serve(handler, port=4433, certificate="certs/cert.pem", key="certs/key.pem")
    """
    settings = settings or QuicSettings(**quic)
    context = load_backend(backend).server_context(settings, tickets)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return Server(
        UdpSocket(host=host, port=port, family=family),
        context,
        handler,
        headers=headers,
        serializers=serializers,
        limits=limits,
        settings=settings,
        hold_early=hold_early,
        instrument=instrument,
    )

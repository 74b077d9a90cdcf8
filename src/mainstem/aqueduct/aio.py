"""Clients and servers in asyncio: `connect`, `serve`, and the `Connection` that both give."""

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
"""The first bit of a packet tells long headers, which only handshakes have, from short ones."""

HeaderSource = Mapping[str, bytes | str] | Iterable[tuple[str, bytes | str]] | None

SERIALISATION_ERROR = 3
"""QUIC application close code: the two sides have no serialiser in common."""

LINGER = 10.0
"""Seconds that a server waits, after its handler has returned, for the channels of the connection to end."""

DRAIN_TIME = 0.25
"""Seconds that a client keeps its socket after its connection has ended, so that a close that was lost is sent
again."""


class Connection:
    """One connection, from either side.

    A client has `sender`, a server `receiver`: the two halves of the entrypoint channel. All else comes through it.
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
        """The entrypoint's sender, at a client."""
        if self._sender is None:
            raise ConfigurationError("a server's connection has the entrypoint's receiver, not its sender")
        return self._sender

    @property
    def receiver(self) -> Receiver[Any]:
        """The entrypoint's receiver, at a server."""
        if self._receiver is None:
            raise ConfigurationError("a client's connection has the entrypoint's sender, not its receiver")
        return self._receiver

    async def headers(self) -> Headers:
        """The peer's connection headers, as soon as they are known."""
        return await asyncio.shield(self._session.peer_headers)

    @property
    def peer(self) -> Address:
        """The peer's address."""
        return self._session.address

    @property
    def early_data_accepted(self) -> bool:
        """The server took what was sent before the handshake was over."""
        return self._session.link.early_data_accepted

    @property
    def engine(self) -> AqueductConnection:
        """The protocol engine, for counts and tests."""
        return self._session.conn

    async def wait_ready(self) -> None:
        """Wait until both sides' headers were exchanged."""
        await self.headers()

    async def wait_closed(self) -> None:
        """Wait until the connection is over. Raises the error that ended it, if any."""
        await self._session.wait_ended()
        if self._session.error is not None:
            raise self._session.error

    async def wind_down(self, timeout: float = LINGER) -> None:
        """Wait until every channel has ended, ``timeout`` seconds at most; `close` would cut them off."""
        await self._session.wind_down(timeout)

    def close(self, reason: str = "") -> None:
        """Close the connection with all its channels, at once. May be called again."""
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
        """Close the socket."""
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
    """Connect to ``aqueduct://host:port``.

    Waits for the handshake, ``timeout`` seconds at most. With ``early`` and a ticket in ``sessions`` it returns at
    once, and what is sent goes out in the first flight (0-RTT). ``serializers`` are offered to the server, the first
    one first; with more than one, connecting waits for the server's choice. Other keywords are those of `QuicSettings`.

    Raises TimedOut, ConnectionLost, RemoteProtocolError and ConfigurationError.
    """
    settings = settings or QuicSettings(**quic)
    host, port = parse_url(url)
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
    family, _, _, _, address = found[0]
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
    session.on_headers = lambda answer: _settle_serializer(session, serializers, answer)
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


def _settle_serializer(session: Session, serializers: Sequence[Serializer], answer: Headers) -> None:
    chosen = choose(serializers, answer)
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
    """A listening server: an asynchronous context manager, made by `serve`."""

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
        """The port that it listens on."""
        return int(self.udp.address[1])

    @property
    def url(self) -> str:
        """Where clients on this machine connect to."""
        return f"aqueduct://localhost:{self.port}"

    @property
    def connections(self) -> int:
        """Connections that are open, or not quite closed."""
        return len(self._sessions)

    def route(self, data: bytes, address: Address) -> Session | None:
        if data and data[0] < LONG_HEADER:
            # Most packets: one byte, then the connection id, which is this server's own.
            return self._by_cid.get(data[1 : 1 + CID_LENGTH])
        header = self._context.parse(data)
        if header is None:
            return None
        session = self._by_cid.get(header.destination_cid)
        if session is not None:
            return session
        answer = self._context.negotiate(header)
        if answer is not None:
            self.udp.send([(answer, address)])
        elif header.is_initial and len(data) >= 1200 and not self._closing:
            return self._new_session(header, address)
        return None

    def _new_session(self, header: PacketHeader, address: Address) -> Session | None:
        if len(self._sessions) >= self._settings.max_connections:
            logger.warning("a handshake from %s is not answered: %d connections", address, len(self._sessions))
            return None
        made = self._context.accept(header, address, asyncio.get_running_loop().time())
        if isinstance(made, bytes):
            self.udp.send([(made, address)])
            return None
        if made is None:
            return None
        return self._start_session(made, header, address)

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
        """Close every connection, wait for their handlers, and close the socket."""
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
        """Serve until cancelled."""
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
    """Listen, and run ``handler`` for each connection.

    When the handler has returned and every channel has ended, or after a while, the connection is closed.

    ``headers`` may be a function of the client's headers. With ``tickets`` clients may send in their first flight; that
    data is processed at once, because a ticket serves once and so nothing can be replayed. ``hold_early`` makes it wait
    for the handshake all the same. Without ``tickets`` there is no early data.

    Raises ConfigurationError, and OSError where the address cannot be bound.
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

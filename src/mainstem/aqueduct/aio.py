"""What clients and servers share in asyncio: the `Connection`, and the UDP endpoint behind it.

A server has a socket for each of its addresses, and routes datagrams to sessions by connection id. A client has one of its own.
Sockets are read in batches, and all datagrams of one connection in a batch are processed together.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import warnings
from collections.abc import Generator, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from mainstem.aqueduct.certificates import describe_certificate
from mainstem.aqueduct.channel_id import ENTRYPOINT
from mainstem.aqueduct.connection_state import Counts
from mainstem.aqueduct.events import Mode
from mainstem.aqueduct.handles import DEFAULT_BOUND, Pipe, Receiver, Sender
from mainstem.aqueduct.quic.settings import CID_LENGTH
from mainstem.aqueduct.remote_halves import RemoteReceiver, RemoteSender
from mainstem.aqueduct.session import logger
from mainstem.aqueduct.state import ReceiverState
from mainstem.aqueduct.stats import session_stats
from mainstem.errors import ChannelError, ConfigurationError
from mainstem.log_limit import LogLimit, kind_of

if TYPE_CHECKING:
    from mainstem.aqueduct.codec import Headers
    from mainstem.aqueduct.connection import AqueductConnection
    from mainstem.aqueduct.quic.link import Address
    from mainstem.aqueduct.quic.udp import UdpSocket
    from mainstem.aqueduct.session import Session
    from mainstem.aqueduct.stats import AqueductStats

LONG_HEADER = 0x80
"""The first bit of a packet is set in long headers, which only handshakes have."""

HeaderSource = Mapping[str, bytes | str] | Iterable[tuple[str, bytes | str]] | None

LINGER = 10.0
"""Seconds that winding down waits for channels, and ending a server for its handlers."""

DRAIN_TIME = 0.25
"""Seconds that a client keeps its socket after its connection has ended, while its close is sent again."""


FLUSH_LIMIT = 10.0
"""Seconds that leaving ``async with connection`` waits until every message is acknowledged."""


class Closing:
    """What `Connection.close` returns: awaiting it waits until QUIC's close is done, a quarter of a second at most."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def __await__(self) -> Generator[Any, None, None]:
        return self._session.wait_over(DRAIN_TIME).__await__()


class Connection:
    """One connection, from either side: what `connect` returns and what a server's handler gets.

    A client has `sender`, a server `receiver`: the two halves of the entrypoint channel. All else is sent through it.

    As an asynchronous context manager it finishes the entrypoint at the end of the block, waits until every message is
    acknowledged (ten seconds at most), raises where one was not delivered, and closes when the server has the end (one
    second at most, or 20 round trips). Where an exception leaves the block it is closed at once.

    Example:
        >>> async with await connect("aqueduct://localhost:4433", ca="ca.pem") as connection:
        ...     await connection.sender.send(b"tide")
    """

    def __init__(self, session: Session, *, is_client: bool) -> None:
        self._session = session
        self._is_client = is_client
        self._closed = False
        pipe = self._entrypoint = Pipe(mode=Mode.ORDERED, bound=DEFAULT_BOUND)
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
    def peer_address(self) -> Address:
        """The peer's address: host and port, as sockets have them."""
        return self._session.address

    @property
    def peer(self) -> Address:
        """The same as ``peer_address``."""
        return self._session.address

    @property
    def peer_certificate(self) -> dict[str, Any] | None:
        """The peer's TLS certificate as :meth:`ssl.SSLSocket.getpeercert` returns it.

        None where the peer presented none, or the session was resumed. A server has one where it has ``client_ca``, and has
        verified it then; a client that does not ``verify`` has the server's all the same.
        """
        der = self.peer_certificate_der
        return None if der is None else describe_certificate(der)

    @property
    def peer_certificate_der(self) -> bytes | None:
        """The peer's TLS certificate in DER, for a library that reads certificates; None as above."""
        return self._session.link.peer_certificate

    @property
    def early_data_accepted(self) -> bool:
        """Whether the server accepted what was sent before the handshake was complete."""
        return self._session.link.early_data_accepted

    @property
    def engine(self) -> AqueductConnection:
        """The protocol engine, for counts and tests."""
        return self._session.conn

    def stats(self) -> AqueductStats:
        """Get what the connection has now and what it has counted; may be called in any thread.

        A server's connections count bytes and ends into one: theirs has what all of them counted.

        Returns:
            The figures.

        Example:
            >>> connection.stats().unsent_bytes
            0
        """
        session = self._session
        role = "client" if self._is_client else "server"
        return session_stats((session,), session.traffic, Counts(), role=role, is_over=session.ended.done())

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
            raise self._session.error.with_traceback(None)

    async def wind_down(self, timeout: float = LINGER) -> None:
        """Wait until every channel has ended; `close` would cut them off.

        Args:
            timeout: Seconds to wait at most.

        Example:
            >>> connection.sender.finish()
            >>> await connection.wind_down()
        """
        await self._session.wind_down(timeout)

    def close(self, reason: str = "") -> Closing:
        """Close the connection with all its channels, at once. May be called again.

        What is not acknowledged may be lost; leaving ``async with`` waits for it.

        Args:
            reason: A text for the peer.

        Returns:
            What may be awaited, until QUIC's close is done; the connection is closed without that.

        Example:
            >>> await connection.close()
        """
        self._closed = True
        self._session.close(reason)
        return Closing(self._session)

    @property
    def is_finished(self) -> bool:
        """Whether the client has finished the entrypoint, at a server."""
        remote = self._entrypoint.remote_receiver
        return remote is not None and remote.state is ReceiverState.FINISHED

    @property
    def is_closed_here(self) -> bool:
        """Whether this side has closed it."""
        return self._closed

    async def __aenter__(self) -> Connection:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None and not self._closed:
                if self._sender is not None:
                    self._sender.finish()
                await self._session.flush_messages(FLUSH_LIMIT)
                await self._hand_over_end()
        finally:
            await self.close()

    async def _hand_over_end(self) -> None:
        """Wait until the server has the entrypoint's end: a close that overtakes it would cancel the handler at once."""
        remote = self._entrypoint.remote_sender
        if remote is not None:
            with contextlib.suppress(TimeoutError, ChannelError):
                async with asyncio.timeout(self._session.flush_time):
                    await remote.wait_ended()

    def __del__(self) -> None:
        session = getattr(self, "_session", None)
        if session is not None and not self._closed and self._is_client and not session.conn.is_ended:
            warnings.warn("an Aqueduct connection was dropped without being closed", ResourceWarning, stacklevel=2)


class Endpoint:
    """UDP sockets in the event loop, and the sessions behind them."""

    def __init__(self, *sockets: UdpSocket) -> None:
        self.udp = sockets[0]
        self._sockets = sockets
        self._loop = asyncio.get_running_loop()
        self._warnings = LogLimit(logger)
        self._writing: set[UdpSocket] = set()
        self._open = True
        for udp in sockets:
            self._loop.add_reader(udp.fileno(), self._readable, udp)

    def _readable(self, udp: UdpSocket) -> None:
        batches: dict[tuple[Session, Address], list[bytes]] = {}
        last: Session | None = None
        came_from: Address = ()
        batch: list[bytes] = []
        cid: bytes | None = None
        for data, address in udp.receive():
            if data[1 : 1 + CID_LENGTH] == cid and data[0] < LONG_HEADER and address == came_from:
                # Most packets are for the connection of the one before.
                batch.append(data)
                continue
            session = self._session_of(data, address, udp)
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
        if udp.backlog and udp not in self._writing:
            self._writing.add(udp)
            self._loop.add_writer(udp.fileno(), self._writable, udp)

    def _session_of(self, data: bytes, address: Address, udp: UdpSocket) -> Session | None:
        try:
            return self.route(data, address, udp)
        except Exception as error:
            # The datagrams of others come next.
            text = f"a datagram from {address[0]}:{address[1]} is dropped: {type(error).__name__}: {error}"
            self._warnings.log(logging.ERROR, kind_of(error), text, int(self._loop.time() * 1e9), error=error)
            return None

    def _writable(self, udp: UdpSocket) -> None:
        udp.flush()
        if not udp.backlog:
            self._writing.discard(udp)
            self._loop.remove_writer(udp.fileno())

    def route(self, data: bytes, address: Address, udp: UdpSocket) -> Session | None:
        """The session that a datagram is for, which came in by that socket."""
        raise NotImplementedError

    def served(self, session: Session) -> None:
        """A session has taken its datagrams."""

    def shut(self) -> None:
        """Close the sockets. May be called again.

        Example:
            >>> server.shut()
        """
        if self._open:
            self._open = False
            for udp in self._sockets:
                self._loop.remove_reader(udp.fileno())
                if udp in self._writing:
                    self._loop.remove_writer(udp.fileno())
                udp.close()

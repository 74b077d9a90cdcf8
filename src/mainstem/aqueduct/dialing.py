"""How a client reaches a server: one attempt for each address of its host, and the first complete handshake wins.

Each attempt is a connection of its own, with its own socket; those that lose are closed at once. With early data there is only one
attempt: what the application sends leaves in the first flight, and must not reach two servers.
"""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

from mainstem._internal.eyeballs import NoneSucceededError, race, resolve
from mainstem.aqueduct.asyncio_connection import DRAIN_S
from mainstem.aqueduct.quic.udp import UdpSocket
from mainstem.aqueduct.session import Session
from mainstem.aqueduct.udp_endpoint import UdpEndpoint
from mainstem.errors import ConnectionLost, Delivery, Timeout

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainstem._internal.eyeballs import HostAddress
    from mainstem.aqueduct.connection import AqueductConnection
    from mainstem.aqueduct.middleware import Serializer
    from mainstem.aqueduct.quic.link import Address, Link


class _ClientEndpoint(UdpEndpoint):
    """A client's socket. ``on_refused`` is called when ICMP reports, during the handshake, that nobody listens at the address."""

    session: Session

    def __init__(self, udp: UdpSocket, on_refused: Callable[[], None] | None) -> None:
        super().__init__(udp)
        self._on_refused = on_refused
        udp.report_refusals(on_refused is not None)

    def _readable(self, udp: UdpSocket) -> None:
        if self._on_refused is not None:
            if self.session.established.done():
                udp.report_refusals(False)
                self._on_refused = None
            elif udp.take_refusal():
                self._on_refused()
        super()._readable(udp)

    def _route(self, data: bytes, address: Address, udp: UdpSocket) -> Session | None:  # noqa: ARG002
        return self.session


class Dialer:
    """Makes the sessions of one call to `connect`.

    Args:
        host: The server's name or address.
        port: Its port.
        engine: Makes a protocol engine, for one attempt.
        link: Makes a QUIC connection, for one attempt.
        prepare: Called with each session before anything is sent.
        serializer: What messages are encoded with until the server has chosen.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        engine: Callable[[], AqueductConnection],
        link: Callable[[], Link],
        prepare: Callable[[Session], None],
        serializer: Serializer,
    ) -> None:
        self._host, self._port = host, port
        self._engine, self._link, self._prepare, self._serializer = engine, link, prepare, serializer

    async def dial_early(self, link: Link, known: str) -> Session:
        """Returns a session that has sent its first flight and waits for nothing.

        Args:
            link: A QUIC connection with a session ticket.
            known: The address at which the server was met before; empty where it is not known.
        """
        addresses = await self._resolve()
        address = next((each for each in addresses if each[1][0] == known), addresses[0])
        return self._begin(address, link, None)

    async def dial(self, link: Link, timeout: float | None) -> Session:
        """Returns the session whose handshake is complete first.

        Args:
            link: The QUIC connection of the first attempt.
            timeout: Seconds for all attempts together; None for as long as QUIC tries.

        Raises:
            Timeout: The timeout passed.
            MainstemError: Every attempt failed; the first one's error.
        """
        addresses = await self._resolve()
        links = [link]

        async def attempt(address: HostAddress, doubt: Callable[[], None]) -> Session:
            is_only = len(addresses) == 1
            session = self._begin(address, links.pop() if links else self._link(), None if is_only else doubt)
            try:
                await asyncio.shield(session.established)
            except BaseException:
                _close_now(session)
                raise
            return session

        try:
            return await race(addresses, attempt, discard=_close_now, timeout=timeout)
        except NoneSucceededError as error:
            if not error.timed_out:
                raise error.failures[0][1] from None
            text = f"no answer from {self._host}:{self._port} in {timeout:g} s"
            raise Timeout(f"{text}: {error}" if error.failures else text, timeout=timeout) from None

    async def _resolve(self) -> list[HostAddress]:
        try:
            return await resolve(self._host, self._port, socket.SOCK_DGRAM)
        except OSError as error:
            raise ConnectionLost(f"{self._host}: {error.strerror}", delivery=Delivery.NONE) from error

    def _begin(self, address: HostAddress, link: Link, on_refused: Callable[[], None] | None) -> Session:
        """Sends the first packets, through a socket that is closed with the session."""
        family, where = address
        conn = self._engine()
        udp = UdpSocket(host="::" if family == socket.AF_INET6 else "0.0.0.0", port=0, family=family)
        endpoint = _ClientEndpoint(udp, on_refused)
        session = endpoint.session = Session(conn, link, udp, where, serializer=self._serializer)
        session.on_over = endpoint._close_sockets
        # A while after its close was sent, if it takes so long.
        session.ended.add_done_callback(lambda _: session.loop.call_later(DRAIN_S, endpoint._close_sockets))
        self._prepare(session)
        conn.start(session.now_ns)
        link.connect(where, session.loop.time())
        session.flush()
        return session


def _close_now(session: Session) -> None:
    """Closes a session, and its socket as soon as the close is sent."""
    session.close()
    session.give_up()

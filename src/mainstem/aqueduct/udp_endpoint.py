"""UDP sockets in the event loop, and the sessions behind them.

A server has a socket for each of its addresses, and routes datagrams to sessions by connection id. A client has one of its own.
Sockets are read in batches, and all datagrams of one connection in a batch are processed together.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from mainstem._internal.log_throttle import LogThrottle, kind_of
from mainstem.aqueduct.session import logger
from mainstem.aqueduct.settings import CID_LENGTH

if TYPE_CHECKING:
    from mainstem.aqueduct.quic.link import Address
    from mainstem.aqueduct.quic.udp import UdpSocket
    from mainstem.aqueduct.session import Session

LONG_HEADER = 0x80
"""The first bit of a packet is set in long headers, which only handshakes have."""


class UdpEndpoint:
    """UDP sockets in the event loop, and the sessions behind them."""

    def __init__(self, *sockets: UdpSocket) -> None:
        self._udp = sockets[0]
        self._sockets = sockets
        self._loop = asyncio.get_running_loop()
        self._warnings = LogThrottle(logger)
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
            self._served(session)
        if udp.backlog and udp not in self._writing:
            self._writing.add(udp)
            self._loop.add_writer(udp.fileno(), self._writable, udp)

    def _session_of(self, data: bytes, address: Address, udp: UdpSocket) -> Session | None:
        try:
            return self._route(data, address, udp)
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

    def _route(self, data: bytes, address: Address, udp: UdpSocket) -> Session | None:
        """The session that a datagram is for, which came in by that socket."""
        raise NotImplementedError

    def _served(self, session: Session) -> None:
        """A session has taken its datagrams."""

    def _close_sockets(self) -> None:
        """Close the sockets. May be called again."""
        if self._open:
            self._open = False
            for udp in self._sockets:
                self._loop.remove_reader(udp.fileno())
                if udp in self._writing:
                    self._loop.remove_writer(udp.fileno())
                udp.close()

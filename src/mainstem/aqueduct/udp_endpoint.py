"""The UDP sockets of a client or a server of Aqueduct.

A server has one socket per address and routes datagrams to connections by connection id. A client has a single socket. Sockets are
read in batches, and all datagrams of one connection in a batch are processed together.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from mainstem._internal.exit_cleanup import leave_at_fork
from mainstem._internal.log_throttle import LogThrottle, kind_of
from mainstem.aqueduct.protocol import logger
from mainstem.aqueduct.settings import CID_LENGTH

if TYPE_CHECKING:
    from mainstem.aqueduct.protocol import AqueductProtocol
    from mainstem.aqueduct.quic.udp import Address, UdpSocket

LONG_HEADER = 0x80
"""The first bit of a packet. It is set in long headers, which only handshakes use."""


class UdpEndpoint:
    def __init__(self, *sockets: UdpSocket) -> None:
        self._udp = sockets[0]
        self._sockets = sockets
        self._loop = asyncio.get_running_loop()
        self._warnings = LogThrottle(logger)
        self._writing: set[UdpSocket] = set()
        self._open = True
        for udp in sockets:
            self._loop.add_reader(udp.fileno(), self._readable, udp)
        leave_at_fork(self)

    def _leave_to_parent(self) -> None:
        """Close the sockets in a forked child, and leave the connections to the parent.

        The loop's selector is shared with the parent, so nothing is unregistered there.
        """
        self._open = False
        for udp in self._sockets:
            udp.close()
        for protocol in self._own_protocols():
            protocol.leave_to_parent()

    def _own_protocols(self) -> list[AqueductProtocol]:
        """Return the connections whose packets go through this endpoint."""
        raise NotImplementedError

    def _readable(self, udp: UdpSocket) -> None:
        if not self._open:
            return
        batches: dict[tuple[AqueductProtocol, Address], list[bytes]] = {}
        last: AqueductProtocol | None = None
        came_from: Address = ()
        batch: list[bytes] = []
        cid: bytes | None = None
        for data, address in udp.receive():
            if data[1 : 1 + CID_LENGTH] == cid and data[0] < LONG_HEADER and address == came_from:
                # Most packets are for the same connection as the previous one.
                batch.append(data)
                continue
            try:
                protocol = self._route(data, address, udp)
            except Exception as error:
                # Continue with the datagrams of other connections.
                text = f"a datagram from {address[0]}:{address[1]} was dropped: {type(error).__name__}: {error}"
                self._warnings.log(logging.ERROR, kind_of(error), text, int(self._loop.time() * 1e9), error=error)
                continue
            if protocol is None:
                continue
            if protocol is not last or address != came_from:
                last, came_from = protocol, address
                batch = batches.setdefault((protocol, address), [])
            batch.append(data)
            cid = data[1 : 1 + CID_LENGTH] if data and data[0] < LONG_HEADER else None
        for (protocol, address), datagrams in batches.items():
            protocol.datagrams_received(datagrams, address)
        if udp.backlog and udp not in self._writing:
            self._writing.add(udp)
            self._loop.add_writer(udp.fileno(), self._writable, udp)

    def _writable(self, udp: UdpSocket) -> None:
        udp.flush()
        if not udp.backlog:
            self._writing.discard(udp)
            self._loop.remove_writer(udp.fileno())

    def _route(self, data: bytes, address: Address, udp: UdpSocket) -> AqueductProtocol | None:
        """Return the connection that a datagram is for, or None."""
        raise NotImplementedError

    def _close_sockets(self) -> None:
        """Close the sockets. Calling it again has no effect."""
        if self._open:
            self._open = False
            for udp in self._sockets:
                self._loop.remove_reader(udp.fileno())
                if udp in self._writing:
                    self._loop.remove_writer(udp.fileno())
                udp.close()

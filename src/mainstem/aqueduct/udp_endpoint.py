"""UDP sockets in the event loop, and the connections that use them.

A server has one socket per address and routes datagrams to runners by connection id. A client has a single socket. Sockets are
read in batches, and all datagrams of one connection in a batch are processed together.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from mainstem._internal.log_throttle import LogThrottle, kind_of
from mainstem.aqueduct.runner import logger
from mainstem.aqueduct.settings import CID_LENGTH

if TYPE_CHECKING:
    from mainstem.aqueduct.quic.adapter import Address
    from mainstem.aqueduct.quic.udp import UdpSocket
    from mainstem.aqueduct.runner import Runner

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

    def _readable(self, udp: UdpSocket) -> None:
        batches: dict[tuple[Runner, Address], list[bytes]] = {}
        last: Runner | None = None
        came_from: Address = ()
        batch: list[bytes] = []
        cid: bytes | None = None
        for data, address in udp.receive():
            if data[1 : 1 + CID_LENGTH] == cid and data[0] < LONG_HEADER and address == came_from:
                # Most packets are for the same connection as the previous one.
                batch.append(data)
                continue
            try:
                runner = self._route(data, address, udp)
            except Exception as error:
                # Continue with the datagrams of other connections.
                text = f"a datagram from {address[0]}:{address[1]} was dropped: {type(error).__name__}: {error}"
                self._warnings.log(logging.ERROR, kind_of(error), text, int(self._loop.time() * 1e9), error=error)
                continue
            if runner is None:
                continue
            if runner is not last or address != came_from:
                last, came_from = runner, address
                batch = batches.setdefault((runner, address), [])
            batch.append(data)
            cid = data[1 : 1 + CID_LENGTH] if data and data[0] < LONG_HEADER else None
        for (runner, address), datagrams in batches.items():
            runner.datagrams_received(datagrams, address)
        if udp.backlog and udp not in self._writing:
            self._writing.add(udp)
            self._loop.add_writer(udp.fileno(), self._writable, udp)

    def _writable(self, udp: UdpSocket) -> None:
        udp.flush()
        if not udp.backlog:
            self._writing.discard(udp)
            self._loop.remove_writer(udp.fileno())

    def _route(self, data: bytes, address: Address, udp: UdpSocket) -> Runner | None:
        """Return the runner that a datagram is for, or None."""
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

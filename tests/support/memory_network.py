"""An in-process network of drivers' transports and of raw peers that a test plays, without loss or delay."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mainstem._core.driver.datagram import MemoryTransport
from mainstem.aeron.driver.media.addresses import LITERAL_RESOLVER, InetAddress
from mainstem.aeron.driver.media.transport import AddressInUse, BufferLimits, OpenTransport, TransportRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mainstem.aeron.driver.media.addresses import NetworkInterface

FIRST_FREE_PORT = 40_000
BUFFER_LENGTH = 128 * 1024


@dataclass(slots=True)
class Peer:
    """A socket of the test."""

    address: InetAddress
    received: list[tuple[InetAddress, bytes]] = field(default_factory=list)

    def take(self) -> list[bytes]:
        """Return the datagrams that arrived since the last call."""
        datagrams = [datagram for _, datagram in self.received]
        self.received.clear()
        return datagrams


@dataclass(slots=True)
class _Socket:
    transport: MemoryTransport
    connected_to: bytes | None


class MemoryNetwork:
    """The drivers' transports in memory. ``step`` delivers what was sent."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}
        self._sockets: dict[InetAddress, _Socket] = {}
        self._peers: dict[InetAddress, Peer] = {}
        self._next_port = FIRST_FREE_PORT
        self.longest_buffer = 1 << 30
        self.sent = 0  # datagrams that drivers have sent so far

    def open(self, request: TransportRequest) -> OpenTransport:
        address = InetAddress("127.0.0.1", request.bind.port or self._next_port)
        self._next_port += 1
        if address in self._sockets or address in self._peers:
            raise AddressInUse(f"UDP socket on {address}: Address already in use")
        transport = MemoryTransport()
        connected = None if request.connect is None else request.connect.packed
        made = self._sockets[address] = _Socket(transport, connected)
        return OpenTransport(
            transport=transport,
            local_address=address,
            receive_buffer_length=min(request.so_rcvbuf or BUFFER_LENGTH, self.longest_buffer),
            send_buffer_length=request.so_sndbuf or BUFFER_LENGTH,
            reconnect=lambda to: setattr(made, "connected_to", to.packed),
            release=lambda: self._sockets.pop(address, None),  # type: ignore[arg-type]
        )

    def resolve(self, host: str) -> str:
        return LITERAL_RESOLVER.resolve(self.names.get(host, host))

    def buffer_limits(self) -> BufferLimits:
        return BufferLimits(*[BUFFER_LENGTH] * 4)

    def interfaces(self) -> Sequence[NetworkInterface]:
        return LITERAL_RESOLVER.interfaces()

    def peer(self, port: int, host: str = "127.0.0.1") -> Peer:
        """Return a socket for the test itself."""
        address = InetAddress(host, port)
        return self._peers.setdefault(address, Peer(address))

    def send(self, source: Peer, to: InetAddress, datagram: bytes) -> None:
        """Send from one of the test's peers to a driver."""
        self._sockets[to].transport.deliver(datagram, source.address.packed)

    def step(self) -> int:
        """Deliver everything that was sent so far; return the number of datagrams."""
        moved = 0
        for source, sender in list(self._sockets.items()):
            for destination, datagram in sender.transport.take():
                moved += 1
                to = destination or sender.connected_to
                assert to is not None, "sent to nobody"
                address = InetAddress.unpack(to)
                receiver = self._sockets.get(address)
                if receiver is not None:
                    receiver.transport.deliver(datagram, source.packed)
                elif address in self._peers:
                    self._peers[address].received.append((source, datagram))
        self.sent += moved
        return moved

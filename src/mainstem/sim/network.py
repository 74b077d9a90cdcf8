"""A network in memory: hosts with addresses, links with faults, datagrams that arrive when the manual clock says so."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from mainstem._core.driver.datagram import MemoryTransport
from mainstem.aeron.driver.media.addresses import InetAddress
from mainstem.errors import ConfigurationError
from mainstem.sim.faults import PERFECT, Faults

if TYPE_CHECKING:
    from random import Random

    from mainstem.instruments import Instrument

FIRST_EPHEMERAL_PORT = 40_000
MAX_IN_FLIGHT = 200_000  # datagrams: a network that holds more is being flooded, and memory is not for that


@dataclass
class SimSocket:
    """One bound transport of one host."""

    transport: MemoryTransport
    local: InetAddress
    connected: InetAddress | None
    group: InetAddress | None


class _Flight(NamedTuple):
    """A datagram on its way. ``number`` differs from flight to flight, so that no comparison looks further."""

    due_ns: int
    number: int
    source: InetAddress
    destination: InetAddress
    datagram: bytes
    member: SimSocket | None  # of the group that it was sent to


class SimNetwork:
    """Moves datagrams between ``SimHost``s. Every draw is from ``chance``, so that a run is its seed.

    ``faults`` rules every link that ``link`` does not name. ``pump(now_ns)`` takes what was sent and delivers what is due.
    """

    def __init__(self, chance: Random, *, faults: Faults = PERFECT, instrument: Instrument | None = None) -> None:
        self.faults = faults
        self.sent = 0
        self.lost = 0
        self.delivered = 0
        self.unroutable = 0
        self._chance = chance
        self._instrument = instrument
        self._links: dict[tuple[str, str], Faults] = {}
        self._cut: set[tuple[str, str]] = set()
        self._sockets: list[SimSocket] = []
        self._bound: dict[InetAddress, SimSocket] = {}
        self._unpacked: dict[bytes, InetAddress] = {}
        self._flights: list[_Flight] = []
        self._number = 0
        self._next_port = FIRST_EPHEMERAL_PORT

    def link(self, source: str, destination: str, faults: Faults) -> None:
        """Sets the faults of one direction between two hosts."""
        self._links[source, destination] = faults

    def cut(self, source: str, destination: str) -> None:
        """Loses everything in one direction, until ``mend``."""
        self._cut.add((source, destination))

    def mend(self, source: str, destination: str) -> None:
        """Ends a ``cut``."""
        self._cut.discard((source, destination))

    def open(
        self, local: InetAddress, *, connected: InetAddress | None = None, group: InetAddress | None = None
    ) -> SimSocket:
        """A bound socket; port 0 takes the next free one. Raises ConfigurationError when the address is taken.

        Any number of sockets may join one ``group``.
        """
        if local.port == 0:
            self._next_port += 1
            local = local.with_port(self._next_port)
        if group is None and self._bound_to(local) is not None:
            raise ConfigurationError(f"{local} is already bound")
        opened = SimSocket(MemoryTransport(), local, connected, group)
        self._sockets.append(opened)
        if group is None:
            self._bound[local] = opened
        return opened

    def _bound_to(self, local: InetAddress) -> SimSocket | None:
        found = self._bound.get(local)
        if found is not None and found.transport.closed:
            del self._bound[local]
            return None
        return found

    def _unpack(self, packed: bytes) -> InetAddress:
        address = self._unpacked.get(packed)
        if address is None:
            address = self._unpacked[packed] = InetAddress.unpack(packed)
        return address

    def _open_sockets(self) -> list[SimSocket]:
        if any(one.transport.closed for one in self._sockets):
            self._sockets = [one for one in self._sockets if not one.transport.closed]
        return self._sockets

    def pump(self, now_ns: int) -> int:
        """Takes everything sent until now and delivers what has arrived; how many datagrams moved."""
        moved = sum(self._collect(one, now_ns) for one in self._open_sockets())
        while self._flights and self._flights[0].due_ns <= now_ns:
            self._deliver(heapq.heappop(self._flights), now_ns)
            moved += 1
        return moved

    def next_arrival_ns(self) -> int | None:
        """When the next datagram arrives, if one is on its way."""
        return self._flights[0].due_ns if self._flights else None

    def _collect(self, source: SimSocket, now_ns: int) -> int:
        taken = source.transport.take()
        for packed, datagram in taken:
            destination = self._unpack(packed) if packed else source.connected
            if destination is None:
                raise ConfigurationError(f"{source.local}: a datagram without a destination on an unconnected socket")
            self.sent += 1
            self._send(source.local, destination, datagram, now_ns)
        return len(taken)

    def _send(self, source: InetAddress, destination: InetAddress, datagram: bytes, now_ns: int) -> None:
        if self._instrument is not None:
            self._instrument.frame_out(str(destination), datagram, now_ns)
        if destination.is_multicast:
            # Each member's way is its own: what one misses another gets.
            for member in self._receivers(destination):
                self._fly(source, destination, datagram, now_ns, member)
        else:
            self._fly(source, destination, datagram, now_ns, None)

    def _fly(
        self, source: InetAddress, destination: InetAddress, datagram: bytes, now_ns: int, member: SimSocket | None
    ) -> None:
        way = (source.ip, destination.ip if member is None else member.local.ip)
        delays = [] if way in self._cut else self._links.get(way, self.faults).arrivals_ns(self._chance)
        if not delays:
            self.lost += 1
        for delay_ns in delays:
            if len(self._flights) >= MAX_IN_FLIGHT:
                raise ConfigurationError(f"more than {MAX_IN_FLIGHT} datagrams in flight")
            self._number += 1
            flight = _Flight(now_ns + delay_ns, self._number, source, destination, datagram, member)
            heapq.heappush(self._flights, flight)

    def _deliver(self, flight: _Flight, now_ns: int) -> None:
        receivers = self._receivers(flight.destination) if flight.member is None else [flight.member]
        if not receivers:
            self.unroutable += 1
        for receiver in receivers:
            if receiver.connected is not None and receiver.connected != flight.source:
                continue
            self.delivered += 1
            if self._instrument is not None:
                self._instrument.frame_in(str(flight.source), flight.datagram, now_ns)
            receiver.transport.deliver(flight.datagram, flight.source.packed)

    def _receivers(self, destination: InetAddress) -> list[SimSocket]:
        if destination.is_multicast:
            return [one for one in self._open_sockets() if one.group == destination]
        bound = self._bound_to(destination)
        return [] if bound is None else [bound]

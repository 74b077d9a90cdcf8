"""A network in memory: hosts with addresses, links with faults, datagrams that arrive by the manual clock."""

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
    from mainstem.sim.wire import WireChecker

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
    """A datagram on its way. ``number`` differs from flight to flight, so that no comparison goes further."""

    due_ns: int
    number: int
    source: InetAddress
    destination: InetAddress
    datagram: bytes
    member: SimSocket | None  # of the group that it was sent to


class SimNetwork:
    """Moves datagrams between hosts. Every random choice is drawn from ``chance``, so that a run is its seed.

    ``pump(now_ns)`` takes what was sent and delivers what is due.

    Args:
        chance: The random source.
        faults: The faults of every link that ``link`` does not name.
        instrument: Is notified of each datagram that is sent or arrives.
    """

    def __init__(self, chance: Random, *, faults: Faults = PERFECT, instrument: Instrument | None = None) -> None:
        self.faults = faults
        self.sent = 0
        self.lost = 0
        self.delivered = 0
        self.unroutable = 0
        self._chance = chance
        self._instrument = instrument
        # Only where it is asked for: it holds streams to the settings' own values, which a user's world may change.
        self.checker: WireChecker | None = None
        self._links: dict[tuple[str, str], Faults] = {}
        self._cut: set[tuple[str, str]] = set()
        self._sockets: list[SimSocket] = []
        self._bound: dict[InetAddress, SimSocket] = {}
        self._unpacked: dict[bytes, InetAddress] = {}
        self._flights: list[_Flight] = []
        self._number = 0
        self._next_port = FIRST_EPHEMERAL_PORT

    def link(self, source: str, destination: str, faults: Faults) -> None:
        """Sets the faults of one direction between two hosts.

        Args:
            source: The sending host's address.
            destination: The receiving host's address.
            faults: What happens to datagrams there.

        Example:
            ``network.link("10.0.0.1", "10.0.0.2", Faults(loss=0.1))``
        """
        self._links[source, destination] = faults

    def cut(self, source: str, destination: str) -> None:
        """Loses every datagram in one direction, until ``mend``.

        Args:
            source: The sending host's address.
            destination: The receiving host's address.

        Example:
            ``network.cut("10.0.0.1", "10.0.0.2")``
        """
        self._cut.add((source, destination))

    def mend(self, source: str, destination: str) -> None:
        """Ends a ``cut``.

        Args:
            source: The sending host's address.
            destination: The receiving host's address.

        Example:
            ``network.mend("10.0.0.1", "10.0.0.2")``
        """
        self._cut.discard((source, destination))

    def open(
        self, local: InetAddress, *, connected: InetAddress | None = None, group: InetAddress | None = None
    ) -> SimSocket:
        """Binds a socket.

        Args:
            local: Its address; port 0 takes the next free port.
            connected: The only address that it exchanges datagrams with.
            group: A multicast address that it joins; any number of sockets may join one.

        Returns:
            The socket.

        Raises:
            ConfigurationError: The address is taken.

        Example:
            ``network.open(InetAddress("10.0.0.1", 0))``
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
        bound = self._bound.get(local)
        if bound is not None and bound.transport.closed:
            del self._bound[local]
            return None
        return bound

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
        """Takes every datagram that was sent until now and delivers what is due.

        Args:
            now_ns: Monotonic time in nanoseconds.

        Returns:
            How many datagrams moved.

        Example:
            ``network.pump(clock.monotonic_ns())``
        """
        moved = sum(self._collect(one, now_ns) for one in self._open_sockets())
        while self._flights and self._flights[0].due_ns <= now_ns:
            self._deliver(heapq.heappop(self._flights), now_ns)
            moved += 1
        if self.checker is not None:
            self.checker.pumped()
        return moved

    def next_arrival_ns(self) -> int | None:
        """When the next datagram arrives.

        Returns:
            Monotonic time in nanoseconds; None when none is in flight.

        Example:
            ``network.next_arrival_ns()``
        """
        return self._flights[0].due_ns if self._flights else None

    def _collect(self, source: SimSocket, now_ns: int) -> int:
        datagrams = source.transport.take()
        for packed, datagram in datagrams:
            destination = self._unpack(packed) if packed else source.connected
            if destination is None:
                raise ConfigurationError(f"{source.local}: a datagram without a destination on an unconnected socket")
            self.sent += 1
            self._send(source.local, destination, datagram, now_ns)
        return len(datagrams)

    def _send(self, source: InetAddress, destination: InetAddress, datagram: bytes, now_ns: int) -> None:
        if self._instrument is not None:
            self._instrument.frame_out(str(destination), datagram, now_ns)
        if self.checker is not None:
            self.checker.sent(source, datagram, now_ns)
        if destination.is_multicast:
            # Each member has a link of its own: one may miss what another receives.
            for member in self._receivers(destination):
                self._fly(source, destination, datagram, now_ns, member)
        else:
            self._fly(source, destination, datagram, now_ns, None)

    def _fly(
        self, source: InetAddress, destination: InetAddress, datagram: bytes, now_ns: int, member: SimSocket | None
    ) -> None:
        link = (source.ip, destination.ip if member is None else member.local.ip)
        delays = [] if link in self._cut else self._links.get(link, self.faults).arrivals_ns(self._chance)
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
            if self.checker is not None:
                self.checker.arrived(receiver.local, flight.datagram, now_ns)
            receiver.transport.deliver(flight.datagram, flight.source.packed)

    def _receivers(self, destination: InetAddress) -> list[SimSocket]:
        if destination.is_multicast:
            return [one for one in self._open_sockets() if one.group == destination]
        bound = self._bound_to(destination)
        return [] if bound is None else [bound]

"""A network in memory: hosts with addresses, links with faults, and datagrams that arrive according to the manual clock."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import TYPE_CHECKING, NamedTuple

from mainstem._core.driver.datagram import MemoryTransport
from mainstem._internal.clock import NS_PER_MS, NS_PER_SECOND
from mainstem.aeron.driver.media.addresses import InetAddress
from mainstem.errors import ConfigurationError
from mainstem.sim.faults import PERFECT, Faults

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from random import Random

    from mainstem.instruments import Instrument
    from mainstem.sim.wire import WireChecker


# -- links -------------------------------------------------------------------------------------------------------------


# Otherwise, the rare heartbeats of a quiet stream would make a burst last longer than every timeout.
MAX_BURST_NS = 200 * NS_PER_MS
MAX_FLIPPED_BITS = 8  # in one corrupted datagram


class Arrival(NamedTuple):
    """A datagram that arrives. ``is_damaged`` means that its bytes differ from those sent."""

    due_ns: int
    datagram: bytes
    is_damaged: bool


class Link:
    """A link that carries datagrams, with faults. ``counts`` is the number of faults by kind."""

    def __init__(self, faults: Faults, counts: Counter[str], rng: Random) -> None:
        self.faults = faults
        self.is_cut = False
        self._counts = counts
        self._random = rng.random
        self._range = rng.randrange
        self._bursting = False
        self._burst_end_ns = 0
        self._free_ns = 0  # when the queue of a link with a limited rate will be empty
        self._is_plain = not (faults.mtu or faults.burst or faults.corruption or faults.truncation or faults.rate)

    def carry(self, datagram: bytes, now_ns: int) -> list[Arrival]:
        """Draw the fate of a datagram. Return each copy that arrives: none if it is lost, two if it is duplicated."""
        faults = self.faults
        if self.is_cut:
            self._counts["cut"] += 1
            return []
        if faults.loss and self._random() < faults.loss:
            self._counts["loss"] += 1
            return []
        is_damaged = False
        wait_ns = 0
        if not self._is_plain:
            if self._vanishes(len(datagram), now_ns):
                return []
            damaged = self._damaged(datagram)
            if damaged is None:
                return []
            is_damaged, datagram = damaged is not datagram, damaged
            if faults.rate:
                wait_ns = self._queued_ns(len(datagram), now_ns)
                if wait_ns < 0:
                    self._counts["clog"] += 1
                    return []
        arrivals = [Arrival(now_ns + wait_ns + self._delay_ns(), datagram, is_damaged)]
        if faults.duplication and self._random() < faults.duplication:
            self._counts["duplication"] += 1
            arrivals.append(Arrival(now_ns + wait_ns + self._delay_ns(), datagram, is_damaged))
        return arrivals

    def _delay_ns(self) -> int:
        faults = self.faults
        delay_ns = faults.delay_ns
        if faults.jitter_ns:
            delay_ns += int(self._random() * faults.jitter_ns)
        if faults.reorder and self._random() < faults.reorder:
            self._counts["reorder"] += 1
            delay_ns += int(self._random() * faults.reorder_ns)
        return delay_ns

    def _vanishes(self, length: int, now_ns: int) -> bool:
        faults = self.faults
        if faults.mtu and length > faults.mtu:
            self._counts["mtu"] += 1
            return True
        if faults.burst:
            # A Markov chain with two states. It leaves the lossy state after ``burst_length`` datagrams on average.
            if self._bursting:
                self._bursting = now_ns < self._burst_end_ns and self._random() >= 1 / max(1, faults.burst_length)
            elif self._random() < faults.burst:
                self._bursting = True
                self._burst_end_ns = now_ns + MAX_BURST_NS
            if self._bursting:
                self._counts["burst"] += 1
        return self._bursting

    def _damaged(self, datagram: bytes) -> bytes | None:
        """Return the datagram as it arrives; None if its checksum fails."""
        faults = self.faults
        if faults.corruption and datagram and self._random() < faults.corruption:
            self._counts["corruption"] += 1
            damaged = bytearray(datagram)
            for _ in range(self._range(1, MAX_FLIPPED_BITS + 1)):
                damaged[self._range(len(damaged))] ^= 1 << self._range(8)
            return None if faults.checksum else bytes(damaged)
        if faults.truncation and datagram and self._random() < faults.truncation:
            self._counts["truncation"] += 1
            return None if faults.checksum else datagram[: self._range(len(datagram))]
        return datagram

    def _queued_ns(self, length: int, now_ns: int) -> int:
        """Return how long a datagram waits in the queue; negative if the queue is full."""
        faults = self.faults
        wait_ns = max(0, self._free_ns - now_ns)
        if wait_ns * faults.rate // NS_PER_SECOND + length > faults.queue_length:
            return -1
        self._free_ns = now_ns + wait_ns + length * NS_PER_SECOND // faults.rate
        return self._free_ns - now_ns


FIRST_EPHEMERAL_PORT = 40_000
CONTROL_LENGTH = 48  # bytes: heartbeats and most control frames are at most this long
MAX_IN_FLIGHT = 200_000  # datagrams: a network with more in flight is being flooded and would use up the memory


@dataclass(slots=True)
class SimSocket:
    """A bound socket of a host."""

    transport: MemoryTransport
    local: InetAddress
    connected: InetAddress | None
    group: InetAddress | None
    packed: bytes = field(init=False)
    text: str = field(init=False)

    def __post_init__(self) -> None:
        self.packed = self.local.packed
        self.text = str(self.local)


class _Peer(NamedTuple):
    address: InetAddress
    text: str
    is_multicast: bool


class _Flight(NamedTuple):
    """A datagram in flight. ``number`` is unique, so comparisons never reach later fields."""

    due_ns: int
    number: int
    source: SimSocket
    destination: InetAddress
    datagram: bytes
    is_damaged: bool
    member: SimSocket | None  # of the group that the datagram was sent to


class SimNetwork:
    """Moves datagrams between hosts. All random choices come from ``rng``, so the seed determines a run.

    ``pump(now_ns)`` collects the datagrams that were sent and delivers those that are due.

    Args:
        rng: Source of all random choices.
        faults: The faults of every link not set with ``link``.
        instrument: Notified of each datagram that is sent or arrives.

    Attributes:
        counts: Number of faults so far, by kind.
        without: Kinds of faults that are switched off on every link.
        bytes_delivered: Bytes of the datagrams that arrived.
        has_damaged: Whether a datagram arrived altered since the last reset.
        has_moved_data: Whether anything but control frames and heartbeats was sent since the last reset.
    """

    def __init__(self, rng: Random, *, faults: Faults = PERFECT, instrument: Instrument | None = None) -> None:
        self.counts: Counter[str] = Counter()
        self.without: Collection[str] = ()
        self.sent = 0
        self.lost = 0
        self.delivered = 0
        self.bytes_delivered = 0
        self.has_moved_data = False
        self.has_damaged = False
        self.unroutable = 0
        self._rng = rng
        self._instrument = instrument
        # Set only on request, because it requires the default settings, which a user's world can change.
        self.checker: WireChecker | None = None
        self._faults = faults
        self._links: dict[tuple[str, str], Link] = {}
        self._sockets: list[SimSocket] = []
        self._bound: dict[InetAddress, SimSocket] = {}
        self._peers: dict[bytes, _Peer] = {}
        self._flights: list[_Flight] = []
        self._number = 0
        self._next_port = FIRST_EPHEMERAL_PORT

    @property
    def faults(self) -> Faults:
        """The faults of every link not set with ``link``."""
        return self._faults

    @faults.setter
    def faults(self, faults: Faults) -> None:
        named = [key for key, link in self._links.items() if link.faults is not self._faults]
        self._faults = faults.without(self.without)
        for key in self._links:
            if key not in named:
                self._replace(key, self._faults)

    def link(self, source: str, destination: str, faults: Faults) -> None:
        """Set the faults of the direction from ``source`` to ``destination`` (addresses of hosts) to ``faults``."""
        self._replace((source, destination), faults.without(self.without))

    def _replace(self, key: tuple[str, str], faults: Faults) -> None:
        link = Link(faults, self.counts, self._rng)
        link.is_cut = key in self._links and self._links[key].is_cut
        self._links[key] = link

    def _link(self, source: str, destination: str) -> Link:
        link = self._links.get((source, destination))
        if link is None:
            link = self._links[source, destination] = Link(self._faults, self.counts, self._rng)
        return link

    def partition(self, source: str, destination: str) -> None:
        """Lose every datagram from ``source`` to ``destination``, until ``heal``."""
        self._link(source, destination).is_cut = True

    def heal(self, source: str, destination: str) -> None:
        """End the ``partition`` from ``source`` to ``destination``."""
        self._link(source, destination).is_cut = False

    def open(
        self, local: InetAddress, *, connected: InetAddress | None = None, group: InetAddress | None = None
    ) -> SimSocket:
        """Bind a socket and return it.

        Args:
            local: Its address. Port 0 takes the next free port.
            connected: The only address it exchanges datagrams with.
            group: A multicast address to join. Any number of sockets may join one.

        Raises:
            ConfigurationError: The address is taken.
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

    def _peer(self, packed: bytes) -> _Peer:
        peer = self._peers.get(packed)
        if peer is None:
            address = InetAddress.unpack(packed)
            peer = self._peers[packed] = _Peer(address, str(address), address.is_multicast)
        return peer

    def close_all(self, address: str) -> None:
        """Close every socket of the host at ``address``, as its kernel does when a program ends."""
        for one in self._sockets:
            if one.local.ip == address:
                one.transport.close()

    @property
    def round_trip_ns(self) -> int:
        """The longest round trip between two hosts over the current links, in nanoseconds."""
        ways = [link.faults for link in self._links.values()] or [self._faults]
        return 2 * max(each.delay_ns + each.jitter_ns + (each.reorder_ns if each.reorder else 0) for each in ways)

    def sockets(self, address: str) -> list[SimSocket]:
        """Return the open sockets of the host at ``address``, oldest first."""
        return [one for one in self._sockets if one.local.ip == address and not one.transport.closed]

    def pump(self, now_ns: int) -> int:
        """Collect every datagram that was sent, deliver those due at ``now_ns``, and return how many moved."""
        moved = 0
        has_closed = False
        for source in self._sockets:
            transport = source.transport
            if transport.closed:
                has_closed = True
            elif transport.sent:
                moved += self._collect(source, now_ns)
        if has_closed:
            self._sockets = [one for one in self._sockets if not one.transport.closed]
        flights = self._flights
        while flights and flights[0].due_ns <= now_ns:
            self._deliver(heappop(flights), now_ns)
            moved += 1
        if self.checker is not None:
            self.checker.pumped()
        return moved

    def next_arrival_ns(self) -> int | None:
        """Return when the next datagram arrives, in monotonic nanoseconds; None if none is in flight."""
        return self._flights[0].due_ns if self._flights else None

    def _collect(self, source: SimSocket, now_ns: int) -> int:
        datagrams = source.transport.take()
        for packed, datagram in datagrams:
            if packed is None:
                if source.connected is None:
                    raise ConfigurationError(
                        f"{source.local}: a datagram without a destination on an unconnected socket"
                    )
                packed = source.connected.packed
            self._send(source, self._peer(packed), datagram, now_ns)
        self.sent += len(datagrams)
        return len(datagrams)

    def _send(self, source: SimSocket, peer: _Peer, datagram: bytes, now_ns: int) -> None:
        if len(datagram) > CONTROL_LENGTH:
            self.has_moved_data = True
        if self._instrument is not None:
            self._instrument.frame_out(peer.text, datagram, now_ns)
        if self.checker is not None:
            self.checker.sent(source.local, peer.address, datagram, now_ns)
        if peer.is_multicast:
            # Each member has its own link, so one can miss a datagram that another receives.
            for member in self._receivers(peer.address):
                self._fly(source, peer.address, datagram, now_ns, member)
        else:
            self._fly(source, peer.address, datagram, now_ns, None)

    def _fly(
        self, source: SimSocket, destination: InetAddress, datagram: bytes, now_ns: int, member: SimSocket | None
    ) -> None:
        at = destination.ip if member is None else member.local.ip
        arrivals = self._link(source.local.ip, at).carry(datagram, now_ns)
        if not arrivals:
            self.lost += 1
            if self.checker is not None:
                self.checker.lost(at, datagram, now_ns)
        for due_ns, arriving, is_damaged in arrivals:
            if len(self._flights) >= MAX_IN_FLIGHT:
                raise ConfigurationError(f"more than {MAX_IN_FLIGHT} datagrams in flight")
            self._number += 1
            heappush(self._flights, _Flight(due_ns, self._number, source, destination, arriving, is_damaged, member))

    def _deliver(self, flight: _Flight, now_ns: int) -> None:
        receivers = self._receivers(flight.destination) if flight.member is None else (flight.member,)
        if not receivers:
            self.unroutable += 1
        for receiver in receivers:
            if receiver.connected is not None and receiver.connected != flight.source.local:
                continue
            self.delivered += 1
            self.bytes_delivered += len(flight.datagram)
            if flight.is_damaged:
                self.has_damaged = True
            if self._instrument is not None:
                self._instrument.frame_in(flight.source.text, flight.datagram, now_ns)
            if self.checker is not None:
                if flight.is_damaged:
                    self.checker.damaged()
                else:
                    self.checker.arrived(receiver.local, flight.datagram, now_ns)
            receiver.transport.deliver(flight.datagram, flight.source.packed)

    def _receivers(self, destination: InetAddress) -> Sequence[SimSocket]:
        if destination.is_multicast:
            return [one for one in self._sockets if one.group == destination and not one.transport.closed]
        bound = self._bound_to(destination)
        return () if bound is None else (bound,)

"""Drivers that tell one another their names: RES frames over a UDP socket of its own (behaviour, 13.8 and 22.1)."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mainstem._core.driver.datagram import Address
from mainstem.aeron.channel_values import parse_address, parse_interface
from mainstem.aeron.counters import bootstrap_neighbor, resolver_cache_entries, resolver_neighbors
from mainstem.aeron.driver.media.addresses import InetAddress
from mainstem.aeron.driver.media.transport import TransportRequest
from mainstem.aeron.driver.naming.cache import NameCache, Neighbors
from mainstem.aeron.protocol.frames import Resolution, ResolutionEntry
from mainstem.aeron.system_counter import SystemCounter
from mainstem.clock import NS_PER_MS
from mainstem.errors import RemoteProtocolError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mainstem._core.memory.counters import CounterCell
    from mainstem.aeron.driver.counters import DriverCounters
    from mainstem.aeron.driver.event_log import EventLog
    from mainstem.aeron.driver.media.transport import Transports
    from mainstem.aeron.driver.settings import DriverSettings
    from mainstem.aeron.system_counter import SystemCounters
    from mainstem.instruments import Instrument

DUTY_CYCLE_NS = 10 * NS_PER_MS
MAX_BATCHES = 16  # of datagrams taken in one duty cycle: a flood of them must not hold the conductor up
MAX_DATAGRAM = 1408  # what is told at once: the default MTU, which every path is expected to carry
MAX_AGE_MS = 0x7FFFFFFF
ANYWHERE = "0.0.0.0:0"
EVERYBODY = "255.255.255.255"


@dataclass(slots=True)
class _Bootstrap:
    """A neighbour to begin with: its name as it was told, and its address once that is known."""

    name: str
    shown: CounterCell
    address: InetAddress | None = None
    due_ns: int = 0


class DriverResolver:
    """One driver's part; runs in the conductor's thread, ``do_work`` every ten milliseconds.

    ``settings.driver_resolver_name`` must be there. Raises ConfigurationError when the socket cannot be opened.
    """

    def __init__(
        self,
        settings: DriverSettings,
        transports: Transports,
        counters: DriverCounters,
        system_counters: SystemCounters,
        instrument: Instrument,
        events: EventLog | None = None,
        *,
        now_ns: int,
    ) -> None:
        self.name = settings.driver_resolver_name or ""
        self._settings = settings
        self._transports = transports
        self._counters = counters
        self._system_counters = system_counters
        self._instrument = instrument
        self._events = events
        bind = parse_interface(settings.driver_resolver_interface or ANYWHERE)
        self._open = transports.open(TransportRequest(bind=InetAddress(transports.resolve(bind.host), bind.port)))
        self._local = self._open.local_address
        self._cache = NameCache()
        self._neighbors = Neighbors()
        told = settings.driver_resolver_bootstrap_neighbor or ""
        names = [part.strip() for part in told.split(",") if part.strip()]
        self._shown_neighbors = counters.allocate(resolver_neighbors(str(self._local), told))
        self._shown_entries = counters.allocate(resolver_cache_entries(self.name))
        self._bootstrap = [_Bootstrap(name, counters.allocate(bootstrap_neighbor(name))) for name in names]
        self._tell_self_ns = self._tell_all_ns = now_ns
        self.deadline_ns = now_ns

    @property
    def local_address(self) -> InetAddress:
        """What its socket is bound to."""
        return self._local

    def find(self, name: str) -> str | None:
        """The address of a driver's name; None for a name that no driver has told."""
        if name == self.name:
            return self._local.ip
        address = self._cache.find(name)
        return None if address is None else address.ip

    def do_work(self, now_ns: int) -> int:
        """Takes in what others told, forgets who fell silent, tells what is due; how many datagrams there were."""
        self.deadline_ns = now_ns + DUTY_CYCLE_NS
        work = self._receive(now_ns)
        self._expire(now_ns)
        self._resolve_bootstrap(now_ns)
        if now_ns >= self._tell_self_ns:
            self._tell_self_ns = now_ns + self._settings.driver_resolver_self_resolution_interval_ns
            first = {each.address for each in self._bootstrap if each.address is not None}
            own = ResolutionEntry(
                name=self.name, address=ipaddress.ip_address(self._local.ip), port=self._local.port, is_self=True
            )
            work += self._tell([own], {*first, *self._neighbors})
        if now_ns >= self._tell_all_ns:
            self._tell_all_ns = now_ns + self._settings.driver_resolver_neighbor_resolution_interval_ns
            work += self._tell(
                [_entry(each.name, each.address, now_ns - each.last_activity_ns) for each in self._cache],
                self._neighbors,
            )
        self._show()
        return work

    def close(self) -> None:
        """Closes the socket."""
        self._open.close()

    def _receive(self, now_ns: int) -> int:
        count = 0
        for _ in range(MAX_BATCHES):
            datagrams = self._open.transport.read()
            if not datagrams:
                break
            for datagram, source in datagrams:
                count += 1
                try:
                    resolution = Resolution.decode(datagram)
                except RemoteProtocolError:
                    self._system_counters.increment(SystemCounter.INVALID_PACKETS)
                    continue
                for entry in resolution.entries:
                    if not self._on_entry(entry, InetAddress.unpack(source), now_ns):
                        self._system_counters.increment(SystemCounter.INVALID_PACKETS)
        return count

    def _on_entry(self, entry: ResolutionEntry, source: InetAddress, now_ns: int) -> bool:
        """Takes one name in; false for an address where no driver can be."""
        if entry.name == self.name and entry.port == self._local.port:
            return True
        address = InetAddress(str(entry.address), entry.port)
        if address.is_wildcard and entry.is_self:
            address = source.with_port(entry.port)
        if address.is_wildcard or address.is_multicast or address.ip == EVERYBODY or not entry.name:
            return False
        age_ns = max(0, entry.age_ms) * NS_PER_MS
        if age_ns > self._settings.driver_resolver_neighbor_timeout_ns:
            return True
        self._cache.put(entry.name, address, now_ns - age_ns)
        # Without a port, or with an address of the other kind, a driver can be found by its name and not be talked to.
        can_be_told = bool(address.port) and address.is_v6 == self._local.is_v6
        if can_be_told and self._neighbors.heard(address, now_ns, is_self=entry.is_self):
            self._instrument.state_change(f"resolver neighbor {address}", "UNKNOWN", "ADDED", now_ns)
            self._note("NAME_RESOLUTION_NEIGHBOR_ADDED", address, now_ns)
        return True

    def _expire(self, now_ns: int) -> None:
        before_ns = now_ns - self._settings.driver_resolver_neighbor_timeout_ns
        self._cache.expire(before_ns)
        for address in self._neighbors.expire(before_ns):
            self._instrument.state_change(f"resolver neighbor {address}", "ADDED", "REMOVED", now_ns)
            self._note("NAME_RESOLUTION_NEIGHBOR_REMOVED", address, now_ns)

    def _note(self, event: str, address: InetAddress, now_ns: int) -> None:
        if self._events is not None:
            self._events.note(event, str(address), now_ns)

    def _resolve_bootstrap(self, now_ns: int) -> None:
        """Looks up the neighbours to begin with, again and again while they do not answer."""
        for each in self._bootstrap:
            if now_ns < each.due_ns or (each.address is not None and each.address in self._neighbors):
                continue
            each.due_ns = now_ns + self._settings.driver_resolver_bootstrap_neighbor_resolution_interval_ns
            host, port = parse_address(each.name)
            try:
                address = InetAddress(self._transports.resolve(host), port)
            except LookupError:
                address = None
            if address != each.address:
                each.address = address
                self._counters.relabel(each.shown, bootstrap_neighbor(each.name, str(address or "")))

    def _tell(self, entries: list[ResolutionEntry], to: Iterable[InetAddress]) -> int:
        """Sends entries to every address but the one that an entry is about; how many datagrams left."""
        sent = 0
        for address in to:
            about_others = [e for e in entries if e.is_self or (str(e.address), e.port) != (address.ip, address.port)]
            for frame in _frames(about_others):
                if not self._open.transport.send(frame, Address(address.packed)):
                    self._system_counters.increment(SystemCounter.SHORT_SENDS)
                sent += 1
        return sent

    def _show(self) -> None:
        self._shown_neighbors.set_release(len(self._neighbors))
        self._shown_entries.set_release(len(self._cache))
        for each in self._bootstrap:
            each.shown.set_release(int(each.address is not None and each.address in self._neighbors))


def _entry(name: str, address: InetAddress, age_ns: int) -> ResolutionEntry:
    return ResolutionEntry(
        name=name,
        address=ipaddress.ip_address(address.ip),
        port=address.port,
        age_ms=min(age_ns // NS_PER_MS, MAX_AGE_MS),
    )


def _frames(entries: list[ResolutionEntry]) -> list[bytes]:
    """The entries over as many datagrams as they need."""
    groups: list[list[ResolutionEntry]] = []
    room = 0
    for entry in entries:
        length = len(entry.encode())
        if length > room:
            groups.append([])
            room = MAX_DATAGRAM
        groups[-1].append(entry)
        room -= length
    return [Resolution(entries=tuple(group)).encode() for group in groups]

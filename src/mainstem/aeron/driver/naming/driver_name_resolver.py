"""A resolver that exchanges names with other drivers in RES frames (docs/protocols/aeron.md, 13.8 and 22.1).

Theory of operation
-------------------
A named driver has a UDP socket for RES frames. In every self-resolution interval, it sends its own entry (name, address, port) to
its neighbors. In every neighbor-resolution interval, it sends all entries that it knows, so names spread as gossip. The first
neighbors are the bootstrap neighbors of the settings, whose names the driver resolves again until they respond.

``NameCache`` holds an address for each (name, IP version), and ``Neighbors`` the socket addresses of other drivers. Both remove
entries after the neighbor timeout and hold at most MAX_ENTRIES, so forged names cannot grow the driver's memory. Nor can forged
names use up its time: a duty cycle handles about MAX_ENTRIES_PER_CYCLE entries, drops the rest, as a full socket buffer would, and
sends at most MAX_SENDS_PER_CYCLE datagrams. An announcement is a generator that each cycle advances. The next announcement starts
when the generator is exhausted.

The resolver runs in the conductor's thread every ten milliseconds. It counts malformed datagrams as invalid packets and drops
them. Frames can be lost, repeated or reordered. Each entry carries its age, and an older entry never replaces a newer one.

- The time of an entry is the last activity of its driver, computed from the age. It is never in the future.
- Only a driver's own entry (``is_self``) keeps a neighbor alive.
- A driver ignores its own name and port in frames of others, so it never becomes its own neighbor.
- In a driver's own entry, a wildcard address stands for the source address of the datagram.
"""

from __future__ import annotations

import ipaddress
from itertools import islice
from typing import TYPE_CHECKING

from mainstem._core.driver.datagram import Address
from mainstem._core.system_counter import SystemCounter
from mainstem._internal.clock import NS_PER_MS
from mainstem._internal.frozen import mutable
from mainstem.aeron.channel_values import parse_address, parse_interface
from mainstem.aeron.command.error_code import ErrorCode
from mainstem.aeron.counters import bootstrap_neighbor, resolver_cache_entries, resolver_neighbors
from mainstem.aeron.driver.event_log.events import Event
from mainstem.aeron.driver.media.addresses import InetAddress
from mainstem.aeron.driver.media.transport import TransportRequest
from mainstem.aeron.driver.settings import port_range
from mainstem.aeron.protocol.frames import Resolution, ResolutionEntry
from mainstem.errors import RemoteProtocolError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mainstem._core.memory.counters import CounterCell
    from mainstem.aeron.driver.counters import DriverCounters, SystemCounters
    from mainstem.aeron.driver.errors import ErrorRecorder
    from mainstem.aeron.driver.event_log.log import EventLog
    from mainstem.aeron.driver.media.transport import Transports
    from mainstem.aeron.driver.settings import DriverSettings
    from mainstem.instruments import Instrument

DUTY_CYCLE_NS = 10 * NS_PER_MS
# Limits on what a flood costs the conductor in one duty cycle. An entry takes about 15 us, and sending a datagram about 5 us. A
# hundred drivers that all know each other cause 50 entries per cycle.
MAX_ENTRIES_PER_CYCLE = 256
MAX_SENDS_PER_CYCLE = 64
MAX_DATAGRAM = 1408  # maximum bytes of a RES frame to send: the default MTU, which every path should support
MAX_RECEIVED = 9216  # maximum bytes of a RES frame to accept: a jumbo frame
MAX_AGE_MS = 0x7FFFFFFF
ANYWHERE = "0.0.0.0:0"
BROADCAST = "255.255.255.255"
# Limit on the known names and on the known drivers, against floods of forged entries.
MAX_ENTRIES = 1024


Datagram = tuple[bytes, InetAddress]


@mutable
class CacheEntry:
    name: str
    address: InetAddress
    last_activity_ns: int


class NameCache:
    def __init__(self) -> None:
        self._entries: dict[tuple[str, bool], CacheEntry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[CacheEntry]:
        return iter(self._entries.values())

    def put(self, name: str, address: InetAddress, last_activity_ns: int) -> None:
        """Store a name, unless a newer entry exists or the name is new and there are MAX_ENTRIES."""
        key = (name, address.is_v6)
        known = self._entries.get(key)
        if known is None:
            if len(self._entries) < MAX_ENTRIES:
                self._entries[key] = CacheEntry(name=name, address=address, last_activity_ns=last_activity_ns)
        elif last_activity_ns >= known.last_activity_ns:
            known.address, known.last_activity_ns = address, last_activity_ns

    def find(self, name: str) -> InetAddress | None:
        """Return the address of a name, IPv4 first."""
        entry = self._entries.get((name, False)) or self._entries.get((name, True))
        return None if entry is None else entry.address

    def expire(self, before_ns: int) -> None:
        for key in [key for key, entry in self._entries.items() if entry.last_activity_ns < before_ns]:
            del self._entries[key]


class Neighbors:
    def __init__(self) -> None:
        self._heard_ns: dict[InetAddress, int] = {}

    def __len__(self) -> int:
        return len(self._heard_ns)

    def __iter__(self) -> Iterator[InetAddress]:
        return iter(self._heard_ns)

    def __contains__(self, address: object) -> bool:
        return address in self._heard_ns

    def heard(self, address: InetAddress, now_ns: int, *, is_self: bool) -> bool:
        """Record an entry for an address and return whether it is a new neighbor.

        Later, only the driver's own entry (``is_self``) keeps the neighbor alive.
        """
        is_new = address not in self._heard_ns
        if is_new and len(self._heard_ns) >= MAX_ENTRIES:
            return False
        if is_new or is_self:
            self._heard_ns[address] = now_ns
        return is_new

    def expire(self, before_ns: int) -> list[InetAddress]:
        silent = [address for address, heard_ns in self._heard_ns.items() if heard_ns < before_ns]
        for address in silent:
            del self._heard_ns[address]
        return silent


@mutable
class _Bootstrap:
    """A bootstrap neighbor: its name in the settings, and its address once it is known."""

    index: int
    name: str
    shown: CounterCell
    address: InetAddress | None = None
    due_ns: int = 0


class DriverNameResolver:
    """The resolver of one driver. ``do_work`` must run every ten milliseconds.

    ``settings.driver_resolver_name`` must be set. Raises ConfigurationError if the socket cannot be opened.
    """

    def __init__(
        self,
        settings: DriverSettings,
        transports: Transports,
        counters: DriverCounters,
        system_counters: SystemCounters,
        instrument: Instrument,
        errors: ErrorRecorder,
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
        self._errors = errors
        self._events = events
        bind = parse_interface(settings.driver_resolver_interface or ANYWHERE)
        self._open = transports.open(
            TransportRequest(
                bind=InetAddress(transports.resolve(bind.host), bind.port),
                port_range=port_range(settings.receiver_wildcard_port_range or ""),
            )
        )
        self._local = self._open.local_address
        self._cache = NameCache()
        self._neighbors = Neighbors()
        bootstrap = settings.driver_resolver_bootstrap_neighbor or ""
        names = [part.strip() for part in bootstrap.split(",") if part.strip()]
        self._shown_neighbors = counters.allocate(resolver_neighbors(str(self._local)))
        self._shown_entries = counters.allocate(resolver_cache_entries(self.name))
        self._bootstrap = [
            _Bootstrap(index=index, name=name, shown=counters.allocate(bootstrap_neighbor(index, name)))
            for index, name in enumerate(names)
        ]
        self._self_due_ns = self._all_due_ns = now_ns
        self._sending_self: Iterator[Datagram] = iter(())
        self._sending_all: Iterator[Datagram] = iter(())
        self.deadline_ns = now_ns

    @property
    def local_address(self) -> InetAddress:
        return self._local

    def find(self, name: str) -> str | None:
        if name == self.name:
            return self._local.ip
        address = self._cache.find(name)
        return None if address is None else address.ip

    def do_work(self, now_ns: int) -> int:
        self.deadline_ns = now_ns + DUTY_CYCLE_NS
        work = self._receive(now_ns)
        self._expire(now_ns)
        self._resolve_bootstrap(now_ns)
        work += self._announce(now_ns)
        self._publish()
        return work

    def close(self) -> None:
        self._open.close()

    def _announce(self, now_ns: int) -> int:
        """Send due datagrams up to the limit and return how many. This driver's own name goes first: it keeps the driver known."""
        room = MAX_SENDS_PER_CYCLE
        sent = self._send(islice(self._sending_self, room))
        if sent < room and now_ns >= self._self_due_ns:
            self._self_due_ns = now_ns + self._settings.driver_resolver_self_resolution_interval_ns
            first = [each.address for each in self._bootstrap if each.address is not None]
            own = ResolutionEntry(
                name=self.name, address=ipaddress.ip_address(self._local.ip), port=self._local.port, is_self=True
            )
            self._sending_self = _datagrams([own], list(dict.fromkeys((*first, *self._neighbors))))
            sent += self._send(islice(self._sending_self, room - sent))
        sent += self._send(islice(self._sending_all, room - sent))
        if sent < room and now_ns >= self._all_due_ns:
            self._all_due_ns = now_ns + self._settings.driver_resolver_neighbor_resolution_interval_ns
            known = [_entry(each.name, each.address, now_ns - each.last_activity_ns) for each in self._cache]
            self._sending_all = _datagrams(known, list(self._neighbors))
            sent += self._send(islice(self._sending_all, room - sent))
        return sent

    def _receive(self, now_ns: int) -> int:
        count = entries = 0
        while entries < MAX_ENTRIES_PER_CYCLE and (datagrams := self._open.transport.read()):
            for datagram, source in datagrams:
                count += 1
                if entries < MAX_ENTRIES_PER_CYCLE:
                    entries += self._on_datagram(datagram, source, now_ns)
        return count

    def _on_datagram(self, datagram: bytes, source: bytes, now_ns: int) -> int:
        """Store the names in a datagram and return the number of entries.

        The number is at least 1, so that empty and malformed datagrams also count against the limit.
        """
        try:
            if len(datagram) > MAX_RECEIVED:
                raise RemoteProtocolError(f"a RES frame of {len(datagram)} bytes is longer than {MAX_RECEIVED}")
            resolution = Resolution.decode(datagram)
        except RemoteProtocolError:
            self._system_counters.increment(SystemCounter.INVALID_PACKETS)
            return 1
        for entry in resolution.entries:
            if not self._on_entry(entry, InetAddress.unpack(source), now_ns):
                self._system_counters.increment(SystemCounter.INVALID_PACKETS)
        return len(resolution.entries) or 1

    def _on_entry(self, entry: ResolutionEntry, source: InetAddress, now_ns: int) -> bool:
        """Store one name; return False if no driver can have its address."""
        if entry.name == self.name and entry.port == self._local.port:
            return True
        address = InetAddress(str(entry.address), entry.port)
        if address.is_wildcard and entry.is_self:
            address = source.with_port(entry.port)
        if address.is_wildcard or address.is_multicast or address.ip == BROADCAST or not entry.name:
            return False
        age_ns = max(0, entry.age_ms) * NS_PER_MS
        if age_ns > self._settings.driver_resolver_neighbor_timeout_ns:
            return True
        self._cache.put(entry.name, address, now_ns - age_ns)
        # If the entry has no port, or an address of the other IP version, its name can be resolved, but the driver isn't a neighbor
        # because this socket cannot send to it.
        is_reachable = bool(address.port) and address.is_v6 == self._local.is_v6
        if is_reachable and self._neighbors.heard(address, now_ns, is_self=entry.is_self):
            self._instrument.state_change(f"resolver neighbor {address}", "UNKNOWN", "ADDED", now_ns)
            self._note(Event.NAME_RESOLUTION_NEIGHBOR_ADDED, address, now_ns)
        return True

    def _expire(self, now_ns: int) -> None:
        before_ns = now_ns - self._settings.driver_resolver_neighbor_timeout_ns
        self._cache.expire(before_ns)
        for address in self._neighbors.expire(before_ns):
            self._instrument.state_change(f"resolver neighbor {address}", "ADDED", "REMOVED", now_ns)
            self._note(Event.NAME_RESOLUTION_NEIGHBOR_REMOVED, address, now_ns)

    def _note(self, event: Event, address: InetAddress, now_ns: int) -> None:
        if self._events is not None:
            self._events.note(event, now_ns, address=address)

    def _resolve_bootstrap(self, now_ns: int) -> None:
        for each in self._bootstrap:
            if now_ns < each.due_ns or (each.address is not None and each.address in self._neighbors):
                continue
            each.due_ns = now_ns + self._settings.driver_resolver_bootstrap_neighbor_resolution_interval_ns
            address = None
            try:
                host, port = parse_address(each.name)
                address = InetAddress(self._transports.resolve(host), port)
            except (ValueError, LookupError) as error:
                self._errors.record(f"bootstrap neighbor {each.name}: {error}", code=ErrorCode.UNKNOWN_HOST)
            if address != each.address:
                each.address = address
                self._counters.relabel(each.shown, bootstrap_neighbor(each.index, each.name, str(address or "")))

    def _send(self, datagrams: Iterable[Datagram]) -> int:
        sent = 0
        for frame, address in datagrams:
            if not self._open.transport.send(frame, Address(address.packed)):
                self._system_counters.increment(SystemCounter.SHORT_SENDS)
            sent += 1
        return sent

    def _publish(self) -> None:
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


def _datagrams(entries: list[ResolutionEntry], to: list[InetAddress]) -> Iterator[Datagram]:
    """Yield datagrams with the entries for every address, but without the entry of that address itself.

    Frames are encoded once, except for those with an address's own entry.
    """
    groups = _groups(entries)
    frames = [Resolution(entries=tuple(group)).encode() for group in groups]
    group_of: dict[tuple[str, int], set[int]] = {}
    for number, group in enumerate(groups):
        for entry in group:
            if not entry.is_self:
                group_of.setdefault((str(entry.address), entry.port), set()).add(number)
    for address in to:
        own = (address.ip, address.port)
        with_own = group_of.get(own, ())
        for number, frame in enumerate(frames):
            if number not in with_own:
                yield frame, address
            elif others := [e for e in groups[number] if e.is_self or (str(e.address), e.port) != own]:
                yield Resolution(entries=tuple(others)).encode(), address


def _groups(entries: list[ResolutionEntry]) -> list[list[ResolutionEntry]]:
    groups: list[list[ResolutionEntry]] = []
    room = 0
    for entry in entries:
        length = len(entry.encode())
        if length > room:
            groups.append([])
            room = MAX_DATAGRAM
        groups[-1].append(entry)
        room -= length
    return groups

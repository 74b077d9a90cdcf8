"""Inject faults of links and hosts into a world, on a schedule drawn from the seed.

Each kind has a function that begins it and one that ends it; ``KINDS`` is the table. A crashed host restarts when the fault
ends, and a client that has ended is replaced. Scenarios check safety throughout, and liveness after ``heal``.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from mainstem._internal.clock import NS_PER_MS
from mainstem.errors import ClientTimeout, DriverTimeout
from mainstem.sim.faults import LINK_KINDS, Faults
from mainstem.sim.schedule import Schedule

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mainstem.sim.host import Host
    from mainstem.sim.schedule import Fault
    from mainstem.sim.world import World

MAX_LOSS = 0.5
MAX_DAMAGE = 0.1
MAX_BURST = 0.05
SMALL_MTU = 600  # bytes: setups, status messages and NAKs pass it, most data does not
SLOW_RATE = 50_000  # bytes in a second
MAX_DRIFT_PPM = 500
MAX_JUMP_MS = 20_000
BASE_DELAY_NS = 5 * NS_PER_MS  # of a link, at most
START_INTERVAL_NS = 200 * NS_PER_MS  # how often a machine tries to start while its last driver seems to live
SPACE_LEFT = 1_000  # bytes of a full disk


def _on_link(begin: Callable[[Faults, float], Faults]) -> Callable[[FaultInjector, Fault], None]:
    """Make a kind that changes a link: ``begin`` derives the link's faults from those without it."""

    def inject(injector: FaultInjector, fault: Fault) -> None:
        injector.degrade_link(fault, begin)

    return inject


def _cut(injector: FaultInjector, fault: Fault) -> None:
    injector.partition(fault.place, fault.other)


def _heal(injector: FaultInjector, fault: Fault) -> None:
    injector.heal_partition(fault.place, fault.other)


def _cut_both(injector: FaultInjector, fault: Fault) -> None:
    injector.partition(fault.place, fault.other)
    injector.partition(fault.other, fault.place)


def _heal_both(injector: FaultInjector, fault: Fault) -> None:
    injector.heal_partition(fault.place, fault.other)
    injector.heal_partition(fault.other, fault.place)


def _crash(injector: FaultInjector, fault: Fault) -> None:
    injector.host(fault).crash()


def _kill_client(injector: FaultInjector, fault: Fault) -> None:
    host = injector.host(fault)
    if host.is_up:
        injector.before_client_dies(host)
        host.kill_client()


def _pause(injector: FaultInjector, fault: Fault) -> None:
    injector.host(fault).is_paused = True


def _resume(injector: FaultInjector, fault: Fault) -> None:
    injector.host(fault).is_paused = False


def _pause_client(injector: FaultInjector, fault: Fault) -> None:
    injector.host(fault).is_client_paused = True


def _resume_client(injector: FaultInjector, fault: Fault) -> None:
    injector.host(fault).is_client_paused = False


def _drift(injector: FaultInjector, fault: Fault) -> None:
    injector.host(fault).clock.drift(int((2 * fault.amount - 1) * MAX_DRIFT_PPM))


def _keep_time(injector: FaultInjector, fault: Fault) -> None:
    injector.host(fault).clock.drift(0)


def _jump(injector: FaultInjector, fault: Fault) -> None:
    injector.host(fault).clock.jump_ms(int((2 * fault.amount - 1) * MAX_JUMP_MS))


def _fill_disk(injector: FaultInjector, fault: Fault) -> None:
    files = injector.host(fault).files
    files.space -= files.free_space("/") - SPACE_LEFT


def _empty_disk(injector: FaultInjector, fault: Fault) -> None:
    injector.host(fault).files.space = 1 << 40


def _shorten_writes(injector: FaultInjector, fault: Fault) -> None:
    injector.short[fault.place] = 1 + int(3 * fault.amount)


def _lengthen_writes(injector: FaultInjector, fault: Fault) -> None:
    injector.short.pop(fault.place, None)
    injector.limit_writes(fault.place, None)


def _slow(injector: FaultInjector, fault: Fault) -> None:
    injector.pause_probability[fault.place] = 0.9


def _stop_reading(injector: FaultInjector, fault: Fault) -> None:
    injector.pause_probability[fault.place] = 1.0


def _read_again(injector: FaultInjector, fault: Fault) -> None:
    injector.pause_probability.pop(fault.place, None)


def _nothing(injector: FaultInjector, fault: Fault) -> None:
    """End a fault that ends by itself."""


class Kind(NamedTuple):
    """How a kind of fault begins and ends. ``is_host_fault`` is true if it affects more than the network."""

    begin: Callable[[FaultInjector, Fault], None]
    end: Callable[[FaultInjector, Fault], None]
    is_host_fault: bool = True


def _link_kind(begin: Callable[[Faults, float], Faults]) -> Kind:
    return Kind(_on_link(begin), lambda injector, fault: injector.restore_link(fault), is_host_fault=False)


KINDS = {
    "loss": _link_kind(lambda faults, amount: replace(faults, loss=amount * MAX_LOSS)),
    "burst": _link_kind(lambda faults, amount: replace(faults, burst=amount * MAX_BURST)),
    "duplication": _link_kind(lambda faults, amount: replace(faults, duplication=amount)),
    "reorder": _link_kind(lambda faults, amount: replace(faults, reorder=amount)),
    "corruption": _link_kind(lambda faults, amount: replace(faults, corruption=amount * MAX_DAMAGE)),
    "truncation": _link_kind(lambda faults, amount: replace(faults, truncation=amount * MAX_DAMAGE)),
    # What passes the checksum all the same: a broken network card, or a hostile sender.
    "damage": _link_kind(
        lambda faults, amount: replace(
            faults, corruption=amount * MAX_DAMAGE, truncation=amount * MAX_DAMAGE, checksum=False
        )
    ),
    "mtu": _link_kind(lambda faults, _: replace(faults, mtu=SMALL_MTU)),
    "clog": _link_kind(lambda faults, amount: replace(faults, rate=SLOW_RATE + int(amount * 20 * SLOW_RATE))),
    "one_way": Kind(_cut, _heal, is_host_fault=False),
    "partition": Kind(_cut_both, _heal_both, is_host_fault=False),
    "crash": Kind(_crash, _nothing),
    "client_death": Kind(_kill_client, _nothing),
    "pause": Kind(_pause, _resume),
    "client_pause": Kind(_pause_client, _resume_client),
    "drift": Kind(_drift, _keep_time),
    "clock_jump": Kind(_jump, _nothing),
    "full_disk": Kind(_fill_disk, _empty_disk),
    "short_writes": Kind(_shorten_writes, _lengthen_writes),
    "slow_consumer": Kind(_slow, _read_again),
    "dead_consumer": Kind(_stop_reading, _read_again),
}


class FaultInjector:
    """Inject faults into a world's hosts on a schedule. Call ``step`` in every step of the world, and ``heal`` at the end.

    Args:
        world: The world. Its current hosts are the targets.
        kinds: The kinds of faults to draw from, out of ``KINDS``.
        length_ns: How long faults continue, in nanoseconds.
        before_client_dies: Called with the host whose client is about to die.

    Attributes:
        pause_probability: By host number, the probability that its consumers skip polling in a step.
        short: By host number, the number of runs each of its sockets accepts in a step.
    """

    def __init__(
        self,
        world: World,
        *,
        kinds: Sequence[str] = tuple(KINDS),
        length_ns: int,
        before_client_dies: Callable[[Host], None] = lambda _: None,
    ) -> None:
        self.world = world
        self.hosts = list(world.hosts)
        self.schedule = Schedule.drawn(world.seed, kinds, places=len(self.hosts), length_ns=length_ns, plan=world.plan)
        world.schedule = self.schedule
        self.before_client_dies = before_client_dies
        self.pause_probability: dict[int, float] = {}
        self.short: dict[int, int] = {}
        self._begun_ns = world.now_ns
        self._changes: dict[tuple[int, int], dict[int, Callable[[Faults], Faults]]] = defaultdict(dict)
        self._cuts: dict[tuple[int, int], int] = defaultdict(int)
        self._start_ns = 0
        self._delay_ns = world.rng.randrange(10_000, BASE_DELAY_NS)
        world.network.faults = Faults(delay_ns=self._delay_ns)
        world.expected_errors = (ClientTimeout, DriverTimeout)
        if any(KINDS[fault.kind].is_host_fault for fault in self.schedule.faults):
            # What ends owes nothing any more: the wire is checked where machines go on.
            world.network.checker = None

    def host(self, fault: Fault) -> Host:
        """The host that a fault affects."""
        return self.hosts[fault.place]

    def step(self) -> None:
        """Begin and end the faults that are due, and restart whatever ended early."""
        now_ns = self.world.now_ns
        for fault, begins in self.schedule.due(now_ns - self._begun_ns):
            if begins:
                if fault.kind not in LINK_KINDS:  # those are counted where they strike a datagram
                    self.world.network.counts[fault.kind] += 1
                self.world.trace.note(f"begins {fault}", now_ns)
                KINDS[fault.kind].begin(self, fault)
            else:
                self.world.trace.note(f"ends {fault}", now_ns)
                KINDS[fault.kind].end(self, fault)
        for place, limit in self.short.items():
            self.limit_writes(place, limit)
        if now_ns >= self._start_ns:
            self._start_ns = now_ns + START_INTERVAL_NS
            self._start_again()

    def _start_again(self) -> None:
        for host in self.hosts:
            if not host.is_up:
                if host.start():
                    self.world.trace.note(f"{host.name} has started again", self.world.now_ns)
            elif host.aeron.closed and not host.is_paused and not host.is_client_paused:
                try:
                    host.connect()
                except DriverTimeout:
                    # Its driver's heartbeat was written by another clock: the driver writes a new one within a second.
                    continue

    def heal(self) -> None:
        """End every fault. Hosts that are down restart within a few seconds of ``step`` calls."""
        for fault in self.schedule.heal():
            self.world.trace.note(f"heals {fault}", self.world.now_ns)
            KINDS[fault.kind].end(self, fault)

    @property
    def is_whole(self) -> bool:
        """Whether every host is up and has its client."""
        return all(host.is_up and not host.aeron.closed for host in self.hosts)

    def degrade_link(self, fault: Fault, begin: Callable[[Faults, float], Faults]) -> None:
        """Add a fault to a link."""
        self._changes[fault.place, fault.other][fault.number] = lambda faults: begin(faults, fault.amount)
        self._set_link(fault.place, fault.other)

    def restore_link(self, fault: Fault) -> None:
        """Remove a fault from a link."""
        self._changes[fault.place, fault.other].pop(fault.number, None)
        self._set_link(fault.place, fault.other)

    def _set_link(self, place: int, other: int) -> None:
        faults = Faults(delay_ns=self._delay_ns)
        for change in self._changes[place, other].values():
            faults = change(faults)
        self.world.network.link(self.hosts[place].address, self.hosts[other].address, faults)

    def partition(self, place: int, other: int) -> None:
        """Lose everything in one direction. Each call needs one ``heal_partition``."""
        self._cuts[place, other] += 1
        self.world.network.partition(self.hosts[place].address, self.hosts[other].address)

    def heal_partition(self, place: int, other: int) -> None:
        """Undo one ``partition``."""
        self._cuts[place, other] -= 1
        if not self._cuts[place, other]:
            self.world.network.heal(self.hosts[place].address, self.hosts[other].address)

    def limit_writes(self, place: int, limit: int | None) -> None:
        """Limit the number of runs that a host's sockets accept per step; None removes the limit."""
        for one in self.world.network.sockets(self.hosts[place].address):
            one.transport.send_limit = limit

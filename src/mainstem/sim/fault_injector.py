"""Inject faults of links and hosts into a world, on a schedule drawn from the seed.

Each kind has a function that begins it and one that ends it; ``KINDS`` is the table. A host that crashed or lost power restarts,
and a client that has ended is replaced. Scenarios check safety throughout, and liveness after ``heal``.
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
SMALL_MTU = 600  # bytes: setups, status messages and NAKs fit, most data does not
SLOW_RATE = 50_000  # bytes per second
MAX_DRIFT_PPM = 500
MAX_JUMP_MS = 20_000
BASE_DELAY_NS = 5 * NS_PER_MS  # maximum delay of a link
START_INTERVAL_NS = 200 * NS_PER_MS  # how often a host tries to start while its previous driver seems to be alive
SPACE_LEFT = 1_000  # bytes free on a full disk


class Kind(NamedTuple):
    """How a kind of fault starts and ends. ``is_host_fault`` means that it affects more than the network."""

    start: Callable[[FaultInjector, Fault], object]
    end: Callable[[FaultInjector, Fault], object] = lambda _injector, _fault: None
    is_host_fault: bool = True


def _link(begin: Callable[[Faults, float], Faults]) -> Kind:
    return Kind(
        lambda injector, fault: injector.degrade_link(fault, begin),
        lambda injector, fault: injector.restore_link(fault),
        is_host_fault=False,
    )


def _flag(name: str) -> Kind:
    return Kind(
        lambda injector, fault: setattr(injector.host(fault), name, True),
        lambda injector, fault: setattr(injector.host(fault), name, False),
    )


def _pauses(probability: float) -> Kind:
    return Kind(
        lambda injector, fault: injector.pause_probability.update({fault.host: probability}),
        lambda injector, fault: injector.pause_probability.pop(fault.host, None),
    )


def _partition(injector: FaultInjector, fault: Fault) -> None:
    injector.partition(fault.host, fault.other)
    injector.partition(fault.other, fault.host)


def _heal_partition(injector: FaultInjector, fault: Fault) -> None:
    injector.heal_partition(fault.host, fault.other)
    injector.heal_partition(fault.other, fault.host)


def _kill_client(injector: FaultInjector, fault: Fault) -> None:
    host = injector.host(fault)
    if host.is_up:
        injector.before_client_dies(host)
        host.kill_client()


def _fill_disk(injector: FaultInjector, fault: Fault) -> None:
    files = injector.host(fault).files
    files.space -= files.free_space("/") - SPACE_LEFT


def _lengthen_writes(injector: FaultInjector, fault: Fault) -> None:
    injector.short.pop(fault.host, None)
    injector.limit_writes(fault.host, None)


def _deviation(fault: Fault, most: int) -> int:
    return int((2 * fault.amount - 1) * most)


KINDS = {
    "loss": _link(lambda faults, amount: replace(faults, loss=amount * MAX_LOSS)),
    "burst": _link(lambda faults, amount: replace(faults, burst=amount * MAX_BURST)),
    "duplication": _link(lambda faults, amount: replace(faults, duplication=amount)),
    "reorder": _link(lambda faults, amount: replace(faults, reorder=amount)),
    "corruption": _link(lambda faults, amount: replace(faults, corruption=amount * MAX_DAMAGE)),
    "truncation": _link(lambda faults, amount: replace(faults, truncation=amount * MAX_DAMAGE)),
    # Damage that passes the checksum, as from a broken network card or a hostile sender.
    "damage": _link(
        lambda faults, amount: replace(
            faults, corruption=amount * MAX_DAMAGE, truncation=amount * MAX_DAMAGE, checksum=False
        )
    ),
    "mtu": _link(lambda faults, _: replace(faults, mtu=SMALL_MTU)),
    "clog": _link(lambda faults, amount: replace(faults, rate=SLOW_RATE + int(amount * 20 * SLOW_RATE))),
    "one_way": Kind(
        lambda injector, fault: injector.partition(fault.host, fault.other),
        lambda injector, fault: injector.heal_partition(fault.host, fault.other),
        is_host_fault=False,
    ),
    "partition": Kind(_partition, _heal_partition, is_host_fault=False),
    "crash": Kind(lambda injector, fault: injector.host(fault).crash()),
    "power_loss": Kind(lambda injector, fault: injector.host(fault).lose_power()),
    "client_death": Kind(_kill_client),
    "pause": _flag("is_paused"),
    "client_pause": _flag("is_client_paused"),
    "drift": Kind(
        lambda injector, fault: injector.host(fault).clock.drift(_deviation(fault, MAX_DRIFT_PPM)),
        lambda injector, fault: injector.host(fault).clock.drift(0),
    ),
    "clock_jump": Kind(lambda injector, fault: injector.host(fault).clock.jump_ms(_deviation(fault, MAX_JUMP_MS))),
    "full_disk": Kind(_fill_disk, lambda injector, fault: setattr(injector.host(fault).files, "space", 1 << 40)),
    "short_writes": Kind(
        lambda injector, fault: injector.short.update({fault.host: 1 + int(3 * fault.amount)}), _lengthen_writes
    ),
    "slow_consumer": _pauses(0.9),
    "dead_consumer": _pauses(1.0),
}


class FaultInjector:
    """Injects faults into a world's hosts on a schedule: call ``step`` in every step of the world, and ``heal`` at the end.

    ``kinds`` are the kinds to draw from, out of ``KINDS``. ``before_client_dies`` is called with the host. By host number,
    ``pause_probability`` is the probability that consumers skip a poll, and ``short`` the number of runs that each socket accepts
    per step.
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
        self.schedule = Schedule.drawn(world.seed, kinds, hosts=len(self.hosts), length_ns=length_ns, plan=world.plan)
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
            # A host that crashes has no obligations, so the datagrams cannot be checked.
            world.network.checker = None

    def host(self, fault: Fault) -> Host:
        return self.hosts[fault.host]

    def step(self) -> None:
        """Begin and end the faults that are due, and restart clients and drivers that have ended."""
        now_ns = self.world.now_ns
        for fault, begins in self.schedule.due(now_ns - self._begun_ns):
            if begins:
                if fault.kind not in LINK_KINDS:  # link faults are counted when they affect a datagram
                    self.world.network.counts[fault.kind] += 1
                self.world.trace.note(f"begins {fault}", now_ns)
                KINDS[fault.kind].start(self, fault)
            else:
                self.world.trace.note(f"ends {fault}", now_ns)
                KINDS[fault.kind].end(self, fault)
        for host, limit in self.short.items():
            self.limit_writes(host, limit)
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
                    # Another clock wrote the driver's heartbeat. The driver writes a new one within a second.
                    continue

    def heal(self) -> None:
        """End every fault. Hosts that are down restart within a few seconds of ``step`` calls."""
        for fault in self.schedule.heal():
            self.world.trace.note(f"heals {fault}", self.world.now_ns)
            KINDS[fault.kind].end(self, fault)

    @property
    def is_whole(self) -> bool:
        return all(host.is_up and not host.aeron.closed for host in self.hosts)

    def degrade_link(self, fault: Fault, begin: Callable[[Faults, float], Faults]) -> None:
        self._changes[fault.host, fault.other][fault.number] = lambda faults: begin(faults, fault.amount)
        self._set_link(fault.host, fault.other)

    def restore_link(self, fault: Fault) -> None:
        self._changes[fault.host, fault.other].pop(fault.number, None)
        self._set_link(fault.host, fault.other)

    def _set_link(self, host: int, other: int) -> None:
        faults = Faults(delay_ns=self._delay_ns)
        for change in self._changes[host, other].values():
            faults = change(faults)
        self.world.network.link(self.hosts[host].address, self.hosts[other].address, faults)

    def partition(self, host: int, other: int) -> None:
        """Lose everything in one direction, until ``heal_partition`` has been called as many times."""
        self._cuts[host, other] += 1
        self.world.network.partition(self.hosts[host].address, self.hosts[other].address)

    def heal_partition(self, host: int, other: int) -> None:
        self._cuts[host, other] -= 1
        if not self._cuts[host, other]:
            self.world.network.heal(self.hosts[host].address, self.hosts[other].address)

    def limit_writes(self, host: int, limit: int | None) -> None:
        for one in self.world.network.sockets(self.hosts[host].address):
            one.transport.send_limit = limit

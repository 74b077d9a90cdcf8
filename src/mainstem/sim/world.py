"""A world of hosts: each with a media driver in INVOKER mode and a client, on one manual clock and one seeded network."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any, Self

from mainstem.aeron.client.client import Aeron
from mainstem.aeron.client.context import ClientContext
from mainstem.aeron.client.settings import ClientSettings
from mainstem.aeron.driver.context import DriverContext
from mainstem.aeron.driver.media_driver import MediaDriver
from mainstem.aeron.driver.settings import DriverSettings, ThreadingMode
from mainstem.aeron.files import MemoryFiles
from mainstem.aeron.system_counter import SystemCounter
from mainstem.clock import NS_PER_MS, NS_PER_SECOND, NS_PER_US
from mainstem.sim.checkers import Violation
from mainstem.sim.clock import ManualClock
from mainstem.sim.network import SimNetwork
from mainstem.sim.trace import Trace
from mainstem.sim.transports import HostTransports
from mainstem.sim.wire import WireChecker

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from mainstem.sim.faults import Faults

TICK_NS = (
    100 * NS_PER_US
)  # a step of time while something happens: short beside every timer of the protocol but the NAK's
IDLE_TICK_NS = 5 * NS_PER_MS  # the longest step once nothing happens: steps double until then
MAX_TICKS = 2_000_000  # of one world: a run that needs more has stalled
# What a driver's shared memory needs for a few dozen streams: hundreds of worlds are made, and memory is zeroed each time.
SMALL_BUFFERS: dict[str, Any] = {
    "conductor_buffer_length": (1 << 16) + 768,
    "clients_buffer_length": (1 << 16) + 128,
    "counters_buffer_length": 1 << 20,
    "error_buffer_length": 1 << 16,
    "loss_report_buffer_length": 1 << 16,
}


@dataclass
class Host:
    """One simulated machine. ``names`` is its DNS: the address of a name may be set and changed at any time."""

    name: str
    address: str
    names: dict[str, str]
    files: MemoryFiles
    driver: MediaDriver
    aeron: Aeron

    def work(self) -> int:
        """Runs one duty cycle of the driver and the client of this machine.

        Returns:
            How much work there was.

        Example:
            ``while host.work(): pass``
        """
        return self.driver.do_work() + self.aeron.invoke()


class World:
    """Hosts on one manual clock and one seeded network. The same ``seed`` is the same run, frame for frame.

    Args:
        seed: Every random choice follows from it.
        faults: What the network does to datagrams; None for a perfect network.
    """

    def __init__(self, seed: int, *, faults: Faults | None = None) -> None:
        self.seed = seed
        self.chance = Random(seed)
        self.clock = ManualClock()
        self.trace = Trace()
        self.wire = WireChecker(self._refused)
        self.network = SimNetwork(self.chance, instrument=self.trace)
        if faults is not None:
            self.network.faults = faults
        self.hosts: list[Host] = []
        self.ticks = 0
        # A world of many hosts is run in coarser steps: at most ``tick_ns``, and arrivals within ``grain_ns`` in one of them.
        self.tick_ns = TICK_NS
        self.grain_ns = 1
        self._step_ns = TICK_NS
        self._starting: list[Callable[[], int]] = []
        self._failure: BaseException | None = None

    @property
    def now_ns(self) -> int:
        """Simulated time."""
        return self.clock.monotonic_ns()

    def add_host(self, name: str, **settings: Any) -> Host:
        """Adds a machine with a driver in INVOKER mode and a client that is connected to it.

        Args:
            name: The host's name, and its Aeron directory.
            **settings: Fields of ``DriverSettings``.

        Returns:
            The host.

        Example:
            ``host = world.add_host("one", mtu_length=1408)``
        """
        address = f"10.0.0.{len(self.hosts) + 1}"
        files = MemoryFiles()
        directory = f"/{name}"
        values = {"term_buffer_sparse_file": True, "perform_storage_checks": False, **SMALL_BUFFERS, **settings}
        transports = HostTransports(self.network, address)
        context = DriverContext(
            directory=directory,
            settings=DriverSettings(threading_mode=ThreadingMode.INVOKER, **values),
            clock=self.clock,
            files=files,
            random=Random(self.chance.getrandbits(64)),
            transports=transports,
        )
        driver = MediaDriver.launch(context=context)
        # While the client waits for its driver, the world goes on.
        self._starting.append(driver.do_work)
        client = ClientContext(
            settings=ClientSettings(dir=directory, client_name=name, client_idle_sleep_duration_ns=0),
            files=files,
            clock=self.clock,
            use_invoker=True,
            driver_invoker=self.tick,
            on_error=self._on_client_error,
        )
        host = Host(name, address, transports.names, files, driver, Aeron.connect(context=client))
        self._starting.pop()
        self.hosts.append(host)
        return host

    def _refused(self, address: str) -> int:
        """The retransmissions that the driver of an address has refused so far."""
        for host in self.hosts:
            if host.address == address:
                return host.aeron.counters.value(SystemCounter.RETRANSMIT_OVERFLOW)
        return 0

    def _on_client_error(self, error: BaseException) -> None:
        """An error of a client fails the scenario at the next step."""
        self._failure = error

    def tick(self) -> int:
        """Runs every driver once, then moves time: to the next arrival when it is near, else by a step.

        Returns:
            How much work the drivers had.

        Raises:
            Violation: A client failed, or the world has run ``MAX_TICKS`` ticks.

        Example:
            ``world.tick()``
        """
        if self._failure is not None:
            raise Violation(f"seed {self.seed}: a client failed") from self._failure
        self.ticks += 1
        if self.ticks > MAX_TICKS:
            raise Violation(f"seed {self.seed}: nothing came to an end in {MAX_TICKS} ticks")
        work = sum(start() for start in self._starting)
        work += sum(host.driver.do_work() for host in self.hosts)
        moved = self.network.pump(self.now_ns)
        self._step_ns = self.tick_ns if work or moved else min(2 * self._step_ns, max(self.tick_ns, IDLE_TICK_NS))
        arrival_ns = self.network.next_arrival_ns()
        step_ns = self._step_ns
        if arrival_ns is not None:
            step_ns = min(step_ns, max(self.grain_ns, arrival_ns - self.now_ns))
        self.clock.advance_ns(step_ns)
        return work

    def step(self) -> None:
        """Runs one tick and the duty cycle of every client.

        Example:
            ``world.step()``
        """
        self.tick()
        for host in self.hosts:
            host.aeron.invoke()

    def run_until(self, condition: Callable[[], bool], *, what: str, within_ns: int = 60 * NS_PER_SECOND) -> None:
        """Steps until a condition holds.

        Args:
            condition: Called before each step.
            what: What is waited for, for the error's text.
            within_ns: The longest simulated time in nanoseconds.

        Raises:
            Violation: The condition did not hold in time.

        Example:
            ``world.run_until(lambda: publication.is_connected, what="a connection")``
        """
        deadline_ns = self.now_ns + within_ns
        while not condition():
            if self.now_ns > deadline_ns:
                raise Violation(f"seed {self.seed}: {what} did not happen within {within_ns // NS_PER_MS} simulated ms")
            self.step()

    def run_for(self, duration_ns: int) -> None:
        """Steps for some simulated time.

        Args:
            duration_ns: Simulated nanoseconds.

        Example:
            ``world.run_for(10 * NS_PER_SECOND)``
        """
        deadline_ns = self.now_ns + duration_ns
        while self.now_ns < deadline_ns:
            self.step()

    def close(self) -> None:
        """Closes every client and driver. May be called twice.

        Example:
            ``world.close()``, or ``with World(seed=1) as world:``
        """
        hosts, self.hosts = self.hosts, []
        for host in hosts:
            self._starting.append(host.driver.do_work)
            host.aeron.close()
            self._starting.pop()
            host.driver.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

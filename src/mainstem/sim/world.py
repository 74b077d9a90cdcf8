"""A world of hosts on one manual clock and one seeded network. Each host has a media driver in INVOKER mode and a client."""

from __future__ import annotations

from functools import lru_cache
from random import Random
from typing import TYPE_CHECKING, Any, Self

from mainstem._core.system_counter import SystemCounter
from mainstem._internal.clock import NS_PER_MS, NS_PER_SECOND, NS_PER_US
from mainstem.aeron.driver.settings import DriverSettings, ThreadingMode
from mainstem.sim.checkers import Violation
from mainstem.sim.clock import ManualClock
from mainstem.sim.host import Host
from mainstem.sim.network import SimNetwork
from mainstem.sim.schedule import Plan, Schedule
from mainstem.sim.trace import Trace
from mainstem.sim.wire import WireChecker

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from mainstem.sim.faults import Faults

IDLE_TICK_NS = 5 * NS_PER_MS  # the longest step while nothing happens; steps double up to it
# The longest step when only drivers' clocks matter, because a driver reports when it is due. Clients check the time every half
# second.
QUIET_TICK_NS = 100 * NS_PER_MS
CLIENT_TICK_NS = 50 * NS_PER_MS  # how often a client runs if its driver has written nothing for it
# Pairs of a step's length while something happens, and of the interval within which one step delivers arrivals. The seed picks
# one. Short steps are short compared with every timer of the protocol except the NAK's; long steps create batches.
PACES_NS = ((100 * NS_PER_US, 1), (200 * NS_PER_US, 100 * NS_PER_US), (400 * NS_PER_US, 200 * NS_PER_US))
MAX_SETTINGS = 64
SIZES = (0.1, 0.25, 1.0)
MAX_TICKS = 2_000_000  # in one world: a run that needs more has stalled
# Buffer sizes sufficient for a few dozen streams. They are small because hundreds of worlds are created, and each zeroes its
# memory.
SMALL_BUFFERS: dict[str, Any] = {
    "conductor_buffer_length": (1 << 16) + 768,
    "clients_buffer_length": (1 << 16) + 128,
    "counters_buffer_length": 1 << 20,
    "error_buffer_length": 1 << 16,
    "loss_report_buffer_length": 1 << 16,
}


class World:
    """Hosts on one manual clock and one seeded network. The same ``seed`` gives the same run, frame for frame.

    Args:
        seed: Determines all random choices.
        faults: The faults of the network; None for a perfect network.
        plan: What a replay leaves out of the run.
    """

    def __init__(self, seed: int, *, faults: Faults | None = None, plan: Plan | None = None) -> None:
        self.seed = seed
        self.plan = plan or Plan()
        self.rng = Random(seed)
        self.clock = ManualClock()
        self.trace = Trace()
        self.wire = WireChecker(self._refused)
        self.network = SimNetwork(self.rng, instrument=self.trace)
        self.network.without = self.plan.without
        if faults is not None:
            self.network.faults = faults
        self.hosts: list[Host] = []
        self.ticks = 0
        # Draw the length of the run: most runs are short and some are long.
        drawn = self.rng.choice(SIZES)
        self.size = drawn if self.plan.size is None else self.plan.size
        # A scenario with many hosts sets coarser steps: at most ``tick_ns``, with arrivals within ``grain_ns`` delivered in one
        # step.
        self.tick_ns, self.grain_ns = self.rng.choice(PACES_NS)
        self.idle_ns = IDLE_TICK_NS
        self._step_ns = self.tick_ns
        self._delivered = 0
        self.schedule: Schedule | None = None  # of the scenario's faults, if it has any
        self.expected_errors: tuple[type[BaseException], ...] = ()
        self._failure: BaseException | None = None

    @property
    def now_ns(self) -> int:
        """Simulated time in nanoseconds."""
        return self.clock.monotonic_ns()

    def add_host(self, name: str, *, client_timeout_ns: int = 10 * NS_PER_SECOND, **settings: Any) -> Host:
        """Add a host with a driver in INVOKER mode and a client connected to it, and return it.

        Args:
            name: The host's name, also used as its Aeron directory.
            client_timeout_ns: How long the client waits for its driver, in nanoseconds.
            **settings: Fields of ``DriverSettings``.
        """
        values = {"term_buffer_sparse_file": True, "perform_storage_checks": False, **SMALL_BUFFERS, **settings}
        checked = _settings(tuple(values.items()))
        host = Host(
            name,
            f"10.0.0.{len(self.hosts) + 1}",
            checked,
            client_timeout_ns,
            clock=self.clock,
            network=self.network,
            rng=self.rng,
            tick=self.tick,
            on_error=self.on_client_error,
        )
        self.hosts.append(host)
        self.idle_ns = max(self.idle_ns, QUIET_TICK_NS)
        host.start()
        return host

    def _refused(self, address: str) -> int:
        for host in self.hosts:
            if host.address == address and host.is_up:
                return host.aeron.counters.value(SystemCounter.RETRANSMIT_OVERFLOW)
        return 0

    def on_client_error(self, error: BaseException) -> None:
        """Fail the scenario at the next step because a client ended with ``error``, unless it is in ``expected_errors``."""
        if not isinstance(error, self.expected_errors):
            self._failure = error

    def tick(self) -> int:
        """Run every driver once, then advance time to the next arrival if it is near, else by a step. Return the work count.

        Raises:
            Violation: A client failed, or the world has run ``MAX_TICKS`` ticks.
        """
        if self._failure is not None:
            raise Violation(f"seed {self.seed}: a client failed") from self._failure
        self.ticks += 1
        if self.ticks > MAX_TICKS:
            raise Violation(f"seed {self.seed}: the run did not end within {MAX_TICKS} ticks")
        work = 0
        for host in self.hosts:
            done = host.drive()
            if done:
                host.client_due_ns = 0
                work += done
        now_ns = self.clock.monotonic_ns()
        self.network.pump(now_ns)
        self._advance(now_ns, work)
        return work

    def _advance(self, now_ns: int, work: int) -> None:
        """Advance time to the next due event, in short steps while something happens.

        Steps double while nothing happens and become short again when data moves. Heartbeats and status messages do not count.
        """
        network = self.network
        tick_ns = self.tick_ns
        if network.has_moved_data:
            network.has_moved_data = False
            step_ns = self._step_ns = tick_ns
        elif network.delivered != self._delivered:
            step_ns = tick_ns
        elif work:
            # Shared-memory streams advance without datagrams, but so do timers, once a second.
            step_ns = tick_ns
            self._step_ns = max(tick_ns, self._step_ns // 4)
        else:
            step_ns = self._step_ns = min(2 * self._step_ns, max(tick_ns, self.idle_ns))
        self._delivered = network.delivered
        if step_ns > tick_ns:
            for host in self.hosts:
                due_ns = host.due_in_ns
                # A host that is still due has already run in this tick: it is waiting for something else, or has more to do.
                step_ns = min(step_ns, due_ns if due_ns > 0 else tick_ns)
        arrival_ns = network.next_arrival_ns()
        if arrival_ns is not None and arrival_ns - now_ns < step_ns:
            step_ns = max(self.grain_ns, arrival_ns - now_ns)
        self.clock.advance_ns(step_ns)

    def step(self) -> None:
        """Run one tick and one duty cycle of every client."""
        self.tick()
        now_ns = self.clock.monotonic_ns()
        for host in self.hosts:
            # A client reads what its driver writes, and checks the time every half second.
            if now_ns >= host.client_due_ns:
                host.client_due_ns = now_ns + CLIENT_TICK_NS
                host.invoke()

    def scaled(self, count: int) -> int:
        """Return ``count``, the number of messages in a long run, scaled to the size of this run. At least 1."""
        return max(1, int(count * self.size))

    def run_until(self, condition: Callable[[], bool], *, what: str, within_ns: int = 60 * NS_PER_SECOND) -> None:
        """Step until ``condition`` returns true.

        Args:
            condition: Called before each step.
            what: What the error says the world was waiting for.
            within_ns: Limit on simulated time, in nanoseconds.

        Raises:
            Violation: The condition did not become true in time.
        """
        deadline_ns = self.now_ns + within_ns
        while not condition():
            if self.now_ns > deadline_ns:
                raise Violation(
                    f"seed {self.seed}: timed out after {within_ns // NS_PER_MS} simulated ms waiting for {what}"
                )
            self.step()

    def run_for(self, duration_ns: int) -> None:
        """Step for ``duration_ns`` of simulated time."""
        deadline_ns = self.now_ns + duration_ns
        while self.now_ns < deadline_ns:
            self.step()

    def close(self) -> None:
        """Close every client and driver. Can be called twice."""
        for host in self.hosts:
            host.close()
        self.hosts = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


@lru_cache(MAX_SETTINGS)
def _settings(values: tuple[tuple[str, Any], ...]) -> DriverSettings:
    """Return checked settings from a cache, since most hosts of most worlds share them."""
    return DriverSettings(threading_mode=ThreadingMode.INVOKER, **dict(values))

"""A driver in this process. The threading mode distributes its agents over threads.

Each thread works and sleeps in a compiled loop without the GIL. It returns to Python only when an agent must decide something, so
a busy application doesn't slow down the streams. An ``AgentRunner`` runs the agents that share a thread as one agent, with the
compiled loop as its idle strategy.
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from mainstem._core.driver.loop import Loop
from mainstem._core.system_counter import SystemCounter
from mainstem._internal.clock import NEVER_NS
from mainstem.aeron.agent import AgentRunner
from mainstem.aeron.driver.conductor_proxy import AgentFailed
from mainstem.aeron.driver.cpuset import check_cpuset, processor
from mainstem.aeron.driver.driver_core import DriverCore
from mainstem.aeron.driver.invoker import Invoker
from mainstem.aeron.driver.settings import ThreadingMode, ThreadNaming
from mainstem.aeron.idle import BackoffIdle, SleepIdle, YieldIdle, idle_strategy

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mainstem._internal.clock import Clock
    from mainstem.aeron.driver.context import DriverContext
    from mainstem.aeron.driver.counters import SystemCounters
    from mainstem.aeron.driver.settings import DriverSettings

logger = logging.getLogger("mainstem.aeron.driver")

# How long ``close`` waits for a thread, which can be stuck in a call that never returns.
JOIN_TIMEOUT_S = 10.0
SYSTEM_NAME_LENGTH = 15  # the maximum length of a thread's name in Linux


def name_thread(name: str) -> None:
    """Set the name that the operating system shows for the calling thread, truncated to its limit."""
    with suppress(OSError), open("/proc/thread-self/comm", "w", encoding="ascii") as comm:
        comm.write(name[:SYSTEM_NAME_LENGTH])


class DriverAgent(Protocol):
    """An agent with Python work, for which a thread's compiled loop returns."""

    def decide(self, now_ns: int) -> int:
        """Do the Python work that is due and return its amount. The compiled loop does the ordinary duty cycle."""
        ...


class DutyCycleTracker:
    """The counters for the longest duty cycle of an agent and for those above the threshold (system counters 26 to 31)."""

    def __init__(
        self, system_counters: SystemCounters, longest: SystemCounter, exceeded: SystemCounter, *, threshold_ns: int
    ) -> None:
        self._longest = system_counters[longest]
        self._exceeded = system_counters[exceeded]
        self._threshold_ns = threshold_ns

    def observe(self, duration_ns: int) -> None:
        self._longest.propose_max_release(duration_ns)
        if duration_ns > self._threshold_ns:
            self._exceeded.add_release(1)


class AgentGroup:
    """The agents that share a thread. If one raises, the others still run."""

    def __init__(
        self,
        role_name: str,
        agents: Sequence[tuple[DriverAgent, DutyCycleTracker]],
        clock: Clock,
        on_error: Callable[[AgentFailed], None],
    ) -> None:
        self.role_name = role_name
        self._agents = tuple(agents)
        self._clock = clock
        self._on_error = on_error

    def do_work(self, now_ns: int) -> int:
        work = 0
        for agent, cycle_time in self._agents:
            try:
                work += agent.decide(now_ns)
            except Exception as error:  # the agent must continue: every stream of this driver depends on it
                self._on_error(AgentFailed(type(agent).__name__, error))
            after_ns = self._clock.monotonic_ns()
            cycle_time.observe(after_ns - now_ns)
            now_ns = after_ns
        return work

    def on_close(self) -> None: ...


class LoopIdle:
    """An idle strategy that runs a compiled loop until an agent needs Python, or until ``next_deadline_ns``."""

    name = "loop"

    def __init__(self, loop: Loop, next_deadline_ns: Callable[[], int]) -> None:
        self.loop = loop
        self._next_deadline_ns = next_deadline_ns

    def idle(self, work_count: int) -> None:
        if not work_count:
            self.loop.run(self._next_deadline_ns())

    def reset(self) -> None: ...


class AgentThread:
    """A thread that runs a group of agents until ``close``. ``cpu`` is the processor to run on, or -1 for any."""

    def __init__(self, group: AgentGroup, idle: LoopIdle, *, clock: Clock, cpu: int = -1) -> None:
        self._loop = idle.loop
        self.name = group.role_name
        self._cpu = cpu
        self._runner = AgentRunner(group, idle, clock=clock, on_start=self._on_start)

    def start(self) -> None:
        self._runner.start()

    def close(self) -> bool:
        """Stop the thread and wait for it. Return False if it still runs, because it is stuck or it is the caller."""
        self._runner.stop()
        self._loop.stop()
        return self._runner.close(JOIN_TIMEOUT_S)

    def _on_start(self) -> None:
        name_thread(self.name)
        if self._cpu >= 0:
            os.sched_setaffinity(0, {self._cpu})


def duty_cycle_trackers(
    system_counters: SystemCounters, *, threshold_ns: tuple[int, int, int]
) -> dict[str, DutyCycleTracker]:
    pairs = {
        "conductor": (
            SystemCounter.CONDUCTOR_MAX_CYCLE_TIME,
            SystemCounter.CONDUCTOR_CYCLE_TIME_EXCEEDED,
        ),
        "sender": (SystemCounter.SENDER_MAX_CYCLE_TIME, SystemCounter.SENDER_CYCLE_TIME_EXCEEDED),
        "receiver": (SystemCounter.RECEIVER_MAX_CYCLE_TIME, SystemCounter.RECEIVER_CYCLE_TIME_EXCEEDED),
    }
    return {
        name: DutyCycleTracker(system_counters, longest, exceeded, threshold_ns=threshold)
        for (name, (longest, exceeded)), threshold in zip(pairs.items(), threshold_ns, strict=True)
    }


_GROUPS = {
    ThreadingMode.DEDICATED: (("conductor",), ("sender",), ("receiver",)),
    ThreadingMode.SHARED_NETWORK: (("conductor",), ("sender", "receiver")),
    ThreadingMode.SHARED: (("conductor", "sender", "receiver"),),
}


# The agent whose CPU affinity setting applies to a thread.
_LEADERS = {
    ("conductor",): "conductor",
    ("sender",): "sender",
    ("receiver",): "receiver",
    ("sender", "receiver"): "sender",
    ("conductor", "sender", "receiver"): "conductor",
}
# The newer thread names of the reference driver.
_NEW_NAMES = {
    ("conductor",): "aeron-md-cnd",
    ("sender",): "aeron-md-snd",
    ("receiver",): "aeron-md-rcv",
    ("sender", "receiver"): "aeron-md-net",
    ("conductor", "sender", "receiver"): "aeron-md-shd",
}
# The agent whose idle strategy settings apply to a thread.
_IDLE_NAMES = {**_LEADERS, ("sender", "receiver"): "sharednetwork", ("conductor", "sender", "receiver"): "shared"}


def pauses(settings: DriverSettings, agent: str) -> tuple[int, int, int, int]:
    """Return spins, yields, and shortest and longest park in ns for a compiled loop, from an agent's idle strategy."""
    name = getattr(settings, f"{agent}_idle_strategy")
    strategy = idle_strategy(name, getattr(settings, f"{agent}_idle_strategy_init_args"))
    if isinstance(strategy, BackoffIdle):
        return strategy.max_spins, strategy.max_yields, strategy.min_park_ns, strategy.max_park_ns
    if isinstance(strategy, SleepIdle):
        return 0, 0, strategy.sleep_ns, strategy.sleep_ns
    # A loop that never parks yields forever if it has any yields, and otherwise spins forever.
    return 0, int(isinstance(strategy, YieldIdle)), 0, 0


class DriverThreads:
    """The running agents of a driver.

    In INVOKER mode there are no threads, and ``invoke`` runs one duty cycle. In other modes ``invoke`` is None.
    """

    def __init__(self, context: DriverContext) -> None:
        self._core: DriverCore | None = DriverCore(context)
        self._clock = context.clock
        self._threads: list[AgentThread] = []
        self.invoke: Callable[[], int] | None = None
        self.invoker: Invoker | None = None
        mode = context.settings.threading_mode
        if mode is ThreadingMode.INVOKER:
            self.invoker = Invoker(self._core, context.clock)
            self.invoke = self.invoker.do_work
            return
        try:
            self._start(self._core, mode)
        except BaseException:
            self.close()
            raise

    @property
    def is_running(self) -> bool:
        return self._core is not None and not self._core.conductor.is_termination_requested

    @property
    def pid(self) -> int:
        return os.getpid()

    def close(self) -> None:
        running = []
        while self._threads:
            thread = self._threads.pop()
            if not thread.close():
                running.append(thread.name)
        self.invoke = self.invoker = None
        core, self._core = self._core, None
        if running:
            # Its next access to a file that is not mapped would crash the process.
            logger.error(
                "%s did not stop within %g s; the driver's files stay mapped", ", ".join(running), JOIN_TIMEOUT_S
            )
        elif core is not None:
            core.close()

    def _start(self, core: DriverCore, mode: ThreadingMode) -> None:
        groups = _GROUPS[mode]
        settings = core.context.settings
        is_new = settings.thread_naming is ThreadNaming.NEW
        check_cpuset(settings)
        cpus = [processor(settings, _LEADERS[names]) for names in groups]
        times = duty_cycle_trackers(
            core.system_counters,
            threshold_ns=(
                settings.driver_conductor_cycle_threshold_ns,
                settings.driver_sender_cycle_threshold_ns,
                settings.driver_receiver_cycle_threshold_ns,
            ),
        )
        agents: dict[str, DriverAgent] = {"conductor": core.conductor, "sender": core.sender, "receiver": core.receiver}
        cycles = {"conductor": core.ipc_cycle, "sender": core.sender.cycle, "receiver": core.receiver.cycle}
        deadlines = {"conductor": lambda: core.conductor.next_timer_ns}
        for names, cpu in zip(groups, cpus, strict=True):
            loop = Loop([cycles[name] for name in names], *pauses(settings, _IDLE_NAMES[names]))
            core.attach(loop, names)
            self._threads.append(
                AgentThread(
                    AgentGroup(
                        _NEW_NAMES[names] if is_new else "-".join(("driver", *names)),
                        [(agents[name], times[name]) for name in names],
                        self._clock,
                        core.to_conductor.append,
                    ),
                    LoopIdle(loop, deadlines.get(names[0], lambda: NEVER_NS)),
                    clock=self._clock,
                    cpu=cpu,
                )
            )
        for thread in self._threads:
            thread.start()

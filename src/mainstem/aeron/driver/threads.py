"""A driver in this process: its agents spread over threads by the threading mode."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from mainstem._core.driver.loop import Loop
from mainstem._internal.clock import NEVER_NS
from mainstem.aeron.driver.driver_core import DriverCore
from mainstem.aeron.driver.invoker import Invoker
from mainstem.aeron.driver.runner import AgentGroup, AgentThread, LoopIdle, duty_cycle_trackers
from mainstem.aeron.driver.settings import ThreadingMode
from mainstem.aeron.idle import BackoffIdle, SleepIdle, YieldIdle, idle_strategy
from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainstem.aeron.driver.context import DriverContext
    from mainstem.aeron.driver.runner import DriverAgent
    from mainstem.aeron.driver.settings import DriverSettings

_GROUPS = {
    ThreadingMode.DEDICATED: (("conductor",), ("sender",), ("receiver",)),
    ThreadingMode.SHARED_NETWORK: (("conductor",), ("sender", "receiver")),
    ThreadingMode.SHARED: (("conductor", "sender", "receiver"),),
}


# Whose settings hold for a thread: its processor, and what it does without work.
_LEADERS = {
    ("conductor",): "conductor",
    ("sender",): "sender",
    ("receiver",): "receiver",
    ("sender", "receiver"): "sender",
    ("conductor", "sender", "receiver"): "conductor",
}
_IDLE_NAMES = {**_LEADERS, ("sender", "receiver"): "sharednetwork", ("conductor", "sender", "receiver"): "shared"}


def pauses(settings: DriverSettings, agent: str) -> tuple[int, int, int, int]:
    """Spin, yields, shortest and longest park of an agent's compiled loop, by its idle strategy."""
    name = getattr(settings, f"{agent}_idle_strategy")
    strategy = idle_strategy(name, getattr(settings, f"{agent}_idle_strategy_init_args"))
    if isinstance(strategy, BackoffIdle):
        return strategy.max_spins, strategy.max_yields, strategy.min_park_ns, strategy.max_park_ns
    if isinstance(strategy, SleepIdle):
        return 0, 0, strategy.sleep_ns, strategy.sleep_ns
    # Without a park the loop yields for ever where it may yield at all, and spins for ever where it may not.
    return 0, int(isinstance(strategy, YieldIdle)), 0, 0


def _processor(settings: DriverSettings, agent: str) -> int:
    """The processor of an agent's thread, -1 for any. Raises ConfigurationError for one that this process may not use."""
    cpu: int = getattr(settings, f"{agent}_cpu_affinity")
    allowed = os.sched_getaffinity(0)
    if cpu >= 0 and cpu not in allowed:
        raise ConfigurationError(
            f"AERON_{agent.upper()}_CPU_AFFINITY {cpu} is not available to this process; choose one of "
            f"{', '.join(str(each) for each in sorted(allowed))}"
        )
    return cpu


class DriverThreads:
    """The agents, running. In INVOKER mode no thread runs them: ``invoke``, which is None else, is their duty cycle."""

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
        while self._threads:
            self._threads.pop().close()
        self.invoke = self.invoker = None
        core, self._core = self._core, None
        if core is not None:
            core.close()

    def _start(self, core: DriverCore, mode: ThreadingMode) -> None:
        groups = _GROUPS[mode]
        settings = core.context.settings
        cpus = [_processor(settings, _LEADERS[names]) for names in groups]
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
                        "-".join(("driver", *names)),
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

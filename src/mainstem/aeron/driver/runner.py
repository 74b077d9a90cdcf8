"""The driver's threads: this file is its door to ``threading``.

A thread sleeps and works inside one compiled loop, without the GIL, and comes back to Python only when an agent must decide
something: a busy program beside it takes nothing from the streams.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from mainstem.aeron.driver.messages import AgentFailed
from mainstem.aeron.system_counter import SystemCounter

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mainstem._core.driver.loop import Loop
    from mainstem.aeron.system_counter import SystemCounters
    from mainstem.clock import Clock

# A thread that does not end within this long is in a call that never returns; saying so beats waiting for ever.
JOIN_TIMEOUT_SECONDS = 10.0
SYSTEM_NAME_LENGTH = 15  # of a thread, in Linux


def name_thread(name: str) -> None:
    """Gives the calling thread its name in the system's lists too, cut to what they show."""
    with suppress(OSError), open(f"/proc/self/task/{threading.get_native_id()}/comm", "w", encoding="ascii") as comm:
        comm.write(name[:SYSTEM_NAME_LENGTH])


class Agent(Protocol):
    """What a thread's compiled loop comes back to Python for."""

    def decide(self, now_ns: int) -> int:
        """Whatever needs Python now; how much there was. The ordinary duty cycle is the loop's."""
        ...


class CycleTime:
    """The longest duty cycle of an agent and how many took longer than the threshold (counters 26 to 31)."""

    def __init__(
        self, system_counters: SystemCounters, longest: SystemCounter, exceeded: SystemCounter, *, threshold_ns: int
    ) -> None:
        self._longest = system_counters[longest]
        self._exceeded = system_counters[exceeded]
        self._threshold_ns = threshold_ns

    def observe(self, duration_ns: int) -> None:
        """One cycle took this long."""
        self._longest.propose_max_release(duration_ns)
        if duration_ns > self._threshold_ns:
            self._exceeded.add_release(1)


class AgentThread:
    """Runs agents in a thread of their own until ``close``.

    ``loop`` drives their compiled cycles; ``next_deadline_ns`` is when Python must look at the latest. ``cpu`` is the
    processor that the thread is bound to, -1 for any.
    """

    def __init__(
        self,
        name: str,
        agents: Sequence[tuple[Agent, CycleTime]],
        loop: Loop,
        *,
        clock: Clock,
        on_error: Callable[[AgentFailed], None],
        next_deadline_ns: Callable[[], int],
        cpu: int = -1,
    ) -> None:
        self._agents = tuple(agents)
        self._loop = loop
        self._clock = clock
        self._on_error = on_error
        self._next_deadline_ns = next_deadline_ns
        self._cpu = cpu
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def close(self) -> None:
        """Stops the loop and waits for the thread; nothing it uses may be closed before."""
        self._loop.stop()
        self._thread.join(JOIN_TIMEOUT_SECONDS)

    def _run(self) -> None:
        name_thread(self._thread.name)
        if self._cpu >= 0:
            os.sched_setaffinity(0, {self._cpu})
        while not self._loop.is_stopped:
            if not self._work():
                self._loop.run(self._next_deadline_ns())

    def _work(self) -> int:
        work = 0
        before_ns = self._clock.monotonic_ns()
        for agent, cycle_time in self._agents:
            try:
                work += agent.decide(before_ns)
            except Exception as error:  # an agent must go on: every stream of this driver depends on it
                self._on_error(AgentFailed(type(agent).__name__, error))
            after_ns = self._clock.monotonic_ns()
            cycle_time.observe(after_ns - before_ns)
            before_ns = after_ns
        return work


def cycle_times(system_counters: SystemCounters, *, threshold_ns: tuple[int, int, int]) -> dict[str, CycleTime]:
    """The trackers of the conductor, the sender and the receiver."""
    pairs = {
        "conductor": (
            SystemCounter.CONDUCTOR_MAX_CYCLE_TIME,
            SystemCounter.CONDUCTOR_CYCLE_TIME_EXCEEDED,
        ),
        "sender": (SystemCounter.SENDER_MAX_CYCLE_TIME, SystemCounter.SENDER_CYCLE_TIME_EXCEEDED),
        "receiver": (SystemCounter.RECEIVER_MAX_CYCLE_TIME, SystemCounter.RECEIVER_CYCLE_TIME_EXCEEDED),
    }
    return {
        name: CycleTime(system_counters, longest, exceeded, threshold_ns=threshold)
        for (name, (longest, exceeded)), threshold in zip(pairs.items(), threshold_ns, strict=True)
    }

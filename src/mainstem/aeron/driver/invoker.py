"""A driver without threads: each call of ``do_work`` runs one duty cycle in the caller's thread.

Theory of operation. An application calls ``do_work`` as often as it can, and most calls only move frames. So each call runs the
compiled cycles of all agents, as a driver's thread does. It runs the Python code of the agents only if the loop returns a reason
(a command, a message between agents, an event of a cycle) or a timer is due.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem._core.driver.loop import Loop

if TYPE_CHECKING:
    from mainstem._internal.clock import Clock
    from mainstem.aeron.driver.driver_core import DriverCore

# Results of ``Loop.run_once``: no reason to run Python; woken, or a watched value changed, before any cycle ran.
QUIET = 0
WOKEN, WATCHED = 2, 3


class Invoker:
    """The agents of one driver, run by ``do_work``."""

    def __init__(self, core: DriverCore, clock: Clock) -> None:
        self._loop = Loop([core.ipc_cycle, core.sender.cycle, core.receiver.cycle])
        core.attach(self._loop, ("conductor", "sender", "receiver"))
        self._conductor, self._sender, self._receiver = core.conductor, core.sender, core.receiver
        self._monotonic_ns = clock.monotonic_ns
        self._due_ns = 0

    def do_work(self) -> int:
        now_ns = self._monotonic_ns()
        reason = self._loop.run_once(now_ns)
        if reason == QUIET and now_ns < self._due_ns:
            return self._loop.work
        # The conductor runs once per call, because it limits its work per cycle.
        decided = self._conductor.decide(now_ns) + self._decide(now_ns)
        if reason in (WOKEN, WATCHED) and self._loop.run_round(now_ns):
            decided += self._decide(now_ns)
        # An agent that had work may have more.
        self._due_ns = now_ns if decided else self._conductor.next_timer_ns
        return self._loop.work + decided

    @property
    def next_due_ns(self) -> int:
        """When ``do_work`` must run next if no datagram arrives and no client writes."""
        return min(self._due_ns, self._loop.due_ns())

    def _decide(self, now_ns: int) -> int:
        return self._sender.decide(now_ns) + self._receiver.decide(now_ns)

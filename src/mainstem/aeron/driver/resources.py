"""What every part of the conductor stands on: one object instead of a dozen arguments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random

    from mainstem._core.buffer import AtomicBuffer
    from mainstem._core.ipc_path import IpcCycle
    from mainstem._core.ring_buffer import ManyToOneRingBuffer
    from mainstem.aeron.driver.counters import DriverCounters
    from mainstem.aeron.driver.errors import ErrorRecorder
    from mainstem.aeron.driver.logs import LogStore
    from mainstem.aeron.driver.responses import Responses
    from mainstem.aeron.driver.settings import DriverSettings
    from mainstem.aeron.system_counter import SystemCounter, SystemCounters
    from mainstem.clock import Clock
    from mainstem.instruments import Instrument


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """Doors, shared memory and the other agents, as the conductor sees them."""

    settings: DriverSettings
    clock: Clock
    random: Random
    instrument: Instrument
    counter_values: AtomicBuffer
    counters: DriverCounters
    system_counters: SystemCounters
    to_driver: ManyToOneRingBuffer
    responses: Responses
    errors: ErrorRecorder
    logs: LogStore
    ipc_cycle: IpcCycle

    def count(self, which: SystemCounter, n: int = 1) -> None:
        """Adds to a system counter."""
        self.system_counters.increment(which, n)

    def next_id(self) -> int:
        """A registration id from the counter that correlation ids come from."""
        return self.to_driver.next_correlation_id()

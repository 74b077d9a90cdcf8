"""The objects that all parts of the conductor share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem._internal.frozen import frozen

if TYPE_CHECKING:
    from random import Random

    from mainstem._core.driver.ipc_path import IpcCycle
    from mainstem._core.memory.buffer import AtomicBuffer
    from mainstem._core.memory.ring_buffer import ManyToOneRingBuffer
    from mainstem._core.system_counter import SystemCounter
    from mainstem._internal.clock import Clock
    from mainstem.aeron.driver.agent_proxies import ReceiverProxy, SenderProxy
    from mainstem.aeron.driver.conductor.client_proxy import ClientProxy
    from mainstem.aeron.driver.conductor.raw_log_factory import RawLogFactory
    from mainstem.aeron.driver.counters import DriverCounters, SystemCounters
    from mainstem.aeron.driver.errors import ErrorRecorder
    from mainstem.aeron.driver.event_log.events import Event
    from mainstem.aeron.driver.event_log.log import EventLog
    from mainstem.aeron.driver.media.transport import BufferLimits, Transports
    from mainstem.aeron.driver.naming.name_resolver import NameResolver
    from mainstem.aeron.driver.settings import DriverSettings
    from mainstem.aeron.loss_report import LossReport
    from mainstem.instruments import Instrument


@frozen
class Resources:
    settings: DriverSettings
    clock: Clock
    rng: Random
    instrument: Instrument
    events: EventLog | None
    transports: Transports
    names: NameResolver
    buffer_limits: BufferLimits
    counter_values: AtomicBuffer
    counters: DriverCounters
    system_counters: SystemCounters
    to_driver: ManyToOneRingBuffer
    clients: ClientProxy
    errors: ErrorRecorder
    loss_report: LossReport
    logs: RawLogFactory
    ipc_cycle: IpcCycle
    sender: SenderProxy
    receiver: ReceiverProxy

    def count(self, which: SystemCounter, n: int = 1) -> None:
        self.system_counters.increment(which, n)

    def changed(self, subject: str, old: str, new: str) -> None:
        self.instrument.state_change(subject, old, new, self.clock.monotonic_ns())

    def note(self, event: Event, **fields: object) -> None:
        """Log an event, with the fields of its line."""
        if self.events is not None:
            self.events.note(event, self.clock.monotonic_ns(), **fields)

    def next_id(self) -> int:
        return self.to_driver.next_correlation_id()

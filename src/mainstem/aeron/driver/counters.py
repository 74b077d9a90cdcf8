"""Allocation of the driver's counters, with the clock that determines when the id of a freed counter can be reused."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mainstem._core.memory.counters import CounterCell, CountersManager
    from mainstem._internal.clock import Clock
    from mainstem.aeron.counters import CounterSpec


class DriverCounters:
    def __init__(self, manager: CountersManager, clock: Clock) -> None:
        self.manager = manager
        self._clock = clock

    def allocate(
        self,
        spec: CounterSpec,
        *,
        registration_id: int = 0,
        owner_id: int = 0,
        reference_id: int = 0,
        value: int = 0,
    ) -> CounterCell:
        """Allocate a counter, by default without an owner. Raises BufferError if all counters are in use."""
        counter_id = spec.allocate(
            self.manager,
            now_ms=self._clock.epoch_ms(),
            registration_id=registration_id,
            owner_id=owner_id,
            reference_id=reference_id,
            value=value,
        )
        return self.manager.cell(counter_id)

    def relabel(self, cell: CounterCell, spec: CounterSpec) -> None:
        self.manager.set_label(cell.counter_id, spec.label)

    def free(self, cell: CounterCell) -> None:
        """Free a counter. Its id can be reused after ``counters_free_to_reuse_timeout_ns`` of the settings."""
        self.manager.free(cell.counter_id, self._clock.epoch_ms())

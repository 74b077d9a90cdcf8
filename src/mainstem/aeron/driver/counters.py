"""Allocation of the driver's counters: the system counters first, then those of streams, channels and clients."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from mainstem._core.memory.counters import CounterCell
from mainstem._core.system_counter import SystemCounter
from mainstem._internal.units import format_duration_ns
from mainstem.aeron.counters import CounterSpec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mainstem._core.memory.counters import CountersManager
    from mainstem._internal.clock import Clock

CONTROL_PROTOCOL_VERSION = 0x010000  # 1.0.0: the driver understands get-next-available-session-id
_KEY = struct.Struct("<i")


def system_counter(counter: SystemCounter, *, suffix: str = "") -> CounterSpec:
    """Return the type, key and label of the counter, with this driver's suffix."""
    return CounterSpec(counter.type_id, _KEY.pack(counter), counter.label + suffix)


def cycle_time_suffixes(threading_mode: str, thresholds_ns: Mapping[SystemCounter, int]) -> dict[SystemCounter, str]:
    """Return the label suffixes of the cycle time counters (26 to 31): the threading mode and each counter's threshold.

    The keys of ``thresholds_ns`` are the counters that count exceeded thresholds (27, 29 and 31).
    """
    suffixes = {}
    for exceeded, threshold_ns in thresholds_ns.items():
        suffixes[SystemCounter(exceeded - 1)] = f": {threading_mode}"
        suffixes[exceeded] = f": threshold={format_duration_ns(threshold_ns)} {threading_mode}"
    return suffixes


class SystemCounters:
    """The allocated system counters of one driver. ``counters[SystemCounter.ERRORS]`` is a cell."""

    def __init__(
        self, manager: CountersManager, *, now_ms: int, suffixes: Mapping[SystemCounter, str] | None = None
    ) -> None:
        suffixes = suffixes or {}
        cells = []
        for counter in SystemCounter:
            spec = system_counter(counter, suffix=suffixes.get(counter, ""))
            # Programs find these counters by their ids, so nothing may be allocated before them.
            counter_id = manager.allocate(*spec, now_ms=now_ms, registration_id=counter)
            cells.append(CounterCell(manager.values, counter_id))
        self._cells = cells
        self[SystemCounter.CONTROL_PROTOCOL_VERSION].set_release(CONTROL_PROTOCOL_VERSION)

    def __getitem__(self, counter: SystemCounter) -> CounterCell:
        return self._cells[counter]

    def increment(self, counter: SystemCounter, delta: int = 1) -> None:
        """Add ``delta`` atomically, because several agents may count at once."""
        self._cells[counter].add(delta)


class DriverCounters:
    """Counters that come and go, with the clock that determines when the id of a freed counter can be reused."""

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
        counter_id = self.manager.allocate(
            *spec,
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

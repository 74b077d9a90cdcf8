"""A client's counters: 64-bit numbers that every process with access to the driver's directory can read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem._core.memory.counters import CounterCell
from mainstem.aeron.client.resource import NO_CHANNEL_STATUS, Closing, Resource

if TYPE_CHECKING:
    from mainstem.aeron.client.operation import Conductor


class CounterBase(Resource, CounterCell):
    """The non-blocking part of a counter."""

    def __init__(self, conductor: Conductor, registration_id: int, counter_id: int, *, static: bool = False) -> None:
        super().__init__(conductor.counters.values, counter_id)
        self._open(conductor, registration_id)
        self.is_static = static
        self.channel_status_id = NO_CHANNEL_STATUS

    @property
    def label(self) -> str:
        """The counter's label."""
        return self._conductor.counters.label(self.counter_id)

    def _release(self) -> None:
        self._closed = True

    def _describe(self) -> str:
        return f"{self.counter_id}"


class Counter(CounterBase, Closing):
    """A counter that this client allocated. ``close`` frees it, unless it is static.

    ``get``, ``set`` and ``add``, and their ordered forms, read and write the value.

    Attributes:
        counter_id: The counter's index in the driver's counters.
        registration_id: The correlation id of the command that added it.
        is_static: Whether the counter outlives the client.

    Example:
        >>> with aeron.add_counter(1001, "orders accepted") as orders:
        ...     orders.add(1)
    """

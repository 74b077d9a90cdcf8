"""Metrics of a driver or of any other source as observable instruments of OpenTelemetry. Needs ``mainstem[cli]``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mainstem._internal.clock import SYSTEM_CLOCK, Clock
from mainstem.aeron.tools.reading import DirectoryReader
from mainstem.errors import DriverTimeout, needs_extras
from mainstem.metrics.families import families

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mainstem._internal.prometheus import Family


class Collector:
    """Observes one driver, or another source of metrics, for an OpenTelemetry meter.

    Metrics that the source did not have at the start are observed after ``refresh``. A driver that is not running has no values.

    Args:
        meter: The meter that creates the instruments.
        source: The driver's directory, or a function that returns metrics, such as ``Endpoints.families``.
        clock: The clock to use; by default, the clocks of the system.

    Raises:
        MissingExtraError: OpenTelemetry is not installed.

    Example:
        >>> collector = Collector(get_meter("driver"), DirectoryReader("/dev/shm/aeron-user"))
        >>> collector = Collector(get_meter("front"), endpoints.families)
    """

    def __init__(
        self, meter: Any, source: DirectoryReader | Callable[[], Iterable[Family]], *, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        with needs_extras():
            from opentelemetry.metrics import Observation
        self._observation: Any = Observation
        self._meter, self._source, self._clock = meter, source, clock
        self._known: set[str] = set()
        # A collection calls the callback of each instrument once. All of them get the values of one reading.
        self._values: dict[str, Family] = {}
        self._observed: set[str] = set()
        self.refresh()

    def _families(self) -> Iterable[Family]:
        if not isinstance(self._source, DirectoryReader):
            return self._source()
        try:
            return families(self._source.snapshot(epoch_ms=self._clock.epoch_ms(), now_ns=self._clock.monotonic_ns()))
        except DriverTimeout:
            # The driver can be started again.
            return []

    def _read(self) -> Iterable[Family]:
        self._values = {family.name: family for family in self._families()}
        self._observed.clear()
        return self._values.values()

    def refresh(self) -> None:
        """Create an instrument for each new metric."""
        for family in self._read():
            if family.name in self._known:
                continue
            self._known.add(family.name)
            counts = family.kind == "counter"
            make = self._meter.create_observable_counter if counts else self._meter.create_observable_gauge
            make(family.name, callbacks=[self._callback(family.name)], description=family.help)
        self._observed |= self._known  # the first collection reads again

    def _callback(self, name: str) -> Callable[[Any], Iterable[Any]]:
        def observe(_: Any) -> Iterable[Any]:
            if name in self._observed:
                self._read()
            self._observed.add(name)
            family = self._values.get(name)
            return [self._observation(sample.value, sample.labels) for sample in (family.samples if family else ())]

        return observe

"""The resolver that AERON_NAME_RESOLVER_SUPPLIER names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.aeron.driver.naming.driver_resolver import DriverResolver
from mainstem.aeron.driver.naming.names import Names
from mainstem.aeron.driver.naming.table import NameTable

if TYPE_CHECKING:
    from mainstem.aeron.driver.counters import DriverCounters
    from mainstem.aeron.driver.event_log import EventLog
    from mainstem.aeron.driver.media.transport import Transports
    from mainstem.aeron.driver.settings import DriverSettings
    from mainstem.aeron.system_counter import SystemCounters
    from mainstem.clock import Clock
    from mainstem.instruments import Instrument


def make_names(
    settings: DriverSettings,
    transports: Transports,
    clock: Clock,
    counters: DriverCounters,
    system_counters: SystemCounters,
    instrument: Instrument,
    events: EventLog | None = None,
) -> Names:
    """What looks names up in a driver with those settings. Raises ConfigurationError."""
    supplier = settings.name_resolver_supplier
    table = drivers = None
    if supplier == "csv_table":
        table = NameTable(settings.name_resolver_init_args)
    elif supplier == "driver":
        drivers = DriverResolver(
            settings, transports, counters, system_counters, instrument, events, now_ns=clock.monotonic_ns()
        )
    return Names(
        transports,
        clock,
        system_counters,
        threshold_ns=settings.driver_name_resolver_threshold_ns,
        table=table,
        drivers=drivers,
        events=events,
    )

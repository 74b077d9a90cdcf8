"""Name resolution by a table, by other drivers, or by the operating system (docs/protocols/aeron.md, 22).

It runs in the conductor's thread. It measures the time of each resolution (system counters 32 and 33) and logs events.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem._core.system_counter import SystemCounter
from mainstem._internal.clock import NEVER_NS
from mainstem.aeron.channel_values import address as read_address
from mainstem.aeron.driver.event_log.events import Event
from mainstem.aeron.driver.media.addresses import InetAddress

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mainstem._internal.clock import Clock
    from mainstem.aeron.driver.counters import DriverCounters, SystemCounters
    from mainstem.aeron.driver.errors import ErrorRecorder
    from mainstem.aeron.driver.event_log.log import EventLog
    from mainstem.aeron.driver.media.addresses import NetworkInterface, Resolver
    from mainstem.aeron.driver.media.transport import Transports
    from mainstem.aeron.driver.naming.csv_table import CsvTable
    from mainstem.aeron.driver.naming.driver_name_resolver import DriverNameResolver
    from mainstem.aeron.driver.settings import DriverSettings
    from mainstem.instruments import Instrument


class NameResolver:
    """A resolver that asks the table, then the names of other drivers, then the operating system."""

    def __init__(
        self,
        system: Resolver,
        clock: Clock,
        system_counters: SystemCounters,
        *,
        threshold_ns: int,
        table: CsvTable | None = None,
        drivers: DriverNameResolver | None = None,
        events: EventLog | None = None,
    ) -> None:
        self._system = system
        self._clock = clock
        self._longest = system_counters[SystemCounter.NAME_RESOLVER_MAX_TIME]
        self._exceeded = system_counters[SystemCounter.NAME_RESOLVER_TIME_EXCEEDED]
        self._threshold_ns = threshold_ns
        self._table = table
        self._drivers = drivers
        self._events = events
        self._kind = "csv_table" if table is not None else "default" if drivers is None else "driver"
        if drivers is not None:
            self._note(Event.NAME_RESOLUTION_HOST_NAME, name=drivers.name)

    @classmethod
    def of_settings(
        cls,
        settings: DriverSettings,
        transports: Transports,
        clock: Clock,
        counters: DriverCounters,
        system_counters: SystemCounters,
        instrument: Instrument,
        errors: ErrorRecorder,
        events: EventLog | None = None,
    ) -> NameResolver:
        """Create the resolver that AERON_NAME_RESOLVER_SUPPLIER selects. Raises ConfigurationError."""
        table = drivers = None
        if settings.name_resolver_supplier == "csv_table":
            # Imported here because only tests and demonstrations have such a table.
            from mainstem.aeron.driver.naming.csv_table import CsvTable

            table = CsvTable(settings.name_resolver_init_args, counters)
        elif settings.name_resolver_supplier == "driver":
            # Imported here because few drivers have neighbors, and this module is half of the code for name resolution.
            from mainstem.aeron.driver.naming.driver_name_resolver import DriverNameResolver

            drivers = DriverNameResolver(
                settings, transports, counters, system_counters, instrument, errors, events, now_ns=clock.monotonic_ns()
            )
        return cls(
            transports,
            clock,
            system_counters,
            threshold_ns=settings.driver_name_resolver_threshold_ns,
            table=table,
            drivers=drivers,
            events=events,
        )

    @property
    def deadline_ns(self) -> int:
        return NEVER_NS if self._drivers is None else self._drivers.deadline_ns

    def do_work(self, now_ns: int) -> int:
        if self._drivers is None or now_ns < self._drivers.deadline_ns:
            return 0
        return self._drivers.do_work(now_ns)

    def close(self) -> None:
        if self._drivers is not None:
            self._drivers.close()

    def lookup(self, text: str, key: str, *, again: bool = False) -> str:
        """Return the table's replacement for ``text``, the value of URI parameter ``key``, or else ``text``.

        Raises LookupError if the table says that there is no such name.
        """
        before_ns = self._clock.monotonic_ns()
        name = text if self._table is None else self._table.lookup(text, key, again=again)
        if self._events is not None:
            took_ns = self._clock.monotonic_ns() - before_ns
            self._note(
                Event.NAME_RESOLUTION_LOOKUP, took_ns=took_ns, name=text, again=str(again).lower(), resolved=name
            )
        return name

    def resolve(self, host: str, *, again: bool = False) -> str:
        """Return the numeric IP address of a name. ``again`` marks a re-resolution in the event log. Raises LookupError."""
        before_ns = self._clock.monotonic_ns()
        address = "unknown-address"
        try:
            known = None if self._drivers is None else self._drivers.find(host)
            address = known or self._system.resolve(host if self._table is None else self._table.host(host))
            return address
        finally:
            took_ns = self._clock.monotonic_ns() - before_ns
            if self._events is not None:
                shown = f"[{address}]" if ":" in address else address
                self._note(
                    Event.NAME_RESOLUTION_RESOLVE, took_ns=took_ns, name=host, again=str(again).lower(), address=shown
                )
            self._longest.propose_max_release(took_ns)
            if took_ns > self._threshold_ns:
                self._exceeded.add_release(1)

    def address(self, text: str, key: str, *, again: bool = False) -> InetAddress:
        """Resolve ``host:port``, the value of URI parameter ``key``. Raises LookupError, even if the value is malformed."""
        try:
            host, port = read_address(self.lookup(text, key, again=again))
        except ValueError as error:
            raise LookupError(f"{key}={text}: {error}") from None
        return InetAddress(self.resolve(host, again=again), port)

    def interfaces(self) -> Sequence[NetworkInterface]:
        return self._system.interfaces()

    def _note(self, event: Event, **fields: object) -> None:
        if self._events is not None:
            self._events.note(event, self._clock.monotonic_ns(), resolver=self._kind, **fields)

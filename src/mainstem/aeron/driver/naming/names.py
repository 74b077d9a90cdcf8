"""The driver's one way from names to addresses, timed and counted (behaviour, 22; counters 32 and 33)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.aeron.channel_values import parse_address
from mainstem.aeron.driver.media.addresses import InetAddress
from mainstem.aeron.system_counter import SystemCounter
from mainstem.clock import NEVER_NS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mainstem.aeron.driver.event_log import EventLog
    from mainstem.aeron.driver.media.resolver import NetworkInterface, Resolver
    from mainstem.aeron.driver.naming.driver_resolver import DriverResolver
    from mainstem.aeron.driver.naming.table import NameTable
    from mainstem.aeron.system_counter import SystemCounters
    from mainstem.clock import Clock


class Names:
    """Looks names up: in the table, among the drivers that are known, then with the system.

    ``system`` is the transports door. ``table`` and ``drivers`` are there when the settings name such a resolver.
    """

    def __init__(
        self,
        system: Resolver,
        clock: Clock,
        system_counters: SystemCounters,
        *,
        threshold_ns: int,
        table: NameTable | None = None,
        drivers: DriverResolver | None = None,
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
            self._note("NAME_RESOLUTION_HOST_NAME", "", 0, f"hostName={drivers.name}")

    @property
    def deadline_ns(self) -> int:
        """When ``do_work`` has something to do at the latest."""
        return NEVER_NS if self._drivers is None else self._drivers.deadline_ns

    def do_work(self, now_ns: int) -> int:
        """Talks to the other drivers, where there are any; how much there was to do."""
        if self._drivers is None or now_ns < self._drivers.deadline_ns:
            return 0
        return self._drivers.do_work(now_ns)

    def close(self) -> None:
        """Closes the socket that drivers talk through."""
        if self._drivers is not None:
            self._drivers.close()

    def lookup(self, text: str, key: str, *, again: bool = False) -> str:
        """What stands in the table for ``text``, the value of URI parameter ``key``; the text itself when nothing does."""
        before_ns = self._clock.monotonic_ns()
        found = text if self._table is None else self._table.lookup(text, key, again=again)
        if self._events is not None:
            took_ns = self._clock.monotonic_ns() - before_ns
            detail = f"name={text} isReLookup={str(again).lower()} resolvedName={found}"
            self._note("NAME_RESOLUTION_LOOKUP", f"resolver={self._kind} ", took_ns, detail)
        return found

    def resolve(self, host: str, *, again: bool = False) -> str:
        """The numeric IP address of a name, which ``again`` was resolved before. Raises LookupError when nobody knows it."""
        before_ns = self._clock.monotonic_ns()
        found = "unknown-address"
        try:
            known = None if self._drivers is None else self._drivers.find(host)
            found = known or self._system.resolve(host)
            return found
        finally:
            took_ns = self._clock.monotonic_ns() - before_ns
            if self._events is not None:
                shown = f"[{found}]" if ":" in found else found
                detail = f"name={host} isReResolution={str(again).lower()} address={shown}"
                self._note("NAME_RESOLUTION_RESOLVE", f"resolver={self._kind} ", took_ns, detail)
            self._longest.propose_max_release(took_ns)
            if took_ns > self._threshold_ns:
                self._exceeded.add_release(1)

    def address(self, text: str, key: str, *, again: bool = False) -> InetAddress:
        """``host:port`` as the value of ``key``, resolved. Raises LookupError."""
        host, port = parse_address(self.lookup(text, key, again=again))
        return InetAddress(self.resolve(host, again=again), port)

    def _note(self, event: str, start: str, took_ns: int, detail: str) -> None:
        if self._events is not None:
            self._events.note(event, f"{start}durationNs={took_ns} {detail}", self._clock.monotonic_ns())

    def interfaces(self) -> Sequence[NetworkInterface]:
        """The machine's addresses."""
        return self._system.interfaces()

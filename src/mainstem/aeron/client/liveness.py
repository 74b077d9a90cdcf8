"""How a client and its driver notice each other's end.

A client exists for its driver while the client's heartbeat counter is younger than the client liveness timeout, and a driver for
its clients while the heartbeat in its command buffer is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem._internal.clock import NS_PER_MS, NS_PER_SECOND
from mainstem.aeron.cnc import DRIVER_SHUT_DOWN
from mainstem.aeron.counters import CounterType
from mainstem.aeron.heartbeat import HeartbeatWatch
from mainstem.errors import ClientTimeout, DriverTimeout, MainstemError

if TYPE_CHECKING:
    from mainstem.aeron.client.context import ClientContext
    from mainstem.aeron.cnc import CncFile

HEARTBEAT_INTERVAL_NS = 500 * NS_PER_MS


class Liveness:
    """Both heartbeats, and how long ago the client's conductor last ran. Its methods return the error that ends the client."""

    def __init__(self, context: ClientContext, cnc: CncFile, client_id: int, now_ns: int) -> None:
        self._settings, self._clock = context.settings, context.clock
        self._cnc, self._counters = cnc, cnc.counters()
        self._client_id = client_id
        self._counter_id = -1
        self._driver = HeartbeatWatch(cnc.to_driver.consumer_heartbeat_ms, self._clock.epoch_ms(), now_ns)
        self._interval_limit_ns = cnc.client_liveness_timeout_ns
        self._last_ns = self._next_ns = now_ns

    def check_interval(self, now_ns: int) -> ClientTimeout | None:
        """Return an error if the conductor did not run for so long that the driver may have removed the client's resources."""
        idle_ns, limit_ns = now_ns - self._last_ns, self._interval_limit_ns
        if idle_ns <= limit_ns:
            return None
        limit = limit_ns / NS_PER_SECOND
        return ClientTimeout(
            f"the client's conductor did not run for {idle_ns / NS_PER_SECOND:.1f} s (limit {limit:g} s):"
            " the driver may have timed the client out",
            timeout=limit,
        )

    def note_cycle(self, now_ns: int) -> None:
        self._last_ns = now_ns

    def is_due(self, now_ns: int) -> bool:
        """Return whether the heartbeats are due. If so, they are due again after the interval."""
        if now_ns < self._next_ns:
            return False
        self._next_ns = now_ns + HEARTBEAT_INTERVAL_NS
        return True

    def beat(self, now_ns: int) -> MainstemError | None:
        """Check the driver's heartbeat, then update the client's."""
        return self._check_driver(now_ns) or self._write()

    def _check_driver(self, now_ns: int) -> DriverTimeout | None:
        heartbeat_ms = self._cnc.to_driver.consumer_heartbeat_ms
        timeout_ns = self._settings.driver_timeout_ns
        timeout = timeout_ns / NS_PER_SECOND
        if heartbeat_ms == DRIVER_SHUT_DOWN:
            return DriverTimeout("the media driver has been shut down", timeout=timeout)
        if self._driver.is_older(timeout_ns, heartbeat_ms, self._clock.epoch_ms(), now_ns):
            return DriverTimeout(
                f"the media driver is presumed dead: its last heartbeat is more than {timeout:g} s old", timeout=timeout
            )
        return None

    def _write(self) -> ClientTimeout | None:
        """Update the heartbeat counter, which the driver allocates when it handles this client's first command."""
        kind, counters = CounterType.CLIENT_HEARTBEAT, self._counters
        if self._counter_id < 0:
            self._counter_id = counters.find(kind, self._client_id)
            if self._counter_id < 0:
                return None
            name = f" name={self._settings.client_name}" if self._settings.client_name else ""
            counters.append_to_label(self._counter_id, f"{name} version=mainstem")
        elif (
            counters.state(self._counter_id) != 1
            or counters.type_id(self._counter_id) != kind
            or counters.registration_id(self._counter_id) != self._client_id
        ):
            return ClientTimeout("the driver timed this client out: its heartbeat counter is gone")
        counters.cell(self._counter_id).set_release(self._clock.epoch_ms())
        return None

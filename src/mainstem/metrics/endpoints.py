"""Metrics of servers and clients of bymux, Jmux and Aqueduct."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Protocol

from mainstem._internal.prometheus import Family, Sample
from mainstem.metrics.families import PREFIX

if TYPE_CHECKING:
    from mainstem._internal.endpoint_stats import EndpointStats

_GAUGES = {
    "connections": "Connections that are open",
    "streams": "Streams, sessions or channel halves that are open",
    "unsent_bytes": "Bytes that were written and wait for the peer",
    "unread_bytes": "Bytes that have arrived and were not read",
}
_COUNTERS = {
    "connections_opened": "Connections that were opened",
    "connections_unreached": "Attempts that did not become a connection",
    "connections_refused": "Connections that were one too many",
    "connections_idle_closed": "Connections that were ended because they had sent nothing",
    "streams_opened": "Streams, sessions or channel halves that were opened",
    "handlers_failed": "Handlers that raised",
    "bytes_received": "Bytes received",
    "bytes_sent": "Bytes sent",
}
# The causes for which connections end are one metric, so that their sum is the number of ended connections.
_CAUSES = {
    "closed": "connections_closed",
    "lost": "connections_lost",
    "timed_out": "connections_timed_out",
    "rule": "protocol_errors",
    "failed": "connections_failed",
}
_AQUEDUCT = {
    "messages_received": "Messages received",
    "messages_discarded": "Messages for a receiver that is not there",
    "ghosts_refused": "Control streams for a channel half that is not there",
    "unreliable_evicted": "Unreliable messages dropped for newer ones",
    "unreliable_late": "Unreliable messages that came too late",
    "unreliable_dropped": "Unreliable messages dropped for want of room to send them",
}


class Endpoint(Protocol):
    """An object with ``stats()``: listeners, clients and connections of bymux and Jmux, servers and connections of Aqueduct."""

    def stats(self) -> EndpointStats:
        """Return the current statistics."""
        ...


class Endpoints:
    """The metrics of an application's servers and clients of bymux, Jmux and Aqueduct. Any thread may use it.

    Endpoints with the same name, protocol and role are summed in one sample. When an endpoint has ended, it is released, and its
    counters stay in the sum. So an application that opens a connection per job can add all of them under the same name.

    Example:
        >>> endpoints = Endpoints()
        >>> endpoints.add("front", listener)
        >>> server = MetricsServer("127.0.0.1:9464", endpoints.families)
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sources: list[tuple[str, Endpoint]] = []
        self._ended: dict[tuple[str, str, str], dict[str, int]] = {}

    def add(self, name: str, endpoint: Endpoint) -> None:
        """Add an endpoint.

        Args:
            name: Its name in the application, which is the value of the label ``name``. Use few names, and no addresses in them.
            endpoint: A listener, client or connection of bymux or Jmux, asyncio or blocking; a server or connection of Aqueduct.
        """
        with self._lock:
            self._let_go()
            self._sources.append((name, endpoint))

    def families(self) -> list[Family]:
        """Return every metric of the endpoints.

        Their names start with ``mainstem_endpoint_``, or with ``mainstem_aqueduct_`` if only Aqueduct has them.

        Returns:
            The metrics, each with a sample for each name, protocol and role.
        """
        with self._lock:
            self._let_go()
            totals = {key: dict(values) for key, values in self._ended.items()}
            for name, endpoint in self._sources:
                _add(totals, name, endpoint.stats())
        return _families(totals)

    def _let_go(self) -> None:
        """Release endpoints that have ended, and keep only their counters."""
        remaining = []
        for name, endpoint in self._sources:
            stats = endpoint.stats()
            if stats.closed:
                _add(self._ended, name, stats)
            else:
                remaining.append((name, endpoint))
        self._sources = remaining


def _add(totals: dict[tuple[str, str, str], dict[str, int]], name: str, stats: EndpointStats) -> None:
    values = totals.setdefault((name, stats.protocol, stats.role), {})
    for field in (*_GAUGES, *_COUNTERS, *_CAUSES.values(), *_AQUEDUCT):
        if hasattr(stats, field):
            values[field] = values.get(field, 0) + getattr(stats, field)


def _families(totals: dict[tuple[str, str, str], dict[str, int]]) -> list[Family]:
    metrics: dict[str, Family] = {}

    def put(name: str, kind: str, text: str, labels: dict[str, str], value: int) -> None:
        metrics.setdefault(name, Family(name, kind, text)).samples.append(Sample(labels, value))

    for (endpoint, protocol, role), values in totals.items():
        labels = {"name": endpoint, "protocol": protocol, "role": role}
        for field, text in _GAUGES.items():
            put(f"{PREFIX}endpoint_{field}", "gauge", text, labels, values[field])
        for field, text in _COUNTERS.items():
            put(f"{PREFIX}endpoint_{field}", "counter", text, labels, values[field])
        for cause, field in _CAUSES.items():
            ended = f"{PREFIX}endpoint_connections_ended"
            put(ended, "counter", "Connections that ended, by cause", labels | {"cause": cause}, values[field])
        for field, text in _AQUEDUCT.items():
            if field in values:
                put(f"{PREFIX}aqueduct_{field}", "counter", text, labels, values[field])
    return list(metrics.values())

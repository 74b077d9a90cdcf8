"""A server's counters for monitoring systems: ``GET /metrics`` in Prometheus's text format."""

from __future__ import annotations

from collections import Counter

from mainstem._internal.http_listener import ConnectionCounts

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class ServerMetrics(ConnectionCounts):
    """The counters of one server."""

    def __init__(self) -> None:
        super().__init__()
        self.transfers = 0
        self.waits = 0
        self.bytes_sent = 0
        self.requests: Counter[int] = Counter()

    def render(self) -> str:
        lines = []
        for name, kind, value in (
            ("connections", "gauge", self.connections),
            ("transfers", "gauge", self.transfers),
            ("waits", "gauge", self.waits),
            ("sent_bytes_total", "counter", self.bytes_sent),
        ):
            lines += [f"# TYPE mainstem_serve_{name} {kind}", f"mainstem_serve_{name} {value}"]
        for name, label, counter in (
            ("requests_total", "status", self.requests),
            ("refused_connections_total", "reason", self.refused),
        ):
            lines.append(f"# TYPE mainstem_serve_{name} counter")
            lines += [f'mainstem_serve_{name}{{{label}="{key}"}} {n}' for key, n in sorted(counter.items())]
        return "\n".join(lines) + "\n"

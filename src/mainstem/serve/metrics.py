"""A server's counters for monitoring systems: ``GET /metrics`` in Prometheus's text format."""

from __future__ import annotations

from collections import Counter

from mainstem._internal.http_listener import ConnectionCounts
from mainstem._internal.prometheus import Family, Sample, render_families


class ServerMetrics(ConnectionCounts):
    """The counters of one server."""

    def __init__(self) -> None:
        super().__init__()
        self.transfers = 0
        self.waits = 0
        self.bytes_sent = 0
        self.requests: Counter[int] = Counter()

    def render(self) -> str:
        return render_families(
            Family(f"mainstem_serve_{name}", kind, "", samples)
            for name, kind, samples in (
                ("connections", "gauge", [Sample({}, self.connections)]),
                ("transfers", "gauge", [Sample({}, self.transfers)]),
                ("waits", "gauge", [Sample({}, self.waits)]),
                ("sent_bytes", "counter", [Sample({}, self.bytes_sent)]),
                ("requests", "counter", _samples("status", self.requests)),
                ("refused_connections", "counter", _samples("reason", self.refused)),
            )
        )


def _samples(label: str, counter: Counter[int] | Counter[str]) -> list[Sample]:
    return [Sample({label: str(key)}, n) for key, n in sorted(counter.items())]

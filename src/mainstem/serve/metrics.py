"""A server's counters for monitoring systems: ``GET /metrics`` in Prometheus's text format."""

from __future__ import annotations

from collections import Counter

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class ServerMetrics:
    """The counters of one server. Refused connections are counted by reason."""

    def __init__(self) -> None:
        self.connections = 0
        self.transfers = 0
        self.waits = 0
        self.bytes_sent = 0
        self.requests: Counter[int] = Counter()
        self.refused: Counter[str] = Counter()

    def render(self) -> str:
        lines = [
            "# TYPE mainstem_serve_connections gauge",
            f"mainstem_serve_connections {self.connections}",
            "# TYPE mainstem_serve_transfers gauge",
            f"mainstem_serve_transfers {self.transfers}",
            "# TYPE mainstem_serve_waits gauge",
            f"mainstem_serve_waits {self.waits}",
            "# TYPE mainstem_serve_sent_bytes_total counter",
            f"mainstem_serve_sent_bytes_total {self.bytes_sent}",
            "# TYPE mainstem_serve_requests_total counter",
            *(f'mainstem_serve_requests_total{{status="{status}"}} {n}' for status, n in sorted(self.requests.items())),
            "# TYPE mainstem_serve_refused_connections_total counter",
            *(
                f'mainstem_serve_refused_connections_total{{reason="{why}"}} {n}'
                for why, n in sorted(self.refused.items())
            ),
        ]
        return "\n".join(lines) + "\n"

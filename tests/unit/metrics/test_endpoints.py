"""Endpoints as metrics: endpoints with one name are summed, and counters outlive the endpoints."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from mainstem._internal.endpoint_stats import EndpointCounters, EndpointStats, counters
from mainstem.errors import (
    ClosedError,
    ConfigurationError,
    ConnectionLost,
    MainstemError,
    RemoteProtocolError,
    Timeout,
)
from mainstem.metrics import Endpoints

if TYPE_CHECKING:
    from mainstem.metrics import Family


class Fixed:
    """An endpoint with fixed stats."""

    def __init__(self, **values: Any) -> None:
        stats = EndpointStats(
            protocol="jmux",
            role="client",
            closed=False,
            connections=1,
            streams=2,
            unsent_bytes=0,
            unread_bytes=0,
            **counters(EndpointCounters()),
        )
        self.figures = replace(stats, **values)

    def stats(self) -> EndpointStats:
        return self.figures


def values(families: list[Family], name: str) -> dict[tuple[str, ...], float]:
    (family,) = (each for each in families if each.name == f"mainstem_{name}")
    return {tuple(sample.labels.values()): sample.value for sample in family.samples}


def test_endpoints_of_one_name_are_one_sample() -> None:
    endpoints = Endpoints()
    endpoints.add("upstream", Fixed(bytes_sent=3))
    endpoints.add("upstream", Fixed(bytes_sent=4))
    endpoints.add("upstream", Fixed(bytes_sent=5, role="server"))
    metrics = endpoints.families()
    assert values(metrics, "endpoint_bytes_sent") == {
        ("upstream", "jmux", "client"): 7,
        ("upstream", "jmux", "server"): 5,
    }
    assert values(metrics, "endpoint_connections") == {
        ("upstream", "jmux", "client"): 2,
        ("upstream", "jmux", "server"): 1,
    }


def test_an_endpoint_that_has_ended_is_let_go_and_its_counters_stay() -> None:
    endpoints = Endpoints()
    for _ in range(100):
        endpoint = Fixed(bytes_sent=3)
        endpoints.add("job", endpoint)
        endpoint.figures = replace(endpoint.figures, closed=True, connections=0, streams=0)
    for _ in range(2):
        metrics = endpoints.families()
        assert values(metrics, "endpoint_bytes_sent") == {("job", "jmux", "client"): 300}
        assert values(metrics, "endpoint_streams") == {("job", "jmux", "client"): 0}
    assert endpoints._sources == []


@pytest.mark.parametrize(
    ("error", "counter"),
    [
        (None, "connections_closed"),
        (ClosedError("closed here"), "connections_closed"),
        (ConnectionLost("reset"), "connections_lost"),
        (Timeout("silent", timeout=1.0), "connections_timed_out"),
        (RemoteProtocolError("broken", rule="r"), "protocol_errors"),
        (ConfigurationError("else"), "connections_failed"),
    ],
)
def test_each_end_has_one_cause(error: MainstemError | None, counter: str) -> None:
    traffic = EndpointCounters()
    traffic.connection_ended(error)
    assert {name for name, value in counters(traffic).items() if value} == {counter}


def test_opentelemetry_observes_endpoints() -> None:
    sdk = pytest.importorskip("opentelemetry.sdk.metrics")
    export = pytest.importorskip("opentelemetry.sdk.metrics.export")
    from mainstem.metrics.opentelemetry import Collector

    endpoints = Endpoints()
    endpoints.add("upstream", Fixed(bytes_sent=3, connections_lost=2))
    reader = export.InMemoryMetricReader()
    provider = sdk.MeterProvider(metric_readers=[reader])
    readings = []

    def families() -> list[Family]:
        readings.append(endpoints.families())
        return readings[-1]

    Collector(provider.get_meter("mainstem"), families)
    for _ in range(2):
        before = len(readings)
        data: Any = reader.get_metrics_data()
        assert len(readings) == before + 1, "all instruments of a collection share one reading"
    (scope,) = data.resource_metrics[0].scope_metrics
    points = {metric.name: metric.data.data_points for metric in scope.metrics}
    assert [(p.attributes["name"], p.value) for p in points["mainstem_endpoint_bytes_sent"]] == [("upstream", 3)]
    causes = {p.attributes["cause"]: p.value for p in points["mainstem_endpoint_connections_ended"]}
    assert causes == {"closed": 0, "lost": 2, "timed_out": 0, "rule": 0, "failed": 0}
    provider.shutdown()

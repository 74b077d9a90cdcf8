"""Metrics for monitoring systems: of a driver, of a shipper, and of an application's own connections.

A driver's metrics are read from its directory without disturbing the driver. An application's own metrics are those of its servers
and clients of bymux, Jmux and Aqueduct.
"""

from mainstem._internal.prometheus import Family, Sample, render_families
from mainstem.metrics.endpoints import Endpoint, Endpoints
from mainstem.metrics.families import families, render
from mainstem.metrics.page_server import MetricsServer
from mainstem.metrics.shipping import shipping_families

__all__ = [
    "Endpoint",
    "Endpoints",
    "Family",
    "MetricsServer",
    "Sample",
    "families",
    "render",
    "render_families",
    "shipping_families",
]

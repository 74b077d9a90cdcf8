"""Counters for monitoring systems: a driver's, read from its directory without disturbing it, a shipper's, a program's own.

A program's own are those of its servers and clients of bymux, Jmux and Aqueduct.
"""

from mainstem.metrics.endpoints import Endpoint, Endpoints
from mainstem.metrics.families import Family, Sample, families
from mainstem.metrics.prometheus import render, render_families
from mainstem.metrics.server import MetricsServer
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

"""Counters for monitoring systems: a driver's, read from its directory without disturbing it, and a shipper's."""

from mainstem.metrics.families import Family, Sample, families
from mainstem.metrics.prometheus import render, render_families
from mainstem.metrics.shipping import shipping_families

__all__ = ["Family", "Sample", "families", "render", "render_families", "shipping_families"]

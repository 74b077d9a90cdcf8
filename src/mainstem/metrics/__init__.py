"""A driver's counters for monitoring systems: read from its directory, from outside, without disturbing it."""

from mainstem.metrics.families import Family, Sample, families
from mainstem.metrics.prometheus import render

__all__ = ["Family", "Sample", "families", "render"]

"""Lets Spark find ``mainstem.live`` by itself, without ``mainstem.spark.register``."""

from __future__ import annotations

from mainstem.spark.sources.live import LiveSource


class DefaultSource(LiveSource):
    """Spark reads this name from every top-level module whose name starts with ``pyspark_``."""

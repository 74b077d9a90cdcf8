"""Lets Spark find ``mainstem.capture`` by itself, without ``mainstem.spark.register``."""

from __future__ import annotations

from mainstem.spark.sources.capture import CaptureSource


class DefaultSource(CaptureSource):
    """Spark reads this name from every top-level module whose name starts with ``pyspark_``."""

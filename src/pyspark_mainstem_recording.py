"""Lets Spark find ``mainstem.recording`` by itself, without ``mainstem.spark.register``."""

from __future__ import annotations

from mainstem.spark.sources.recording import RecordingSource


class DefaultSource(RecordingSource):
    """Spark reads this name from every top-level module whose name starts with ``pyspark_``."""

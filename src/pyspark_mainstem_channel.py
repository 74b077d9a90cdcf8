"""Lets Spark find ``mainstem.channel`` by itself, without ``mainstem.spark.register``."""

from __future__ import annotations

from mainstem.spark.sinks.channel import ChannelSink


class DefaultSource(ChannelSink):
    """Spark reads this name from every top-level module whose name starts with ``pyspark_``."""

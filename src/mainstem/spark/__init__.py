"""Message streams as DataFrames: ``register(spark)``, or a session that is ready for them: ``create_session()``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mainstem.errors import needs_extras

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from mainstem.spark.lags import Lag

__all__ = ["create_session", "lag", "recordings", "register"]


def register(spark: SparkSession) -> None:
    """Makes Mainstem's formats known to a session: ``spark.read.format("mainstem.recording")`` works from here on.

    Sources: ``mainstem.recording``, ``mainstem.live``, ``mainstem.capture``. Sink: ``mainstem.channel``.
    """
    with needs_extras():
        from mainstem.spark.sinks.channel import ChannelSink
        from mainstem.spark.sources.capture import CaptureSource
        from mainstem.spark.sources.live import LiveSource
        from mainstem.spark.sources.recording import RecordingSource

    for kind in (RecordingSource, LiveSource, CaptureSource, ChannelSink):
        spark.dataSource.register(kind)


def create_session(name: str = "mainstem", **options: Any) -> SparkSession:
    """A local Spark session that is ready to read streams. See ``mainstem.spark.session.create`` for the options."""
    with needs_extras():
        from mainstem.spark.session import create

        return create(name, **options)


def recordings(
    spark: SparkSession, path: Path | str, *, where: Column | str | None = None, **options: Any
) -> DataFrame:
    """Recordings, narrowed by a condition before they are opened. See ``mainstem.spark.filtered_read`` for the options."""
    from mainstem.spark.filtered_read import recordings as read

    return read(spark, path, where=where, **options)


def lag(query: StreamingQuery, path: Path | str) -> list[Lag]:
    """How far a streaming query is behind the recordings of ``path``. See ``mainstem.spark.lags``."""
    from mainstem.spark.lags import lag as measured

    return measured(query, path)

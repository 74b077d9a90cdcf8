"""Message streams as DataFrames: ``register(spark)``, or a session that is ready for them: ``create_session()``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["create_session", "register"]


def register(spark: SparkSession) -> None:
    """Makes Mainstem's sources known to a session: ``spark.read.format("mainstem.recording")`` works from here on."""
    from mainstem.spark.sources.recording import RecordingSource

    spark.dataSource.register(RecordingSource)


def create_session(name: str = "mainstem", **options: Any) -> SparkSession:
    """A local Spark session that is ready to read streams. See ``mainstem.spark.session.create`` for the options."""
    from mainstem.spark.session import create

    return create(name, **options)

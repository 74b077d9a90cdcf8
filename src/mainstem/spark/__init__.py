"""Message streams as DataFrames: ``register(spark)``, or a session that is ready for them: ``create_session()``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mainstem.errors import needs_extras

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from mainstem.spark.lags import Lag
    from mainstem.spark.sources.skip_report import Skipped

__all__ = ["create_session", "lag", "recordings", "register", "skipped"]


def register(spark: SparkSession) -> None:
    """Registers Mainstem's formats with a session: ``spark.read.format("mainstem.recording")`` works from here on.

    Sources: ``mainstem.recording``, ``mainstem.live``, ``mainstem.capture``. Sink: ``mainstem.channel``.

    Args:
        spark: A session that was made without ``create_session``.

    Example:
        >>> register(spark)
        >>> spark.read.format("mainstem.recording").load("/data/recordings").count()
    """
    with needs_extras():
        from mainstem.spark.sinks.channel import ChannelSink
        from mainstem.spark.sources.capture import CaptureSource
        from mainstem.spark.sources.live import LiveSource
        from mainstem.spark.sources.recording import RecordingSource

    from mainstem.spark.parallelism import parallelism_of

    # The sources plan in a process of their own, which cannot ask the session.
    known = {"parallelism": parallelism_of(spark)}
    for source in (RecordingSource, LiveSource):
        spark.dataSource.register(type(source.__name__, (source,), known))
    for kind in (CaptureSource, ChannelSink):
        spark.dataSource.register(kind)


def create_session(name: str = "mainstem", **options: Any) -> SparkSession:
    """Creates a local Spark session that is ready to read streams: the right Java and Python, measured settings.

    Args:
        name: The application's name in Spark.
        **options: Those of ``mainstem.spark.session.create``: ``master`` (``local[*]``, or the one of ``spark-submit``),
            ``config`` (settings that override every default), ``log_level`` (``ERROR``), ``log_file`` (where the JVM's
            standard error goes; by default to this process's).

    Returns:
        The session, with Mainstem's formats registered.

    Raises:
        ConfigurationError: There is no Java that Spark runs on.

    Example:
        >>> spark = create_session("tides", config={"spark.driver.memory": "4g"})
    """
    with needs_extras():
        from mainstem.spark.session import create

        return create(name, **options)


def recordings(
    spark: SparkSession,
    path: Path | str | Sequence[Path | str],
    *,
    where: Column | str | None = None,
    **options: Any,
) -> DataFrame:
    """Reads the rows of recordings for which a condition is true, and opens little else.

    What the condition requires of ``recording_id``, ``stream_id``, ``session_id``, ``position`` and ``recorded_at`` chooses
    recordings and ranges when this is called. The condition is applied to the rows as well, so it may hold anything. What
    depends on the time of a query, as ``now()`` does, narrows nothing.

    Args:
        spark: The session.
        path: A directory of recordings, as driver and executors see it, or a URL; wildcards match directories. Several in a
            list.
        where: A condition, as SQL or as a ``Column``; None for every row.
        **options: Those of ``mainstem.recording``, which narrow further; besides them ``streaming`` (False: a batch) and
            ``schema`` (the columns that are read, among them those of the condition; by default all).

    Returns:
        A DataFrame, which may be used in any number of queries.

    Raises:
        ConfigurationError: An option does not exist, or its value cannot be.

    Example:
        >>> df = recordings(spark, "/data/recordings", where="stream_id = 5 and position < 1000000")
    """
    from mainstem.spark.filtered_read import recordings as read

    return read(spark, path, where=where, **options)


def lag(query: StreamingQuery, path: Path | str) -> list[Lag]:
    """Measures how far a streaming query is behind the recordings that it reads.

    Args:
        query: A query over ``mainstem.recording``; other sources of it are passed over.
        path: The directory of those recordings.

    Returns:
        A ``mainstem.spark.lags.Lag`` (bytes, seconds) for each recording of the last micro-batch; empty before the first one.

    Example:
        >>> max(each.bytes for each in lag(query, "/data/recordings"))
        0
    """
    from mainstem.spark.lags import lag as measured

    return measured(query, path)


def skipped(report: Path | str) -> list[Skipped]:
    """Sums what ``failOnDataLoss=false`` has passed over, in batches and in streaming queries, at any time.

    Args:
        report: The directory that was given as the option ``skipReport``, as this process sees it.

    Returns:
        A ``Skipped`` (recording_id, ranges, bytes, reasons) for each recording of which something was passed over. A range
        counts once, however often it was read.

    Example:
        >>> sum(each.bytes for each in skipped("/data/skipped"))
        0
    """
    from mainstem.spark.sources.skip_report import read_report

    return read_report(str(report))

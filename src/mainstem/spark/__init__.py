"""Message streams as DataFrames: ``register(spark)``, or a session that is ready for them: ``create_session()``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mainstem.errors import needs_extras

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery
    from pyspark.sql.types import StructType

    from mainstem.codecs import Codec
    from mainstem.spark.lags import Lag
    from mainstem.spark.sources.skip_report import Skipped

__all__ = ["create_session", "decode", "encode", "lag", "reason", "recordings", "register", "skipped"]


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
        _register(spark, type(source.__name__, (source,), known))
    for kind in (CaptureSource, ChannelSink):
        _register(spark, kind)


def _register(spark: SparkSession, kind: type) -> None:
    from pyspark.errors import AnalysisException

    try:
        spark.dataSource.register(kind)
    except AnalysisException as error:
        # Spark 4.0 does not register again what it found by itself; it is the same source, but does not know the parallelism.
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise


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


def decode(
    df: DataFrame,
    codec: Codec | str,
    schema: StructType | str | None = None,
    *,
    codec_options: Mapping[str, str] | None = None,
    payload: str = "payload",
) -> DataFrame:
    """Decodes the payloads of a DataFrame into typed columns, batch and streaming, as ``mainstem ingest`` does.

    A message that cannot be read is a row with the reason in ``problem`` and the message in ``payload``; fields that the schema
    does not have are in ``rescued``.

    Args:
        df: Any DataFrame with a column of messages, such as those of Mainstem's sources.
        codec: A name of ``mainstem.codecs.codec_names()``, ``module:Class``, or a codec.
        schema: The codec's columns, as Spark's DDL or type. None where the codec has its own; else they are inferred from the
            first messages, which is a job of its own, and not possible of a stream.
        codec_options: The options of a codec by name.
        payload: The column of the messages: binary, or string.

    Returns:
        A DataFrame with the other columns of ``df``, ``problem``, the codec's columns, ``rescued`` and ``payload``.

    Raises:
        ConfigurationError: A codec, an option, a column or a schema cannot be.

    Example:
        >>> messages = spark.read.format("mainstem.recording").load("/data/recordings")
        >>> trades = decode(messages, "json", "id bigint, price double")
        >>> trades.where("problem is null").groupBy("id").avg("price").show()
    """
    with needs_extras():
        from mainstem.spark.payloads import decode as decoded

    return decoded(df, codec, schema, codec_options, payload)


def encode(
    df: DataFrame,
    codec: Codec | str,
    *,
    columns: Sequence[str] | None = None,
    codec_options: Mapping[str, str] | None = None,
    payload: str = "payload",
) -> DataFrame:
    """Encodes rows into a column of payloads, which the sink ``mainstem.channel`` sends; batch and streaming.

    A value that has no place in the format fails the query: nothing is sent as another value.

    Args:
        df: The rows.
        codec: A name of ``mainstem.codecs.codec_names()``, ``module:Class``, or a codec.
        columns: The columns that are encoded, in their order; the others stay beside the payload. None: all.
        codec_options: The options of a codec by name.
        payload: The name of the new column.

    Returns:
        A DataFrame with the other columns of ``df``, and the payload.

    Raises:
        ConfigurationError: A codec, an option or a column cannot be.

    Example:
        >>> messages = encode(df, "avro", codec_options={"schema": "trade.avsc"})
        >>> messages.write.format("mainstem.channel").option("channel", "aeron:ipc").mode("append").save()
    """
    with needs_extras():
        from mainstem.spark.payloads import encode as encoded

    return encoded(df, codec, columns, codec_options, payload)


def lag(query: StreamingQuery, path: Path | str | Sequence[Path | str], **options: Any) -> list[Lag]:
    """Measures how far a streaming query is behind the recordings that it reads.

    Args:
        query: A query over ``mainstem.recording``; other sources of it are passed over.
        path: Where those recordings are, as the source takes it: a directory or a URL; wildcards match directories. Several in a
            list.
        **options: Those of ``mainstem.recording``, of which the store's and ``tail`` count.

    Returns:
        A ``mainstem.spark.lags.Lag`` (bytes, seconds) for each recording of the last micro-batch; empty before the first one.

    Raises:
        ConfigurationError: An option does not exist, or its value cannot be.
        StoreError: The store cannot be read.

    Example:
        >>> max(each.bytes for each in lag(query, "/data/recordings"))
        0
    """
    from mainstem.spark.lags import lag as measured

    return measured(query, path, options)


def reason(error: BaseException) -> str:
    """The sentence that matters of an error of a query, in batch, in streaming, in SQL and over Spark Connect.

    Args:
        error: What Spark raised; of a streaming query also ``query.exception()``.

    Returns:
        Mainstem's own sentence, without the tracebacks, the code and the plan that Spark puts around it. Where the error is not
        Mainstem's, its first line.

    Example:
        >>> try:
        ...     spark.sql("select * from t").collect()
        ... except Exception as error:
        ...     print(reason(error))
    """
    from mainstem.spark.reasons import reason as sentence

    return sentence(error)


def skipped(report: Path | str) -> list[Skipped]:
    """Sums what ``failOnDataLoss=false`` has passed over, in batches and in streaming queries, at any time.

    Args:
        report: The directory that was given as the option ``skipReport``, as this process sees it.

    Returns:
        A ``Skipped`` (archive, recording_id, ranges, bytes, reasons) for each recording of which something was passed over. A
        range counts once, however often it was read.

    Example:
        >>> sum(each.bytes for each in skipped("/data/skipped"))
        0
    """
    from mainstem.spark.sources.skip_report import read_report

    return read_report(str(report))

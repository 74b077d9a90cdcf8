"""Creates a local Spark session with a working Java, the right Python, and measured settings."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from mainstem.errors import needs_extras
from mainstem.spark.java import end_jvms, ensure_java, java_options, remembered_jvms

with needs_extras():
    from pyspark import SparkContext
    from pyspark.errors import AnalysisException
    from pyspark.sql import SparkSession

    from mainstem.spark.sinks.channel import ChannelSink
    from mainstem.spark.sources.capture import CaptureSource
    from mainstem.spark.sources.features import CHECKPOINT_FILE_MANAGER, HAS_READ_LIMITS
    from mainstem.spark.sources.live import LiveSource
    from mainstem.spark.sources.parallelism import parallelism_of
    from mainstem.spark.sources.recording import RecordingSource

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

# Without Hadoop's native library, Spark starts several processes per checkpoint file. These settings avoid that, so a micro-batch
# takes 90 ms instead of 150. They are correct only for local paths.
LOCAL_CHECKPOINTS = {
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
}
CHECKPOINT_FILES = "spark.sql.streaming.checkpointFileManagerClass"
# spark-submit sets this variable for the program that it starts.
GATEWAY_VARIABLE = "PYSPARK_GATEWAY_PORT"
DEFAULTS = {
    "spark.sql.session.timeZone": "UTC",
    # Between the JVM and Python, Unix sockets take a sixth less work than TCP.
    "spark.python.unix.domain.socket.enabled": "true",
    # Larger buffers save 5%. (The default comes from spark.buffer.size; raising that would slow down reading Parquet.)
    "spark.sql.execution.pandas.udf.buffer.size": str(1 << 20),
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "1g",
}


def register(spark: SparkSession) -> None:
    """Register Mainstem's formats with a session, so that ``spark.read.format("mainstem.recording")`` works.

    Sources: ``mainstem.recording``, ``mainstem.live``, ``mainstem.capture``. Sink: ``mainstem.channel``.

    Args:
        spark: A session that ``create_session`` did not create.

    Example:
        >>> register(spark)
        >>> spark.read.format("mainstem.recording").load("/data/recordings").count()
    """
    # Sources plan in a separate process that cannot ask the session.
    known = {"parallelism": parallelism_of(spark)}
    kinds = [type(source.__name__, (source,), known) for source in (RecordingSource, LiveSource)]
    for kind in (*kinds, CaptureSource, ChannelSink):
        try:
            spark.dataSource.register(kind)
        except AnalysisException as error:
            # Spark 4.0 does not replace a source that it found by itself. That source works, but does not know the parallelism.
            if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
                raise


def settings(master: str, cores: int) -> dict[str, str]:
    """Return the settings that ``create_session`` applies by default."""
    chosen = dict(DEFAULTS)
    if not HAS_READ_LIMITS:
        # Otherwise Trigger.AvailableNow runs only one micro-batch: after a restart, only the uncommitted one, without newer data.
        chosen["spark.sql.streaming.triggerAvailableNowWrapper.enabled"] = "true"
    # A streaming query keeps the number of partitions it started with. The default of 200 is for clusters.
    chosen["spark.sql.shuffle.partitions"] = str(2 * cores)
    if master.startswith("local"):
        chosen |= LOCAL_CHECKPOINTS
        chosen[CHECKPOINT_FILES] = CHECKPOINT_FILE_MANAGER
        chosen |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    return chosen


@contextmanager
def _standard_error_in(path: Path | None) -> Iterator[None]:
    """Redirect the standard error of child processes that the block starts to a file."""
    if path is None:
        yield
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    sys.stderr.flush()
    own = os.dup(2)
    try:
        with path.open("ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(own, 2)
        os.close(own)


def create_session(
    name: str = "mainstem",
    *,
    master: str | None = None,
    config: Mapping[str, str] | None = None,
    log_level: str = "ERROR",
    log_file: Path | None = None,
) -> SparkSession:
    """Create a local Spark session with Mainstem's formats registered, a Java that works, and measured settings.

    Its workers run the same Python interpreter as this process.

    Args:
        name: The application name in Spark.
        master: Where Spark runs. None uses the master given to ``spark-submit`` if that started this process, else ``local[*]``.
        config: Settings that override every default. JVM settings (memory, Java options) apply only to the first session of a
            process.
        log_level: The lowest level that Spark logs.
        log_file: A file for the standard error of the JVM and its workers. None uses this process's standard error.

    Returns:
        The session.

    Raises:
        MissingExtraError: pyspark is not installed.
        ConfigurationError: There is no Java for Spark.

    Example:
        >>> spark = create_session("tides", config={"spark.driver.memory": "4g"})
    """
    submitted = os.environ.get(GATEWAY_VARIABLE) is not None
    if master is None and submitted:
        return _submitted(name, config)
    master = master or "local[*]"
    ensure_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.appName(name).master(master)
    overrides = dict(config or {})
    for key, value in (settings(master, os.cpu_count() or 2) | java_options(overrides) | overrides).items():
        builder = builder.config(key, value)
    with _standard_error_in(log_file), remembered_jvms():
        spark: SparkSession = builder.getOrCreate()
    spark.sparkContext.setLogLevel(log_level)
    register(spark)
    return spark


def _submitted(name: str, config: Mapping[str, str] | None) -> SparkSession:
    """Return the session of ``spark-submit``. Its settings take precedence over ``config``, because they are the cluster's."""
    builder = SparkSession.builder.appName(name)
    for key, value in (config or {}).items():
        builder = builder.config(key, value)
    spark: SparkSession = builder.getOrCreate()
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    register(spark)
    return spark


def stop(spark: SparkSession) -> None:
    """Stop a session and its JVM, which ``SparkSession.stop`` leaves running."""
    gateway = SparkContext._gateway
    try:
        spark.stop()
    finally:
        if gateway is not None:
            gateway.shutdown()
        end_jvms()
        SparkContext._gateway = None
        SparkContext._jvm = None

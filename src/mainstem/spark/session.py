"""A local Spark session for streams: the right Java and Python, and settings measured to matter."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from mainstem.spark import jvm
from mainstem.spark.java import ensure_java
from mainstem.spark.java_options import java_options

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession

# Without Hadoop's native library every checkpoint file costs several processes; these take that away (150 ms a micro-batch
# down to 90). They are right for local paths only, so they are set only when the master is local.
LOCAL_CHECKPOINTS = {
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
}
CHECKPOINT_FILES = "spark.sql.streaming.checkpointFileManagerClass"
# Set by spark-submit for the program that it starts.
GATEWAY_VARIABLE = "PYSPARK_GATEWAY_PORT"
DEFAULTS = {
    "spark.sql.session.timeZone": "UTC",
    # Rows go between the JVM and Python over a socket in the file system: a sixth less work than TCP.
    "spark.python.unix.domain.socket.enabled": "true",
    # And in larger pieces: a twentieth less. (spark.buffer.size, from which this is taken, would slow down reading Parquet.)
    "spark.sql.execution.pandas.udf.buffer.size": str(1 << 20),
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "1g",
}


def settings(master: str, cores: int) -> dict[str, str]:
    """What ``create`` sets when nothing else is asked for."""
    from mainstem.spark.sources.features import CHECKPOINT_FILE_MANAGER, HAS_READ_LIMITS

    chosen = dict(DEFAULTS)
    if not HAS_READ_LIMITS:
        # Else Trigger.AvailableNow is one micro-batch: after a restart the one that was not committed, and nothing that came since.
        chosen["spark.sql.streaming.triggerAvailableNowWrapper.enabled"] = "true"
    # A streaming query keeps the number of partitions with which it first started; 200 is for clusters.
    chosen["spark.sql.shuffle.partitions"] = str(2 * cores)
    if master.startswith("local"):
        chosen |= LOCAL_CHECKPOINTS
        chosen[CHECKPOINT_FILES] = CHECKPOINT_FILE_MANAGER
        chosen |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    return chosen


@contextmanager
def _standard_error_in(path: Path | None) -> Iterator[None]:
    """What a child process started meanwhile writes to its standard error goes to the file, for as long as it lives."""
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


def create(
    name: str = "mainstem",
    *,
    master: str | None = None,
    config: Mapping[str, str] | None = None,
    log_level: str = "ERROR",
    log_file: Path | None = None,
) -> SparkSession:
    """Creates a session with Mainstem's sources registered, whose workers run this same Python.

    Args:
        name: The application's name in Spark.
        master: Where Spark runs. None: the master of ``spark-submit`` where that started this process, else ``local[*]``.
        config: Settings that override every default. Those of the JVM itself (memory, options) count only for the first
            session of a process.
        log_level: What Spark's loggers write at least.
        log_file: Where the standard error of the JVM and its workers goes; None: where this process's goes.

    Returns:
        The session.

    Raises:
        MissingExtraError: pyspark is not installed.
        ConfigurationError: There is no Java that Spark runs on.

    Example:
        >>> spark = create("tides", master="local[4]")
    """
    submitted = os.environ.get(GATEWAY_VARIABLE) is not None
    if master is None and submitted:
        return _submitted(name, config)
    master = master or "local[*]"
    # Before Java: where both are missing, one package brings both.
    from pyspark.sql import SparkSession

    from mainstem.spark import register

    ensure_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.appName(name).master(master)
    overrides = dict(config or {})
    for key, value in (settings(master, os.cpu_count() or 2) | java_options(overrides) | overrides).items():
        builder = builder.config(key, value)
    with _standard_error_in(log_file), jvm.remembered():
        spark: SparkSession = builder.getOrCreate()
    spark.sparkContext.setLogLevel(log_level)
    register(spark)
    return spark


def _submitted(name: str, config: Mapping[str, str] | None) -> SparkSession:
    """The session of spark-submit, whose settings have the last word: they are the cluster's."""
    from pyspark.sql import SparkSession

    from mainstem.spark import register

    builder = SparkSession.builder.appName(name)
    for key, value in (config or {}).items():
        builder = builder.config(key, value)
    spark: SparkSession = builder.getOrCreate()
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    register(spark)
    return spark


def stop(spark: SparkSession) -> None:
    """Stops a session and its JVM, which ``SparkSession.stop`` leaves running. The next ``create`` starts another one."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    try:
        spark.stop()
    finally:
        if gateway is not None:
            gateway.shutdown()
        jvm.end()
        SparkContext._gateway = None
        SparkContext._jvm = None

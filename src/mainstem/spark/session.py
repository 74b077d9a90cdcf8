"""A local Spark session for streams: the right Java and Python, and settings measured to matter."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from mainstem.spark.java import ensure_java

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

# Without Hadoop's native library every checkpoint file costs several processes; these take that away (150 ms a micro-batch
# down to 90). They are right for local paths only, so they are set only when the master is local.
LOCAL_CHECKPOINTS = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
}
DEFAULTS = {
    "spark.sql.session.timeZone": "UTC",
    # Rows go between the JVM and Python over a socket in the file system: a sixth less work than TCP.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "1g",
}


def settings(master: str, cores: int) -> dict[str, str]:
    """What ``create`` sets when nothing else is asked for."""
    chosen = dict(DEFAULTS)
    # A streaming query keeps the number of partitions with which it first started; 200 is for clusters.
    chosen["spark.sql.shuffle.partitions"] = str(2 * cores)
    if master.startswith("local"):
        chosen |= LOCAL_CHECKPOINTS
        chosen |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    return chosen


def create(
    name: str = "mainstem",
    *,
    master: str = "local[*]",
    config: Mapping[str, str] | None = None,
    log_level: str = "ERROR",
) -> SparkSession:
    """A session with Mainstem's sources registered, on the Java that ``ensure_java`` finds; ``config`` has the last word.

    The workers run this same Python. Settings of the JVM itself (memory, options) count only for the first session of a
    process. Raises ConfigurationError when there is no Java.
    """
    ensure_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark.sql import SparkSession

    from mainstem.spark import register

    builder = SparkSession.builder.appName(name).master(master)
    for key, value in (settings(master, os.cpu_count() or 2) | dict(config or {})).items():
        builder = builder.config(key, value)
    spark: SparkSession = builder.getOrCreate()
    spark.sparkContext.setLogLevel(log_level)
    register(spark)
    return spark

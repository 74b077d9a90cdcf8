"""``analyze`` in a session that exists: for the command line, ``spark-submit``, a notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.analysis.options import Silent
from mainstem.analysis.program import analyze_here, needs_spark
from mainstem.analysis.run import Analysis
from mainstem.spark.reasons import own_error
from mainstem.spark.report.spark_tables import SparkTables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mainstem.analysis.options import AnalyzeOptions, Watcher


def analyze(spark: SparkSession, options: AnalyzeOptions, watcher: Watcher | None = None) -> Analysis:
    """Runs an analysis: in this process where it can, else in the session.

    Args:
        spark: The session.
        options: What is read, and where the results go.
        watcher: Receives how far it is.

    Returns:
        The analysis, which ended.

    Raises:
        ConfigurationError, CaptureError, RecordingError: An input cannot be read at all.
    """
    if not needs_spark(options.split(), options.ports):
        return analyze_here(options, watcher)
    from pyspark.errors import PySparkException

    from mainstem.spark import register

    register(spark)
    analysis = Analysis(SparkTables(spark, options.tables, options.ports), options, watcher or Silent())
    try:
        analysis.run()
    except PySparkException as error:
        raise own_error(error) or error from error
    return analysis

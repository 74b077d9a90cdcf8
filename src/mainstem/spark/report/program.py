"""``analyze`` in a session that exists: for the command line, ``spark-submit``, a notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.analysis.options import NoProgress
from mainstem.analysis.program import analyze_here, needs_spark
from mainstem.analysis.run import Analysis
from mainstem.spark.error_text import as_own_error
from mainstem.spark.report.spark_tables import SparkTables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mainstem.analysis.options import AnalyzeOptions, ProgressListener


def analyze(spark: SparkSession, options: AnalyzeOptions, listener: ProgressListener | None = None) -> Analysis:
    """Runs an analysis: in this process where it can, else in the session.

    Args:
        spark: The session.
        options: What is read, and where the results go.
        listener: Receives how far it is.

    Returns:
        The analysis, which ended.

    Raises:
        ConfigurationError, CaptureError, RecordingError: An input cannot be read at all.
    """
    if not needs_spark(options.split(), options.ports):
        return analyze_here(options, listener)
    from pyspark.errors import PySparkException

    from mainstem.spark import register

    register(spark)
    analysis = Analysis(SparkTables(spark, options.tables, options.ports), options, listener or NoProgress())
    try:
        analysis.run()
    except PySparkException as error:
        raise as_own_error(error) from None
    return analysis

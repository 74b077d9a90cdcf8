"""``analyze`` in a session that exists: for the command line, ``spark-submit``, a notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.spark.reasons import own_error
from mainstem.spark.report.analysis import Analysis
from mainstem.spark.report.options import AnalyzeOptions, Silent, Watcher

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def ports_of(*, aeron: str, bymux: str, jmux: str) -> dict[str, str]:
    """Ports as options of ``mainstem.capture``; empty ones are left out."""
    ports = {"aeronPorts": aeron, "bymuxPorts": bymux, "jmuxPorts": jmux}
    return {name: value for name, value in ports.items() if value}


def analyze(spark: SparkSession, options: AnalyzeOptions, watcher: Watcher | None = None) -> Analysis:
    """Runs an analysis. Raises ConfigurationError, CaptureError or RecordingError where an input cannot be read at all."""
    from pyspark.errors import PySparkException

    from mainstem.spark import register

    register(spark)
    analysis = Analysis(spark, options, watcher or Silent())
    try:
        analysis.run()
    except PySparkException as error:
        raise own_error(error) or error from error
    return analysis

"""How many tasks Spark runs at once: what a source plans for, wherever its driver runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def parallelism_of(spark: SparkSession) -> int | None:
    """The cores of Spark's executors, those that are still to come included as far as the settings say; None where it is not known.

    ``spark.default.parallelism`` overrides it.
    """
    try:
        context = spark.sparkContext
    except Exception:
        # Spark Connect has no context, and an error of its own for each version.
        text = spark.conf.get("spark.default.parallelism", None)
        return int(text) if text else None
    settings = context.getConf()
    now: int = context.defaultParallelism
    if settings.contains("spark.default.parallelism") or context.master.startswith("local"):
        return now
    instances, cores = (int(settings.get(f"spark.executor.{name}", "0") or 0) for name in ("instances", "cores"))
    most = int(settings.get("spark.cores.max", "0") or 0)
    return max(now, instances * cores, most)

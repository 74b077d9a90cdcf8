"""``mainstem analyze`` for ``spark-submit``. Pass it this file's path and the arguments. Prints one JSON object.

spark-submit --py-files mainstem.zip analyze.py CAPTURE... --out DIRECTORY
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

PARTITIONS = "spark.sql.shuffle.partitions"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run an analysis in the session that ``spark-submit`` set up. Exits with status 1 and an error if an input cannot be read."""
    parser = argparse.ArgumentParser(description="Show what captures and recordings hold.")
    parser.add_argument("inputs", nargs="+", help="captures, directories, patterns, or directories of recordings")
    parser.add_argument("--out", type=Path, default=Path("out/analyze"), help="where the tables and the report go")
    parser.add_argument("--aeron-ports", default="auto")
    parser.add_argument("--bymux-ports", default="")
    parser.add_argument("--jmux-ports", default="")
    namespace = parser.parse_args(arguments)
    from pyspark.sql import SparkSession

    from mainstem.analysis.options import AnalyzeOptions
    from mainstem.analysis.program import ports_of
    from mainstem.errors import MainstemError
    from mainstem.spark.report import analyze

    ports = ports_of(aeron=namespace.aeron_ports, bymux=namespace.bymux_ports, jmux=namespace.jmux_ports)
    options = AnalyzeOptions(inputs=tuple(namespace.inputs), out=namespace.out, ports=ports)
    spark = SparkSession.builder.appName("mainstem analyze").getOrCreate()
    context = spark.sparkContext
    if not context.getConf().contains(PARTITIONS):
        # Spark's default of 200 is for large clusters. Each partition costs a call of a Python worker.
        spark.conf.set(PARTITIONS, str(2 * context.defaultParallelism))
    try:
        sys.stdout.write(json.dumps(analyze(spark, options).as_json()) + "\n")
    except MainstemError as error:
        sys.exit(f"mainstem: {error}")
    finally:
        spark.stop()


if __name__ == "__main__":
    main()

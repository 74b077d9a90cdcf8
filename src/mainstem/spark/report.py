"""Runs an analysis in Spark, with a job for each table, and never collects rows on the driver."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import reduce
from typing import TYPE_CHECKING, TypeVar

from mainstem.analysis.options import NoProgress
from mainstem.analysis.program import Analysis, analyze_here, needs_spark
from mainstem.analysis.tables import AQUEDUCT_FOLD, CHANNEL_FOLD, MUX_FOLD, PATH_FOLD, TABLES
from mainstem.capture.schema import ddl
from mainstem.spark.error_text import as_own_error
from mainstem.spark.fold_frames import apply
from mainstem.spark.tables import frames, naks, problems, select, sessions, status_messages

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from mainstem.analysis.folds.fold import Fold
    from mainstem.analysis.options import AnalyzeOptions, Inputs, ProgressListener
    from mainstem.analysis.summary import RowDict


class SparkTables:
    """The tables in ``directory``, which are views of the session while this is open."""

    def __init__(self, spark: SparkSession, directory: Path, ports: Mapping[str, str]) -> None:
        self._spark, self._directory, self._ports = spark, directory, ports
        self._prefix = f"mainstem_{uuid.uuid4().hex[:8]}_"

    def close(self) -> None:
        for name in TABLES:
            self._spark.catalog.dropTempView(self._prefix + name)

    def query(self, sql: str) -> list[RowDict]:
        names = {name: self._prefix + name for name in TABLES}
        return [row.asDict() for row in self._spark.sql(sql.format_map(names | {"div": "div"})).collect()]

    def run_all(self, jobs: Sequence[Callable[[], object]]) -> None:
        in_parallel(self._spark, jobs)

    def write_frames(self, inputs: Inputs) -> None:
        reader = self._spark.read.format("mainstem.capture").options(**self._ports)
        parts = [frames(reader.load(path)) for path in inputs.captures]
        parts += [frames(self._spark.read.schema(ddl()).parquet(path)) for path in inputs.frames]
        self._save("frames", reduce(lambda a, b: a.unionByName(b), parts))

    def write_tables(self) -> None:
        seen = self._stored("frames")
        paths, connections = (apply(fold, seen).persist() for fold in (PATH_FOLD, MUX_FOLD))
        first: list[Callable[[], object]] = [
            # These two jobs compute the folds that the later jobs use.
            self._select(paths, PATH_FOLD, "sessions"),
            self._select(connections, MUX_FOLD, "mux_streams"),
            lambda: self._save("naks", naks(seen)),
            lambda: self._save("status_messages", status_messages(seen)),
        ]
        first += [self._select(apply(fold, seen), fold, fold.kinds[0].name) for fold in (CHANNEL_FOLD, AQUEDUCT_FOLD)]
        later: list[Callable[[], object]] = [
            self._select(folded, fold, kind.name)
            for folded, fold in ((paths, PATH_FOLD), (connections, MUX_FOLD))
            for kind in fold.kinds
            if kind.name not in ("rtt", "sessions", "mux_streams")
        ]
        rtt = TABLES["rtt"]
        later.append(
            lambda: self._save("rtt", select(paths, PATH_FOLD, rtt).unionByName(select(connections, MUX_FOLD, rtt)))
        )
        try:
            in_parallel(self._spark, first)
            in_parallel(self._spark, later)
        finally:
            paths.unpersist()
            connections.unpersist()

    def write_recorded_sessions(self, paths: Sequence[str]) -> None:
        reader = self._spark.read.format("mainstem.recording").option("failOnDataLoss", "false")
        columns = (
            "recording_id bigint, session_id int, stream_id int, position bigint, recorded_at timestamp, length int"
        )
        messages = reduce(lambda a, b: a.unionByName(b), (reader.schema(columns).load(path) for path in paths))
        self._save("recorded_sessions", sessions(messages))

    def write_problems(self, *, frames: bool, recordings: Sequence[str]) -> None:
        parts = [problems(self._stored("frames"))] if frames else []
        reader = self._spark.read.format("mainstem.recording").option("rows", "problems")
        parts += [problems(reader.load(path)) for path in recordings]
        self._save("problems", reduce(lambda a, b: a.unionByName(b), parts))

    def _select(self, folded: DataFrame, fold: Fold, name: str) -> Callable[[], object]:
        return lambda: self._save(name, select(folded, fold, TABLES[name]))

    def _save(self, name: str, rows: DataFrame) -> None:
        rows.write.mode("overwrite").parquet(str(self._directory / name))
        self._stored(name).createOrReplaceTempView(self._prefix + name)

    def _stored(self, name: str) -> DataFrame:
        """Return a table as it was written."""
        types = ", ".join(f"{column.name} {column.type}" for column in TABLES[name].columns)
        return self._spark.read.schema(types).parquet(str(self._directory / name))


# -- jobs side by side -------------------------------------------------------------------------------------------------


T = TypeVar("T")
# The tasks of all jobs share the cores, so memory use is that of one job. More threads would only wait.
THREADS = 4


def in_parallel(spark: SparkSession, jobs: Sequence[Callable[[], T]]) -> list[T]:
    """Run jobs concurrently in the caller's job group, and return their results in order. Raises the first error."""
    from pyspark import inheritable_thread_target

    with ThreadPoolExecutor(THREADS) as threads:
        # Each thread needs its own properties, because Spark stores the current query in them.
        running = [threads.submit(inheritable_thread_target(spark)(job)) for job in jobs]
        try:
            for each in as_completed(running):
                each.result()
        except BaseException:
            for each in running:
                each.cancel()
            raise
        return [each.result() for each in running]


# -- analyze -----------------------------------------------------------------------------------------------------------


def analyze(spark: SparkSession, options: AnalyzeOptions, listener: ProgressListener | None = None) -> Analysis:
    """Run an analysis, in this process if the inputs are small enough, else in Spark. Raises if an input cannot be read."""
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

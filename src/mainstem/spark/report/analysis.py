"""An analysis from end to end: read once, write every table, gather the numbers, write the verdict and the page."""

from __future__ import annotations

import json
import uuid
from functools import reduce
from typing import TYPE_CHECKING, Any

from mainstem.capture.schema import ddl
from mainstem.spark.folds.run import apply
from mainstem.spark.report import local_path
from mainstem.spark.report.analysis_page import render
from mainstem.spark.report.gather import Gatherer
from mainstem.spark.report.parallel import in_parallel
from mainstem.spark.report.summary import Summary
from mainstem.spark.report.verdict import verdict
from mainstem.spark.tables import (
    AQUEDUCT_FOLD,
    CHANNEL_FOLD,
    MUX_FOLD,
    PATH_FOLD,
    TABLES,
    frames,
    naks,
    problems,
    select,
    sessions,
    status_messages,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from mainstem.spark.folds.fold import Fold
    from mainstem.spark.report.options import AnalyzeOptions, Inputs, Watcher

READ, WRITE, GATHER = "read captures", "write tables", "gather"
RECORDED = "read recordings"


class Analysis:
    """One run. ``summary``, ``verdict`` and ``report`` are there after ``run``."""

    def __init__(self, spark: SparkSession, options: AnalyzeOptions, watcher: Watcher) -> None:
        self._spark, self._options, self._watcher = spark, options, watcher
        self._tables = options.out / "tables"
        self._is_small = False
        self._prefix = f"mainstem_{uuid.uuid4().hex[:8]}_"
        self.summary = Summary(inputs=list(options.inputs))
        self.verdict: list[str] = []

    @property
    def report(self) -> Path:
        """The page."""
        return self._options.out / "report.html"

    def run(self) -> None:
        """Everything. Raises ConfigurationError, CaptureError or RecordingError where an input cannot be read at all."""
        inputs = self._options.split()
        self._is_small = local_path.is_small(inputs, self._options.ports)
        if self._is_small:
            self._spark = local_path.session_for(self._spark)
        self._options.out.mkdir(parents=True, exist_ok=True)
        gatherer = Gatherer(self._spark, self._prefix)
        has_frames = bool(inputs.captures or inputs.frames)
        if has_frames:
            self._frames(inputs)
        if inputs.recordings:
            self._recordings(inputs.recordings)
        self._problems(has_frames, inputs.recordings)
        self._watcher.stage(GATHER, None)
        try:
            if has_frames:
                gatherer.captures(self.summary)
            if inputs.recordings:
                gatherer.recordings(self.summary)
            gatherer.problems(self.summary)
        finally:
            for name in TABLES:
                self._spark.catalog.dropTempView(self._prefix + name)
        self.verdict = verdict(self.summary)
        self.report.write_text(render(self.summary, self.verdict), encoding="utf-8")
        (self._options.out / "summary.json").write_text(json.dumps(self.as_json()), encoding="utf-8")
        self._watcher.done(GATHER)

    def as_json(self) -> dict[str, Any]:
        """The counts, the verdict, and where everything is."""
        where = {"tables": str(self._tables), "report": str(self.report)}
        return self.summary.as_json() | {"verdict": self.verdict} | where

    def _view(self, name: str) -> DataFrame:
        """A table that was written: the page shows what was written, and nothing else."""
        ddl_of = ", ".join(f"{column.name} {column.type}" for column in TABLES[name].columns)
        stored = self._spark.read.schema(ddl_of).parquet(str(self._tables / name))
        stored.createOrReplaceTempView(self._prefix + name)
        return stored

    def _save(self, name: str, rows: DataFrame) -> DataFrame:
        if self._is_small:
            local_path.write(local_path.collected(rows), self._tables / name)
        else:
            rows.write.mode("overwrite").parquet(str(self._tables / name))
        return self._view(name)

    def _frames(self, inputs: Inputs) -> None:
        self._watcher.stage(READ, None)
        reader = self._spark.read.format("mainstem.capture").options(**self._options.ports)
        parts = [frames(reader.load(path)) for path in inputs.captures]
        parts += [frames(self._spark.read.schema(ddl()).parquet(path)) for path in inputs.frames]
        # The one pass over the captures: every other table is made from this one.
        seen = self._save("frames", reduce(lambda a, b: a.unionByName(b), parts))
        self._watcher.done(READ)
        self._watcher.stage(WRITE, None)
        if self._is_small:
            for name in local_path.write_tables(seen, self._tables):
                self._view(name)
        else:
            self._write_tables(seen)
        self._watcher.done(WRITE)

    def _write_tables(self, seen: DataFrame) -> None:
        """Every table, each a job of Spark's: nothing is collected, whatever the size."""
        paths, connections = (apply(fold, seen).persist() for fold in (PATH_FOLD, MUX_FOLD))
        first: list[Callable[[], object]] = [
            # These two compute what the later ones read.
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

    def _select(self, folded: DataFrame, fold: Fold, name: str) -> Callable[[], object]:
        return lambda: self._save(name, select(folded, fold, TABLES[name]))

    def _recordings(self, paths: list[str]) -> None:
        self._watcher.stage(RECORDED, len(paths))
        reader = self._spark.read.format("mainstem.recording").option("failOnDataLoss", "false")
        columns = (
            "recording_id bigint, session_id int, stream_id int, position bigint, recorded_at timestamp, length int"
        )
        messages = reduce(lambda a, b: a.unionByName(b), (reader.schema(columns).load(path) for path in paths))
        self._save("recorded_sessions", sessions(messages))
        self._watcher.done(RECORDED)

    def _problems(self, has_frames: bool, recordings: list[str]) -> None:
        parts = [problems(self._spark.table(f"{self._prefix}frames"))] if has_frames else []
        reader = self._spark.read.format("mainstem.recording").option("rows", "problems")
        parts += [problems(reader.load(path)) for path in recordings]
        self._save("problems", reduce(lambda a, b: a.unionByName(b), parts))

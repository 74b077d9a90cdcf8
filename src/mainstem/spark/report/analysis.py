"""An analysis from end to end: read once, write every table, gather the numbers, tell them."""

from __future__ import annotations

import json
import uuid
from functools import reduce
from typing import TYPE_CHECKING, Any

from mainstem.capture.schema import ddl
from mainstem.spark.folds.aqueduct import AqueductFold
from mainstem.spark.folds.channels import ChannelFold
from mainstem.spark.folds.multiplexed import MuxFold
from mainstem.spark.folds.path import PathFold
from mainstem.spark.folds.run import apply
from mainstem.spark.report import local_path
from mainstem.spark.report.finding_facts import Facts
from mainstem.spark.report.gather import Gatherer
from mainstem.spark.report.jobs import side_by_side
from mainstem.spark.report.page import render
from mainstem.spark.report.verdict import verdict
from mainstem.spark.tables import TABLES, frames, naks, problems, sessions, status_messages
from mainstem.spark.tables.rtt import of_parts
from mainstem.spark.tables.table import pick

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from mainstem.spark.report.options import AnalyzeOptions, Inputs, Watcher

READ, TELL, GATHER = "read captures", "write tables", "gather"
RECORDED = "read recordings"


class Analysis:
    """One run. ``facts``, ``verdict`` and ``report`` are there after ``run``."""

    def __init__(self, spark: SparkSession, options: AnalyzeOptions, watcher: Watcher) -> None:
        self._spark, self._options, self._watcher = spark, options, watcher
        self._tables = options.out / "tables"
        self._is_small = False
        self._prefix = f"mainstem_{uuid.uuid4().hex[:8]}_"
        self.facts = Facts(inputs=list(options.inputs))
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
                gatherer.captures(self.facts)
            if inputs.recordings:
                gatherer.recordings(self.facts)
            gatherer.problems(self.facts)
        finally:
            for name in TABLES:
                self._spark.catalog.dropTempView(self._prefix + name)
        self.verdict = verdict(self.facts)
        self.report.write_text(render(self.facts, self.verdict), encoding="utf-8")
        (self._options.out / "summary.json").write_text(json.dumps(self.as_json()), encoding="utf-8")
        self._watcher.done(GATHER)

    def as_json(self) -> dict[str, Any]:
        """The counts, the verdict, and where everything is."""
        where = {"tables": str(self._tables), "report": str(self.report)}
        return self.facts.as_json() | {"verdict": self.verdict} | where

    def _view(self, name: str) -> DataFrame:
        """A table that was written, so that what is told is what was written."""
        ddl_of = ", ".join(f"{column.name} {column.type}" for column in TABLES[name].columns)
        written = self._spark.read.schema(ddl_of).parquet(str(self._tables / name))
        written.createOrReplaceTempView(self._prefix + name)
        return written

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
        # The one pass over the captures: everything else is told from this table.
        seen = self._save("frames", reduce(lambda a, b: a.unionByName(b), parts))
        self._watcher.done(READ)
        self._watcher.stage(TELL, None)
        if self._is_small:
            for name in local_path.tell(seen, self._tables):
                self._view(name)
        else:
            self._tell(seen)
        self._watcher.done(TELL)

    def _tell(self, seen: DataFrame) -> None:
        """Every table, each a job of Spark's: nothing is collected, whatever the size."""
        paths, connections = (apply(fold, seen).persist() for fold in (PathFold(), MuxFold()))
        first: list[Callable[[], object]] = [
            # These two make what the later ones find.
            self._picked(paths, PathFold(), "sessions"),
            self._picked(connections, MuxFold(), "mux_streams"),
            lambda: self._save("naks", naks(seen)),
            lambda: self._save("status_messages", status_messages(seen)),
        ]
        first += [self._picked(apply(fold, seen), fold, fold.kinds[0].name) for fold in (ChannelFold(), AqueductFold())]
        later: list[Callable[[], object]] = [
            self._picked(told, fold, kind.name)
            for told, fold in ((paths, PathFold()), (connections, MuxFold()))
            for kind in fold.kinds
            if kind.name not in ("rtt", "sessions", "mux_streams")
        ]
        later.append(lambda: self._save("rtt", of_parts(*_round_trips(paths, connections))))
        try:
            side_by_side(self._spark, first)
            side_by_side(self._spark, later)
        finally:
            paths.unpersist()
            connections.unpersist()

    def _picked(self, told: DataFrame, fold: Any, name: str) -> Callable[[], object]:
        return lambda: self._save(name, pick(told, fold, name))

    def _recordings(self, paths: list[str]) -> None:
        self._watcher.stage(RECORDED, len(paths))
        reader = self._spark.read.format("mainstem.recording").option("failOnDataLoss", "false")
        columns = (
            "recording_id bigint, session_id int, stream_id int, position bigint, recorded_at timestamp, length int"
        )
        found = reduce(lambda a, b: a.unionByName(b), (reader.schema(columns).load(path) for path in paths))
        self._save("recorded_sessions", sessions(found))
        self._watcher.done(RECORDED)

    def _problems(self, has_frames: bool, recordings: list[str]) -> None:
        parts = [problems(self._spark.table(f"{self._prefix}frames"))] if has_frames else []
        reader = self._spark.read.format("mainstem.recording").option("rows", "problems")
        parts += [problems(reader.load(path)) for path in recordings]
        self._save("problems", reduce(lambda a, b: a.unionByName(b), parts))


def _round_trips(paths: DataFrame, connections: DataFrame) -> tuple[DataFrame, DataFrame]:
    return pick(paths, PathFold(), "rtt"), pick(connections, MuxFold(), "rtt")

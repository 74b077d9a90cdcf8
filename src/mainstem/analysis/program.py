"""Runs ``analyze``, in this process if the inputs are small enough, and decides which inputs need Spark."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mainstem.analysis.local_tables import LocalTables
from mainstem.analysis.options import NoProgress
from mainstem.analysis.page.overview import render
from mainstem.analysis.summary import Summary
from mainstem.analysis.summary_builder import SummaryBuilder
from mainstem.analysis.verdict import verdict
from mainstem.capture.files import capture_errors, captures, status_of
from mainstem.capture.ports import parse_aeron_ports, parse_ports
from mainstem.errors import CaptureError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mainstem.analysis.options import AnalyzeOptions, Inputs, ProgressListener
    from mainstem.analysis.summary_builder import Backend


# -- an analysis from end to end ---------------------------------------------------------------------------------------


READ, WRITE, GATHER = "read captures", "write tables", "gather"
RECORDED = "read recordings"


class Analysis:
    """One run of an analysis. ``run`` sets ``summary``, ``verdict`` and ``report``."""

    def __init__(self, tables: Backend, options: AnalyzeOptions, listener: ProgressListener) -> None:
        self._tables, self._options, self._listener = tables, options, listener
        self.summary = Summary(inputs=list(options.shown or options.inputs))
        self.verdict: list[str] = []

    @property
    def report(self) -> Path:
        return self._options.out / "report.html"

    def run(self) -> None:
        try:
            inputs = self._options.split()
            self._options.out.mkdir(parents=True, exist_ok=True)
            self._write(inputs)
            self._gather(inputs)
        finally:
            self._tables.close()
        self.verdict = verdict(self.summary)
        self.report.write_text(render(self.summary, self.verdict), encoding="utf-8")
        (self._options.out / "summary.json").write_text(json.dumps(self.as_json()), encoding="utf-8")
        self._listener.done(GATHER)

    def as_json(self) -> dict[str, Any]:
        where = {"tables": str(self._options.tables), "report": str(self.report)}
        return self.summary.as_json() | {"verdict": self.verdict} | where

    def _write(self, inputs: Inputs) -> None:
        if inputs.has_frames:
            self._listener.stage(READ, None)
            self._tables.write_frames(inputs)
            self._listener.done(READ)
            self._listener.stage(WRITE, None)
            self._tables.write_tables()
            self._listener.done(WRITE)
        if inputs.recordings:
            self._listener.stage(RECORDED, len(inputs.recordings))
            self._tables.write_recorded_sessions(inputs.recordings)
            self._listener.done(RECORDED)
        self._tables.write_problems(frames=inputs.has_frames, recordings=inputs.recordings)

    def _gather(self, inputs: Inputs) -> None:
        self._listener.stage(GATHER, None)
        builder = SummaryBuilder(self._tables)
        if inputs.has_frames:
            builder.captures(self.summary)
        if inputs.recordings:
            builder.recordings(self.summary)
        builder.problems(self.summary)


# Captures up to this size are read in this process, in seconds. This is about four million Aeron frames.
LOCAL_CAPTURE_BYTES = 256 << 20
# With bymux or Jmux the limit is lower, because a bymux frame can take as little as one byte.
LOCAL_MUX_BYTES = 8 << 20
# Parquet is compressed, so its size does not bound the number of rows.
LOCAL_FRAMES = 4_000_000


def ports_of(*, aeron: str, bymux: str, jmux: str) -> dict[str, str]:
    """Return ports as options of ``mainstem.capture``, without empty ones. Raises ConfigurationError for invalid ports."""
    parse_aeron_ports(aeron, "`aeron_ports`")
    parse_ports(bymux, "`bymux_ports`")
    parse_ports(jmux, "`jmux_ports`")
    ports = {"aeronPorts": aeron, "bymuxPorts": bymux, "jmuxPorts": jmux}
    return {name: value for name, value in ports.items() if value}


def needs_spark(inputs: Inputs, ports: Mapping[str, str]) -> bool:
    """Return whether the inputs are too large for this process. Recordings always need Spark.

    Raises CaptureError if an input cannot be read at all.
    """
    if inputs.recordings or (not _is_installed("duckdb") and _is_installed("pyspark")):
        return True
    has_mux = not {"bymuxports", "jmuxports"}.isdisjoint(name.lower() for name in ports)
    most = LOCAL_MUX_BYTES if has_mux else LOCAL_CAPTURE_BYTES
    files = [file for path in inputs.captures for file in captures(path)]
    return sum(_bytes_of(file) for file in files) > most or _rows_of(inputs.frames) > LOCAL_FRAMES


def _is_installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def _bytes_of(file: str) -> int:
    with capture_errors(file):
        return status_of(file)[0]


def _rows_of(directories: list[str]) -> int:
    import pyarrow.parquet as pq

    rows = 0
    for file in (file for path in directories for file in Path(path).glob("*.parquet")):
        try:
            rows += pq.read_metadata(file).num_rows
        except (OSError, ValueError) as error:
            raise CaptureError(f"{file} is not a table: {error}") from error
    return rows


def analyze_here(options: AnalyzeOptions, listener: ProgressListener | None = None) -> Analysis:
    """Run an analysis that does not need Spark. Raises ConfigurationError or CaptureError if an input cannot be read at all."""
    tables = LocalTables(options.tables, options.ports)  # raises if DuckDB is missing, naming what to install
    import duckdb

    analysis = Analysis(tables, options, listener or NoProgress())
    try:
        analysis.run()
    except (duckdb.Error, RuntimeError) as error:
        text = str(error)
        if "Query interrupted" in text or isinstance(error, duckdb.InterruptException):
            # DuckDB handled Ctrl-C itself and reported it as an error.
            raise KeyboardInterrupt from error
        if not isinstance(error, duckdb.Error):
            raise
        raise CaptureError(f"{', '.join(options.inputs)} to {options.out}: {text.splitlines()[0]}") from error
    return analysis

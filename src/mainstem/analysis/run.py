"""An analysis from end to end: read once, write every table, summarize, write the verdict and the page."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from mainstem.analysis.page.overview import render
from mainstem.analysis.summary import Summary
from mainstem.analysis.summary_builder import SummaryBuilder
from mainstem.analysis.verdict import verdict

if TYPE_CHECKING:
    from pathlib import Path

    from mainstem.analysis.backend import Backend
    from mainstem.analysis.options import AnalyzeOptions, Inputs, ProgressListener

READ, WRITE, GATHER = "read captures", "write tables", "gather"
RECORDED = "read recordings"


class Analysis:
    """One run. ``summary``, ``verdict`` and ``report`` are set after ``run``."""

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

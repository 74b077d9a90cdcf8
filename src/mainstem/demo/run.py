"""Runs the demo from end to end: loads, publishes and records, reads at the same time, computes, compares and reports."""

from __future__ import annotations

import shutil
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from mainstem.demo import check, report
from mainstem.demo.encoding import encoded
from mainstem.demo.figures import source_figures
from mainstem.demo.query import TableQuery, start_session
from mainstem.demo.result import Result
from mainstem.demo.table import load
from mainstem.demo.traffic import Traffic
from mainstem.errors import ConfigurationError, Timeout
from mainstem.spark.session import stop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from mainstem.analysis.options import ProgressListener
    from mainstem.demo.options import DemoOptions

POLL_SECONDS = 0.1
MARKER = ".mainstem-demo"  # in the demo's work directory: the next demo can delete it
# Give up after this long without progress, because something must be broken.
STALL_SECONDS = 60.0
# A cold JVM on a slow host needs a long time for the first micro-batch.
FIRST_ROWS_SECONDS = 300.0


def run(options: DemoOptions, listener: ProgressListener) -> Result:
    """Run the demo. In any case, even on KeyboardInterrupt, end every process and remove every file outside ``out``."""
    options.check()
    work = _fresh_directory(options.out)
    with ExitStack() as stack:
        stages = _Stages(listener)
        with stages("load"):
            table, name = load(options.data, options.count)
            result = Result(source=name, loss=options.loss, stages=stages.seconds)
            listener.stage("load", table.num_rows)
            arrays = []
            for array in encoded(table):
                arrays.append(array)
                listener.progress("load", sum(map(len, arrays)))
        recordings = work / "recording"
        _empty_catalog(recordings)
        with stages("start Spark"):
            spark = start_session(work)
            stack.callback(stop, spark)
            query = TableQuery(spark, table, recordings, options.out / "table", work)
            stack.callback(query.stop)
        _stream(options, result, stages, query, arrays, recordings)
        with stages("read into Parquet", table.num_rows):
            query.finish()
            result.rows = query.rows()
            listener.progress("read into Parquet", result.rows)
        with stages("compute"):
            result.figures = query.figures()
            files = query.files()
        with stages("compare"):
            _compare(result, table, query, files)
    with stages("report"):
        path = options.out / "report.html"
        result.report, result.recording = str(path), str(recordings)
        report.write(result, path)
    return result


def _fresh_directory(out: Path) -> Path:
    """Empty the demo's own directories below ``out``. Raises ConfigurationError if they were not created by a demo."""
    work = out / "work"
    is_of_a_demo = (work / MARKER).exists() or (out / "report.html").exists()
    for directory in (work, out / "table"):
        if directory.exists() and not is_of_a_demo and any(directory.iterdir()):
            raise ConfigurationError(f"`out`: {directory} is there and no demo has made it: name another directory")
        shutil.rmtree(directory, ignore_errors=True)
    work.mkdir(parents=True)
    (work / MARKER).touch()
    return work


def _empty_catalog(recordings: Path) -> None:
    # The query starts before there is anything to read.
    from mainstem.recording import Recorder

    Recorder(recordings).close()


def _stream(
    options: DemoOptions, result: Result, stages: _Stages, query: TableQuery, arrays: list[Any], recordings: Path
) -> None:
    listener, total = stages.listener, sum(map(len, arrays))
    with ExitStack() as stack:
        with stages("start the driver"):
            traffic = stack.enter_context(Traffic(recordings, loss=options.loss, seed=options.seed))
        for name in ("publish", "record", "read into Parquet"):
            listener.stage(name, total)
        traffic.start(arrays)
        with stages("first rows in Spark"):
            _wait(traffic, lambda: query.rows() > 0, query, seconds=FIRST_ROWS_SECONDS)
        traffic.sampler.restart()
        traffic.go_on()
        started = time.monotonic()

        def progressed() -> bool:
            if traffic.offered == total and "publish" not in stages.seconds:
                stages.seconds["publish"] = time.monotonic() - started
            result.rows_while_recording = query.rows()
            listener.progress("publish", traffic.offered)
            listener.progress("record", traffic.recorded)
            listener.progress("read into Parquet", result.rows_while_recording)
            return traffic.is_recorded

        _wait(traffic, progressed, query, seconds=STALL_SECONDS)
        stages.seconds.setdefault("publish", time.monotonic() - started)
        stages.seconds["record"] = time.monotonic() - started
        for name in ("publish", "record"):
            listener.done(name)
        result.rows_while_recording = query.rows()
        final = traffic.sampler.sample()
        result.offered, result.received = traffic.offered, traffic.recorded
        result.payload_bytes, result.stream_bytes = traffic.payload_bytes, traffic.recorded_position
        result.datagrams_dropped, result.naks, result.retransmits = final.dropped, final.naks, final.retransmits
        # Copy the samples: the sampler continues while the traffic ends, and a freed counter reads as 0.
        result.samples = list(traffic.sampler.samples)


def _wait(traffic: Traffic, until: Callable[[], bool], query: TableQuery, *, seconds: float) -> None:
    """Poll until the condition is true.

    Raises the error of a failed part, and Timeout if nothing has progressed for ``seconds``.
    """
    last, since = -1, time.monotonic()
    while not until():
        time.sleep(POLL_SECONDS)
        query.check()
        traffic.check()
        if traffic.recorded_position != last:
            last, since = traffic.recorded_position, time.monotonic()
        elif time.monotonic() - since > seconds:
            raise Timeout(f"nothing moved for {seconds:g} s: {traffic.offered:,} rows offered", timeout=seconds)


def _compare(result: Result, table: Any, query: TableQuery, files: list[str]) -> None:
    if not files:
        result.lost = result.offered
        return
    comparison = check.compare(check.read_files(files), table, row=query.row, position=query.position)
    result.rows, result.lost = comparison.rows, comparison.lost
    result.duplicated, result.out_of_order = comparison.duplicated, comparison.out_of_order
    result.unequal_columns = comparison.unequal_columns
    result.rows_equal = comparison.is_clean
    result.figures_equal = result.figures == source_figures(table)


class _Stages:
    """Measures the duration of stages and reports them to the listener."""

    def __init__(self, listener: ProgressListener) -> None:
        self.listener = listener
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, name: str, total: int | None = None) -> Iterator[None]:
        self.listener.stage(name, total)
        started = time.monotonic()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - started
        self.listener.done(name)

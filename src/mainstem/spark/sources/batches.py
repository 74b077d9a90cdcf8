"""Reads the recording ranges of a task as Arrow batches."""

from __future__ import annotations

import gc
import logging
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import InputPartition

from mainstem.errors import RecordingError
from mainstem.recording import RecordingDescriptor, RecordingReader, SkippedRange, find_problems
from mainstem.recording.open_archives import ReadOptions, open_archives
from mainstem.recording.reading import BYTES_PER_BATCH
from mainstem.recording.rows.reading import read_rows, schema_of
from mainstem.recording.verify import find_end_problem
from mainstem.spark.sources.skip_report import note

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from mainstem.recording.archive import Archive
    from mainstem.spark.sources.schema import Names


log = logging.getLogger(__name__)

# By this many tasks, a worker has imported everything, including modules that Spark loads late.
FREEZING_TASKS = 4

_tasks = 0


def freeze_gc() -> None:
    """Exempt imported modules from garbage collection. Call it at the start of a task, before it creates objects.

    Spark's worker runs a garbage collection after every task. It visits all imported modules, which takes most of the time of a
    small task. Objects that exist at the start of a task were just visited and live as long as the worker, so they can be exempt.
    """
    global _tasks
    if _tasks < FREEZING_TASKS:
        _tasks += 1
        gc.freeze()


@dataclass
class RecordingRange(InputPartition):
    """``[start, end)`` of one recording, with everything that a task on another host needs to read it."""

    location: str
    descriptor: RecordingDescriptor
    start: int
    end: int
    names: Names
    rows: str
    rows_per_batch: int
    strict: bool
    verify: bool
    timestamp_from: str = ""
    archive_id: str = ""
    host: str = ""
    skip_report: str = ""
    read: ReadOptions = field(default_factory=ReadOptions)

    def ranges(self) -> list[RecordingRange]:
        return [self]


@dataclass
class RecordingGroup(InputPartition):
    """Several ranges that share a task, mostly of small recordings."""

    parts: list[RecordingRange]

    def ranges(self) -> list[RecordingRange]:
        return self.parts


def rows_of(part: RecordingRange | RecordingGroup) -> Iterator[pa.RecordBatch]:
    """Read the rows of a task's ranges."""
    freeze_gc()
    archives = TaskArchives()
    try:
        ranges = part.ranges()
        by_range = (
            read_problems(each, archives) if each.rows == "problems" else read_range(each, archives) for each in ranges
        )
        every = (batch for several in by_range for batch in several)
        yield from every if len(ranges) == 1 else _joined(every, ranges[0].rows_per_batch)
    finally:
        archives.close()


def _joined(small: Iterator[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """Join small batches into batches of about ``rows`` rows, within the usual size limit."""
    import pyarrow as pa

    waiting: list[pa.RecordBatch] = []
    count = size = 0
    for batch in small:
        waiting.append(batch)
        count, size = count + batch.num_rows, size + batch.nbytes
        if count >= rows or size >= BYTES_PER_BATCH:
            yield from pa.Table.from_batches(waiting).combine_chunks().to_batches()
            waiting, count, size = [], 0, 0
    if waiting:
        yield from pa.Table.from_batches(waiting).combine_chunks().to_batches()


class TaskArchives:
    """The archives of a task, each opened once."""

    def __init__(self) -> None:
        self._opened: dict[tuple[str, str], Archive] = {}

    def reader(self, part: RecordingRange) -> RecordingReader:
        """Open a reader for the range's recording."""
        key = (part.location, part.archive_id)
        if key not in self._opened:
            (self._opened[key],) = open_archives(part.location, replace(part.read, archive_id=part.archive_id))
        return RecordingReader(self._opened[key], part.descriptor)

    def close(self) -> None:
        for archive in self._opened.values():
            archive.close()


def read_problems(part: RecordingRange, archives: TaskArchives) -> Iterator[pa.RecordBatch]:
    """Return a row for each problem in the range, including a truncated last frame."""
    import pyarrow as pa

    kinds = {"recording_id": pa.int64(), "position": pa.int64(), "kind": pa.string(), "text": pa.string()}
    with archives.reader(part) as reader:
        rows = list(find_problems(reader, part.start, part.end))
        last = find_end_problem(reader) if part.end == reader.end_position() else None
        rows += [last] if last is not None else []
        if rows:
            columns: list[Any] = [pa.array([getattr(row, name) for row in rows], kinds[name]) for name in part.names]
            yield pa.RecordBatch.from_arrays(columns, schema=schema_of(part.names, columns))


def read_range(part: RecordingRange, archives: TaskArchives) -> Iterator[pa.RecordBatch]:
    """Read the messages or frames of one range. A problem raises RecordingError if ``strict``."""
    with archives.reader(part) as reader:
        for start, end in _whole_ranges(reader, part):
            yield from _rows_between(reader, part, start, end)


def _whole_ranges(reader: RecordingReader, part: RecordingRange) -> Iterator[tuple[int, int]]:
    """Yield the range, or with ``verify`` the parts of it that have correct checksums."""
    position = part.start
    if part.verify:
        for problem in sorted(find_problems(reader, part.start, part.end), key=lambda each: each.position):
            if part.strict:
                raise RecordingError(f"recording {problem.recording_id}: {problem.text}")
            if problem.kind == "checksum" and problem.position >= position:
                if position < problem.position:
                    yield position, problem.position
                position = reader.boundary_after(problem.position, part.end)
                _on_skipped(part, SkippedRange(problem.position, position, problem.text))
    if position < part.end:
        yield position, part.end


def _on_skipped(part: RecordingRange, skipped: SkippedRange) -> None:
    recording = part.descriptor.recording_id
    note(part.skip_report, part.archive_id, recording, skipped.start, skipped.end, skipped.reason)
    log.warning("recording %d: %d to %d are skipped: %s", recording, skipped.start, skipped.end, skipped.reason)


def _rows_between(reader: RecordingReader, part: RecordingRange, start: int, end: int) -> Iterator[pa.RecordBatch]:
    return read_rows(
        reader,
        start,
        end,
        part.names,
        frames=part.rows == "frames",
        rows_per_batch=part.rows_per_batch,
        timestamp_from=part.timestamp_from,
        strict=part.strict,
        on_skip=lambda skipped: _on_skipped(part, skipped),
        constants={"archive": part.archive_id, "host": part.host or None},
    )

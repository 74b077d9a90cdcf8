"""Reads the recording ranges of a task as Arrow batches."""

from __future__ import annotations

import gc
import logging
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import InputPartition

from mainstem.errors import RecordingError
from mainstem.recording import RecordingDescriptor, RecordingReader, SkippedRange, find_problems
from mainstem.recording.open_archives import open_archives
from mainstem.recording.rows.arrow import read_rows, schema_of
from mainstem.recording.rows.batches import BYTES_PER_BATCH
from mainstem.recording.verify_recordings import find_end_problem
from mainstem.spark.sources.skip_report import note

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from mainstem.recording.archive import Archive
    from mainstem.spark.sources.options import Names, RecordingOptions


log = logging.getLogger("mainstem.spark")

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
    """``[start, end)`` of one recording, as a task on another host opens it. Tasks get the options with the source's reader."""

    location: str
    descriptor: RecordingDescriptor
    start: int
    end: int
    archive_id: str = ""
    host: str = ""

    def ranges(self) -> list[RecordingRange]:
        return [self]


@dataclass
class RecordingGroup(InputPartition):
    """Several ranges that share a task, mostly of small recordings."""

    parts: list[RecordingRange]

    def ranges(self) -> list[RecordingRange]:
        return self.parts


class TaskReader:
    """A reader for one task, which opens each archive once."""

    def __init__(self, options: RecordingOptions, names: Names) -> None:
        self._options, self._names = options, names
        self._archives: dict[tuple[str, str], Archive] = {}

    def rows(self, part: RecordingRange | RecordingGroup) -> Iterator[pa.RecordBatch]:
        """Read the rows of a task's ranges."""
        freeze_gc()
        try:
            ranges = part.ranges()
            read = self._problems if self._options.rows == "problems" else self._rows
            every = chain.from_iterable(map(read, ranges))
            yield from every if len(ranges) == 1 else _joined(every, self._options.rows_per_batch)
        finally:
            for archive in self._archives.values():
                archive.close()

    def _open(self, part: RecordingRange) -> RecordingReader:
        key = (part.location, part.archive_id)
        if key not in self._archives:
            options = replace(self._options.read, archive_id=part.archive_id)
            (self._archives[key],) = open_archives(part.location, options)
        return RecordingReader(self._archives[key], part.descriptor)

    def _problems(self, part: RecordingRange) -> Iterator[pa.RecordBatch]:
        """Yield a row for each problem in the range, including a truncated last frame."""
        import pyarrow as pa

        kinds = {"recording_id": pa.int64(), "position": pa.int64(), "kind": pa.string(), "text": pa.string()}
        with self._open(part) as reader:
            rows = list(find_problems(reader, part.start, part.end))
            last = find_end_problem(reader) if part.end == reader.end_position() else None
            rows += [last] if last is not None else []
            if rows:
                columns: list[Any] = [
                    pa.array([getattr(row, name) for row in rows], kinds[name]) for name in self._names
                ]
                yield pa.RecordBatch.from_arrays(columns, schema=schema_of(self._names, columns))

    def _rows(self, part: RecordingRange) -> Iterator[pa.RecordBatch]:
        """Yield the messages or frames of the range. A problem raises RecordingError if ``failOnDataLoss`` is set."""
        with self._open(part) as reader:
            for start, end in self._whole_ranges(reader, part):
                yield from read_rows(
                    reader,
                    start,
                    end,
                    self._names,
                    frames=self._options.rows == "frames",
                    rows_per_batch=self._options.rows_per_batch,
                    timestamp_from=self._options.timestamp_from,
                    strict=self._options.fail_on_data_loss,
                    on_skip=partial(self._on_skip, part),
                    constants={"archive": part.archive_id, "host": part.host or None},
                    session_ids=self._options.session_ids,
                )

    def _whole_ranges(self, reader: RecordingReader, part: RecordingRange) -> Iterator[tuple[int, int]]:
        """Yield the range, or with ``verify`` the parts of it that have correct checksums."""
        position = part.start
        if self._options.verify:
            for problem in sorted(find_problems(reader, part.start, part.end), key=lambda each: each.position):
                if self._options.fail_on_data_loss:
                    raise RecordingError(f"recording {problem.recording_id}: {problem.text}")
                if problem.kind == "checksum" and problem.position >= position:
                    if position < problem.position:
                        yield position, problem.position
                    position = reader.boundary_after(problem.position, part.end)
                    self._on_skip(part, SkippedRange(problem.position, position, problem.text))
        if position < part.end:
            yield position, part.end

    def _on_skip(self, part: RecordingRange, skipped: SkippedRange) -> None:
        recording = part.descriptor.recording_id
        note(self._options.skip_report, part.archive_id, recording, skipped.start, skipped.end, skipped.reason)
        log.warning("recording %d: %d to %d are skipped: %s", recording, skipped.start, skipped.end, skipped.reason)


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

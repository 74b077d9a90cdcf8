"""What a Spark task does: a range of a recording as Arrow batches."""

from __future__ import annotations

import gc
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import InputPartition

from mainstem.arrow import arrays
from mainstem.clock import NS_PER_MS
from mainstem.errors import RecordingError
from mainstem.recording import RecordingDescriptor, RecordingReader, SkippedRange, batches, faults
from mainstem.recording.verify import end_fault
from mainstem.spark.sources.schema import Names, wanted_bits

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa


log = logging.getLogger(__name__)

# Tasks of a worker after which nothing more is imported: the modules of what was read, and those that Spark loads late.
SETTLING_TASKS = 4

_tasks = 0


def settle() -> None:
    """Exempts what is imported from garbage collection; to be called at a task's start, before it makes anything.

    Spark's worker collects garbage after every task, over every module that was ever imported: most of the time of a small
    task. What lives when a task starts has just been collected over, and what its first tasks import lives as long as the
    worker: so it need not be visited again.
    """
    global _tasks
    if _tasks < SETTLING_TASKS:
        _tasks += 1
        gc.freeze()


@dataclass
class RecordingRange(InputPartition):
    """``[start, end)`` of one recording, with all that a task on another machine needs to read it."""

    directory: str
    descriptor: RecordingDescriptor
    start: int
    end: int
    names: Names
    rows: str
    rows_per_batch: int
    strict: bool
    verify: bool
    timestamp_from: str = ""


def rows_of(part: RecordingRange) -> Iterator[pa.RecordBatch]:
    """The rows of one range, whatever they are."""
    settle()
    return read_problems(part) if part.rows == "problems" else read_range(part)


def read_problems(part: RecordingRange) -> Iterator[pa.RecordBatch]:
    """A row for each fault of the range, and for a last frame that is not whole."""
    import pyarrow as pa

    kinds = {"recording_id": pa.int64(), "position": pa.int64(), "kind": pa.string(), "text": pa.string()}
    with RecordingReader(part.directory, part.descriptor) as reader:
        rows = list(faults(reader, part.start, part.end))
        last = end_fault(reader) if part.end == reader.end_position() else None
        rows += [last] if last is not None else []
        if rows:
            columns: list[Any] = [pa.array([getattr(row, name) for row in rows], kinds[name]) for name in part.names]
            yield pa.RecordBatch.from_arrays(columns, schema=_schema(part.names, columns))


def read_range(part: RecordingRange) -> Iterator[pa.RecordBatch]:
    """The messages or frames of one range. Raises RecordingError at a fault unless data loss was to be accepted."""
    with RecordingReader(part.directory, part.descriptor) as reader:
        for start, end in _whole_ranges(reader, part):
            yield from _rows_between(reader, part, start, end)


def _whole_ranges(reader: RecordingReader, part: RecordingRange) -> Iterator[tuple[int, int]]:
    """The range; where it is verified, without the stretches whose checksums differ. Reading goes on behind each."""
    position = part.start
    if part.verify:
        for fault in sorted(faults(reader, part.start, part.end), key=lambda each: each.position):
            if part.strict:
                raise RecordingError(f"recording {fault.recording_id}: {fault.text}")
            if fault.kind == "checksum" and fault.position >= position:
                if position < fault.position:
                    yield position, fault.position
                position = reader.boundary_after(fault.position, part.end)
                _log_skipped(reader, SkippedRange(fault.position, position, fault.text))
    if position < part.end:
        yield position, part.end


def _log_skipped(reader: RecordingReader, skipped: SkippedRange) -> None:
    recording = reader.descriptor.recording_id
    log.warning("recording %d: %d to %d are skipped: %s", recording, skipped.start, skipped.end, skipped.reason)


def _rows_between(reader: RecordingReader, part: RecordingRange, start: int, end: int) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    is_stamped = "recorded_at" in part.names or ("timestamp" in part.names and part.timestamp_from == "recorded_at")
    clock = _RecordedAt(reader, start, end) if is_stamped else None
    frame_batches = batches(
        reader,
        start,
        end,
        column_mask=wanted_bits(part.names, part.rows),
        frames=part.rows == "frames",
        rows=part.rows_per_batch,
        strict=part.strict,
        on_skip=lambda skipped: _log_skipped(reader, skipped),
    )
    repeated, schema = _repeated(part), None
    for frames, rows in frame_batches:
        values = arrays(frames, rows)
        values |= {name: column.slice(0, rows) for name, column in repeated.items()}
        if clock is not None:
            values["recorded_at"] = clock.times(values["position"])
        if "timestamp" in part.names:
            by_recorder = part.timestamp_from == "recorded_at"
            values["timestamp"] = (
                values["recorded_at"] if by_recorder else event_times(values["reserved_value"], part.timestamp_from)
            )
        columns = [values[name] for name in part.names]
        schema = schema or _schema(part.names, columns)
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _schema(names: Names, columns: list[Any]) -> pa.Schema:
    import pyarrow as pa

    fields = zip(names.items(), columns, strict=True)
    return pa.schema([pa.field(name, column.type, nullable) for (name, nullable), column in fields])


def _repeated(part: RecordingRange) -> dict[str, Any]:
    """The columns whose value is the recording's own, as long as the longest batch."""
    import pyarrow as pa

    values = {
        "recording_id": pa.scalar(part.descriptor.recording_id, pa.int64()),
        # With checksums on, Aeron Archive keeps them where the frame's session was: the catalog has it.
        "session_id": pa.scalar(part.descriptor.session_id, pa.int32()),
        "stream_id": pa.scalar(part.descriptor.stream_id, pa.int32()),
    }
    return {name: pa.repeat(value, part.rows_per_batch) for name, value in values.items() if name in part.names}


# After the year 9999, which is as far as Spark's timestamps can be shown.
END_OF_TIME_US = 253_402_300_800_000_000


def event_times(reserved_values: Any, unit: str) -> Any:
    """The times that publishers put into the reserved value; null where that is 0 or no time."""
    import numpy as np
    import pyarrow as pa

    values = reserved_values.to_numpy(zero_copy_only=False)
    per_us, us_per = {"reserved_value_ns": (1000, 1), "reserved_value_us": (1, 1), "reserved_value_ms": (1, 1000)}[unit]
    unknown = (values <= 0) | (values // per_us >= END_OF_TIME_US // us_per)
    times = np.where(unknown, 0, values) // per_us * us_per
    return pa.array(times, pa.timestamp("us", tz="UTC"), mask=unknown)


class _RecordedAt:
    """When each row was recorded, from the index: exact to 64 KiB or 100 ms, and the same at every reading; null without one."""

    def __init__(self, reader: RecordingReader, start: int, end: int) -> None:
        import numpy as np

        self._is_known = reader.positions is not None
        entries = reader.positions.times_around(start, end) if reader.positions is not None else ((), ())
        started_ns = reader.descriptor.start_timestamp * NS_PER_MS
        self._positions = np.array(entries[0], np.int64)
        self._times_us = np.append(started_ns, np.array(entries[1], np.int64)) // 1000

    def times(self, positions: Any) -> Any:
        import numpy as np
        import pyarrow as pa

        if not self._is_known:
            return pa.nulls(len(positions), pa.timestamp("us", tz="UTC"))
        # A row lies after the last entry before its end. Rows are many and entries few: so it is the entries that are
        # searched for among the rows.
        ends = positions.to_numpy(zero_copy_only=True)
        first, last = np.searchsorted(self._positions, ends[[0, -1]], side="left")
        borders = np.searchsorted(ends, self._positions[first:last], side="right")
        counts = np.diff(borders, prepend=0, append=len(ends))
        return pa.array(np.repeat(self._times_us[first : last + 1], counts), pa.timestamp("us", tz="UTC"))

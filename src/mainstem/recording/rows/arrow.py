"""Reads a range of a recording as Arrow record batches. Needs pyarrow (``mainstem[tables]``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mainstem._core.layout import FRAME_ALIGNMENT
from mainstem._internal.arrow_batches import arrays
from mainstem._internal.clock import NS_PER_MS
from mainstem.errors import needs_extras
from mainstem.recording.rows.batches import session_batches
from mainstem.recording.rows.schema import arrow_types, bits_of
from mainstem.recording.sessions import RecordingSessions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import pyarrow as pa

    from mainstem.recording.reader import RecordingReader
    from mainstem.recording.rows.batches import SkippedRange

# The end of the year 9999, the last one that Spark and Python can represent.
END_OF_TIME_US = 253_402_300_800_000_000


def read_rows(
    reader: RecordingReader,
    start: int,
    end: int,
    names: Mapping[str, bool],
    *,
    frames: bool,
    rows_per_batch: int,
    timestamp_from: str = "",
    strict: bool = True,
    on_skip: Callable[[SkippedRange], None] | None = None,
    constants: Mapping[str, str | None] | None = None,
    session_ids: frozenset[int] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of ``[start, end)`` with the columns in ``names``. The values of ``names`` say whether a column can be null.

    ``timestamp_from`` is the source of the column ``timestamp``, ``constants`` are extra text columns with one value, and
    ``session_ids`` are the only sessions to read; empty or None for all. The other parameters are those of ``batches``.
    """
    with needs_extras():
        import pyarrow as pa

    is_stamped = "recorded_at" in names or ("timestamp" in names and timestamp_from == "recorded_at")
    clock = _RecordedAt(reader, start, end) if is_stamped else None
    # A small recording gets no more room than it can have rows, because allocating the room would cost more than reading the rows.
    rows_per_batch = min(rows_per_batch, (end - start) // FRAME_ALIGNMENT + 1)
    constants = constants or {}
    sessions = RecordingSessions(reader, start, end) if session_ids or "session_id" in names else None
    session_id, schema = reader.descriptor.session_id, None
    repeated = _repeated(reader, session_id, constants, names, rows_per_batch)
    mask = bits_of((name for name in names if name not in constants), frames=frames)
    for buffers, rows, session in session_batches(
        reader,
        start,
        end,
        column_mask=mask,
        frames=frames,
        rows=rows_per_batch,
        strict=strict,
        on_skip=on_skip,
        sessions=sessions,
        wanted=session_ids or frozenset(),
    ):
        if session != session_id:
            session_id = session
            repeated = _repeated(reader, session_id, constants, names, rows_per_batch)
        values = arrays(buffers, rows)
        values |= {name: column.slice(0, rows) for name, column in repeated.items()}
        if clock is not None:
            values["recorded_at"] = clock.times(values["position"])
        if "timestamp" in names:
            by_recorder = timestamp_from == "recorded_at"
            values["timestamp"] = (
                values["recorded_at"] if by_recorder else event_times(values["reserved_value"], timestamp_from)
            )
        columns = [values[name] for name in names]
        schema = schema or schema_of(names, columns)
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def schema_of(names: Mapping[str, bool], columns: list[Any]) -> pa.Schema:
    """Return the schema of these columns. The values of ``names`` say whether a column can be null."""
    with needs_extras():
        import pyarrow as pa

    fields = zip(names.items(), columns, strict=True)
    return pa.schema([pa.field(name, column.type, nullable) for (name, nullable), column in fields])


def _repeated(
    reader: RecordingReader,
    session_id: int,
    constants: Mapping[str, str | None],
    names: Mapping[str, bool],
    rows: int,
) -> dict[str, Any]:
    """Return the columns that are the same for all rows of a session, each as long as the longest batch."""
    import pyarrow as pa

    types, descriptor = arrow_types(), reader.descriptor
    values = {
        "recording_id": pa.scalar(descriptor.recording_id, types["int64"]),
        "session_id": pa.scalar(session_id, types["int32"]),
        "stream_id": pa.scalar(descriptor.stream_id, types["int32"]),
        **{name: pa.scalar(value, pa.string()) for name, value in constants.items()},
    }
    return {name: pa.repeat(value, rows) for name, value in values.items() if name in names}


def event_times(reserved_values: Any, unit: str) -> Any:
    """Return the publishers' times from the reserved values; null if a value is 0 or not a time."""
    import numpy as np
    import pyarrow as pa

    values = reserved_values.to_numpy(zero_copy_only=False)
    per_us, us_per = {"reserved_value_ns": (1000, 1), "reserved_value_us": (1, 1), "reserved_value_ms": (1, 1000)}[unit]
    unknown = (values <= 0) | (values // per_us >= END_OF_TIME_US // us_per)
    times = np.where(unknown, 0, values) // per_us * us_per
    return pa.array(times, pa.timestamp("us", tz="UTC"), mask=unknown)


class _RecordedAt:
    """The time at which each row was recorded, from the index; null without an index.

    The times are reproducible, and exact to 64 KiB or 100 ms.
    """

    def __init__(self, reader: RecordingReader, start: int, end: int) -> None:
        import numpy as np

        self._is_known = reader.index is not None
        entries = reader.index.times_around(start, end) if reader.index is not None else ((), ())
        started_ns = reader.descriptor.start_timestamp * NS_PER_MS
        self._positions = np.array(entries[0], np.int64)
        self._times_us = np.append(started_ns, np.array(entries[1], np.int64)) // 1000

    def times(self, positions: Any) -> Any:
        import numpy as np
        import pyarrow as pa

        if not self._is_known:
            return pa.nulls(len(positions), pa.timestamp("us", tz="UTC"))
        # A row lies after the last entry before its end. There are many rows and few entries, so search the rows for each entry.
        ends = positions.to_numpy(zero_copy_only=True)
        first, last = np.searchsorted(self._positions, ends[[0, -1]], side="left")
        borders = np.searchsorted(ends, self._positions[first:last], side="right")
        counts = np.diff(borders, prepend=0, append=len(ends))
        return pa.array(np.repeat(self._times_us[first : last + 1], counts), pa.timestamp("us", tz="UTC"))

"""Reads a range of a recording: as batches of columns, message by message, or as Arrow record batches.

Only Arrow record batches need pyarrow (``mainstem[tables]``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mainstem._core.layout import (
    COLUMN_ALL,
    COLUMN_PAYLOAD,
    COLUMN_POSITION,
    FRAME_ALIGNMENT,
    WALK_AT_END,
    WALK_AT_LIMIT,
    WALK_CORRUPT,
    WALK_FULL,
    WALK_TORN,
)
from mainstem._core.log.columns import Columns, Fragments
from mainstem._internal.arrow_batches import arrays
from mainstem._internal.clock import NS_PER_MS
from mainstem.errors import RecordingError, needs_extras
from mainstem.recording.rows.schema import arrow_types, bits_of
from mainstem.recording.segments import BYTES_PER_RELEASE, CutShortError, segment_base
from mainstem.recording.sessions import RecordingSessions

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping
    from mmap import mmap

    import pyarrow as pa

    from mainstem.recording.reader import RecordingReader

# Columns as buffers by name, the number of rows, and their session.
Batch = tuple[dict[str, bytearray], int, int]

# Rows per batch: enough that the cost per batch is small, few enough to stay in the cache (measured: 10,000 is best).
ROWS_PER_BATCH = 10_000
# A batch of large messages ends at this many bytes.
BYTES_PER_BATCH = 8 << 20
# The end of the year 9999, the last one that Spark and Python can represent.
END_OF_TIME_US = 253_402_300_800_000_000

REASONS = {
    WALK_AT_END: "nothing was written there",
    WALK_TORN: "a frame is truncated",
    WALK_CORRUPT: "a frame header is invalid",
}


def stop_reason(stopped: int, memory: mmap | bytes, offset: int) -> int:
    """Return why a walk stopped at an offset. Any length below 1 ends a walk, but only zeros mean that nothing was written."""
    if stopped == WALK_AT_END and int.from_bytes(memory[offset : offset + 4], "little"):
        return WALK_CORRUPT
    return stopped


@dataclass(frozen=True, slots=True)
class SkippedRange:
    """Positions that could not be read and were skipped.

    Args:
        start: The position of the problem in bytes.
        end: Where reading continued: a position between two messages, or the end of the range.
        reason: A description of the problem, with the file if there is one.

    Example:
        ``batches(reader, start, end, strict=False, on_skip=lambda skipped: print(skipped.reason))``
    """

    start: int
    end: int
    reason: str


def batches(
    reader: RecordingReader,
    start: int,
    end: int,
    *,
    column_mask: int = COLUMN_ALL,
    frames: bool = False,
    rows: int = ROWS_PER_BATCH,
    strict: bool = True,
    on_skip: Callable[[SkippedRange], None] | None = None,
) -> Iterator[tuple[dict[str, bytearray], int]]:
    """Read the messages or the frames of ``[start, end)`` as columns.

    Args:
        reader: The recording.
        start: Where a message starts.
        end: The position to stop at; a message belongs to the range if it lies completely inside.
        column_mask: The columns to read, as an OR of bits; all by default.
        frames: Whether a row is a frame instead of a message.
        rows: The maximum number of rows per batch.
        strict: Whether a problem raises. Otherwise, reading continues after it, at the next message whose header
            states its position, or else at the next index entry or available segment.
        on_skip: Called with each range that is skipped when ``strict`` is false.

    Yields:
        Pairs of the columns, as buffers by name, and the number of rows.

    Raises:
        RecordingError: A frame is truncated or invalid, or a segment is missing. The error names file and position.

    Example:
        ``for columns, rows in batches(reader, 0, reader.end_position()): ...``
    """
    of_session = session_batches(
        reader, start, end, column_mask=column_mask, frames=frames, rows=rows, strict=strict, on_skip=on_skip
    )
    return ((columns, count) for columns, count, _ in of_session)


def session_batches(
    reader: RecordingReader,
    start: int,
    end: int,
    *,
    column_mask: int,
    frames: bool,
    rows: int,
    strict: bool,
    on_skip: Callable[[SkippedRange], None] | None = None,
    sessions: RecordingSessions | None = None,
    wanted: frozenset[int] = frozenset(),
) -> Iterator[Batch]:
    """Like ``batches``, and with the session of each batch: of the descriptor, or with ``sessions`` that of the frames.

    ``wanted`` are the only sessions to read; empty for all.
    """
    columns = _SessionColumns(reader, Columns(column_mask, rows), sessions, wanted)
    position = start
    while position < end:
        problem = yield from _until_problem(reader, position, end, columns, frames=frames, rows=rows)
        if problem is None:
            break
        at, error = problem
        if strict:
            raise error
        position = reader.message_after(at, end)
        if on_skip is not None:
            on_skip(SkippedRange(at, position, str(error)))
    if columns.columns.rows:
        yield columns.take()


class _SessionColumns:
    """Columns, and the session of their rows."""

    def __init__(
        self, reader: RecordingReader, columns: Columns, sessions: RecordingSessions | None, wanted: frozenset[int]
    ) -> None:
        columns.term_mask = reader.descriptor.term_buffer_length - 1
        self.columns, self.sessions, self.wanted = columns, sessions, wanted
        self.session_id = reader.descriptor.session_id

    def take(self) -> Batch:
        count = self.columns.rows
        return self.columns.take(), count, self.session_id


def _until_problem(
    reader: RecordingReader, start: int, end: int, session_columns: _SessionColumns, *, frames: bool, rows: int
) -> Generator[Batch, None, tuple[int, RecordingError] | None]:
    """Yield the batches of ``[start, end)`` up to a problem. Return its position and its error, or None. Rows can be left over."""
    fragments, following = Fragments(), start
    columns, sessions = session_columns.columns, session_columns.sessions
    try:
        for run in reader.ranges(start, end):
            at, span = run.offset, BYTES_PER_BATCH
            released, torn = at, -1
            while at < run.limit:
                # Read at most this many bytes at a time, so that a batch of large messages ends, too.
                limit = min(run.limit, at + span)
                if sessions is not None:
                    session_id, limit = sessions.next(run, at, limit)
                    if session_id != session_columns.session_id:
                        if columns.rows:
                            yield session_columns.take()
                        session_columns.session_id = session_id
                    if session_columns.wanted and session_id not in session_columns.wanted:
                        at, fragments = limit, Fragments()
                        continue
                position, left = run.position + at - run.offset, rows - columns.rows
                if frames:
                    passed = columns.add_frames(run.memory, at, limit, position, left, True)
                else:
                    passed = columns.add_messages(run.memory, at, limit, position, fragments, left)
                run.check()
                at += passed
                has_problem = columns.stopped not in (WALK_AT_LIMIT, WALK_FULL)
                if columns.stopped == WALK_TORN and limit < run.limit and limit != torn:
                    # The frame is cut by the limit. Only padding can be longer than the limit; read more in that case.
                    has_problem, torn, span = False, limit, BYTES_PER_BATCH if passed else span * 2
                    if sessions is not None:
                        sessions.forget()
                if columns.rows >= rows or columns.payload_length >= BYTES_PER_BATCH or (has_problem and columns.rows):
                    yield session_columns.take()
                if at - released >= BYTES_PER_RELEASE:
                    released = run.release(released, at)
                if has_problem:
                    position = run.position + at - run.offset
                    offset = position - segment_base(reader.descriptor, position)
                    where = f"{run.path} at offset {offset} (position {position})"
                    error = RecordingError(
                        f"{where}: {REASONS[stop_reason(columns.stopped, run.memory, at)]}, although {end} was recorded"
                    )
                    return position, error
            following = run.position + run.limit - run.offset
    except CutShortError:
        # The rows can consist of zeros, so reading cannot continue.
        raise
    except RecordingError as error:
        return following, error
    return None


def messages(reader: RecordingReader, start: int, end: int) -> Iterator[tuple[int, bytes]]:
    """Read messages one by one, for tools and tests. ``batches`` is faster.

    Args:
        reader: The recording.
        start: Where a message starts.
        end: The position to stop at.

    Yields:
        Pairs of the position where a message ends, and its payload.

    Raises:
        RecordingError: As for ``batches``.

    Example:
        ``for position, payload in messages(reader, 0, reader.end_position()): ...``
    """
    for columns, rows in batches(reader, start, end, column_mask=COLUMN_POSITION | COLUMN_PAYLOAD):
        positions = memoryview(columns["position"]).cast("q")
        offsets = memoryview(columns["payload_offsets"]).cast("i")
        for i in range(rows):
            yield positions[i], bytes(columns["payload"][offsets[i] : offsets[i + 1]])


# -- Arrow record batches -----------------------------------------------------------------------------------------------


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

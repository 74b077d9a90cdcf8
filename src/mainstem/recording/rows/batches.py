"""Reads a range of a recording as batches of columns, or message by message. Arrow is not needed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mainstem._core.layout import (
    COLUMN_ALL,
    COLUMN_PAYLOAD,
    COLUMN_POSITION,
    WALK_AT_END,
    WALK_AT_LIMIT,
    WALK_CORRUPT,
    WALK_FULL,
    WALK_TORN,
)
from mainstem._core.log.columns import Columns, Fragments
from mainstem.errors import RecordingError
from mainstem.recording.segments import BYTES_PER_RELEASE, CutShortError, segment_base

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from mmap import mmap

    from mainstem.recording.reader import RecordingReader
    from mainstem.recording.sessions import RecordingSessions

# Columns as buffers by name, the number of rows, and their session.
Batch = tuple[dict[str, bytearray], int, int]

# Rows per batch: enough that the cost per batch is small, few enough to stay in the cache (measured: 10,000 is best).
ROWS_PER_BATCH = 10_000
# A batch of large messages ends at this many bytes.
BYTES_PER_BATCH = 8 << 20

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

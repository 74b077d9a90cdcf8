"""Finds problems of a recording by walking its frames and comparing checksums."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from mainstem._core.layout import (
    FRAME_STREAM_ID_OFFSET,
    FRAME_TERM_ID_OFFSET,
    WALK_AT_END,
    WALK_AT_LIMIT,
    WALK_CORRUPT,
    WALK_TORN,
)
from mainstem._core.log.checksums import end_of_same
from mainstem._core.log.columns import FrameWalk
from mainstem.aeron.logbuffer.descriptor import wrap_i32
from mainstem.errors import RecordingError
from mainstem.recording.archive import find_end
from mainstem.recording.catalog import NULL, find_catalog_problems, find_changed_entries, read_catalog
from mainstem.recording.fetching import CorruptRangeError
from mainstem.recording.frame_checksums import FrameChecksums
from mainstem.recording.index import damage_of, is_as_recorded, possible_starts
from mainstem.recording.rows.batches import REASONS, stop_reason
from mainstem.recording.segments import CutShortError, all_segment_bases, segment_base

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from pathlib import Path

    from mainstem.recording.catalog import RecordingDescriptor
    from mainstem.recording.index import IndexEntry
    from mainstem.recording.reader import MappedRange, RecordingReader

_STREAM_AND_TERM = struct.Struct("<ii")
_KINDS = {WALK_AT_END: "unwritten", WALK_TORN: "torn", WALK_CORRUPT: "corrupt"}


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem of a recording, and the position up to which the recording can be trusted.

    ``kind`` is one of

    * ``unwritten``: zeros where frames should be;
    * ``torn``: a truncated frame;
    * ``corrupt``: a frame header that is invalid, or of another stream or term;
    * ``checksum``: bytes that changed after they were recorded, exact to an index entry, or to a frame of Aeron Archive;
    * ``missing``: a segment file that is missing or too short;
    * ``index``: an invalid index file;
    * ``catalog``: an unreadable entry, with ``recording_id`` -1 and ``position`` in the catalog, or segments without an entry.
    """

    recording_id: int
    position: int
    kind: str
    text: str


def find_problems(reader: RecordingReader, start: int, end: int, *, checksums: bool = True) -> Iterator[Problem]:
    """Find the problems in ``[start, end)``.

    Two kinds of checksums are compared: those in the index of Mainstem's recorder, which cover the recording up to the last entry,
    and those that Aeron Archive stores in frames (``aeron.archive.record.checksum``).

    Args:
        reader: The recording.
        start: A position between two messages.
        end: The position to stop at.
        checksums: Whether to compare checksums: those of the frames, and those of the index entries that overlap the range.

    Yields:
        Each broken frame, each run of frames whose checksums differ, and each segment that is missing or too short, as far as the
            walk can continue (``RecordingReader.boundary_after``); then each checksum of the index that differs.

    Example:
        ``list(find_problems(reader, reader.start_position, reader.end_position()))``
    """
    position = start
    while position < end:
        problem = yield from _until_broken(reader, position, end, checksums=checksums)
        if problem is None:
            break
        yield problem
        position = reader.boundary_after(problem.position, end)
    if checksums:
        yield from _changed(reader, start, end)


def find_directory_problems(directory: Path) -> Iterator[Problem]:
    """Yield the problems of a local directory itself, not those of its recordings. Raises RecordingError if it has no catalog."""
    for problem in (*find_catalog_problems(directory), *find_changed_entries(directory)):
        yield Problem(NULL, problem.offset, "catalog", problem.text)
    descriptors = read_catalog(directory, deleted=True)
    known = {each.recording_id for each in descriptors}
    for recording_id, bases in sorted(all_segment_bases(directory).items()):
        if recording_id not in known:
            text = f"the catalog does not have this recording, of which {len(bases)} segments are here"
            yield Problem(recording_id, min(bases), "catalog", text)
    for each in descriptors:
        if text := damage_of(directory, each.recording_id):
            yield Problem(each.recording_id, each.start_position, "index", text)


def _until_broken(
    reader: RecordingReader, start: int, end: int, *, checksums: bool
) -> Generator[Problem, None, Problem | None]:
    """Yield the frames with wrong checksums in ``[start, end)``. Return the first broken frame or missing segment."""
    recording_id, position = reader.descriptor.recording_id, start
    walk, sums = FrameWalk(), FrameChecksums(reader.descriptor.session_id)
    walk.term_mask = reader.descriptor.term_buffer_length - 1
    problem = None
    try:
        for run in reader.ranges(start, end):
            stopped = walk.run(run.memory, run.offset, run.limit)
            found = list(sums.check(run.memory, run.offset, walk.offset, run.position)) if checksums else []
            run.check()
            yield from (_wrong_checksum(recording_id, *each) for each in found)
            foreign = _first_foreign(reader.descriptor, run, walk.offset)
            position = run.position + (walk.offset if foreign is None else foreign) - run.offset
            if foreign is not None:
                problem = _foreign(reader.descriptor, run, foreign, position)
                break
            if stopped != WALK_AT_LIMIT:
                stopped = stop_reason(stopped, run.memory, walk.offset)
                offset = position - segment_base(reader.descriptor, position)
                text = f"{run.path} at offset {offset}: {REASONS[stopped]}, although {end} was recorded"
                problem = Problem(recording_id, position, _KINDS[stopped], text)
                break
    except CutShortError:
        raise
    except RecordingError as error:
        kind = "checksum" if isinstance(error, CorruptRangeError) else "missing"
        problem = Problem(recording_id, position, kind, str(error))
    yield from (_wrong_checksum(recording_id, *each) for each in sums.finish())
    return problem


def _first_foreign(descriptor: RecordingDescriptor, run: MappedRange, limit: int) -> int | None:
    """Return the offset of the first frame before ``limit`` that does not belong there, or None.

    Such a frame is of another stream, or of another term than its position implies.
    """
    offset = run.offset
    while offset < limit:
        position = run.position + offset - run.offset
        term_length = descriptor.term_buffer_length
        end = min(limit, offset + term_length - position % term_length)
        ids = _STREAM_AND_TERM.pack(descriptor.stream_id, _term_id(descriptor, position))
        at = end_of_same(run.memory, offset, end, FRAME_STREAM_ID_OFFSET, ids, True)
        run.check()
        if at < end:
            return at
        offset = end
    return None


def _term_id(descriptor: RecordingDescriptor, position: int) -> int:
    return wrap_i32(descriptor.initial_term_id + position // descriptor.term_buffer_length)


def _foreign(descriptor: RecordingDescriptor, run: MappedRange, offset: int, position: int) -> Problem:
    stream_id, term_id = (
        int.from_bytes(run.memory[offset + at : offset + at + 4], "little", signed=True)
        for at in (FRAME_STREAM_ID_OFFSET, FRAME_TERM_ID_OFFSET)
    )
    text = (
        f"{run.path} at offset {position - segment_base(descriptor, position)}: the frame is of stream {stream_id} and term "
        f"{term_id}, not of stream {descriptor.stream_id} and term {_term_id(descriptor, position)}"
    )
    return Problem(descriptor.recording_id, position, "corrupt", text)


def _wrong_checksum(recording_id: int, start: int, end: int) -> Problem:
    text = f"the frames of positions {start} to {end} do not have the checksum that the archive recorded"
    return Problem(recording_id, start, "checksum", text)


def _changed(reader: RecordingReader, start: int, end: int) -> Iterator[Problem]:
    """Yield the ranges in which the checksums of the index and of the files differ."""
    if reader.index is None:
        return
    at, first = reader.descriptor.start_position, reader.start_position
    before = None
    for entry in reader.index.around(start, end):
        if before is not None and entry.position < at:
            text = f"the index has an entry at {entry.position} after one at {at}"
            yield Problem(reader.descriptor.recording_id, at, "checksum", text)
            return
        if at >= first and entry.position > start:
            try:
                same = _is_as_recorded(reader, at, entry, before)
            except CutShortError:
                raise
            except RecordingError:
                # A segment is missing or too short, which the walk has reported.
                same = True
            if not same:
                text = f"the bytes of positions {at} to {entry.position} are not those that were recorded"
                yield Problem(reader.descriptor.recording_id, max(at, start), "checksum", text)
        at, before = entry.position, entry


def _is_as_recorded(reader: RecordingReader, start: int, entry: IndexEntry, before: IndexEntry | None) -> bool:
    def runs(begin: int) -> Iterator[memoryview]:
        for run in reader.ranges(begin, entry.position):
            with memoryview(run.memory) as memory, memory[run.offset : run.limit] as data:
                yield data
            run.check()

    starts = possible_starts(reader.descriptor, start, entry, is_first=before is None)
    return any(is_as_recorded(partial(runs, begin), reader.descriptor, entry, before) for begin in starts)


def find_start_problem(reader: RecordingReader) -> Problem | None:
    """Return the problem of an Aeron Archive recording whose first segments are missing, or None.

    It is a problem because an archive that purges segments also moves the start of the recording.
    """
    start = reader.descriptor.start_position
    if reader.index is not None or reader.start_position == start:
        return None
    text = (
        f"positions {start} to {reader.start_position} have no segment file, although the recording starts at {start}"
    )
    return Problem(reader.descriptor.recording_id, start, "missing", text)


def find_end_problem(reader: RecordingReader) -> Problem | None:
    """Return the problem at the end of a recording that was not stopped and has no index, or None."""
    if reader.descriptor.stop_position != NULL or reader.index is not None:
        return None
    end = find_end(reader.archive, reader.descriptor)
    if end.reason == "end":
        return None
    text = f"the frames end at {end.position}: the next one is {end.reason}"
    return Problem(reader.descriptor.recording_id, end.position, end.reason, text)

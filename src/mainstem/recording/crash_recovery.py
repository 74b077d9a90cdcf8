"""Recovery before recording: ends recordings that were not ended, and finds what a power failure has lost.

A process that is killed loses nothing that it wrote, because the kernel has it. So each recording ends at its recorded position. If
the host was restarted, any page that was not on the device can be missing, even before the recorded position and in stopped
recordings. The lock file has the id of the boot in which the recorder wrote. After another boot, each recording is checked that was
active, or that stopped within ``SETTLED_NS`` of the last change. It then ends at the first position where it cannot be verified:

1. as far as the index goes, by its checksums, from the entry that was ``SETTLED_NS`` old when the last entry was written;
2. after that, by walking the frames. A page of zeros was lost, unless it is padding.

Data after that end is not deleted until the recording continues. A corrupt index file is deleted, and the recording is read without
it. A recording that cannot be recovered is logged and left unchanged; the others are recovered.

Each byte is read once from the device, a segment at a time, and a long recovery reports its progress.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from mainstem._core.layout import FRAME_ALIGNMENT, TYPE_DATA, WALK_AT_LIMIT
from mainstem._core.log.columns import FrameWalk
from mainstem._internal.clock import NS_PER_MS, NS_PER_SECOND
from mainstem.errors import RecordingError
from mainstem.recording.archive import find_end, local_archive
from mainstem.recording.catalog import NULL, PAGE_LENGTH
from mainstem.recording.index import IndexRepair, damage_of, index_file, is_as_recorded, open_index, possible_starts
from mainstem.recording.life import OF_ARCHIVE
from mainstem.recording.segments import SegmentMemory, check_whole, segment_base, segment_name, stored_runs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from mmap import mmap
    from pathlib import Path

    from mainstem._internal.clock import Clock
    from mainstem.recording.archive import DirectoryArchive
    from mainstem.recording.catalog import Catalog, RecordingDescriptor
    from mainstem.recording.index import IndexEntry
    from mainstem.store.disk import Disk

log = logging.getLogger("mainstem.recording")

# Kernels write changes to the device within half a minute; a busy device takes longer.
SETTLED_NS = 600 * NS_PER_SECOND
# How often a long recovery reports its progress.
REPORT_NS = NS_PER_SECOND
# Bytes that are searched for a page of zeros at once.
BLOCK_LENGTH = 256 * PAGE_LENGTH
ZERO_PAGE = bytes(PAGE_LENGTH)


@dataclass(frozen=True, slots=True)
class Recovery:
    """How far the recovery of a recording is: ``checked`` of ``total`` bytes, as far as is known."""

    recording_id: int
    checked: int
    total: int


class Reporter:
    """Calls ``report`` every second, starting after the first."""

    def __init__(self, clock: Clock, report: Callable[[Recovery], object]) -> None:
        self._clock, self._report = clock, report
        self._due_ns = clock.monotonic_ns() + REPORT_NS
        self._recording_id = self._start = self._end = 0

    def begin(self, recording_id: int, start: int, end: int) -> None:
        self._recording_id, self._start, self._end = recording_id, start, end

    def reached(self, position: int) -> None:
        now_ns = self._clock.monotonic_ns()
        if now_ns >= self._due_ns:
            self._due_ns = now_ns + REPORT_NS
            self._report(Recovery(self._recording_id, position - self._start, max(self._end, position) - self._start))


def recover(
    catalog: Catalog,
    disk: Disk,
    clock: Clock,
    *,
    lost_power: bool,
    moves_start: bool,
    report: Callable[[Recovery], object],
) -> list[RecordingDescriptor]:
    """Recover every recording of a directory, and return their descriptors. Raises RecordingError and OSError.

    ``moves_start`` says that whoever deletes a recording's first segments changes its start position in the catalog, as archives
    do. If it takes long, ``report`` is called about once a second.
    """
    reporter = Reporter(clock, report)
    catalog.mend()
    descriptors = catalog.recordings()
    latest_ms = max((max(each.start_timestamp, each.stop_timestamp) for each in descriptors), default=0)
    # List the directory once for all recordings, because there can be very many.
    archive = local_archive(catalog.directory, keep_listing=True)
    since_ms = min(latest_ms, clock.epoch_ms()) - SETTLED_NS // NS_PER_MS
    recovered = []
    for descriptor in descriptors:
        recovered.append(descriptor)
        is_active = descriptor.stop_position == NULL
        may_lack = descriptor.stop_timestamp >= since_ms or descriptor.stop_timestamp == NULL
        if is_active or (lost_power and may_lack):
            try:
                end = _recovered_end(
                    catalog.directory,
                    archive,
                    descriptor,
                    disk,
                    reporter,
                    lost_power=lost_power,
                    moves_start=moves_start,
                )
            except RecordingError as error:
                log.error("recording %d cannot be recovered, and stays as it is: %s", descriptor.recording_id, error)
            else:
                if end != descriptor.stop_position:
                    stopped_ms = clock.epoch_ms() if is_active else descriptor.stop_timestamp
                    recovered[-1] = catalog.stop(descriptor, end, stopped_ms)
    return recovered


def _recovered_end(
    directory: Path,
    archive: DirectoryArchive,
    descriptor: RecordingDescriptor,
    disk: Disk,
    reporter: Reporter,
    *,
    lost_power: bool,
    moves_start: bool,
) -> int:
    stop, recording_id = descriptor.stop_position, descriptor.recording_id
    last = next(reversed(list(archive.segments(descriptor))), descriptor.start_position)
    reporter.begin(
        recording_id, descriptor.start_position, stop if stop != NULL else last + descriptor.segment_file_length
    )
    reporter.reached(descriptor.start_position)
    if damage := damage_of(directory, recording_id):
        log.warning("%s: it is deleted, and recording %d is read by its frames", damage, recording_id)
        disk.delete(index_file(directory, recording_id))
    index = open_index(directory, descriptor)
    if index is None:
        if lost_power and descriptor.origin != OF_ARCHIVE:
            limit = stop if stop != NULL else None
            return proven_end(directory, descriptor, descriptor.start_position, limit, reporter)
        return find_end(archive, descriptor).suspect if stop == NULL else stop
    with closing(index):
        recorded = index.recorded_position
    limit = recorded if stop == NULL else stop
    if lost_power:
        end, entries = _checked_end(directory, archive, descriptor, limit, reporter, moves_start=moves_start)
        with closing(IndexRepair(directory, recording_id, disk)) as repair:
            repair.cut(end, entries)
        reason = "lost with the machine"
    else:
        found = find_end(archive, descriptor, limit=limit)
        end, reason = found.position, found.reason
    if end < limit:
        log.warning(
            "recording %d was recorded up to %d, but its frames end at %d (%s): it is cut there",
            recording_id,
            limit,
            end,
            reason,
        )
    return end


def _checked_end(
    directory: Path,
    archive: DirectoryArchive,
    descriptor: RecordingDescriptor,
    limit: int,
    reporter: Reporter,
    *,
    moves_start: bool,
) -> tuple[int, int]:
    """Return the verified end of a recording, which is at most ``limit``, and its number of valid index entries."""
    with closing(IndexRepair(directory, descriptor.recording_id)) as index:
        count, latest_ns = index.sound(descriptor.start_position, limit)
        first = bisect_left(range(count), latest_ns - SETTLED_NS, key=lambda number: index.entry(number).time_ns)
        at = index.entry(first - 1).position if first else descriptor.start_position
        # Segments that retention has deleted were written long before. In an archive, a missing first segment was lost.
        there = descriptor.start_position
        if not moves_start:
            there = next(iter(archive.segments(descriptor)), there)
        for number in range(first, count):
            entry = index.entry(number)
            reporter.reached(at)
            before = index.entry(number - 1) if number else None
            if at >= there and not _is_as_recorded(directory, descriptor, at, entry, before):
                end = proven_end(directory, descriptor, at, entry.position, reporter)
                return (end if end < entry.position else at), number
            at = entry.position
    return proven_end(directory, descriptor, max(at, min(there, limit)), limit, reporter), count


def _is_as_recorded(
    directory: Path, descriptor: RecordingDescriptor, start: int, entry: IndexEntry, before: IndexEntry | None
) -> bool:
    def runs(begin: int) -> Iterable[memoryview]:
        return stored_runs(directory, descriptor, begin, entry.position)

    starts = possible_starts(descriptor, start, entry, is_first=before is None)
    try:
        return any(is_as_recorded(partial(runs, begin), descriptor, entry, before) for begin in starts)
    except RecordingError:
        return False


def proven_end(
    directory: Path, descriptor: RecordingDescriptor, start: int, limit: int | None, reporter: Reporter
) -> int:
    """Return the end of the whole frames from ``start`` on that have no missing page."""
    position, length = start, descriptor.segment_file_length
    while limit is None or position < limit:
        reporter.reached(position)
        base = segment_base(descriptor, position)
        path = directory / segment_name(descriptor.recording_id, base)
        try:
            segment = SegmentMemory(path, base)
        except RecordingError:
            return position
        with closing(segment):
            stop = min(segment.length, length if limit is None else limit - base)
            begin = position - base
            if begin >= stop:
                return position
            walk = FrameWalk()
            walk.term_mask = descriptor.term_buffer_length - 1
            stopped = walk.run(segment.memory, begin, stop)
            end = walk.offset
            lost = _lost_from(segment.memory, begin, end)
            check_whole(segment.memory, segment.name)
        if lost < end:
            return base + lost
        position = base + end
        if stopped != WALK_AT_LIMIT or stop < length:
            return position
    return position


def _lost_from(memory: mmap | bytes, begin: int, end: int) -> int:
    """Return the start of the first frame with a missing page, or ``end`` if there is none."""
    walk, boundary, at = FrameWalk(), begin, begin
    while at < end:
        block_end = at + BLOCK_LENGTH
        if at % BLOCK_LENGTH == 0 and block_end <= end and ZERO_PAGE not in memory[at:block_end]:
            at = block_end
            continue
        page_end = min((at // PAGE_LENGTH + 1) * PAGE_LENGTH, end)
        if memory[at:page_end].strip(b"\0"):
            at = page_end
            continue
        walk.run(memory, boundary, at)
        boundary = walk.offset
        if int.from_bytes(memory[boundary + 6 : boundary + 8], "little") == TYPE_DATA:
            return boundary
        # Only the header of padding is written.
        padded = int.from_bytes(memory[boundary : boundary + 4], "little")
        at = boundary + (padded + FRAME_ALIGNMENT - 1) // FRAME_ALIGNMENT * FRAME_ALIGNMENT
    return end

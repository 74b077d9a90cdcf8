"""Plans a Spark query on the driver: which recordings exist, how far each can be read, and how it is divided into ranges.

Theory of operation. Spark's offset is a position in a stream, so planning is arithmetic on positions: a start and an end for each
recording, both between two messages. It has three parts:

- ``starting``, ``ending`` and ``latest`` resolve the options (earliest, latest, a position, a time) against the current
  recordings, once for a batch, and whenever a stream starts or polls.
- ``advance`` computes the end offset of the next micro-batch from its start and the targets. Recordings take turns: each gets a
  share of what is left of the limits on bytes and rows, in proportion to its unread bytes, but at least a message. If the limits
  end before everyone had a turn, the next micro-batch continues with the next recording, which the offset records, so none
  starves. Only this function chooses boundaries. Spark writes them to its log as the offset before anything is read.
- ``ranges`` divides ``[start, end)`` of each recording into partitions. A restarted query calls it with offsets from Spark's log,
  without ``advance``. So the result depends only on the offsets and the segments, which never change below the end: the end
  offset also has the number of cores and the options by which the tasks were chosen. Equal offsets give equal rows in equal
  tasks, which makes reading exactly-once, and gives messages in sinks equal keys.

The driver holds a ``Planner``, which is never pickled. Tasks get a ``RecordingRange`` or a group of them, with archive, descriptor
and positions, and open their own readers. Spark calls the planner of one query from one thread at a time. Meanwhile a recorder
in another process may be writing the same segments: readers see whole frames up to ``end_position``, which only grows, and each
call reads the catalogs again, so new recordings appear.

Cost. Of ten thousand recordings, few grow between two triggers. A trigger reads each catalog once and decodes changed entries. The
catalog contains the ends of recordings that have ended; the recorded positions of the others are read without a reader. Only
recordings that grew are opened, at most ``MAX_READERS`` at once, and only they need the archive's listing, once per trigger.
Recordings that have ended and are fully read are ``finished``: they are compared with the catalog when it changes, and otherwise
skipped.

Invariants:

- A range starts and ends between two messages. A message is never split between micro-batches or tasks.
- ``within`` narrows a range and never widens it, and an empty range stays empty (start = end). The offset still moves past
  excluded data, or the next micro-batch would start there again.
- An offset refers to recordings, not just ids: ``resumed`` compares identity and end before anything is planned from the offset.
- The end offset is never before the start offset, and contains every recording that the start offset contains.
- If positions are lost (purged segments, a corrupt frame, a missing recording), the query fails, or with
  ``failOnDataLoss=false`` logs the loss and continues after it.

The index (``mainstem.recording.index``) makes boundaries and times cheap to find. Without one, the same functions walk the
frames from the start of a term, which is slower.
"""

from __future__ import annotations

import logging
import resource
from bisect import bisect_right
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mainstem.errors import ConfigurationError, RecordingError, RecordingNotFound
from mainstem.recording import RecordingReader, find_problems
from mainstem.recording.archive import readable_start
from mainstem.recording.catalog import NULL
from mainstem.recording.identity import is_stored_identity
from mainstem.recording.sessions import may_have_session, sessions_at
from mainstem.spark.sources.archives import ArchiveSet, OpenArchive
from mainstem.spark.sources.offsets import (
    ArchiveOffset,
    Finished,
    FinishedPosition,
    Offset,
    TaskPlan,
    present_keys,
    session_mark,
)
from mainstem.spark.sources.options import NO_RECORDING, RECORDING_BYTES, SHARED_BYTES, time_ns_of
from mainstem.spark.sources.parallelism import launched_parallelism
from mainstem.spark.sources.skip_report import note
from mainstem.spark.sources.task_reader import RecordingGroup, RecordingRange

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mainstem.recording import RecordingDescriptor
    from mainstem.spark.sources.options import Names, RecordingOptions, Where

log = logging.getLogger("mainstem.spark")

# The number of readers that a plan keeps open. From trigger to trigger, mostly the same recordings grow.
MAX_READERS = 64
# Open files per reader: its index, twice, and mapped segments.
FILES_PER_READER = 6
# The smallest size of a message on disk.
FRAME_BYTES = 32
# With more tasks, Spark's scheduler needs too much time and memory.
MAX_TASKS = 100_000
# Open files reserved for the rest of the process.
RESERVED_FILES = 256

Key = tuple[str, int]
"""An archive's key in offsets, and a recording id."""
Positions = dict[Key, int]


@dataclass
class ReadPositions:
    """The positions up to which recordings are read, and by archive those that have ended and are fully read.

    ``deleted`` are finished recordings that are no longer in their catalog. ``last_served`` is that of ``Offset``.
    """

    positions: Positions = field(default_factory=dict)
    finished: dict[str, Finished] = field(default_factory=dict)
    deleted: Positions = field(default_factory=dict)
    last_served: Key | None = None

    def has_finished(self, key: Key) -> bool:
        """Return whether a recording has ended and is fully read."""
        return key[1] in self.finished.get(key[0], ())


@dataclass
class Room:
    """The remaining limits of a micro-batch. None means unlimited."""

    max_bytes: int | None = None
    rows: int | None = None
    is_untouched: bool = True

    def share(self, part: int, whole: int) -> Room:
        """Return the share of a recording with ``part`` of ``whole`` unread bytes, which has room for at least one message."""
        max_bytes, rows = (
            None if left is None else max(left * part // whole, 1) for left in (self.max_bytes, self.rows)
        )
        return Room(max_bytes, rows)

    def take(self, read: int, rows: int) -> bool:
        """Take these bytes and rows from the limits. Return whether there was room; the first message always has."""
        fits = (self.max_bytes is None or read <= self.max_bytes) and (self.rows is None or rows <= self.rows)
        if not fits and not self.is_untouched:
            return False
        if self.max_bytes is not None:
            self.max_bytes = max(self.max_bytes - read, 0)
        if self.rows is not None:
            self.rows = max(self.rows - rows, 0)
        self.is_untouched = self.is_untouched and not read
        return True

    @property
    def is_used_up(self) -> bool:
        return self.max_bytes == 0 or self.rows == 0


def tasks_for(total: int, partition_bytes: int, cores: int) -> int:
    """Return the number of tasks for ``total`` bytes on ``cores``, at most ``partition_bytes`` each.

    If the input is small, the cores share it in ranges of at least ``SHARED_BYTES``, which keeps them busy. Otherwise each core
    gets the same number of tasks.
    """
    by_size = -(-total // partition_bytes)
    if by_size < cores:
        return max(by_size, min(cores, total // SHARED_BYTES))
    return -(-by_size // cores) * cores


def max_readers() -> int:
    """Return how many readers may be open at once, within the process's limit on open files."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return MAX_READERS
    return max(1, min(MAX_READERS, (soft - RESERVED_FILES) // FILES_PER_READER))


class PlannedRecording:
    """One recording in a plan. Only ``reader`` opens it."""

    def __init__(self, planner: Planner, key: Key, opened: OpenArchive) -> None:
        self._planner, self.key, self.opened = planner, key, opened

    @property
    def descriptor(self) -> RecordingDescriptor:
        return self.opened.by_id[self.key[1]]

    @property
    def start_position(self) -> int:
        """Like ``RecordingReader.start_position``, but from the trigger's listing."""
        return readable_start(self.opened.archive, self.descriptor)

    @property
    def end_position(self) -> int:
        """Like ``RecordingReader.end_position``, but as of this trigger."""
        return self._planner.end_of(self.key)

    @property
    def reader(self) -> RecordingReader:
        """The recording's reader, which may be closed when another one is requested."""
        return self._planner.reader(self.key)

    def bound_of(self, where: Where | dict[str, Where], default: str) -> Where:
        """Return the part of ``where`` that applies to this recording."""
        if not isinstance(where, dict):
            return where
        archive, recording_id = self.key
        return where.get(f"{archive}/{recording_id}", where.get(str(recording_id), default))

    def resolve(self, where: Where | dict[str, Where], default: str, name: str) -> int:
        """Resolve ``where`` to a readable position between two messages."""
        bound = self.bound_of(where, default)
        if bound == "earliest":
            return self.start_position
        last = self.end_position
        if bound == "latest":
            return last
        if isinstance(bound, str):
            return min(self.reader_with_times(name).position_at_time(time_ns_of(bound, name)), last)
        first = self.start_position
        return self.reader.advance(first, min(max(bound, first), last))

    def reader_with_times(self, name: str) -> RecordingReader:
        """Return the reader. Raises ConfigurationError if the recording has no times; those of Aeron Archive have none."""
        reader = self.reader
        if not reader.has_times:
            skip = "set unknownTimes to skip, " if name in ("fromTime", "toTime") else ""
            raise ConfigurationError(
                f"{name}: recording {self.key[1]} has no index and so no times; {skip}choose others with recordingId, "
                "or use positions"
            )
        return reader


class Planner:
    """The planner of a query over recordings, on the driver."""

    def __init__(self, options: RecordingOptions, names: Names) -> None:
        self._options = options
        self._names = names
        self._set = ArchiveSet(options)
        self._archives: dict[str, OpenArchive] = {}
        self._recordings: dict[Key, PlannedRecording] = {}
        self._catalogs: dict[str, list[RecordingDescriptor]] = {}
        self._ends: Positions | None = None
        self._seen_targets: Positions = {}
        self._readers: OrderedDict[Key, RecordingReader] = OrderedDict()
        # Recordings without rows of the chosen sessions.
        self._other_sessions: dict[Key, RecordingDescriptor] = {}
        self._max_readers = max_readers()
        self._checked: dict[str, tuple[Finished, list[RecordingDescriptor], Finished, Positions]] = {}
        self._ended: dict[str, tuple[list[RecordingDescriptor], Finished]] = {}

    def refresh(self) -> None:
        self._archives = self._set.refresh()
        catalogs = {key: opened.descriptors for key, opened in self._archives.items()}
        if catalogs.keys() != self._catalogs.keys() or any(
            catalogs[key] is not descriptors for key, descriptors in self._catalogs.items()
        ):
            recordings: dict[Key, PlannedRecording] = {}
            for key, opened in self._archives.items():
                for descriptor in opened.descriptors:
                    each = (key, descriptor.recording_id)
                    if self._options.takes(descriptor) and self._has_sessions(each, opened, descriptor):
                        recordings[each] = PlannedRecording(self, each, opened)
            self._recordings, self._catalogs = recordings, catalogs
        self._ends = None
        for each, reader in list(self._readers.items()):
            recording = self._recordings.get(each)
            # A recording appears in the catalog shortly before its index exists. An archive that extends a recording of another
            # origin does not write the index.
            if (
                recording is None
                or reader.index is None
                or reader.descriptor.identity != recording.descriptor.identity
                or reader.descriptor.origin != recording.descriptor.origin
            ):
                self._readers.pop(each).close()
            else:
                reader.update(recording.descriptor)

    def _has_sessions(self, key: Key, opened: OpenArchive, descriptor: RecordingDescriptor) -> bool:
        """Return whether a recording may have rows of the chosen sessions. It is opened once as long as its entry is the same."""
        wanted = self._options.session_ids
        if not wanted or descriptor.session_id in wanted:
            return True
        if self._other_sessions.get(key) == descriptor:
            return False
        with RecordingReader(opened.archive, descriptor) as reader:
            may_have = may_have_session(reader, wanted)
        if not may_have:
            self._other_sessions[key] = descriptor
        return may_have

    def end_of(self, key: Key) -> int:
        """Return the position up to which a recording can be read, as of its first use in this trigger."""
        end = self._recordings[key].descriptor.stop_position
        return end if end != NULL else self._recorded()[key]

    def _recorded(self) -> Positions:
        """Return the ends of the recordings that have no end in the catalog."""
        if self._ends is None:
            active: dict[str, list[RecordingDescriptor]] = {}
            for (archive, _), recording in self._recordings.items():
                if recording.descriptor.stop_position == NULL:
                    active.setdefault(archive, []).append(recording.descriptor)
            self._ends = {}
            for archive, descriptors in active.items():
                positions = self._archives[archive].archive.recorded_positions(descriptors)
                for descriptor, position in zip(descriptors, positions, strict=True):
                    key = (archive, descriptor.recording_id)
                    self._ends[key] = self.reader(key).end_position() if position is None else position
        return self._ends

    def reader(self, key: Key) -> RecordingReader:
        reader = self._readers.get(key)
        if reader is None:
            recording = self._recordings[key]
            while len(self._readers) >= self._max_readers:
                self._readers.popitem(last=False)[1].close()
            reader = self._readers[key] = RecordingReader(recording.opened.archive, recording.descriptor)
        else:
            self._readers.move_to_end(key)
        return reader

    def close(self) -> None:
        while self._readers:
            self._readers.popitem()[1].close()
        self._set.close()
        self._recordings.clear()

    # -- offsets -----------------------------------------------------------------------------------------------------

    def offset(self, reached: ReadPositions, before: Offset | None = None) -> Offset:
        """Make an offset from positions, with each recording's identity. The identity of a missing one comes from ``before``."""
        archives: dict[str, ArchiveOffset] = {}
        mapping = self._mapping(before) if before is not None else {}
        for key, earlier in (before.archives if before is not None else {}).items():
            mapped = mapping.get(key, key)
            # Keep the entries of missing archives. Rebuild those of present ones, but keep the identities of missing recordings.
            archives[mapped] = (
                ArchiveOffset(self._archives[mapped].url, {}, dict(earlier.identities), dict(earlier.sessions))
                if mapped in self._archives
                else earlier
            )
        for key, finished in reached.finished.items():
            archives.setdefault(key, ArchiveOffset(self._archives[key].url)).finished = finished
        newly: dict[str, dict[int, FinishedPosition]] = {}
        for (archive, recording_id), position in reached.positions.items():
            opened = self._archives.get(archive)
            if opened is None:
                continue
            entry = archives.setdefault(archive, ArchiveOffset(opened.url))
            descriptor = opened.by_id.get(recording_id)
            if descriptor is not None and descriptor.stop_position == position:
                newly.setdefault(archive, {})[recording_id] = FinishedPosition.of(descriptor)
                continue
            entry.positions[recording_id] = position
            if descriptor is not None:
                entry.identities[recording_id] = str(descriptor.identity)
                entry.sessions[recording_id] = session_mark(descriptor.session_id)
        for key, more in newly.items():
            archives[key].finished = Finished(archives[key].finished | more)
        known = {key: archive for key, archive in archives.items() if archive.positions or archive.finished}
        return Offset(known, last_served=reached.last_served)

    def first(self) -> Offset:
        """Return the offset before anything is read, for a query whose own offset is unknown."""
        return self.offset(
            ReadPositions({key: recording.start_position for key, recording in self._recordings.items()})
        )

    def latest(self) -> Offset:
        """Return the offset of everything available, for reports. Ended recordings are cached until the catalog changes."""
        if self._options.ending != "latest":
            return self.offset(ReadPositions(self.ending()))
        reached = ReadPositions(dict(self._recorded()))
        for key, opened in self._archives.items():
            known = self._ended.get(key)
            if known is None or known[0] is not opened.descriptors:
                ended = (
                    each
                    for each in opened.descriptors
                    if each.stop_position != NULL and (key, each.recording_id) in self._recordings
                )
                positions = {each.recording_id: FinishedPosition.of(each) for each in ended}
                known = self._ended[key] = (opened.descriptors, Finished(positions))
            reached.finished[key] = known[1]
        return self.offset(reached)

    def _mapping(self, offset: Offset) -> dict[str, str]:
        return present_keys(offset, {key: opened.url for key, opened in self._archives.items()})

    def resumed(self, offset: Offset) -> ReadPositions:
        """Return the positions in an offset from which reading can continue.

        If a recording was replaced, or ends before the offset, this raises RecordingError, or with ``failOnDataLoss=false`` leaves
        the recording out, so that it is read from its start.
        """
        reached = ReadPositions(last_served=offset.last_served)
        mapping = self._mapping(offset)
        for key, archive in offset.archives.items():
            mapped = mapping.get(key, key)
            for recording_id, position in archive.positions.items():
                at = (mapped, recording_id)
                if at in self._recordings and (change := self._change(at, position, archive)):
                    self._lost(f"recording {recording_id} of {self._archives[mapped].url} {change}")
                    continue
                reached.positions[at] = position
            if archive.finished and mapped in self._archives:
                self._resume_finished(self._archives[mapped], archive.finished, reached)
        return reached

    def continued(self, offset: Offset) -> ReadPositions:
        """Like ``resumed``, for the next micro-batch: if a recording is missing that was not fully read, that is lost data.

        An offset has positions of the recordings that had not ended there. Nobody can say what a missing one had after them.
        """
        reached = self.resumed(offset)
        for key in [key for key in reached.positions if self._is_missing(key)]:
            position, url = reached.positions.pop(key), self._archives[key[0]].url
            what = f"recording {key[1]} is missing in {url}: it was read up to position {position}, and had not ended there"
            self._lost(what, key, position, position)
        return reached

    def _is_missing(self, key: Key) -> bool:
        opened = self._archives.get(key[0])
        return opened is not None and key[1] not in opened.by_id

    def _resume_finished(self, opened: OpenArchive, finished: Finished, reached: ReadPositions) -> None:
        known = self._checked.get(opened.key)
        if known is not None and known[0] is finished and known[1] is opened.descriptors:
            reached.finished[opened.key] = known[2]
            reached.deleted |= known[3]
            return
        remaining, deleted = Finished(), {}
        for recording_id, known_end in finished.items():
            position, key = known_end.position, (opened.key, recording_id)
            descriptor = opened.by_id.get(recording_id)
            if descriptor is None:
                deleted[key] = position
            elif not self._is_same(opened, descriptor, known_end.checksum, position):
                self._lost(f"recording {recording_id} of {opened.url} {_another(descriptor)}")
            elif descriptor.stop_position == position:
                remaining[recording_id] = known_end
            elif descriptor.stop_position != NULL and descriptor.stop_position < position:
                self._lost(_truncated(recording_id, opened.url, descriptor.stop_position, position))
            elif key in self._recordings:
                # The recording was extended. If the position is inside a message, its row is read only now.
                if self._is_rewritten(key, position, known_end.session, has_ended=True):
                    self._lost(f"recording {recording_id} of {opened.url} {_REWRITTEN.format(position)}")
                    continue
                reader = self.reader(key)
                reached.positions[key] = max(reader.count_before(position).position, reader.start_position)
        if len(remaining) == len(finished):
            remaining = finished
        if len(remaining) + len(deleted) == len(finished):
            self._checked[opened.key] = (finished, opened.descriptors, remaining, deleted)
        reached.finished[opened.key] = remaining
        reached.deleted |= deleted

    def _change(self, key: Key, position: int, before: ArchiveOffset) -> str:
        """Return how a recording differs from the one that was read up to a position; empty if it continues there."""
        recording = self._recordings[key]
        stored = before.identities.get(key[1])
        if stored is not None and not is_stored_identity(stored, recording.descriptor):
            return _another(recording.descriptor, stored)
        end = self.end_of(key)
        if end < position:
            return f"ends at {end}, before position {position} of the checkpoint: it was truncated"
        is_rewritten = self._is_rewritten(key, position, before.sessions.get(key[1], 0))
        return _REWRITTEN.format(position) if is_rewritten else ""

    def _is_same(self, opened: OpenArchive, descriptor: RecordingDescriptor, checksum: int, position: int) -> bool:
        if is_stored_identity(checksum, descriptor):
            return True
        # The checksum of an earlier release covers the session that the recording had.
        with RecordingReader(opened.archive, descriptor) as reader, suppress(RecordingError):
            before, _ = sessions_at(reader, position)
            return before is not None and is_stored_identity(checksum, descriptor, [before])
        return False

    def _is_rewritten(self, key: Key, position: int, mark: int, *, has_ended: bool = False) -> bool:
        """Return whether a recording was truncated before a position, and then extended past it by another session.

        ``mark`` is that of the recording's session when the position was read. With ``has_ended``, the recording ended at the
        position. Then a session that extended it begins there.
        """
        newest = self._recordings[key].descriptor.session_id
        if mark in (0, session_mark(newest)):
            return False
        try:
            before, after = sessions_at(self.reader(key), position)
        except RecordingError:
            return False  # found when it is read
        if before is None or session_mark(before) == mark:
            return False
        # If the session of the checkpoint has recorded nothing, the frames before are of an earlier one.
        return before == newest or (has_ended and before == after)

    def check_named(self) -> None:
        """Report the recordings that ``recordingId`` names and no archive has. The ids of a condition need not exist."""
        named = self._options.recording_ids
        if NO_RECORDING in named:
            return
        missing = sorted(each for each in named if not any(each in opened.by_id for opened in self._archives.values()))
        if not missing:
            return
        what = f"{', '.join(self._options.paths)} has no recording {', '.join(map(str, missing))}"
        if self._options.rows == "problems":
            raise RecordingNotFound(what)
        self._lost(what, error=RecordingNotFound)

    # -- starts and ends of the options ------------------------------------------------------------------------------

    def starting(self) -> Positions:
        where = self._options.starting
        for key, recording in self._recordings.items():
            bound, first = recording.bound_of(where, "earliest"), recording.start_position
            if isinstance(bound, int) and (start := max(bound, recording.descriptor.start_position)) < first:
                name = f"recording {key[1]} of {recording.opened.url}"
                self._lost(f"{name}: positions {start} to {first} of startingPositions were purged", key, start, first)
        return {key: each.resolve(where, "earliest", "startingPositions") for key, each in self._recordings.items()}

    def ending(self) -> Positions:
        where = self._options.ending
        return {key: each.resolve(where, "latest", "endingPositions") for key, each in self._recordings.items()}

    def targets(self, reached: ReadPositions | None = None) -> Positions:
        """Return the position that a query should now read up to in each recording, within the options. Excludes finished ones."""
        if self._options.ending != "latest":
            return self.ending()
        finished = reached.finished if reached is not None else {}
        return {key: self.end_of(key) for key in self._recordings if key[1] not in finished.get(key[0], ())}

    def _reachable(self, start: ReadPositions, targets: Positions) -> Positions:
        """Return the targets that exist. A recording that does not reach its target, or an earlier one, any more is lost data."""
        seen, reachable = self._seen_targets, {}
        for key, target in targets.items():
            if key not in self._recordings:
                self._check_gone(key, start, target)
                continue
            end, before = self.end_of(key), max(target, seen.get(key, target))
            if end < before:
                url = self._recordings[key].opened.url
                self._lost(f"recording {key[1]} of {url} was truncated from {before} to {end}", key, end, before)
            reachable[key] = min(target, end)
        self._seen_targets = reachable
        return reachable

    def start_of(self, key: Key, reached: ReadPositions) -> int:
        """Return where a range starts. For a new recording, that is its beginning."""
        position = reached.positions.get(key)
        if position is None and reached.has_finished(key):
            position = reached.finished[key[0]][key[1]].position
        return self._recordings[key].descriptor.start_position if position is None else position

    def within(self, key: Key, start: int, end: int) -> tuple[int, int]:
        """Narrow ``[start, end)`` to the times and positions of the options. The result may be empty."""
        if end <= start:
            return start, start
        wanted, rows = self._options.scan_range, self._options.rows
        if wanted.is_unbounded:
            return start, end
        reader = self.reader(key)
        if wanted.has_times:
            if self._options.unknown_times == "skip" and not reader.has_times:
                return start, start
            self._recordings[key].reader_with_times("toTime" if wanted.from_time_ns is None else "fromTime")
            start, end = wanted.of_times(reader, start, end)
        if rows == "problems":
            return start, end
        return wanted.of_positions(reader, start, end, frames=rows == "frames")

    # -- micro-batches -----------------------------------------------------------------------------------------------

    def advance(self, start: ReadPositions, targets: Positions, *, limited: bool) -> ReadPositions:
        """Return the ends of the next micro-batch, between messages. With ``limited``, recordings take turns within the limits."""
        spans = self._unread(start, self._reachable(start, targets))
        end: Positions = start.positions | {key: first for key, (first, _) in spans.items()}
        unread = {key: last - first for key, (first, last) in spans.items() if last > first}
        room = Room(self._options.max_bytes, self._options.max_rows) if limited else Room()
        left, last_served = sum(unread.values()), start.last_served
        for key in _in_turn(unread, last_served):
            first, last = spans[key]
            if not limited and last == self._recordings[key].descriptor.stop_position:
                # Read all of it, without opening it. An incomplete last message has no row; ``resumed`` goes back to its start.
                end[key] = last
                continue
            if room.is_used_up:
                break
            reached, read, rows = self._advance_one(key, first, last, room.share(unread[key], left))
            if not room.take(read, rows):
                break
            end[key], last_served = reached, key
            left -= unread[key]
        else:
            last_served = None
        return ReadPositions(end, start.finished, last_served=last_served)

    def waiting(self, start: ReadPositions, targets: Positions) -> int:
        """Return the number of bytes between ``start`` and the targets."""
        return sum(max(last - first, 0) for first, last in self._unread(start, targets).values())

    def _unread(self, start: ReadPositions, targets: Positions) -> dict[Key, tuple[int, int]]:
        return {
            key: self.within(key, self.start_of(key, start), target)
            for key, target in targets.items()
            if key in self._recordings and not start.has_finished(key)
        }

    def is_at(self, before: Offset, start: ReadPositions, end: ReadPositions) -> bool:
        """Return whether a micro-batch from ``start``, resumed from ``before``, to ``end`` would read nothing.

        It is made anyway if a recording has ended where it was read up to, because the offset then says so: such a recording may be
        deleted.
        """
        resumed = len(start.positions) + len(start.deleted) + sum(len(each) for each in start.finished.values())
        if resumed != sum(len(each.positions) + len(each.finished) for each in before.archives.values()):
            return False
        positions = start.positions
        return all(
            position == (positions[key] if key in positions else self.start_of(key, start))
            and not (key in self._recordings and self._recordings[key].descriptor.stop_position == position)
            for key, position in end.positions.items()
        )

    def _advance_one(self, key: Key, start: int, end: int, room: Room) -> tuple[int, int, int]:
        """Return the end of a recording's range, and how many bytes and rows it has. Rows are counted if they are limited."""
        first = self._recordings[key].start_position
        if start < first:
            self._lost(f"recording {key[1]}: positions {start} to {first} were purged", key, start, first)
            start = first
        reader = self.reader(key)
        try:
            reached, rows = self._within_room(reader, start, end, room)
        except RecordingError:
            reached, rows = start, 0
        if reached > start or not reader.has_recorded_end:
            return reached, reached - start, rows
        fault = next(find_problems(reader, start, end, checksums=False), None)
        if fault is None:
            return reached, 0, 0
        # Skip the problem, or the query would hang here without an error.
        reached = reader.message_after(fault.position, end)
        self._lost(fault.text, key, fault.position, reached)
        return reached, 0, 0

    def _within_room(self, reader: RecordingReader, start: int, end: int, room: Room) -> tuple[int, int]:
        """Return the end of the last message within the limits, but at least of the first one, and the number of rows."""
        if room.rows is None:
            return reader.advance(start, end, max_bytes=room.max_bytes), 0
        progress = reader.advance_counted(start, end, room.rows, max_bytes=room.max_bytes)
        if self._options.rows != "frames":
            return progress.position, progress.messages
        # The index counts messages. So walk the frames, for fewer messages until their frames fit.
        progress = reader.walk(start, progress.position)
        while progress.frames > room.rows and progress.messages > 1:
            fewer = max(progress.messages * room.rows // progress.frames, 1)
            progress = reader.walk(start, progress.position, max_messages=fewer)
        return progress.position, progress.frames

    def _lost(
        self,
        what: str,
        key: Key = ("", 0),
        start: int = 0,
        end: int = 0,
        *,
        error: type[RecordingError] = RecordingError,
    ) -> None:
        """Report lost data, with positions if they are known. Raises ``error`` if ``failOnDataLoss`` is set."""
        if self._options.fail_on_data_loss:
            raise error(f"{what}; set failOnDataLoss to false to skip it")
        log.warning("%s; skipped", what)
        note(self._options.skip_report, *key, start, end, what)

    # -- tasks -------------------------------------------------------------------------------------------------------

    def task_plan(self) -> TaskPlan:
        """Return how the options and the number of cores divide a new micro-batch into tasks."""
        options = self._options
        return TaskPlan(
            options.parallelism or launched_parallelism(),
            options.min_partitions,
            options.partition_bytes,
            options.max_rows_per_partition,
        )

    def ranges(
        self, start: ReadPositions, end: ReadPositions, plan: TaskPlan | None = None
    ) -> list[RecordingRange | RecordingGroup]:
        """Divide ``[start, end)`` of every recording into tasks; small recordings share one. The default is ``task_plan``."""
        plan = plan or self.task_plan()
        # The order of the offset's recordings may change when one of them is extended.
        spans = sorted(each for each in self._spans(start, end) if each[1] < each[2])
        total = sum(max(last - first, RECORDING_BYTES) for _, first, last in spans)
        read = sum(last - first for _, first, last in spans)
        by_size = tasks_for(total if len(spans) > plan.parallelism else read, plan.partition_bytes, plan.parallelism)
        tasks = max(plan.min_partitions, by_size)
        pieces: list[RecordingRange] = []
        for key, first, last in spans:
            share = -(-tasks * (last - first) // read)
            cuts = self.reader(key).cuts(first, last, share) if share > 1 else [(first, last)]
            parts = (part for whole in cuts for part in self._by_rows(key, *whole, plan.max_rows_per_partition))
            pieces += (self._range(key, a, b) for a, b in parts)
            if len(pieces) > MAX_TASKS:
                raise ConfigurationError(f"maxRowsPerPartition needs more than {MAX_TASKS} tasks; use a larger value")
        return _shared(pieces, max(tasks, plan.parallelism), plan.max_rows_per_partition)

    def _by_rows(self, key: Key, start: int, end: int, most: int | None) -> Iterator[tuple[int, int]]:
        """Split a range by the maximum messages of a task. Stops counting at a problem."""
        while most is not None and (end - start) // FRAME_BYTES > most:
            boundary = self.reader(key).advance(start, end, max_messages=most)
            if not start < boundary < end:
                break
            yield start, boundary
            start = boundary
        yield start, end

    def _spans(self, start: ReadPositions, end: ReadPositions) -> list[tuple[Key, int, int]]:
        lasts = end.positions | end.deleted
        for archive, finished in end.finished.items():
            before = start.finished.get(archive, Finished())
            if before is not finished:
                lasts |= {(archive, each): ended.position for each, ended in finished.items() if each not in before}
        spans = []
        for key, last in lasts.items():
            if key not in self._recordings:
                self._check_gone(key, start, last)
                continue
            first, last = self.within(key, self.start_of(key, start), last)
            if first < last and first < (available := self._recordings[key].start_position):
                self._lost(f"recording {key[1]}: positions {first} to {available} were purged", key, first, available)
                first = available
            spans.append((key, first, last))
        return spans

    def _check_gone(self, key: Key, start: ReadPositions, end: int) -> None:
        """Report a missing recording unless it was fully read."""
        opened = self._archives.get(key[0])
        if opened is not None and key[1] in opened.by_id:
            # The recording exists, but the options exclude it.
            return
        reached = max(start.positions.get(key, NULL), start.deleted.get(key, NULL))
        if reached < end:
            url = opened.url if opened is not None else key[0]
            self._lost(f"recording {key[1]} is missing in {url}", key, max(reached, 0), end)

    def _range(self, key: Key, start: int, end: int) -> RecordingRange:
        opened = self._recordings[key].opened
        host = opened.archive.host if "host" in self._names else ""
        descriptor = opened.by_id[key[1]]
        return RecordingRange(opened.url, descriptor, start, end, key[0], host)


def _in_turn(keys: Iterable[Key], last_served: Key | None) -> list[Key]:
    """Return the keys in order, beginning after ``last_served``."""
    ordered = sorted(keys)
    at = bisect_right(ordered, last_served) if last_served is not None else 0
    return ordered[at:] + ordered[:at]


_REWRITTEN = "was truncated before position {} of the checkpoint, and extended by another session"


def _another(descriptor: RecordingDescriptor, stored: str = "") -> str:
    was = f"was {stored} and " if stored else ""
    return f"is not the one of the checkpoint: its start, stream, first term id and term length {was}is {descriptor.identity}"


def _truncated(recording_id: int, url: str, end: int, position: int) -> str:
    return f"recording {recording_id} of {url} ends at {end}, before position {position} of the checkpoint: it was truncated"


def _shared(
    pieces: list[RecordingRange], tasks: int, max_rows: int | None = None
) -> list[RecordingRange | RecordingGroup]:
    """Return the pieces, or if there are more than ``tasks``, groups of about equal cost within a limit of rows."""
    if len(pieces) <= tasks:
        return list(pieces)
    costs = [max(piece.end - piece.start, RECORDING_BYTES) for piece in pieces]
    share = -(-sum(costs) // tasks)
    groups: list[list[RecordingRange]] = []
    room = rows = 0
    for piece, cost in zip(pieces, costs, strict=True):
        # A message has at least one frame.
        most = (piece.end - piece.start) // FRAME_BYTES
        most = most if max_rows is None else min(most, max_rows)
        if not groups or cost > room or (max_rows is not None and rows + most > max_rows):
            groups.append([])
            room, rows = share, 0
        groups[-1].append(piece)
        room, rows = room - cost, rows + most
    return [group[0] if len(group) == 1 else RecordingGroup(group) for group in groups]

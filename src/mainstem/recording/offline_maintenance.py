"""Changes to a directory of recordings while no recorder and no archive uses it: those that ArchiveTool can make.

The locks that recorders and archives use against each other keep both out: the recorder's lock and the archive's mark file.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mainstem._core.layout import DATA_HEADER_LENGTH, FRAME_SESSION_ID_OFFSET, TYPE_PAD
from mainstem._core.log.checksums import CRC32, CRC32C, FrameChecksum
from mainstem._internal.clock import SYSTEM_CLOCK, Clock
from mainstem.aeron.logbuffer import align_frame
from mainstem.aeron.protocol.layouts import HEADER_LENGTH, Header
from mainstem.errors import RecordingError, RecordingNotFound
from mainstem.recording.archive import local_archive
from mainstem.recording.catalog import (
    CATALOG_FILE,
    NULL,
    STATE_DELETED,
    STATE_INVALID,
    STATE_VALID,
    CatalogEntry,
    RecordingDescriptor,
    find_changed_entries,
    no_recordings,
    read_entries,
)
from mainstem.recording.directory import RecordingDirectory
from mainstem.recording.index import index_file
from mainstem.recording.reader import RecordingReader
from mainstem.recording.segments import OLD_SUFFIX, first_segment_base, parse_segment_name, segment_base, segment_name
from mainstem.recording.verify_recordings import Problem, find_problems, find_start_problem
from mainstem.store.disk import DISK, Disk

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from mainstem.recording.reader import MappedRange

ALGORITHMS = {"crc-32": CRC32, "crc-32c": CRC32C}


@dataclass(frozen=True, slots=True)
class SegmentFile:
    """A file of a recording. ``base`` is the position of its first byte. ``is_leftover`` is True if its deletion has begun."""

    path: Path
    recording_id: int
    base: int
    is_leftover: bool

    @property
    def nbytes(self) -> int:
        return self.path.stat().st_size


def segment_files(directory: Path, recording_id: int | None = None) -> list[SegmentFile]:
    """Return the segment files in a directory, by recording and position, or those of one recording.

    They include segments that an archive has renamed in order to delete them.
    """
    files = segment_files_in(directory, os.listdir(directory), recording_id)
    return sorted(files, key=lambda each: (each.recording_id, each.base, each.is_leftover))


def segment_files_in(directory: Path, names: Iterable[str], recording_id: int | None = None) -> Iterator[SegmentFile]:
    """Yield the segment files among the names of a directory's files."""
    prefix = "" if recording_id is None else f"{recording_id}-"
    for name in names:
        if name.startswith(prefix) and (found := parse_segment_name(name.removesuffix(OLD_SUFFIX))) is not None:
            yield SegmentFile(directory / name, *found, name.endswith(OLD_SUFFIX))


def find_orphans(directory: Path, recording_id: int | None = None) -> list[SegmentFile]:
    """Return the segment files outside their recordings: before the start, after the end, or of a deleted recording.

    Files of a recording without an entry can be all that is left of it if the catalog is corrupt. So they are returned only if
    ``recording_id`` names that recording. An active recording has no end.
    """
    entries = {each.recording_id: each for each in read_entries(directory) if each.descriptor is not None}
    if recording_id is not None and recording_id not in entries:
        return segment_files(directory, recording_id)
    chosen = segment_files(directory, recording_id)
    return [each for each in chosen if each.recording_id in entries and _is_orphan(each, entries[each.recording_id])]


def _is_orphan(file: SegmentFile, entry: CatalogEntry) -> bool:
    descriptor = entry.descriptor
    assert descriptor is not None
    if entry.state == STATE_DELETED or file.is_leftover:
        return True
    if entry.state != STATE_VALID:
        return False
    stop = descriptor.stop_position
    # A recording that ends at the end of a segment also has the next segment.
    last = segment_base(descriptor, stop) if stop != NULL else file.base
    return not first_segment_base(descriptor) <= file.base <= last


class Maintenance:
    """A directory of recordings, locked against recorders and archives while it is changed. A context manager.

    Raises:
        RecordingError: The directory holds no recordings, or a recorder or an archive uses it.
    """

    def __init__(self, directory: Path, *, clock: Clock = SYSTEM_CLOCK, disk: Disk = DISK) -> None:
        if not (directory / CATALOG_FILE).exists():
            raise no_recordings(str(directory), directory)
        self.directory = directory
        self._directory = RecordingDirectory(directory, durable=True, clock=clock, disk=disk)
        self.catalog = self._directory.catalog
        self._disk = disk

    def __enter__(self) -> Maintenance:
        return self

    def __exit__(self, *_: object) -> None:
        self._directory.close()

    def set_valid(self, recording_id: int, *, valid: bool) -> None:
        """Make a recording valid or invalid. Archives and readers ignore invalid recordings, but keep their files."""
        entries = [each for each in read_entries(self.directory) if each.recording_id == recording_id]
        if not entries:
            raise RecordingNotFound(f"{self.directory} has no recording {recording_id}")
        state, entry = (STATE_VALID if valid else STATE_INVALID), entries[-1]
        if entry.state == STATE_DELETED:
            raise RecordingError(f"recording {recording_id} is deleted: its files are gone, or will be")
        if entry.state != state:
            self.catalog.set_state(entry, state)

    def compact(self) -> tuple[list[CatalogEntry], list[SegmentFile]]:
        """Remove the entries that are not valid, and their files. Return both. Valid entries and their ids stay."""
        removed, files = find_removable(self.directory)
        if removed:
            self.catalog.remove(
                removed
            )  # first: files that a crash leaves have no entry, and `find_orphans` finds them
            self.delete(files)
            for recording_id in {each.recording_id for each in removed} - self._recording_ids():
                self._delete_file(index_file(self.directory, recording_id))
        return removed, files

    def _recording_ids(self) -> set[int]:
        return {each.recording_id for each in self.catalog.recordings()}

    def delete(self, files: list[SegmentFile]) -> None:
        for each in files:
            self._directory.mark.touch()
            self._delete_file(each.path)
        self._disk.sync_directory(self.directory)

    def _delete_file(self, path: Path) -> None:
        if path.exists():
            self._disk.delete(path)

    def store_checksums(self, descriptor: RecordingDescriptor, algorithm: FrameChecksum, *, everywhere: bool) -> int:
        """Store checksums in the frames of a recording and in its entry, and return the number of frames.

        Checksums are stored in the frames of the last segment or, with ``everywhere``, of all segments. The index of Mainstem's
        recorder is not changed: it stays valid, because it describes what was recorded (``index.is_as_recorded``). Raises
        RecordingError before anything is written if the recording has a problem, because new checksums would hide it.
        """
        count = 0
        with RecordingReader(local_archive(self.directory), descriptor) as reader:
            start, end = reader.start_position, reader.end_position()
            problem = next(self._problems(reader), None)
            if problem is not None:
                raise RecordingError(
                    f"recording {descriptor.recording_id} is damaged at {problem.position}: {problem.text}; checksums would "
                    "hide that"
                )
            if not everywhere and end > start:
                start = max(start, segment_base(descriptor, end - 1))
            for run in reader.ranges(start, end):
                count += self._store_in(descriptor, run, algorithm)
        self.catalog.store_checksum(descriptor, algorithm)
        return count

    def _problems(self, reader: RecordingReader) -> Iterator[Problem]:
        descriptor = reader.descriptor
        for changed in find_changed_entries(self.directory):
            if changed.offset == descriptor.entry_offset:
                yield Problem(descriptor.recording_id, changed.offset, "catalog", changed.text)
        if problem := find_start_problem(reader):
            yield problem
        position, end = reader.start_position, reader.end_position()
        while position < end:
            stop = min(segment_base(descriptor, position) + descriptor.segment_file_length, end)
            yield from find_problems(reader, position, stop)
            position = stop
            self._directory.mark.touch()

    def _store_in(self, descriptor: RecordingDescriptor, run: MappedRange, algorithm: FrameChecksum) -> int:
        base, count = segment_base(descriptor, run.position), 0
        fd = self._disk.open(self.directory / segment_name(descriptor.recording_id, base))
        try:
            for offset, end in _data_frames(run):
                checksum = algorithm.compute(run.memory, offset + DATA_HEADER_LENGTH, end).to_bytes(
                    4, "little", signed=True
                )
                at = offset + FRAME_SESSION_ID_OFFSET
                if run.memory[at : at + 4] != checksum:
                    self._disk.write(fd, checksum, run.position - base + at - run.offset)
                count += 1
                if count % 10_000 == 0:
                    self._directory.mark.touch()
            self._disk.sync(fd)
        finally:
            self._disk.close(fd)
        return count


def find_removable(directory: Path) -> tuple[list[CatalogEntry], list[SegmentFile]]:
    """Return the entries that are not valid, and the segment files of recordings that have only such entries."""
    entries = read_entries(directory)
    removed = [each for each in entries if each.state != STATE_VALID]
    gone = {each.recording_id for each in removed} - {
        each.recording_id for each in entries if each.state == STATE_VALID
    }
    return removed, [each for each in segment_files(directory) if each.recording_id in gone]


def _data_frames(run: MappedRange) -> Iterator[tuple[int, int]]:
    offset = run.offset
    while offset < run.limit:
        header = Header.read(run.memory[offset : offset + HEADER_LENGTH])
        end = offset + align_frame(header.frame_length)
        if header.type != TYPE_PAD:
            yield offset, end
        offset = end

"""An archive's directory: its lock, mark file, catalog, and recordings.

The format, the lock and the recovery are those of a recorder's directory. The difference is that a recorder extends recordings by
itself, while an archive extends one only on request.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Self

from mainstem._internal.clock import NS_PER_SECOND, SYSTEM_CLOCK, Clock
from mainstem.archive.server.request_errors import request_error
from mainstem.errors import ArchiveErrorCode
from mainstem.recording.catalog import NULL
from mainstem.recording.directory import RecordingDirectory, call_all, stream_of
from mainstem.recording.earlier_frames import EarlierFrames, earlier_frames
from mainstem.recording.index import IndexRepair, index_file
from mainstem.recording.life import OF_ARCHIVE, StreamLife
from mainstem.recording.offline_maintenance import SegmentFile, segment_files, segment_files_in
from mainstem.recording.reader import Progress
from mainstem.recording.segments import OLD_SUFFIX, parse_segment_name, segment_base, segment_name
from mainstem.recording.start_limits import StartLimits
from mainstem.store.disk import DISK, Disk

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator
    from pathlib import Path

    from mainstem.recording.catalog import RecordingDescriptor
    from mainstem.recording.mark_file import MarkOwner
    from mainstem.recording.writer import RecordingWriter


NAMES_PER_STEP = 500  # of the directory's files that are looked at at once
STOP_AGAIN_NS = NS_PER_SECOND  # between attempts to write stop positions that could not be written


class ArchiveFiles:
    """The files of an archive. The mark file contains ``owner``; the other arguments are those of ``Recorder``."""

    def __init__(
        self,
        directory: Path,
        owner: MarkOwner,
        *,
        segment_length: int,
        durable: bool = False,
        clock: Clock = SYSTEM_CLOCK,
        disk: Disk = DISK,
        on_recovery: Callable[[Any], object] = lambda _: None,
    ) -> None:
        self.directory = directory
        self._segment_length = segment_length
        self._clock, self._disk = clock, disk
        self._limits = StartLimits()
        # Where and when recordings ended that the catalog has as active.
        self._unstopped: dict[int, tuple[int, int]] = {}
        self._stops_again_ns = 0
        self._directory = RecordingDirectory(directory, owner=owner, durable=durable, clock=clock, disk=disk)
        self._catalog = self._directory.catalog
        self._directory.recover(on_recovery, moves_start=True)
        self._offsets = {each.recording_id: each.entry_offset for each in self._catalog.recordings()}
        self._ids = sorted(self._offsets)
        try:
            self._finish_deletions()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _finish_deletions(self) -> None:
        """Delete what a crash left: segments that were renamed to be deleted, and names that ``migrate`` also gave to others."""
        names: dict[int, list[tuple[int, int]]] = {}
        with os.scandir(self.directory) as entries:
            for entry in entries:
                found = parse_segment_name(entry.name.removesuffix(OLD_SUFFIX))
                if found is None or not entry.is_file(follow_symlinks=False):
                    continue
                if entry.name.endswith(OLD_SUFFIX):
                    self._disk.delete(self.directory / entry.name)
                else:
                    names.setdefault(entry.inode(), []).append(found)
        for shared in (each for each in names.values() if len(each) > 1):
            excess = [each for each in shared if not self._has_segment(*each)]
            if len(excess) < len(shared):
                for each in excess:
                    self._disk.delete(self.directory / segment_name(*each))

    def _has_segment(self, recording_id: int, base: int) -> bool:
        descriptor = self.find(recording_id)
        if descriptor is None:
            return False
        start, stop = descriptor.start_position, descriptor.stop_position
        return start < stop and segment_base(descriptor, start) <= base < stop

    # -- the catalog -------------------------------------------------------------------------------------------------

    def find(self, recording_id: int) -> RecordingDescriptor | None:
        """Return the current catalog entry of a recording; None if there is no such recording."""
        offset = self._offsets.get(recording_id)
        return None if offset is None else self._catalog.entry(offset)

    def known(self, recording_id: int) -> RecordingDescriptor:
        """Return the current catalog entry of a recording. Raises ArchiveError if there is no such recording."""
        descriptor = self.find(recording_id)
        if descriptor is None:
            raise request_error(f"unknown recording id: {recording_id}", ArchiveErrorCode.UNKNOWN_RECORDING)
        return descriptor

    def from_id(self, recording_id: int) -> Iterator[RecordingDescriptor]:
        """Yield the recordings from ``recording_id`` on, including any that are added during the iteration."""
        at = bisect_left(self._ids, recording_id)
        while at < len(self._ids):
            recording_id = self._ids[at]
            descriptor = self.find(recording_id)
            if descriptor is not None:
                yield descriptor
            at = bisect_left(self._ids, recording_id + 1)

    def newest_first(self) -> Iterator[RecordingDescriptor]:
        """Yield the recordings from the newest on, except any that are added or deleted during the iteration."""
        at = len(self._ids)
        while at:
            recording_id = self._ids[min(at, len(self._ids)) - 1]
            descriptor = self.find(recording_id)
            if descriptor is not None:
                yield descriptor
            at = bisect_left(self._ids, recording_id)

    @property
    def next_id(self) -> int:
        """The lowest id that the next recording can have."""
        return self._catalog.find_place()[0]

    @property
    def free_space(self) -> int:
        status = os.statvfs(self.directory)
        return status.f_bavail * status.f_frsize

    def touch(self) -> None:
        self._directory.mark.touch()
        if self._unstopped and self._clock.monotonic_ns() >= self._stops_again_ns:
            self._stop_again()

    def show_owner(self, owner: MarkOwner) -> None:
        """Show in the mark file what is known only once the archive is connected to its driver."""
        self._directory.mark.show(owner)

    # -- recordings --------------------------------------------------------------------------------------------------

    def start_refusal(self, image: Any) -> str:
        """Return which of a recorder's limits keeps a new recording from starting; an empty string if none, which counts it."""
        return self._limits.refusal(image.source_identity, len(self._directory.writers), self._clock.monotonic_ns())

    def begin(self, image: Any, *, stripped: str, original: str) -> RecordingWriter:
        """Start a new recording of an image, at its join position. Raises RecordingError and OSError."""
        stream = replace(stream_of(image, original), start_position=image.join_position, stripped_channel=stripped)
        life = _life(image)
        descriptor = self._directory.add_stream(stream, life, self._segment_length)
        writer = self._directory.open_writer(descriptor, Progress(descriptor.stop_position, 0), life)
        self._list(writer.descriptor)
        return writer

    def stop(self, writer: RecordingWriter) -> RecordingDescriptor:
        """End a recording. If the catalog cannot be written, raise the error; `touch` tries again.

        A recording without data keeps its catalog entry, because clients know its id, and no file.
        """
        try:
            stopped = self._directory.stop(writer)
            if stopped.stop_position == stopped.start_position:
                with suppress(FileNotFoundError):
                    self._disk.delete(self.index_path(stopped.recording_id))
            return stopped
        except Exception:
            self._unstopped[writer.descriptor.recording_id] = writer.position, self._clock.epoch_ms()
            self._stops_again_ns = self._clock.monotonic_ns() + STOP_AGAIN_NS
            raise

    def _stop_again(self) -> None:
        self._stops_again_ns = self._clock.monotonic_ns() + STOP_AGAIN_NS
        for recording_id, (position, ended_ms) in list(self._unstopped.items()):
            descriptor = self.find(recording_id)
            # It may have been deleted or extended meanwhile, or the failure came after the stop position was written.
            if (
                descriptor is not None
                and descriptor.stop_position == NULL
                and recording_id not in self._directory.writers
            ):
                self._catalog.stop(descriptor, position, ended_ms)
            del self._unstopped[recording_id]

    def close(self) -> None:
        """Try once more to stop recordings in the catalog, then end the others and unlock the directory. Idempotent."""
        with suppress(Exception):  # reported when the recording ended; a restart finds its end
            self._stop_again()
        self._unstopped.clear()
        call_all([*(partial(self.stop, writer) for writer in self._directory.writers.values()), self._directory.close])

    def add_replica(self, source: RecordingDescriptor) -> RecordingDescriptor:
        """Add an empty recording for a copy of another archive's recording. Raises RecordingError and OSError."""
        replica = self._directory.add(_empty_replica(source))
        self._list(replica)
        return replica

    def _list(self, added: RecordingDescriptor) -> None:
        self._offsets[added.recording_id] = added.entry_offset
        self._ids.append(added.recording_id)

    def become_replica(
        self, empty: RecordingDescriptor, source: RecordingDescriptor
    ) -> Generator[None, None, RecordingDescriptor]:
        """Prepare an empty recording for a copy of another archive's recording, step by step.

        Raises RecordingError and OSError.
        """
        recording_id = empty.recording_id
        replica = replace(_empty_replica(source), recording_id=recording_id, entry_offset=empty.entry_offset)
        replica.check_new()  # before anything is deleted
        for segment in (yield from self.find_segments(recording_id)):
            self.delete_file(segment.path)
            yield
        self._directory.forget_segments(recording_id)
        with suppress(FileNotFoundError):
            self._disk.delete(self.index_path(recording_id))
        self.flush_names()
        yield from self._replace_entry(recording_id, lambda now: replace(replica, entry_offset=now.entry_offset))
        return self._catalog.entry(self._offsets[recording_id])

    def earlier_frames(self, descriptor: RecordingDescriptor) -> Generator[None, None, EarlierFrames]:
        """Examine a stopped recording before it is extended, step by step."""
        return earlier_frames(self.directory, descriptor)

    def extend(self, descriptor: RecordingDescriptor, image: Any, earlier: EarlierFrames) -> RecordingWriter:
        """Continue a recording at its stop position from an image that begins there. Raises RecordingError and OSError."""
        stop = descriptor.stop_position
        count = Progress(stop if earlier.is_whole else NULL, earlier.messages)
        extended = self._catalog.set_session(descriptor, image.session_id)
        return self._directory.open_writer(extended, count, _life(image), descriptor.session_id, earlier.checksum)

    # -- deletions and other changes ---------------------------------------------------------------------------------

    def segment_files(self, recording_id: int) -> list[SegmentFile]:
        """Return the segments of a recording, also those that were renamed to be deleted."""
        return segment_files(self.directory, recording_id)

    def find_segments(self, recording_id: int) -> Generator[None, None, list[SegmentFile]]:
        """Return what ``segment_files`` returns, step by step: there can be any number of files in the directory."""
        found: list[SegmentFile] = []
        with os.scandir(self.directory) as entries:
            names = (entry.name for entry in entries)
            while part := list(islice(names, NAMES_PER_STEP)):
                found += segment_files_in(self.directory, part, recording_id)
                if len(part) == NAMES_PER_STEP:
                    yield
        return sorted(found, key=lambda each: (each.base, each.is_leftover))

    def index_path(self, recording_id: int) -> Path:
        return index_file(self.directory, recording_id)

    def delete_file(self, path: Path) -> None:
        """Delete a file, unless it is missing."""
        with suppress(FileNotFoundError):
            self._disk.delete(path)

    def flush_names(self) -> None:
        """Wait until the names of the files are on the device, before the catalog refers to them or a client relies on them."""
        self._disk.sync_directory(self.directory)

    def truncate(self, descriptor: RecordingDescriptor, position: int) -> None:
        """Make a stopped recording end at an earlier position. Always durable, because its segments are deleted then."""
        if self.index_path(descriptor.recording_id).exists():
            with closing(IndexRepair(self.directory, descriptor.recording_id, self._disk)) as index:
                count, _ = index.sound(0, position)
                index.cut(position, count)
        self._catalog.truncate(descriptor, position)

    def clear_from(self, descriptor: RecordingDescriptor, base: int, position: int) -> None:
        """Fill a segment with zeros from ``position`` on."""
        fd = self._disk.open(self.directory / segment_name(descriptor.recording_id, base))
        try:
            self._disk.resize(fd, position - base)
            self._disk.resize(fd, descriptor.segment_file_length)
        finally:
            self._disk.close(fd)

    def purge(self, descriptor: RecordingDescriptor) -> None:
        """Mark a recording as deleted, durably. It can no longer be found."""
        self._catalog.delete(descriptor)
        del self._offsets[descriptor.recording_id]
        self._ids.remove(descriptor.recording_id)

    def set_start(self, descriptor: RecordingDescriptor, position: int) -> None:
        """Make a recording start elsewhere, durably. Before that, flush the names of segments that it then has."""
        self.flush_names()
        self._catalog.set_start(descriptor, position)

    def update_channel(self, recording_id: int, *, stripped: str, original: str) -> Generator[None, None, None]:
        """Replace the channels of a recording, step by step. Raises ArchiveError, RecordingError and OSError."""
        return self._replace_entry(
            recording_id, lambda now: replace(now, stripped_channel=stripped, original_channel=original)
        )

    def _replace_entry(
        self, recording_id: int, change: Callable[[RecordingDescriptor], RecordingDescriptor]
    ) -> Generator[None, None, None]:
        return self._catalog.replace_entry(lambda: self.known(recording_id).entry_offset, change, self._move_entries)

    def _move_entries(self, at: int, moved: int) -> None:
        """Note that the catalog's entries after ``at`` have moved."""
        if not moved:
            return
        self._offsets = {key: place + moved * (place > at) for key, place in self._offsets.items()}
        for writer in self._directory.writers.values():
            place = self._offsets[writer.descriptor.recording_id]
            writer.descriptor = replace(writer.descriptor, entry_offset=place)

    def migrate(
        self, source: RecordingDescriptor, target: RecordingDescriptor, bases: Iterable[int], *, is_prepended: bool
    ) -> None:
        """Let another recording have the segments at ``bases``, before or after its own, and the source's start or stop position.

        The source's names of the segments stay, for the caller to delete. So in every order in which the steps can reach the
        device, each recording has all the files to which its catalog entry refers. After a crash, the next start deletes the
        names that are no longer needed, or not yet.
        """
        for base in bases:
            self._share(source.recording_id, target.recording_id, base)
        # The indexes no longer match the positions. Readers scan the frames of both recordings instead. An active recording
        # keeps its index, which readers follow; it describes what is recorded (``index.possible_starts``).
        for each in (source, target):
            if each.recording_id not in self._directory.writers:
                self.delete_file(self.index_path(each.recording_id))
        self.flush_names()
        self._catalog.join(source, target, is_prepended=is_prepended)

    def _share(self, source_id: int, target_id: int, base: int) -> None:
        """Give a segment an additional name, as a segment of another recording, unless an earlier attempt did."""
        path, target = (self.directory / segment_name(each, base) for each in (source_id, target_id))
        with suppress(FileNotFoundError):
            self._disk.delete(target)
        self._disk.link(path, target)


def _empty_replica(source: RecordingDescriptor) -> RecordingDescriptor:
    """Return the catalog entry of an empty copy. The copy is stopped so that it can be extended."""
    return replace(
        source,
        stop_position=source.start_position,
        stop_timestamp=source.start_timestamp,
        control_session_id=OF_ARCHIVE.driver_start_ms,
        correlation_id=OF_ARCHIVE.image_id,
    )


def _life(image: Any) -> StreamLife:
    return StreamLife(image.driver_start_ms, image.correlation_id)

"""An archive's directory: its lock, mark file, catalog, and recordings.

The format, the lock and the recovery are those of a recorder's directory. The difference is that a recorder extends recordings by
itself, while an archive extends one only on request.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from contextlib import closing, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mainstem.archive.server.refusals import refusal
from mainstem.errors import ArchiveErrorCode
from mainstem.recording.archive import local_archive
from mainstem.recording.index import IndexRepair, index_file
from mainstem.recording.life import OF_ARCHIVE, StreamLife
from mainstem.recording.reader import Progress, RecordingReader
from mainstem.recording.recorder import Recorder, stream_of
from mainstem.recording.segments import OLD_SUFFIX, segment_bases, segment_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from mainstem.recording.catalog import RecordingDescriptor
    from mainstem.recording.mark_file import MarkOwner
    from mainstem.recording.writer import RecordingWriter


class ArchiveFiles(Recorder):
    """The files of an archive. The mark file contains ``owner``; the other arguments are those of ``Recorder``."""

    def __init__(self, directory: Path | str, owner: MarkOwner, **options: Any) -> None:
        self._owner = owner
        super().__init__(directory, **options)
        self._offsets = {each.recording_id: each.entry_offset for each in self._catalog.recordings()}
        self._ids = sorted(self._offsets)

    # -- the catalog -------------------------------------------------------------------------------------------------

    def find(self, recording_id: int) -> RecordingDescriptor | None:
        """Return the current catalog entry of a recording; None if there is no such recording."""
        offset = self._offsets.get(recording_id)
        return None if offset is None else self._catalog.entry(offset)

    def known(self, recording_id: int) -> RecordingDescriptor:
        """Return the current catalog entry of a recording. Raises ArchiveError if there is no such recording."""
        descriptor = self.find(recording_id)
        if descriptor is None:
            raise refusal(f"unknown recording id: {recording_id}", ArchiveErrorCode.UNKNOWN_RECORDING)
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
        for recording_id in reversed(self._ids):
            descriptor = self.find(recording_id)
            if descriptor is not None:
                yield descriptor

    @property
    def next_id(self) -> int:
        """The lowest id that the next recording can have."""
        return self._catalog.find_place()[0]

    @property
    def free_space(self) -> int:
        status = os.statvfs(self.directory)
        return status.f_bavail * status.f_frsize

    def touch(self) -> None:
        self._mark.touch()

    # -- recordings --------------------------------------------------------------------------------------------------

    def begin(self, image: Any, *, stripped: str, original: str) -> RecordingWriter:
        """Start a new recording of an image, at its join position. Raises RecordingError and OSError."""
        stream = replace(stream_of(image, original), start_position=image.join_position, stripped_channel=stripped)
        writer = self._added(stream, _life(image))
        self._list(writer.descriptor)
        return writer

    def add_replica(self, source: RecordingDescriptor) -> RecordingDescriptor:
        """Add an empty recording for a copy of another archive's recording. Raises RecordingError and OSError."""
        replica = self._catalog.add(_empty_replica(source), min_id=self._min_id)
        self._known.add(replica)
        self._list(replica)
        return replica

    def _list(self, added: RecordingDescriptor) -> None:
        self._offsets[added.recording_id] = added.entry_offset
        self._ids.append(added.recording_id)

    def become_replica(self, empty: RecordingDescriptor, source: RecordingDescriptor) -> RecordingDescriptor:
        """Prepare an empty recording for a copy of another archive's recording. Raises RecordingError and OSError."""
        recording_id = empty.recording_id
        for base in segment_bases(self.directory, recording_id):
            self.delete_file(self.directory / segment_name(recording_id, base))
        self._segments.pop(recording_id, None)
        with suppress(FileNotFoundError):
            self._disk.delete(self.index_path(recording_id))
        self._replace_entry(replace(_empty_replica(source), recording_id=recording_id, entry_offset=empty.entry_offset))
        return self._catalog.entry(self._offsets[recording_id])

    def extend(self, descriptor: RecordingDescriptor, image: Any) -> RecordingWriter:
        """Continue a recording at its stop position from an image that begins there. Raises RecordingError and OSError."""
        count = Progress(descriptor.stop_position, 0)
        if descriptor.stop_position > descriptor.start_position:
            with RecordingReader(local_archive(self.directory), descriptor) as reader:
                count = reader.count_before(descriptor.stop_position)
        extended = self._catalog.set_session(descriptor, image.session_id)
        return self._write(extended, extended.stop_position, count, _life(image), descriptor.session_id)

    # -- deletions and other changes ---------------------------------------------------------------------------------

    def index_path(self, recording_id: int) -> Path:
        return index_file(self.directory, recording_id)

    def delete_file(self, path: Path) -> None:
        """Delete a file, or the file that an older archive renamed it to. Ignore missing files."""
        for each in (path, path.with_name(f"{path.name}{OLD_SUFFIX}")):
            with suppress(FileNotFoundError):
                self._disk.delete(each)
                return

    def truncate(self, descriptor: RecordingDescriptor, position: int) -> None:
        """Make a stopped recording end at an earlier position."""
        if self.index_path(descriptor.recording_id).exists():
            with closing(IndexRepair(self.directory, descriptor.recording_id, self._disk)) as index:
                count, _ = index.sound(0, position)
                index.cut(position, count)
        self._catalog.stop(descriptor, position, descriptor.stop_timestamp)

    def clear_from(self, descriptor: RecordingDescriptor, base: int, position: int) -> None:
        """Fill a segment with zeros from ``position`` on."""
        fd = self._disk.open(self.directory / segment_name(descriptor.recording_id, base))
        try:
            self._disk.resize(fd, position - base)
            self._disk.resize(fd, descriptor.segment_file_length)
        finally:
            self._disk.close(fd)

    def purge(self, descriptor: RecordingDescriptor) -> None:
        """Mark a recording as deleted. It can no longer be found."""
        self._catalog.delete(descriptor)
        del self._offsets[descriptor.recording_id]
        self._ids.remove(descriptor.recording_id)

    def set_start(self, descriptor: RecordingDescriptor, position: int) -> None:
        self._catalog.set_start(descriptor, position)

    def update_channel(self, descriptor: RecordingDescriptor, *, stripped: str, original: str) -> None:
        self._replace_entry(replace(descriptor, stripped_channel=stripped, original_channel=original))

    def _replace_entry(self, descriptor: RecordingDescriptor) -> None:
        at = descriptor.entry_offset
        moved = self._catalog.replace_entry(descriptor)
        self._offsets = {key: place + moved * (place > at) for key, place in self._offsets.items()}
        for writer in self.writers:
            place = self._offsets[writer.descriptor.recording_id]
            writer.descriptor = replace(writer.descriptor, entry_offset=place)

    def migrate(
        self, source: RecordingDescriptor, target: RecordingDescriptor, bases: Iterable[int], *, is_prepended: bool
    ) -> None:
        """Move segments to another recording, which then takes over the start or stop position of the source."""
        if not is_prepended and (self.directory / segment_name(source.recording_id, source.stop_position)).exists():
            bases = (*bases, source.stop_position)  # the empty segment after the end
        for base in bases:
            self._disk.rename(
                self.directory / segment_name(source.recording_id, base),
                self.directory / segment_name(target.recording_id, base),
            )
        # The indexes no longer match the positions. Readers scan the frames of both recordings instead.
        for each in (source, target):
            with suppress(FileNotFoundError):
                self._disk.delete(self.index_path(each.recording_id))
        if is_prepended:
            self._catalog.set_start(target, source.start_position)
        else:
            self._catalog.stop(target, source.stop_position, source.stop_timestamp)
        self._catalog.stop(source, source.start_position, source.stop_timestamp)


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

"""The directory of an archive: its lock, its mark, its catalog, and the recordings in it.

It is a directory of Mainstem's recorder, opened by the same lock and recovered in the same way. What differs is who decides: a
recorder extends a recording by itself, an archive only when it is told to.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from contextlib import closing, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mainstem.recording.archive import local_archive
from mainstem.recording.catalog import NULL, RecordingDescriptor
from mainstem.recording.index import IndexRepair, index_file
from mainstem.recording.life import OF_ARCHIVE, StreamLife
from mainstem.recording.reader import Progress, RecordingReader
from mainstem.recording.recorder import Recorder
from mainstem.recording.segments import segment_bases, segment_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from mainstem.recording.mark_file import MarkOwner
    from mainstem.recording.writer import RecordingWriter


class ArchiveFiles(Recorder):
    """The files of an archive. ``owner`` is what the mark says; the other arguments are those of ``Recorder``."""

    def __init__(self, directory: Path | str, owner: MarkOwner, **options: Any) -> None:
        self._owner = owner
        super().__init__(directory, **options)
        self._offsets = {each.recording_id: each.entry_offset for each in self._catalog.recordings()}
        self._ids = sorted(self._offsets)

    # -- the catalog -------------------------------------------------------------------------------------------------

    def find(self, recording_id: int) -> RecordingDescriptor | None:
        """Return a recording as the catalog describes it now; None if it has none of that id."""
        offset = self._offsets.get(recording_id)
        return None if offset is None else self._catalog.entry(offset)

    def from_id(self, recording_id: int) -> Iterator[RecordingDescriptor]:
        """Yield the recordings from an id on, those that are added meanwhile included."""
        at = bisect_left(self._ids, recording_id)
        while at < len(self._ids):
            recording_id = self._ids[at]
            descriptor = self.find(recording_id)
            if descriptor is not None:
                yield descriptor
            at = bisect_left(self._ids, recording_id + 1)

    def newest_first(self) -> Iterator[RecordingDescriptor]:
        """Yield the recordings from the highest id down."""
        for recording_id in reversed(self._ids):
            descriptor = self.find(recording_id)
            if descriptor is not None:
                yield descriptor

    @property
    def next_id(self) -> int:
        """The id that the next recording will have at least."""
        return self._catalog.find_place()[0]

    @property
    def free_space(self) -> int:
        """The bytes that the file system has left for this user."""
        status = os.statvfs(self.directory)
        return status.f_bavail * status.f_frsize

    def touch(self) -> None:
        """Keep the mark fresh, once a second."""
        self._mark.touch()

    # -- recordings --------------------------------------------------------------------------------------------------

    def begin(self, image: Any, *, stripped: str, original: str) -> RecordingWriter:
        """Start a new recording of an image, at its join position. Raises RecordingError and OSError."""
        stream = RecordingDescriptor(
            recording_id=NULL,
            start_timestamp=NULL,
            start_position=image.join_position,
            initial_term_id=image.initial_term_id,
            term_buffer_length=image.term_length,
            mtu_length=image.mtu,
            session_id=image.session_id,
            stream_id=image.stream_id,
            stripped_channel=stripped,
            original_channel=original,
            source_identity=image.source_identity,
        )
        writer = self._added(stream, _life(image))
        descriptor = writer.descriptor
        self._offsets[descriptor.recording_id] = descriptor.entry_offset
        self._ids.append(descriptor.recording_id)
        return writer

    def add_replica(self, source: RecordingDescriptor) -> RecordingDescriptor:
        """Add an empty recording for the copy of another archive's. Raises RecordingError and OSError."""
        replica = self._catalog.add(_empty_replica(source), min_id=self._min_id)
        self._known.add(replica)
        self._offsets[replica.recording_id] = replica.entry_offset
        self._ids.append(replica.recording_id)
        return replica

    def become_replica(self, empty: RecordingDescriptor, source: RecordingDescriptor) -> RecordingDescriptor:
        """Make an empty recording one for the copy of another archive's. Raises RecordingError and OSError."""
        recording_id = empty.recording_id
        for base in segment_bases(self.directory, recording_id):
            self.delete_file(self.directory / segment_name(recording_id, base))
        self._segments.pop(recording_id, None)
        with suppress(FileNotFoundError):
            self._disk.delete(self.index_path(recording_id))
        self._replace_entry(replace(_empty_replica(source), recording_id=recording_id, entry_offset=empty.entry_offset))
        return self._catalog.entry(self._offsets[recording_id])

    def extend(self, descriptor: RecordingDescriptor, image: Any) -> RecordingWriter:
        """Continue a recording at its stop position, by an image that begins there. Raises RecordingError and OSError."""
        count = Progress(descriptor.stop_position, 0)
        if descriptor.stop_position > descriptor.start_position:
            with RecordingReader(local_archive(self.directory), descriptor) as reader:
                count = reader.count_before(descriptor.stop_position)
        extended = self._catalog.set_session(descriptor, image.session_id)
        return self._write(extended, extended.stop_position, count, _life(image), descriptor.session_id)

    # -- what deletes ------------------------------------------------------------------------------------------------

    def index_path(self, recording_id: int) -> Path:
        """Where the positions of a recording are."""
        return index_file(self.directory, recording_id)

    def delete_file(self, path: Path) -> None:
        """Delete a file, or what an older archive has renamed it to; a missing one is not an error."""
        for each in (path, path.with_name(f"{path.name}.del")):
            with suppress(FileNotFoundError):
                self._disk.delete(each)
                return

    def truncate(self, descriptor: RecordingDescriptor, position: int) -> None:
        """Let a stopped recording end at an earlier position."""
        if self.index_path(descriptor.recording_id).exists():
            with closing(IndexRepair(self.directory, descriptor.recording_id, self._disk)) as index:
                count, _ = index.sound(0, position)
                index.cut(position, count)
        self._catalog.stop(descriptor, position, descriptor.stop_timestamp)

    def clear_from(self, descriptor: RecordingDescriptor, base: int, position: int) -> None:
        """Fill a segment with zeros from a position on."""
        fd = self._disk.open(self.directory / segment_name(descriptor.recording_id, base))
        try:
            self._disk.resize(fd, position - base)
            self._disk.resize(fd, descriptor.segment_file_length)
        finally:
            self._disk.close(fd)

    def purge(self, descriptor: RecordingDescriptor) -> None:
        """Mark a recording as deleted: it is not found any more."""
        self._catalog.delete(descriptor)
        del self._offsets[descriptor.recording_id]
        self._ids.remove(descriptor.recording_id)

    def set_start(self, descriptor: RecordingDescriptor, position: int) -> None:
        """Let a recording start at another position."""
        self._catalog.set_start(descriptor, position)

    def update_channel(self, descriptor: RecordingDescriptor, *, stripped: str, original: str) -> None:
        """Give a recording another channel."""
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
        """Move segments to another recording, which then starts or stops where the source did."""
        if not is_prepended and (self.directory / segment_name(source.recording_id, source.stop_position)).exists():
            bases = (*bases, source.stop_position)  # the empty one behind the end
        for base in bases:
            self._disk.rename(
                self.directory / segment_name(source.recording_id, base),
                self.directory / segment_name(target.recording_id, base),
            )
        # Their entries are of other positions: both are read by their frames.
        for each in (source, target):
            with suppress(FileNotFoundError):
                self._disk.delete(self.index_path(each.recording_id))
        if is_prepended:
            self._catalog.set_start(target, source.start_position)
        else:
            self._catalog.stop(target, source.stop_position, source.stop_timestamp)
        self._catalog.stop(source, source.start_position, source.stop_timestamp)


def _empty_replica(source: RecordingDescriptor) -> RecordingDescriptor:
    """The entry of a copy that has nothing yet. It has ended, so that it can be extended."""
    return replace(
        source,
        stop_position=source.start_position,
        stop_timestamp=source.start_timestamp,
        control_session_id=OF_ARCHIVE.driver_start_ms,
        correlation_id=OF_ARCHIVE.image_id,
    )


def _life(image: Any) -> StreamLife:
    return StreamLife(image.driver_start_ms, image.correlation_id)

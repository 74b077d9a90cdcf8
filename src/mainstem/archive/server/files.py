"""The directory of an archive: its lock, its mark, its catalog, and the recordings in it.

It is a directory of Mainstem's recorder, opened by the same lock and recovered in the same way. What differs is who decides: a
recorder extends a recording by itself, an archive only when it is told to.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mainstem.recording.archive import local_archive
from mainstem.recording.catalog import NULL, RecordingDescriptor
from mainstem.recording.life import StreamLife
from mainstem.recording.reader import RecordingReader
from mainstem.recording.recorder import Recorder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mainstem.recording.writer import RecordingWriter


class ArchiveFiles(Recorder):
    """The files of an archive. Arguments are those of ``Recorder``."""

    def __init__(self, directory: Path | str, **options: Any) -> None:
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

    def extend(self, descriptor: RecordingDescriptor, image: Any) -> RecordingWriter:
        """Continue a recording at its stop position, by an image that begins there. Raises RecordingError and OSError."""
        with RecordingReader(local_archive(self.directory), descriptor) as reader:
            count = reader.count_before(descriptor.stop_position)
        descriptor = self._catalog.set_session(descriptor, image.session_id)
        return self._write(descriptor, descriptor.stop_position, count, _life(image))


def _life(image: Any) -> StreamLife:
    return StreamLife(image.driver_start_ms, image.correlation_id)


def with_stop(descriptor: RecordingDescriptor, position: int) -> RecordingDescriptor:
    """Return a descriptor as of a recording that ends at a position."""
    return replace(descriptor, stop_position=position)

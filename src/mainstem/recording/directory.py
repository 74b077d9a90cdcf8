"""A directory of recordings, opened to change it: its lock, its mark file, its catalog, and the recordings that are being written.

The lock keeps other recorders out, and the mark file also Aeron's archives and its tools (``mark_file``).
"""

from __future__ import annotations

import fcntl
import os
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from mainstem._internal.clock import SYSTEM_CLOCK, Clock
from mainstem._internal.file_modes import RECORDINGS_MODE
from mainstem.recording.catalog import MAX_ENTRIES, NULL, Catalog, RecordingDescriptor
from mainstem.recording.crash_recovery import Recovery, recover
from mainstem.recording.mark_file import RECORDER, ArchiveMark, DirectoryInUse, MarkOwner
from mainstem.recording.segments import all_segment_bases
from mainstem.recording.writer import RecordingWriter
from mainstem.store.disk import DISK, Disk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from mainstem.recording.life import StreamLife
    from mainstem.recording.protocols import RecordableImage
    from mainstem.recording.reader import Progress

LOCK_FILE = "mainstem-recorder.lock"


class RecordingDirectory:
    """A directory of recordings that this process alone changes, until ``close``.

    ``recover`` must be called before anything is recorded. ``owner`` appears in the mark file.

    Attributes:
        writers: The recordings that are being written, by id.

    Raises:
        RecordingError: Another recorder, or an Aeron Archive, is using the directory.
        ConfigurationError: The mode or group of the directory cannot be set.
    """

    def __init__(
        self,
        path: Path,
        *,
        owner: MarkOwner = RECORDER,
        durable: bool = False,
        clock: Clock = SYSTEM_CLOCK,
        disk: Disk = DISK,
        mode: int | None = None,
        group: str = "",
    ) -> None:
        disk.make_directory(path, default=RECORDINGS_MODE, mode=mode, group=group)
        self.path, self.clock, self.disk = path, clock, disk
        self._durable = durable
        self.writers: dict[int, RecordingWriter] = {}
        self._written: dict[int, int] = {}
        self._lock = _lock(path, disk)
        with ExitStack() as stack:
            stack.callback(disk.close, self._lock)
            if durable:
                # This includes files of an earlier recorder, which may not have been durable.
                disk.sync_path(path)
            self.mark = ArchiveMark(path, clock, disk, owner)
            stack.callback(self.mark.end)
            self.catalog = Catalog(path, durable=durable, disk=disk)
            stack.callback(self.catalog.close)
            self._resources = stack.pop_all()

    # -- recovery ----------------------------------------------------------------------------------------------------

    def recover(
        self, on_recovery: Callable[[Recovery], object], *, moves_start: bool = False
    ) -> list[RecordingDescriptor]:
        """Recover every recording, and return their descriptors. Close the directory if that fails.

        ``moves_start`` is that of ``crash_recovery.recover``.
        """

        def report(progress: Recovery) -> None:
            self.mark.touch()
            on_recovery(progress)

        try:
            descriptors = recover(
                self.catalog,
                self.disk,
                self.clock,
                lost_power=self._has_lost_power(),
                moves_start=moves_start,
                report=report,
            )
            self._note_boot()
            # Segments without an entry belong to a recording whose entry was lost. They stay, and their ids are not used again. A
            # catalog cannot have lost more entries than fit into it: any other file is not a recorder's, and its id is only
            # skipped.
            self._segments = all_segment_bases(self.path)
            next_id = self.catalog.find_place()[0]
            self._min_id = max((each for each in self._segments if each < next_id + MAX_ENTRIES), default=-1) + 1
        except BaseException:
            self._resources.close()
            raise
        return descriptors

    def _has_lost_power(self) -> bool:
        """Return whether the host was restarted since a recorder wrote here. Only then can writes be lost."""
        boot = self.disk.boot()
        return not boot or os.pread(self._lock, len(boot) + 1, 0) != boot

    def _note_boot(self) -> None:
        self.disk.resize(self._lock, 0)
        self.disk.write(self._lock, self.disk.boot(), 0)

    # -- recordings --------------------------------------------------------------------------------------------------

    def add(self, entry: RecordingDescriptor) -> RecordingDescriptor:
        """Add an empty recording to the catalog, and return its descriptor. Raises RecordingError and OSError."""
        found = max(self.catalog.find_place()[0], self._min_id)
        while found in self._segments:
            found += 1
        return self.catalog.add(entry, min_id=found)

    def add_stream(self, stream: RecordingDescriptor, life: StreamLife, segment_length: int) -> RecordingDescriptor:
        """Add an empty recording of a stream that begins at ``start_position``."""
        return self.add(
            replace(
                stream,
                start_timestamp=self.clock.epoch_ms(),
                stop_position=stream.start_position,
                segment_file_length=max(segment_length, stream.term_buffer_length),
                control_session_id=life.driver_start_ms,
                correlation_id=life.image_id,
            )
        )

    def open_writer(
        self,
        descriptor: RecordingDescriptor,
        count: Progress,
        life: StreamLife,
        session_id: int | None = None,
        checksum: int | None = None,
    ) -> RecordingWriter:
        """Continue a stopped or empty recording at its stop position. Return the writer; end it with ``stop``."""
        position = descriptor.stop_position
        writer = RecordingWriter(
            self.path,
            descriptor,
            position,
            messages=count.messages,
            whole=count.position == position,
            checksum=checksum,
            session_id=session_id,
            life=life,
            later=self._segments.get(descriptor.recording_id, ()),
            durable=self._durable,
            disk=self.disk,
        )
        self.forget_segments(descriptor.recording_id)
        # Make it active in the catalog only after its positions are published, because readers of an active recording trust them.
        try:
            writer.descriptor = self.catalog.extend(descriptor)
        except Exception:
            writer.close()
            raise
        self.writers[descriptor.recording_id] = writer
        return writer

    def forget_segments(self, recording_id: int) -> None:
        """Forget the segments that a recording had when the directory was opened: they are replaced, or have been deleted."""
        self._segments.pop(recording_id, None)

    def stop(self, writer: RecordingWriter) -> RecordingDescriptor:
        """End a recording: close its files, write its stop position to the catalog, and return the final descriptor."""
        failure: Exception | None = None
        try:
            writer.close()
        except Exception as error:
            failure = error  # after the stop position: nothing writes to the recording any longer
        if self.writers.pop(writer.descriptor.recording_id, None) is not None:
            _note_written(self._written, writer)
        descriptor = self.catalog.stop(writer.descriptor, writer.position, self.clock.epoch_ms())
        if failure is not None:
            raise failure
        return descriptor

    @property
    def written(self) -> dict[int, int]:
        """How many messages have been written to each recording since the directory was opened, by recording id."""
        written = dict(self._written)
        for writer in self.writers.values():
            _note_written(written, writer)
        return written

    def close(self) -> None:
        """End every recording and unlock the directory. Idempotent."""
        call_all([*(partial(self.stop, writer) for writer in self.writers.values()), self._resources.close])


def _lock(directory: Path, disk: Disk) -> int:
    """Keep other recorders out of a directory until the descriptor is closed. Raises RecordingError if another one is running."""
    lock = disk.open(directory / LOCK_FILE)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        disk.close(lock)
        raise DirectoryInUse(f"another recorder is already running in {directory}") from error
    return lock


def _note_written(written: dict[int, int], writer: RecordingWriter) -> None:
    key = writer.descriptor.recording_id
    written[key] = written.get(key, 0) + writer.messages - writer.messages_before


def call_all(calls: Iterable[Callable[[], object]]) -> None:
    """Make every call, even if one fails. Raise the first error."""
    failure: Exception | None = None
    for call in calls:
        try:
            call()
        except Exception as error:
            failure = failure or error
    if failure is not None:
        raise failure


def stream_of(image: RecordableImage, channel: str) -> RecordingDescriptor:
    """Describe the recording of an image that begins at its position."""
    return RecordingDescriptor(
        recording_id=NULL,
        start_timestamp=NULL,
        start_position=image.position,
        initial_term_id=image.initial_term_id,
        term_buffer_length=image.term_length,
        mtu_length=image.mtu,
        session_id=image.session_id,
        stream_id=image.stream_id,
        stripped_channel=channel,
        original_channel=channel,
        source_identity=image.source_identity,
    )

"""Requests that change the files of a recording: truncate, purge, and detach, delete, attach or migrate segments.

A request is validated completely before anything changes. The catalog changes at once, and the response contains the number of
files to delete. Each duty cycle deletes one file, after the replays that read the files have ended, and a signal reports the end.
"""

from __future__ import annotations

import logging
import os
import struct
from collections import deque
from typing import TYPE_CHECKING

from mainstem._core.layout import DATA_HEADER_LENGTH, FRAME_ALIGNMENT
from mainstem.archive.messages import NULL, RecordingSignal
from mainstem.archive.server.refusals import refusal
from mainstem.archive.server.replays import is_frame
from mainstem.errors import ArchiveErrorCode
from mainstem.recording.segments import OLD_SUFFIX, segment_base, segment_bases, segment_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from mainstem.archive.messages import Message
    from mainstem.archive.server.control_session import ControlSession
    from mainstem.archive.server.files import ArchiveFiles
    from mainstem.archive.server.recordings import ActiveRecordings
    from mainstem.archive.server.replays import ReplaySession
    from mainstem.recording.catalog import RecordingDescriptor

log = logging.getLogger("mainstem.archive")

_LENGTH = struct.Struct("<i")


class DeleteOperation:
    """Deletes files of one recording one by one. ``reaches`` is the position at which the last of them starts."""

    def __init__(
        self,
        control: ControlSession,
        correlation_id: int,
        recording_id: int,
        paths: Iterable[Path],
        *,
        reaches: int,
        waits_for: Iterable[ReplaySession] = (),
    ) -> None:
        self.recording_id = recording_id
        self.reaches = reaches
        self.is_done = False
        self._control, self._correlation_id = control, correlation_id
        self._paths = deque(paths)
        self._waits_for = list(waits_for)

    def do_work(self, files: ArchiveFiles) -> int:
        """Delete one file, or report the end. Return the work count."""
        if not all(replay.is_done for replay in self._waits_for):
            return 0
        if self._paths:
            path = self._paths.popleft()
            try:
                files.delete_file(path)
            except OSError as error:
                log.error("%s cannot be deleted: %s", path, error.strerror)
                self._control.fail(self._correlation_id, f"{path.name} cannot be deleted: {error.strerror}")
        if not self._paths:
            self.is_done = True
            self._control.signal(RecordingSignal.DELETE, self._correlation_id, self.recording_id, NULL, NULL)
        return 1


class Deletions:
    """Handles the requests that change the files of recordings, and deletes the files."""

    def __init__(
        self,
        files: ArchiveFiles,
        recordings: ActiveRecordings,
        replays: Callable[[], list[ReplaySession]],
    ) -> None:
        self._files, self._recordings, self._replays = files, recordings, replays
        self._operations: dict[int, DeleteOperation] = {}

    def do_work(self) -> int:
        work = 0
        for operation in list(self._operations.values()):
            work += operation.do_work(self._files)
            if operation.is_done:
                del self._operations[operation.recording_id]
        return work

    def reaches(self, recording_id: int, position: int) -> bool:
        """Whether a segment of a recording that starts at or after ``position`` is being deleted."""
        operation = self._operations.get(recording_id)
        return operation is not None and operation.reaches >= position

    # -- shared by the requests --------------------------------------------------------------------------------------

    def _check_idle(self, recording_id: int) -> None:
        if recording_id in self._operations:
            raise refusal(f"another delete operation in progress for recording id: {recording_id}")

    def _path(self, recording_id: int, base: int) -> Path:
        return self._files.directory / segment_name(recording_id, base)

    def _delete(
        self,
        session: ControlSession,
        request: Message,
        recording_id: int,
        bases: list[int],
        *,
        more: Iterable[Path] = (),
        waits_for: Iterable[ReplaySession] = (),
    ) -> int:
        paths = [self._path(recording_id, base) for base in bases]
        self._operations[recording_id] = DeleteOperation(
            session,
            request.correlation_id,
            recording_id,
            [*paths, *more],
            reaches=max(bases, default=NULL),
            waits_for=waits_for,
        )
        return len(paths)

    def _replays_of(self, recording_id: int) -> list[ReplaySession]:
        return [replay for replay in self._replays() if replay.descriptor.recording_id == recording_id]

    def _end_of(self, descriptor: RecordingDescriptor) -> int:
        recording = self._recordings.get(descriptor.recording_id)
        return descriptor.stop_position if recording is None else recording.position

    # -- truncate and purge ------------------------------------------------------------------------------------------

    def truncate(self, session: ControlSession, request: Message) -> int:
        """Make a recording end at an earlier position."""
        d, position = self._files.known(request.recording_id), request.position
        recording_id = d.recording_id
        self._recordings.check_inactive("truncate", recording_id)
        if position % FRAME_ALIGNMENT or not d.start_position <= position <= d.stop_position:
            raise refusal(
                f"invalid position {position} of recording {recording_id}: start={d.start_position}, "
                f"stop={d.stop_position}, alignment={FRAME_ALIGNMENT}",
                ArchiveErrorCode.INVALID_POSITION,
            )
        self._check_idle(recording_id)
        base = segment_base(d, position)
        is_inside = position not in (base, d.start_position)
        # If the recording ends at a segment boundary, keep the next segment and clear it.
        keeps_base = position != d.start_position
        if (
            is_inside
            and position != d.stop_position
            and not _is_frame(self._path(recording_id, base), d, base, position)
        ):
            raise refusal(f"position {position} of recording {recording_id} does not point to a valid frame")
        replays = self._replays_of(recording_id)
        for replay in replays:
            replay.close()
        self._files.truncate(d, position)
        bases = [each for each in segment_bases(self._files.directory, recording_id) if each >= base]
        if keeps_base and base in bases:
            self._files.clear_from(d, base, position)
            bases.remove(base)
        if not keeps_base:
            bases = segment_bases(self._files.directory, recording_id)
        count = self._delete(session, request, recording_id, bases, waits_for=replays)
        return count + (keeps_base and not is_inside)

    def purge(self, session: ControlSession, request: Message) -> int:
        """Delete a recording with all of its files. Its id is not reused."""
        d = self._files.known(request.recording_id)
        recording_id = d.recording_id
        if self._replays_of(recording_id):
            raise refusal(
                f"it is being replayed: cannot purge active recording {recording_id}", ArchiveErrorCode.ACTIVE_RECORDING
            )
        self._recordings.check_inactive("purge", recording_id)
        self._check_idle(recording_id)
        self._files.purge(d)
        prefix = f"{recording_id}-"
        names = os.listdir(self._files.directory)
        old = [name for name in names if name.startswith(prefix) and name.endswith(f".rec{OLD_SUFFIX}")]
        more = [self._files.directory / name for name in old] + [self._files.index_path(recording_id)]
        return self._delete(
            session, request, recording_id, segment_bases(self._files.directory, recording_id), more=more
        )

    # -- segments ----------------------------------------------------------------------------------------------------

    def detach(self, _: ControlSession, request: Message) -> int:
        """Make a recording start at a later segment. Keep the files of the earlier segments."""
        self._detach(self._files.known(request.recording_id), request.new_start_position)
        return 0

    def _detach(self, d: RecordingDescriptor, start: int) -> None:
        recording_id, length = d.recording_id, d.segment_file_length
        first, last = segment_base(d, d.start_position) + length, segment_base(d, self._end_of(d))
        if (start - first) % length or not first <= start <= last:
            raise refusal(
                f"invalid detach of recording {recording_id}: newStartPosition={start} is not the base of a segment "
                f"from {first} to {last} (segmentFileLength={length})"
            )
        for replay in self._replays_of(recording_id):
            if replay.segment_base < start:
                raise refusal(
                    f"invalid detach of recording {recording_id}: newStartPosition={start} is beyond the position of a "
                    f"replay to streamId={replay.stream_id} channel={replay.channel}"
                )
        self._files.set_start(d, start)

    def delete_detached(self, session: ControlSession, request: Message) -> int:
        """Delete the segments before a recording's start."""
        d = self._files.known(request.recording_id)
        self._check_idle(d.recording_id)
        end = segment_base(d, d.start_position)
        bases = [base for base in segment_bases(self._files.directory, d.recording_id) if base < end]
        return self._delete(session, request, d.recording_id, bases)

    def purge_segments(self, session: ControlSession, request: Message) -> int:
        """Detach segments and delete them."""
        d, start = self._files.known(request.recording_id), request.new_start_position
        self._check_idle(d.recording_id)
        first = segment_base(d, d.start_position)
        self._detach(d, start)
        bases = [base for base in segment_bases(self._files.directory, d.recording_id) if first <= base < start]
        return self._delete(session, request, d.recording_id, bases)

    def attach(self, _: ControlSession, request: Message) -> int:
        """Attach the contiguous segments before a recording's start. Return their number."""
        d = self._files.known(request.recording_id)
        self._check_idle(d.recording_id)
        start, count = d.start_position, 0
        base = segment_base(d, start) - d.segment_file_length
        while base >= 0 and (path := self._path(d.recording_id, base)).exists():
            start = _first_frame(path, d, base)
            count += 1
            if start != base:
                break
            base -= d.segment_file_length
        if count:
            self._files.set_start(d, start)
        return count

    def migrate(self, session: ControlSession, request: Message) -> int:
        """Move all segments of one recording to the beginning or the end of another. Return their number."""
        source, target = self._files.known(request.src_recording_id), self._files.known(request.dst_recording_id)
        for each in (source, target):
            self._recordings.check_inactive("migrate segments of", each.recording_id)
            self._check_idle(each.recording_id)
            if self._replays_of(each.recording_id):
                raise refusal(f"cannot migrate segments of recording {each.recording_id}: it is being replayed")
        _check_alike(source, target)
        is_prepended = source.stop_position == target.start_position
        joint = source.stop_position if is_prepended else source.start_position
        if not is_prepended and source.start_position != target.stop_position:
            raise refusal(
                f"cannot migrate segments: recording {source.recording_id} from {source.start_position} to "
                f"{source.stop_position} neither ends nor begins where recording {target.recording_id} does "
                f"({target.start_position} to {target.stop_position})"
            )
        if segment_base(source, joint) != joint or segment_base(target, joint) != joint:
            raise refusal(f"cannot migrate segments: position {joint} is not the base of a segment of both recordings")
        bases = range(segment_base(source, source.start_position), source.stop_position, source.segment_file_length)
        for base in bases:
            if not self._path(source.recording_id, base).exists():
                raise refusal(f"cannot migrate segments: {segment_name(source.recording_id, base)} is missing")
            if self._path(target.recording_id, base).exists() and base != target.stop_position:
                raise refusal(f"cannot migrate segments: {segment_name(target.recording_id, base)} exists")
        if bases:
            self._files.migrate(source, target, bases, is_prepended=is_prepended)
        left = segment_bases(self._files.directory, source.recording_id)
        self._delete(session, request, source.recording_id, [base for base in left if base >= source.stop_position])
        return len(bases)


def _check_alike(source: RecordingDescriptor, target: RecordingDescriptor) -> None:
    if source.recording_id == target.recording_id:
        raise refusal(f"cannot migrate segments of recording {source.recording_id} to itself")
    for name in ("segment_file_length", "term_buffer_length", "initial_term_id", "stream_id", "mtu_length"):
        one, other = getattr(source, name), getattr(target, name)
        if one != other:
            raise refusal(
                f"cannot migrate segments: {name}={one} of recording {source.recording_id} is not {other} of "
                f"recording {target.recording_id}"
            )


def _is_frame(path: Path, d: RecordingDescriptor, base: int, position: int) -> bool:
    try:
        with path.open("rb", buffering=0) as file:
            return is_frame(os.pread(file.fileno(), DATA_HEADER_LENGTH, position - base), d, position)
    except FileNotFoundError:
        return False


def _first_frame(path: Path, d: RecordingDescriptor, base: int) -> int:
    """Return the position of the first frame of a segment to attach. Raises ArchiveError if the segment does not fit."""
    with path.open("rb", buffering=0) as file:
        length = os.fstat(file.fileno()).st_size
        if length != d.segment_file_length:
            raise refusal(f"{path.name} has {length} bytes, and segmentFileLength={d.segment_file_length}")
        term = os.pread(file.fileno(), d.term_buffer_length, 0)
    for offset in range(0, len(term), FRAME_ALIGNMENT):
        if _LENGTH.unpack_from(term, offset)[0] > 0:
            if is_frame(term[offset : offset + DATA_HEADER_LENGTH], d, base + offset):
                return base + offset
            raise refusal(f"{path.name}: the frame at {offset} is not of recording {d.recording_id}")
    raise refusal(f"{path.name}: there is no frame in its first term")

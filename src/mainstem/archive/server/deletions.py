"""Requests that change the files of a recording: truncate, purge, and detach, delete, attach or migrate segments.

A request is validated completely before anything changes. The catalog changes at once, and the response contains the number of
files to delete. Each duty cycle deletes one file, after the replays that read the files have ended, and a signal reports the end.

After a power failure, the catalog and the files must still fit together, whatever ``file_sync_level`` is, because these requests
concern data that may be old. So names reach the device before the catalog that refers to them, the catalog before the deletion of
files to which it referred, and the deletions before the signal.
"""

from __future__ import annotations

import logging
import os
import struct
from collections import deque
from typing import TYPE_CHECKING

from mainstem._core.layout import DATA_HEADER_LENGTH, FRAME_ALIGNMENT, FRAME_STREAM_ID_OFFSET
from mainstem.aeron.logbuffer.descriptor import wrap_i32
from mainstem.archive.messages import NULL, RecordingSignal
from mainstem.archive.server.request_errors import reason_of, request_error
from mainstem.errors import ArchiveError, ArchiveErrorCode
from mainstem.recording.segments import is_frame, segment_base, segment_name

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator
    from pathlib import Path

    from mainstem.archive.messages import Message
    from mainstem.archive.server.active_recordings import ActiveRecordings
    from mainstem.archive.server.control_session import ControlSession
    from mainstem.archive.server.duty_cycle import DutyCycle
    from mainstem.archive.server.files import ArchiveFiles
    from mainstem.archive.server.replay_session import ReplaySession
    from mainstem.recording.catalog import RecordingDescriptor
    from mainstem.recording.offline_maintenance import SegmentFile

log = logging.getLogger("mainstem.archive")

_STREAM_AND_TERM = struct.Struct("<ii")
MAX_POSITION = (1 << 63) - 1
STEP_LENGTH = 64 << 10  # bytes of a segment that are searched for a frame at once


class DeleteOperation:
    """Deletes files of one recording one by one. ``reaches`` is the position at which the last of them starts.

    ``search`` finds more files to delete. If it takes more than its first step, ``do_work`` continues it, and then responds with
    the number of files that it found. Until then, ``reaches`` is the last position that can be among them.
    """

    def __init__(
        self,
        control: ControlSession,
        correlation_id: int,
        recording_id: int,
        paths: Iterable[Path],
        *,
        reaches: int,
        waits_for: Iterable[ReplaySession] = (),
        search: Generator[None, None, list[SegmentFile]] | None = None,
        cycle: DutyCycle | None = None,
    ) -> None:
        self.recording_id = recording_id
        self.reaches = reaches
        self.is_done = False
        self.found = -1  # how many files the search has found; -1 before its end
        self._control, self._correlation_id = control, correlation_id
        self._search, self._cycle = search, cycle
        self._paths = deque(paths)
        self._waits_for = list(waits_for)
        self._has_deleted = False

    def do_work(self, files: ArchiveFiles) -> int:
        """Look for files, delete one, or report the end. Return the work count."""
        if self._search is not None:
            assert self._cycle is not None
            try:
                while self.search():
                    if self._cycle.is_over:
                        return 1
            except Exception as error:
                self.is_done = True
                self._control.fail(self._correlation_id, f"its segments cannot be found: {reason_of(error)}")
                return 1
            self._control.respond(self._correlation_id, self.found)
        if not all(replay.is_done for replay in self._waits_for):
            return 0
        if self._paths:
            path = self._paths.popleft()
            self._try(lambda: files.delete_file(path), path.name)
            self._has_deleted = True
        if not self._paths:
            self.is_done = True
            if self._has_deleted:
                self._try(files.flush_names, "the directory's list of files")
            self._control.signal(RecordingSignal.DELETE, self._correlation_id, self.recording_id, NULL, NULL)
        return 1

    def search(self) -> bool:
        """Look for some more files. Return whether there may be others."""
        assert self._search is not None
        try:
            next(self._search)
        except StopIteration as end:
            segments: list[SegmentFile] = end.value
            self._paths.extendleft(each.path for each in reversed(segments))
            self.found, self.reaches = len(segments), max((each.base for each in segments), default=NULL)
            self._search = None
            return False
        return True

    def _try(self, step: Callable[[], object], name: str) -> None:
        try:
            step()
        except Exception as error:
            text = f"{name} cannot be deleted: {reason_of(error)}"
            log.error("recording %d: %s", self.recording_id, text)
            self._control.fail(self._correlation_id, text)


class Attachment:
    """Attaches the contiguous segments before a recording's start, in slices of duty cycles, and responds with their number."""

    reaches = NULL  # it deletes nothing

    def __init__(
        self, control: ControlSession, correlation_id: int, recording_id: int, files: ArchiveFiles, cycle: DutyCycle
    ) -> None:
        self.recording_id = recording_id
        self.is_done = False
        self._control, self._correlation_id = control, correlation_id
        self._files, self._cycle = files, cycle
        self._start, self._count = NULL, 0
        descriptor = files.known(recording_id)
        self._before = descriptor.start_position
        self._steps = self._examine(descriptor)

    def do_work(self, files: ArchiveFiles) -> int:
        """Examine segments, or attach them and respond. Return the work count."""
        try:
            while True:
                next(self._steps)
                if self._cycle.is_over:
                    return 1
        except StopIteration:
            self.is_done = True
        except Exception as error:
            self._fail(error)
            return 1
        try:
            if self._count:
                d = files.known(self.recording_id)
                if d.start_position != self._before or not self._path(d, segment_base(d, self._start)).exists():
                    raise request_error(
                        f"recording {self.recording_id} was changed while its segments were examined; try again"
                    )
                files.set_start(d, self._start)
        except Exception as error:
            self._fail(error)
        else:
            self._control.respond(self._correlation_id, self._count)
        return 1

    def _fail(self, error: Exception) -> None:
        self.is_done = True
        code = error.code if isinstance(error, ArchiveError) else ArchiveErrorCode.GENERIC
        self._control.fail(self._correlation_id, reason_of(error), code)

    def _path(self, d: RecordingDescriptor, base: int) -> Path:
        return self._files.directory / segment_name(d.recording_id, base)

    def _examine(self, d: RecordingDescriptor) -> Iterator[None]:
        base = segment_base(d, d.start_position) - d.segment_file_length
        while base >= 0 and (path := self._path(d, base)).exists():
            self._start = yield from _first_frame(path, d, base)
            self._count += 1
            if self._start != base:
                break
            base -= d.segment_file_length
            yield


class Deletions:
    """Handles the requests that change the files of recordings, and deletes the files."""

    def __init__(
        self,
        files: ArchiveFiles,
        recordings: ActiveRecordings,
        replays: Callable[[], list[ReplaySession]],
        cycle: DutyCycle,
    ) -> None:
        self._files, self._recordings, self._replays, self._cycle = files, recordings, replays, cycle
        self._operations: dict[int, DeleteOperation | Attachment] = {}

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

    def is_changing(self, recording_id: int) -> bool:
        """Whether segments of a recording are being deleted or attached."""
        return recording_id in self._operations

    # -- shared by the requests --------------------------------------------------------------------------------------

    def _check_idle(self, recording_id: int) -> None:
        if self.is_changing(recording_id):
            raise request_error(f"another delete operation in progress for recording id: {recording_id}")

    def _path(self, recording_id: int, base: int) -> Path:
        return self._files.directory / segment_name(recording_id, base)

    def _delete(
        self,
        session: ControlSession,
        request: Message,
        recording_id: int,
        segments: list[SegmentFile],
    ) -> int:
        """Begin to delete segments. Return their number."""
        self._operations[recording_id] = DeleteOperation(
            session,
            request.correlation_id,
            recording_id,
            [each.path for each in segments],
            reaches=max((each.base for each in segments), default=NULL),
        )
        return len(segments)

    def _find_and_delete(
        self,
        session: ControlSession,
        request: Message,
        recording_id: int,
        is_wanted: Callable[[SegmentFile], bool],
        *,
        up_to: int = MAX_POSITION,
        more: Iterable[Path] = (),
        waits_for: Iterable[ReplaySession] = (),
    ) -> int | None:
        """Begin to delete the segments that are wanted, which lie before ``up_to``, and ``more`` files.

        Return the number of segments; None if the search for them goes on, and the response follows.
        """

        def search() -> Generator[None, None, list[SegmentFile]]:
            found = yield from self._files.find_segments(recording_id)
            return [each for each in found if is_wanted(each)]

        operation = DeleteOperation(
            session, request.correlation_id, recording_id, more,
            reaches=up_to, waits_for=waits_for, search=search(), cycle=self._cycle,
        )  # fmt: skip
        is_searching = operation.search()
        self._operations[recording_id] = operation
        return None if is_searching else operation.found

    def _replays_of(self, recording_id: int) -> list[ReplaySession]:
        return [replay for replay in self._replays() if replay.descriptor.recording_id == recording_id]

    def _end_of(self, descriptor: RecordingDescriptor) -> int:
        recording = self._recordings.get(descriptor.recording_id)
        return descriptor.stop_position if recording is None else recording.position

    # -- truncate and purge ------------------------------------------------------------------------------------------

    def truncate(self, session: ControlSession, request: Message) -> int | None:
        """Make a recording end at an earlier position."""
        d, position = self._files.known(request.recording_id), request.position
        recording_id = d.recording_id
        self._recordings.check_inactive("truncate", recording_id)
        if position % FRAME_ALIGNMENT or not d.start_position <= position <= d.stop_position:
            raise request_error(
                f"invalid position {position}: start={d.start_position} stop={d.stop_position} alignment={FRAME_ALIGNMENT}",
                ArchiveErrorCode.INVALID_POSITION,
            )
        self._check_idle(recording_id)
        base = segment_base(d, position)
        is_inside = position not in (base, d.start_position)
        if (
            is_inside
            and position != d.stop_position
            and not _is_frame(self._path(recording_id, base), d, base, position)
        ):
            raise request_error(f"{position} position not aligned to a data header")
        replays = self._replays_of(recording_id)
        for replay in replays:
            replay.close()
        self._files.truncate(d, position)
        if is_inside and self._path(recording_id, base).exists():
            self._files.clear_from(d, base, position)

        def is_wanted(each: SegmentFile) -> bool:
            return position == d.start_position or each.base > base or (each.base == base and not is_inside)

        return self._find_and_delete(session, request, recording_id, is_wanted, waits_for=replays)

    def purge(self, session: ControlSession, request: Message) -> int | None:
        """Delete a recording with all of its files. Its id is not reused."""
        d = self._files.known(request.recording_id)
        recording_id = d.recording_id
        if self._replays_of(recording_id):
            raise request_error(
                f"cannot purge recording with active replay {recording_id}", ArchiveErrorCode.ACTIVE_RECORDING
            )
        self._recordings.check_inactive("purge", recording_id)
        self._check_idle(recording_id)
        self._files.purge(d)
        index = self._files.index_path(recording_id)
        return self._find_and_delete(session, request, recording_id, lambda _: True, more=[index])

    # -- segments ----------------------------------------------------------------------------------------------------

    def detach(self, _: ControlSession, request: Message) -> int:
        """Make a recording start at a later segment. Keep the files of the earlier segments."""
        self._detach(self._files.known(request.recording_id), request.new_start_position)
        return 0

    def _detach(self, d: RecordingDescriptor, start: int) -> None:
        recording_id, length = d.recording_id, d.segment_file_length
        first, last = segment_base(d, d.start_position) + length, segment_base(d, self._end_of(d))
        if (start - first) % length:
            raise request_error(f"invalid segment start: newStartPosition={start}")
        if start < first:
            raise request_error(f"invalid detach: newStartPosition={start} lowerBound={first}")
        if start > last:
            raise request_error(f"invalid detach: in use, newStartPosition={start} upperBound={last}")
        replays = [each for each in self._replays_of(recording_id) if each.segment_base < start]
        if replays:
            replay = min(replays, key=lambda each: each.segment_base)
            raise request_error(
                f"invalid detach: replay in progress -  state={replay.state.name} newStartPosition={start}"
                f" upperBound={replay.segment_base} sessionId={wrap_i32(replay.session_id)}"
                f" streamId={replay.stream_id} channel={replay.channel}"
            )
        self._files.set_start(d, start)

    def delete_detached(self, session: ControlSession, request: Message) -> int | None:
        """Delete the segments before a recording's start."""
        d = self._files.known(request.recording_id)
        self._check_idle(d.recording_id)
        end = segment_base(d, d.start_position)
        return self._find_and_delete(session, request, d.recording_id, lambda each: each.base < end, up_to=end - 1)

    def purge_segments(self, session: ControlSession, request: Message) -> int | None:
        """Detach segments and delete them."""
        d, start = self._files.known(request.recording_id), request.new_start_position
        self._check_idle(d.recording_id)
        first = segment_base(d, d.start_position)
        self._detach(d, start)
        return self._find_and_delete(
            session, request, d.recording_id, lambda each: first <= each.base < start, up_to=start - 1
        )

    def attach(self, session: ControlSession, request: Message) -> None:
        """Attach the contiguous segments before a recording's start. The response has their number."""
        recording_id = self._files.known(request.recording_id).recording_id
        self._check_idle(recording_id)
        self._operations[recording_id] = Attachment(
            session, request.correlation_id, recording_id, self._files, self._cycle
        )

    def migrate(self, session: ControlSession, request: Message) -> int:
        """Move all segments of one recording to the beginning or the end of another. Return their number.

        The other one may be active: its recording continues after what is put before it.
        """
        source, target = self._files.known(request.src_recording_id), self._files.known(request.dst_recording_id)
        if source.stop_position == NULL:
            raise request_error(f"recording {source.recording_id} is still active")
        _check_alike(source, target)
        is_prepended = source.stop_position == target.start_position
        if not is_prepended and source.start_position != target.stop_position:
            raise request_error(
                "invalid migrate: src and dst are not contiguous"
                f" srcStartPosition={source.start_position} srcStopPosition={source.stop_position}"
                f" dstStartPosition={target.start_position} dstStopPosition={target.stop_position}"
            )
        joint = source.stop_position if is_prepended else source.start_position
        _check_boundary("src", source, joint)
        _check_boundary("dst", target, joint)
        self._recordings.check_inactive("migrate segments of", source.recording_id)
        for each in (source, target):
            self._check_idle(each.recording_id)
        if self._replays_of(source.recording_id):
            raise request_error(f"cannot migrate segments of recording {source.recording_id}: it is being replayed")
        first = segment_base(source, source.start_position)
        bases = range(first, source.stop_position, source.segment_file_length)
        for base in bases:
            path = self._path(source.recording_id, base)
            if not path.exists():
                raise request_error(f"missing src segment file {path}")
            if self._is_other_file(source, target, base):
                raise request_error(f"preexisting dst segment file {self._path(target.recording_id, base)}")
        if bases:
            self._files.migrate(source, target, bases, is_prepended=is_prepended)
        left = [each for each in self._files.segment_files(source.recording_id) if each.base >= first]
        self._delete(session, request, source.recording_id, left)
        return len(bases)

    def _is_other_file(self, source: RecordingDescriptor, target: RecordingDescriptor, base: int) -> bool:
        """Whether the target has a segment of its own, and not one of the source's that an interrupted migration gave to it."""
        path = self._path(target.recording_id, base)
        return path.exists() and not path.samefile(self._path(source.recording_id, base))


def _check_alike(source: RecordingDescriptor, target: RecordingDescriptor) -> None:
    if source.recording_id == target.recording_id:
        raise request_error(f"cannot migrate segments of recording {source.recording_id} to itself")
    for name, one, other in (
        ("SegmentFileLength", source.segment_file_length, target.segment_file_length),
        ("TermBufferLength", source.term_buffer_length, target.term_buffer_length),
        ("InitialTermId", source.initial_term_id, target.initial_term_id),
        ("StreamId", source.stream_id, target.stream_id),
        ("MtuLength", source.mtu_length, target.mtu_length),
    ):
        if one != other:
            raise request_error(f"invalid migrate: src{name}={one} dst{name}={other}")


def _check_boundary(label: str, d: RecordingDescriptor, position: int) -> None:
    if segment_base(d, position) != position:
        raise request_error(
            f"invalid migrate: join position is not on segment boundary of {label} recording seamPosition={position}"
            f" startPosition={d.start_position} stopPosition={d.stop_position}"
            f" termBufferLength={d.term_buffer_length} segmentFileLength={d.segment_file_length}"
        )


def _is_frame(path: Path, d: RecordingDescriptor, base: int, position: int) -> bool:
    try:
        with path.open("rb", buffering=0) as file:
            return is_frame(os.pread(file.fileno(), DATA_HEADER_LENGTH, position - base), d, position)
    except FileNotFoundError:
        return False


def _first_frame(path: Path, d: RecordingDescriptor, base: int) -> Generator[None, None, int]:
    """Find the position of the first frame of a segment to attach, step by step.

    Raises ArchiveError if the segment does not fit.
    """
    with path.open("rb", buffering=0) as file:
        length = os.fstat(file.fileno()).st_size
        if length != d.segment_file_length:
            raise request_error(f"fileLength={length} not equal to segmentLength={d.segment_file_length}")
        for start in range(0, d.term_buffer_length, STEP_LENGTH):
            data = os.pread(file.fileno(), min(STEP_LENGTH, d.term_buffer_length - start), start)
            zeros = len(data) - len(data.lstrip(b"\0"))
            if zeros < len(data):
                offset = start + zeros // FRAME_ALIGNMENT * FRAME_ALIGNMENT
                header = os.pread(file.fileno(), DATA_HEADER_LENGTH, offset)
                if is_frame(header, d, base + offset):
                    return base + offset
                stream_id, term_id = _STREAM_AND_TERM.unpack_from(header, FRAME_STREAM_ID_OFFSET)
                expected = wrap_i32(d.initial_term_id + base // d.term_buffer_length)
                if term_id != expected:
                    raise request_error(f"term id does not match: actual={term_id} expected={expected}")
                if stream_id != d.stream_id:
                    raise request_error(f"stream id does not match: actual={stream_id} expected={d.stream_id}")
                raise request_error(f"the frame at {offset} of segment {path} is not of recording {d.recording_id}")
            yield
    raise request_error(f"fragment not found in first term of segment {path}")

"""Writes one recording: the segments, then the index, then the recorded position, in that order."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from mainstem._core.layout import DATA_HEADER_LENGTH, FRAME_TERM_OFFSET_OFFSET, WALK_AT_LIMIT, WALK_FULL
from mainstem._core.log.checksums import CRC32, FrameChecksum, SummedWalk
from mainstem.errors import RecordingError
from mainstem.recording.frame_checksums import with_session
from mainstem.recording.index import INDEX_INTERVAL, INDEX_INTERVAL_NS, IndexEntry, IndexWriter
from mainstem.recording.life import NO_LIFE, StreamLife
from mainstem.recording.segments import ZEROS, SegmentWriter, stored_runs
from mainstem.recording.segments import checksum as checksum_of
from mainstem.store.disk import DISK, Disk

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from mainstem._core.memory.buffer import AtomicBuffer
    from mainstem.recording.catalog import RecordingDescriptor

# Limits of a run, which is written and released at once. It is long enough to be worth a system call, and short compared with the
# publisher's window, which is half a term over IPC. It stays in the processor's cache between the walk and the write.
MIN_RUN_LENGTH, MAX_RUN_LENGTH, RUNS_OF_TERM = 256 << 10, 1 << 20, 16
# The index gets at most one entry per step of a run.
STEP_LENGTH = 256 << 10
# A frame's term offset and, after the ids of session and stream, its term id.
_PLACE = struct.Struct("<i8xi")
_CRC32 = FrameChecksum(CRC32)


class RecordingWriter:
    """Appends runs of frames to a recording from ``position`` on. Opening it truncates the files there.

    ``messages`` is the number of messages up to ``position``, ``whole`` whether a message ends there, ``checksum`` the CRC-32 of
    all frames up to it if it is known, and ``session_id`` the session before it, by default the descriptor's. ``later`` has the
    bases of the segments after it.

    With ``durable``, the recorded position advances only after the frames are on the device, and a run counts as written only after
    the position is on the device too. That survives a power failure and costs two flushes per run.
    """

    def __init__(
        self,
        directory: Path,
        descriptor: RecordingDescriptor,
        position: int,
        *,
        messages: int = 0,
        whole: bool = True,
        checksum: int | None = None,
        session_id: int | None = None,
        life: StreamLife = NO_LIFE,
        later: Iterable[int] = (),
        durable: bool = False,
        disk: Disk = DISK,
    ) -> None:
        self.descriptor = descriptor
        self.messages = self.messages_before = messages
        self._whole = whole
        self._durable = durable
        # Move the position back before truncating, so that readers never trust data that is being truncated.
        self._index = IndexWriter(
            directory,
            descriptor.recording_id,
            position,
            origin=descriptor.origin,
            life=life,
            is_new=position == descriptor.start_position,
            durable=durable,
            disk=disk,
        )
        if durable:
            self._index.sync()
        try:
            self._segments = SegmentWriter(directory, descriptor, position, later=later, durable=durable, disk=disk)
        except BaseException:
            self._index.close()
            raise
        self._time_ns, self._is_confirmed = 0, True
        self._walk, self._header = SummedWalk(), bytearray(DATA_HEADER_LENGTH)
        self._run_length = min(max(descriptor.term_buffer_length // RUNS_OF_TERM, MIN_RUN_LENGTH), MAX_RUN_LENGTH)
        last = self._index.last
        self._session_id = descriptor.session_id if session_id is None else session_id
        if last is None:
            start = descriptor.start_position
            self._checksum = checksum_of(directory, descriptor, start, position) if checksum is None else checksum
        else:
            # Segments before the start can be purged. Nothing checks a range that begins there.
            since = max(last.position, descriptor.start_position)
            # A tool can have stored checksums in these frames.
            self._checksum = 0
            for run in stored_runs(directory, descriptor, since, position):
                self._checksum = _crc32(with_session(run, self._session_id), self._checksum)

    @property
    def position(self) -> int:
        return self._segments.position

    def write(self, frames: memoryview, time_ns: int) -> None:
        """Append a run of whole frames within one term, recorded at epoch ``time_ns``.

        Raises RecordingError if the run contains anything but whole frames, and OSError if a write or a flush fails. Then call it
        again with the same frames: those before the recorded position are skipped.
        """
        at = self._length_before_position(frames)
        if not self._is_confirmed:
            self._publish()
        while at < frames.nbytes:
            at += self._take(frames, at, frames.nbytes, time_ns, is_whole=True)

    def _length_before_position(self, frames: memoryview) -> int:
        """Return how many bytes of a run are before the recorded position, because a failed call has written them."""
        if frames.nbytes < DATA_HEADER_LENGTH:
            return 0
        offset, term_id = _PLACE.unpack_from(frames, FRAME_TERM_OFFSET_OFFSET)
        terms = (term_id - self.descriptor.initial_term_id) & 0xFFFFFFFF
        length = self.position - (terms * self.descriptor.term_buffer_length + offset)
        return length if 0 < length <= frames.nbytes else 0

    def take(self, log: AtomicBuffer, offset: int, limit: int, time_ns: int) -> int:
        """Append the whole frames that are available at ``offset`` of a log, up to about 1 MiB. Return their size in bytes.

        Raises OSError like ``write``. Frames before ``position`` are then written, and the next call must not repeat them.
        """
        if not self._is_confirmed:
            self._publish()
        return self._take(log, offset, limit, time_ns, is_whole=False)

    def _take(self, log: memoryview | AtomicBuffer, offset: int, limit: int, time_ns: int, *, is_whole: bool) -> int:
        walk, start, end, padding = self._walk, self.position, offset, 0
        # State changes only after the whole run is written, so a retry begins at the start of the run.
        messages, whole, session_id, checksum = self.messages, self._whole, self._session_id, self._checksum
        last, entries = self._index.last, []
        while end - offset < self._run_length and not padding:
            position = start + end - offset
            is_due = whole and self._is_due(last, position, time_ns, session_id)
            walk.take(log, end, limit, STEP_LENGTH, self._header, 0 if is_due else checksum)
            if walk.offset == end:
                break
            if is_due:
                # Times in an index do not decrease, even if the clock was set back.
                since_ns = max(time_ns, last.time_ns if last else 0)
                last = IndexEntry(position, since_ns, messages, checksum, session_id)
                entries.append(last)
            end = walk.last if walk.others else walk.offset
            padding, checksum = walk.offset - end, walk.checksum
            messages += walk.messages
            whole, session_id = walk.boundary == walk.offset, self.descriptor.session_id
            if walk.stopped != WALK_FULL:
                break
        length = end + padding - offset
        if is_whole and (walk.stopped not in (WALK_AT_LIMIT, WALK_FULL) or not length):
            raise RecordingError(
                f"recording {self.descriptor.recording_id}: the run at {start} is not whole frames after {length} bytes"
            )
        if not length:
            return 0
        try:
            if end > offset:
                # Write directly from the log. The log stays mapped as long as a view of it exists.
                with log[offset:end] if isinstance(log, memoryview) else log.view(offset, end - offset) as frames:
                    self._segments.write(frames)
            if padding:
                self._segments.write_padding(memoryview(self._header), padding)
                checksum = _checksum_of_padding(self._header, padding, checksum)
            self._index.append(*entries)
            if self._durable:
                # The frames and their index entries must be on the device before the position, which the kernel can write at any
                # time.
                self._segments.sync()
                self._index.sync_entries()
        except OSError:
            self._segments.position = start
            raise
        self.messages, self._whole, self._session_id, self._checksum = messages, whole, session_id, checksum
        # Like the times of the entries, it does not decrease.
        self._time_ns = max(time_ns, last.time_ns if last else 0, self._time_ns)
        self._publish()
        return length

    def _publish(self) -> None:
        """Publish the position and flush it. If that fails, it is stored again first, because the kernel may have forgotten it."""
        self._index.publish(self.position, self._time_ns)
        if self._durable:
            self._is_confirmed = False
            self._index.sync()
            self._is_confirmed = True

    def _is_due(self, last: IndexEntry | None, position: int, time_ns: int, session_id: int) -> bool:
        """Return whether the index gets an entry at a position between two messages.

        ``session_id`` is the session before the position.
        """
        if last is None or position - last.position >= INDEX_INTERVAL:
            return True
        is_due = time_ns - last.time_ns >= INDEX_INTERVAL_NS or session_id != self.descriptor.session_id
        return is_due and position > last.position

    def end_life(self) -> None:
        """Store that the publisher ended the stream. A later publisher with the same ids then starts a new recording."""
        self._index.end_life()

    def close(self) -> None:
        """Close the files. Idempotent; if it raises OSError, call it again."""
        if not self._is_confirmed:
            self._publish()
        self._segments.finish()
        if self._durable:
            self._index.sync()
        self._index.close()


def _checksum_of_padding(header: bytearray, aligned: int, value: int) -> int:
    """Continue a checksum with a padding frame: in the file, its header is followed by zeros."""
    value = _crc32(header, value)
    left = aligned - DATA_HEADER_LENGTH
    while left > 0:
        value = _crc32(ZEROS[:left], value)
        left -= len(ZEROS)
    return value


def _crc32(data: memoryview | bytearray, value: int) -> int:
    return _CRC32.update(data, 0, len(data), value)

"""Writes one recording: segments, then the index, then the recorded position, in that order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem._core.layout import DATA_HEADER_LENGTH, WALK_AT_LIMIT, WALK_FULL
from mainstem._core.log.checksums import CRC32, FrameChecksum
from mainstem._core.log.columns import FrameWalk
from mainstem.errors import RecordingError
from mainstem.recording.frame_checksums import with_session
from mainstem.recording.index import INDEX_INTERVAL, INDEX_INTERVAL_NS, IndexEntry, IndexWriter
from mainstem.recording.life import NO_LIFE, StreamLife
from mainstem.recording.segments import ZEROS, SegmentWriter, checksum, stored_runs
from mainstem.store.disk import DISK, Disk

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from mainstem._core.memory.buffer import AtomicBuffer
    from mainstem.recording.catalog import RecordingDescriptor

# A run is written and released at once: enough to make a system call worth its price, and the index fine enough. It also stays in
# the processor's cache from the copy to the write: writing from the log itself, or longer runs, takes longer.
MIN_RUN_LENGTH, MAX_RUN_LENGTH = 4 << 10, 256 << 10
_CRC32 = FrameChecksum(CRC32)


class RecordingWriter:
    """Appends runs of frames to a recording from ``position`` on, and truncates the files there.

    ``messages`` is the number of messages up to ``position``, ``whole`` whether a message ends there, and ``session_id`` the
    session before it, by default the descriptor's. ``later`` has the bases of the segments after it. With ``durable``, the recorded
    position moves only when frames are on the device, and a run counts as written when the position is on the device too. That
    survives a power failure and costs two flushes per run.
    """

    def __init__(
        self,
        directory: Path,
        descriptor: RecordingDescriptor,
        position: int,
        *,
        messages: int = 0,
        whole: bool = True,
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
        # Move the position back before truncating, so that readers never trust data being cut.
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
        self._segments = SegmentWriter(directory, descriptor, position, later=later, durable=durable, disk=disk)
        self._walk = FrameWalk()
        # Most of many recordings are slow, so it grows on demand.
        self._run = bytearray(MIN_RUN_LENGTH)
        last = self._index.last
        self._session_id = descriptor.session_id if session_id is None else session_id
        if last is None:
            self._checksum = checksum(directory, descriptor, descriptor.start_position, position)
        else:
            # A tool may have put checksums into these frames.
            self._checksum = 0
            for run in stored_runs(directory, descriptor, last.position, position):
                self._checksum = _crc32(with_session(run, self._session_id), self._checksum)

    @property
    def position(self) -> int:
        return self._segments.position

    def write(self, frames: memoryview, time_ns: int) -> None:
        """Append a run of whole frames within one term, recorded at epoch ``time_ns``.

        Raises RecordingError if the run holds anything but whole frames, OSError if the disk refuses it; the recorded position
        then stays before it.
        """
        at = 0
        while at < frames.nbytes:
            at += self._take(frames, at, frames.nbytes, time_ns, is_whole=True)

    def take(self, log: AtomicBuffer, offset: int, limit: int, time_ns: int) -> int:
        """Append the whole frames available at ``offset`` of a log, up to some 256 KiB; return their bytes.

        Raises OSError like ``write``.
        """
        return self._take(log, offset, limit, time_ns, is_whole=False)

    def _take(self, log: memoryview | AtomicBuffer, offset: int, limit: int, time_ns: int, *, is_whole: bool) -> int:
        # Publishers may write the log meanwhile: frames are checked as they are copied, and the copy is written.
        walk, start = self._walk, self.position
        walk.copy(log, offset, limit, self._run)
        while walk.stopped == WALK_FULL and not walk.others and len(self._run) < MAX_RUN_LENGTH:
            self._run = bytearray(4 * len(self._run))
            walk.copy(log, offset, limit, self._run)
        length = walk.offset - offset
        if is_whole and (walk.stopped not in (WALK_AT_LIMIT, WALK_FULL) or not length):
            raise RecordingError(
                f"recording {self.descriptor.recording_id}: the run at {start} is not whole frames after {length} bytes"
            )
        if not length:
            return 0
        if self._whole:
            self._append_entry(time_ns)
        checksum = self._checksum
        try:
            with memoryview(self._run) as run:
                at = walk.last - offset if walk.others else length
                if at:
                    self._append(run[:at])
                if walk.others:
                    self._append_padding(run[at : at + DATA_HEADER_LENGTH], length - at)
            if self._durable:
                # The frames and their index entry are on the device before the position is, whenever the kernel writes it.
                self._segments.sync()
                self._index.sync_entries()
        except OSError:
            # None of the run counts: a retry begins where it began.
            self._segments.position, self._checksum = start, checksum
            raise
        self.messages += walk.messages
        self._whole, self._session_id = walk.boundary == walk.offset, self.descriptor.session_id
        self._index.publish(self.position, time_ns)
        if self._durable:
            self._index.sync()
        return length

    def _append_entry(self, time_ns: int) -> None:
        last = self._index.last
        if (
            last is None
            or self.position - last.position >= INDEX_INTERVAL
            or (time_ns - last.time_ns >= INDEX_INTERVAL_NS and self.position > last.position)
            or (self._session_id != self.descriptor.session_id and self.position > last.position)
        ):
            # An index is in the order of its times even when the clock was set back.
            since_ns = max(time_ns, last.time_ns if last else 0)
            self._index.append(IndexEntry(self.position, since_ns, self.messages, self._checksum, self._session_id))
            self._checksum = 0

    def _append(self, frames: memoryview) -> None:
        self._segments.write(frames)
        self._checksum = _crc32(frames, self._checksum)

    def _append_padding(self, header: memoryview, aligned: int) -> None:
        self._segments.write_padding(header, aligned)
        self._checksum = _crc32(header, self._checksum)
        # The file holds zeros there.
        left = aligned - DATA_HEADER_LENGTH
        while left > 0:
            self._checksum = _crc32(ZEROS[:left], self._checksum)
            left -= len(ZEROS)

    def end_life(self) -> None:
        """Note that the publisher ended the stream: another one with its ids begins another recording."""
        self._index.end_life()

    def close(self) -> None:
        self._segments.finish()
        if self._durable:
            self._index.sync()
        self._index.close()


def _crc32(data: memoryview | bytearray, value: int) -> int:
    return _CRC32.update(data, 0, len(data), value)

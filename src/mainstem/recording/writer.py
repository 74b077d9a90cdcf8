"""One recording being written: segments, then the index, then the recorded position, in that order."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from mainstem._core.layout import DATA_HEADER_LENGTH, FRAME_ALIGNMENT, TYPE_DATA, WALK_AT_LIMIT
from mainstem._core.log.columns import FrameWalk
from mainstem.errors import RecordingError
from mainstem.recording.life import NO_LIFE, StreamLife
from mainstem.recording.positions import INDEX_INTERVAL, INDEX_INTERVAL_NS, IndexEntry, PositionsWriter
from mainstem.recording.segments import ZEROS, SegmentWriter, checksum
from mainstem.store.disk import DISK, Disk

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from mainstem.recording.catalog import RecordingDescriptor


class RecordingWriter:
    """Appends runs of frames to a recording from ``position`` on; what the files hold past it is cut.

    ``messages`` is how many messages the recording holds up to ``position``, ``whole`` whether one ends there, ``later`` as of
    ``SegmentWriter``. With
    ``durable`` the recorded position moves only when the frames are on the device, and a run counts as written once the position
    is there too, which survives the loss of power, and costs two flushes for each run.
    """

    def __init__(
        self,
        directory: Path,
        descriptor: RecordingDescriptor,
        position: int,
        *,
        messages: int = 0,
        whole: bool = True,
        life: StreamLife = NO_LIFE,
        later: Iterable[int] = (),
        durable: bool = False,
        disk: Disk = DISK,
    ) -> None:
        self.descriptor = descriptor
        self.messages = self.messages_before = messages
        self._whole = whole
        self._durable = durable
        # First the position comes back, then what lies past it goes: a reader never trusts what is being cut.
        self._positions = PositionsWriter(
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
            self._positions.sync()
        self._segments = SegmentWriter(directory, descriptor, position, later=later, durable=durable, disk=disk)
        self._walk = FrameWalk()
        self._run = bytearray()
        last = self._positions.last
        since = last.position if last is not None else descriptor.start_position
        self._checksum = checksum(directory, descriptor, since, position)

    @property
    def position(self) -> int:
        """The recorded position."""
        return self._segments.position

    def write(self, frames: memoryview, time_ns: int) -> None:
        """Appends a run of whole frames, which lies within one term, recorded at epoch ``time_ns``.

        Raises RecordingError when the run holds anything but whole frames, OSError when the disk does not take it; the
        recorded position has then not moved over what failed.
        """
        walk, start = self._walk, self.position
        frames = self._private(frames)
        if walk.run(frames, 0, frames.nbytes) != WALK_AT_LIMIT:
            raise RecordingError(
                f"recording {self.descriptor.recording_id}: the run at {start} is not whole frames after {walk.offset} bytes"
            )
        if self._whole:
            self._index(time_ns)
        checksum = self._checksum
        try:
            if walk.others:
                self._write_with_padding(frames)
            else:
                self._append(frames)
            if self._durable:
                # The frames and their index entry are on the device before the position is, whenever the kernel writes it.
                self._segments.sync()
                self._positions.sync_entries()
        except OSError:
            # None of the run counts: what is tried again begins where this began.
            self._segments.position, self._checksum = start, checksum
            raise
        self.messages += walk.messages
        self._whole = walk.boundary == frames.nbytes
        self._positions.publish(self.position, time_ns)
        if self._durable:
            self._positions.sync()

    def _private(self, frames: memoryview) -> memoryview:
        """A copy of the run: publishers may write the log that it lies in, and what is checked is what must be written."""
        if len(self._run) < frames.nbytes:
            self._run = bytearray(frames.nbytes)
        run = memoryview(self._run)[: frames.nbytes]
        run[:] = frames
        return run

    def _index(self, time_ns: int) -> None:
        last = self._positions.last
        if (
            last is None
            or self.position - last.position >= INDEX_INTERVAL
            or (time_ns - last.time_ns >= INDEX_INTERVAL_NS and self.position > last.position)
        ):
            # An index is in the order of its times even when the clock was set back.
            since = last.time_ns if last else 0
            self._positions.append(IndexEntry(self.position, max(time_ns, since), self.messages, self._checksum))
            self._checksum = 0

    def _write_with_padding(self, frames: memoryview) -> None:
        start = at = 0
        while at < frames.nbytes:
            length = int.from_bytes(frames[at : at + 4], "little", signed=True)
            aligned = (length + FRAME_ALIGNMENT - 1) & ~(FRAME_ALIGNMENT - 1)
            if int.from_bytes(frames[at + 6 : at + 8], "little") != TYPE_DATA:
                if at > start:
                    self._append(frames[start:at])
                self._append_padding(frames[at : at + DATA_HEADER_LENGTH], aligned)
                start = at + aligned
            at += aligned
        if at > start:
            self._append(frames[start:at])

    def _append(self, frames: memoryview) -> None:
        self._segments.write(frames)
        self._checksum = zlib.crc32(frames, self._checksum)

    def _append_padding(self, header: memoryview, aligned: int) -> None:
        self._segments.write_padding(header, aligned)
        self._checksum = zlib.crc32(header, self._checksum)
        # The file holds zeros there.
        left = aligned - DATA_HEADER_LENGTH
        while left > 0:
            self._checksum = zlib.crc32(ZEROS[:left], self._checksum)
            left -= len(ZEROS)

    def end_life(self) -> None:
        """Notes that the publisher ended the stream: another that has its ids begins another recording."""
        self._positions.end_life()

    def close(self) -> None:
        """Closes the files; may be called twice. The catalog is the recorder's matter."""
        self._segments.close()
        if self._durable:
            self._positions.sync()
        self._positions.close()

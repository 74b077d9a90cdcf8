"""Records one image, run by run, from the first available frame."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem._core.log.columns import FrameWalk
from mainstem._internal.clock import NS_PER_MS
from mainstem.recording.start_limits import RETRY_NS

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainstem._internal.clock import Clock
    from mainstem.recording.protocols import RecordableImage
    from mainstem.recording.writer import RecordingWriter


class ImageRecording:
    """One image and its recording. Frames before the recorded position are skipped.

    ``writer`` is None until there are frames, so an empty stream has no catalog entry and no files. ``begin`` creates a writer, or
    returns None if a limit makes the stream wait.
    """

    def __init__(
        self,
        image: RecordableImage,
        writer: RecordingWriter | None,
        clock: Clock,
        begin: Callable[[], RecordingWriter | None],
    ) -> None:
        self.image, self.writer = image, writer
        self._clock, self._begin = clock, begin
        self._walk = FrameWalk()
        self._retry_ns = 0
        self.waits = False

    def do_work(self) -> int:
        """Write and release one run of the available frames. Return its size in bytes."""
        image, log, position = self.image, self.image.log, self.image.position
        offset, term_end = image.readable()
        writer = self.writer
        if writer is None:
            # A recording begins with the first frame.
            self._walk.run(log, offset, term_end, 1)
            writer = self._begun() if self._walk.offset > offset else None
            if writer is None:
                return 0
        length = 0
        if writer.position > position:
            # These frames were recorded before the recorder was restarted.
            self._walk.run(log, offset, min(offset + writer.position - position, term_end))
            length = self._walk.offset - offset
        if writer.position == position + length:
            length += writer.take(log, offset + length, term_end, self._clock.epoch_ms() * NS_PER_MS)
        assert writer.position >= position + length, "frames are released that are not recorded"
        if length:
            image.release(position + length)
        return length

    def _begun(self) -> RecordingWriter | None:
        now_ns = self._clock.monotonic_ns()
        if self.waits and now_ns < self._retry_ns:
            return None
        self.writer = self._begin()
        self.waits, self._retry_ns = self.writer is None, now_ns + RETRY_NS
        return self.writer

"""One image of a recorder, moved run by run into its recording, which begins with the first frame that is there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem._core.layout import WALK_TORN
from mainstem._core.log.columns import FrameWalk
from mainstem.clock import NS_PER_MS
from mainstem.recording.start_limits import RETRY_NS

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainstem.clock import Clock
    from mainstem.recording.protocols import RecordableImage
    from mainstem.recording.writer import RecordingWriter

# A run is written and released at once: enough to make a system call worth its price, and the index fine enough.
MAX_RUN_LENGTH = 256 << 10


class ImageRecording:
    """One image and the recording that it is written to. Frames before the recorded position are skipped.

    ``writer`` is None until there are frames: a stream without any has no entry in the catalog and no files. Then ``begin`` makes
    one, or returns None where a limit makes the stream wait.
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
        """Writes a run of the frames that are available, and releases it; returns its bytes."""
        image, walk = self.image, self._walk
        position = image.position
        offset, term_end = image.readable()
        log = image.log
        walk.run(log, offset, min(offset + MAX_RUN_LENGTH, term_end))
        if walk.offset == offset and walk.stopped == WALK_TORN:
            # Padding is the one frame that can be longer than a run.
            walk.run(log, offset, term_end)
        length = walk.offset - offset
        writer = self.writer or (self._begun() if length else None)
        if writer is None:
            return 0
        skip = min(max(writer.position - position, 0), length)
        if skip < length:
            run = log.view(offset + skip, length - skip)
            try:
                writer.write(run, self._clock.epoch_ms() * NS_PER_MS)
            finally:
                run.release()
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

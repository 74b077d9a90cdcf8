"""A subscription that an archive records, and one of its recordings, which writes the frames of one image."""

from __future__ import annotations

import errno
import logging
import struct
from collections import deque
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any

from mainstem._internal.clock import NS_PER_MS
from mainstem.archive.messages import RecordingSignal, encode
from mainstem.archive.server.request_errors import reason_of
from mainstem.errors import ArchiveErrorCode, MainstemError

if TYPE_CHECKING:
    from mainstem._internal.clock import Clock
    from mainstem.aeron.client.operation import Operation
    from mainstem.archive.server.control_session import ControlSession
    from mainstem.archive.server.counters import DiskTimes
    from mainstem.archive.server.files import ArchiveFiles
    from mainstem.recording.catalog import RecordingDescriptor
    from mainstem.recording.writer import RecordingWriter

log = logging.getLogger("mainstem.archive")

POSITION_COUNTER = 100
LONG_RUN = 128 << 10  # bytes; after a write of at least this length, more may be available
MAX_SOURCE_LENGTH = 88  # bytes of the source identity in the counter's key
MAX_LABEL_LENGTH = 380
_POSITION_KEY = struct.Struct("<qii")


def position_counter(descriptor: RecordingDescriptor, archive_id: int) -> tuple[bytes, str]:
    """Return the key and the label of a recording's position counter."""
    d = descriptor
    source = d.source_identity.encode("ascii", "replace")[:MAX_SOURCE_LENGTH]
    key = _POSITION_KEY.pack(d.recording_id, d.session_id, len(source)) + source + struct.pack("<q", archive_id)
    end = f" - archiveId={archive_id}"
    label = f"rec-pos: {d.recording_id} {d.session_id} {d.stream_id} {d.stripped_channel}"
    return key, label[: MAX_LABEL_LENGTH - len(end)] + end


class RecordingEvents:
    """Publishes recording events, if there is a publication. Events that do not fit into it are dropped."""

    def __init__(self, publication: Any) -> None:
        self._publication = publication

    def send(self, name: str, *, attempts: int = 3, **values: Any) -> bool:
        """Offer an event. Return whether the publication accepted it."""
        if self._publication is None:
            return True
        if not self._publication.is_connected:
            return False
        message = encode(name, **values)
        return any(self._publication.offer(message) > 0 for _ in range(attempts))

    def close(self) -> None:
        if self._publication is not None:
            self._publication.close()


@dataclass(eq=False)
class RecordingSubscription:
    """A subscription whose images are recorded.

    Attributes:
        registration_id: The driver's registration id; -1 until the subscription has been added.
        arrived: Images that have become available and are not being recorded yet.
        waiting: Images that are not being recorded because of a limit.
        extends: The recording that the image continues; None for new recordings.
        sessions: The active recordings.
        latest: The recording that began last; None before the first.
        error: The most recent error; empty if nothing failed.
        is_examining: Whether the recording to extend is being examined.
        ends_when_idle: Whether the subscription ends with its last active recording, because one was stopped by its id.
    """

    control: ControlSession
    correlation_id: int
    _: KW_ONLY
    key: str
    channel: str
    original_channel: str
    stripped_channel: str
    stream_id: int
    auto_stop: bool
    extends: int | None = None
    registration_id: int = -1
    arrived: deque[Any] = field(default_factory=deque)
    waiting: deque[Any] = field(default_factory=deque)
    sessions: list[RecordingSession] = field(default_factory=list)
    latest: RecordingSession | None = None
    error: str = ""
    ends_when_idle: bool = False
    is_examining: bool = False
    operation: Operation[Any] | None = None
    subscription: Any = None

    def fail(self, text: str, code: ArchiveErrorCode = ArchiveErrorCode.GENERIC) -> None:
        """Report an error that occurred after the response, under the correlation id of the request."""
        self.error = text
        self.control.fail(self.correlation_id, text, code)

    def close(self) -> None:
        """Close the subscription, or cancel adding it."""
        if self.operation is not None:
            self.operation.cancel()
            self.operation = None
        if self.subscription is not None:
            self.subscription.close()


class RecordingSession:
    """Records one image: adds the counter of its position first, then writes frames as they arrive.

    Attributes:
        image: The image to record.
        is_done: Whether the recording has ended.
        is_cut: Whether the recording ended because its image was lost or revoked.
        is_drained: Whether the recording ended because its publisher ended the stream, and contains the whole stream.
    """

    def __init__(
        self,
        owner: RecordingSubscription,
        image: Any,
        writer: RecordingWriter,
        signal: RecordingSignal,
        adding: Operation[Any],
        files: ArchiveFiles,
        events: RecordingEvents,
        clock: Clock,
        writes: DiskTimes,
    ) -> None:
        self.owner = owner
        self.writer = writer
        self.is_done = self.is_cut = self.is_drained = self._is_signaled = False
        self.image = image
        self._signal = signal
        self._files, self._events, self._clock, self._writes = files, events, clock, writes
        self._adding: Operation[Any] | None = adding
        self._counter: Any = None
        self._start_position = writer.position
        self._reported = writer.position

    @property
    def is_starting(self) -> bool:
        """Whether the counter has not been added yet."""
        return self._adding is not None

    @property
    def is_unreported(self) -> bool:
        """Whether the latest progress event has not been sent for lack of room."""
        return not self.is_done and self._reported != self.position

    @property
    def recording_id(self) -> int:
        return self.writer.descriptor.recording_id

    @property
    def position(self) -> int:
        """The position up to which the image has been recorded."""
        return self.writer.position

    def do_work(self, share: int) -> int:
        """Write available frames, up to ``share`` bytes. Return the number of bytes written."""
        if self._adding is not None and not self._has_begun():
            return 0
        image = self.image
        if image.closed:
            self._note_end()
            self.end()
            return 1
        length = written = 0
        try:
            while written < share:
                offset, term_end = image.readable()
                limit = min(term_end, offset + share - written)
                self._writes.begin()
                length = self.writer.take(image.log, offset, limit, self._clock.epoch_ms() * NS_PER_MS)
                if length:
                    self._writes.end(length)
                    image.release(image.position + length)
                    self._counter.set_release(self.position)
                    written += length
                if length < LONG_RUN:
                    break
        except MainstemError as error:  # before OSError, which some are too, without its errno and text
            self.end(f"recording {self.recording_id}: {error}")
            return 1
        except OSError as error:
            is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            self.end(
                f"recording {self.recording_id} cannot be written: {error.strerror}",
                ArchiveErrorCode.STORAGE_SPACE if is_full else ArchiveErrorCode.GENERIC,
            )
            return 1
        if not written and image.is_end_of_stream:
            self._note_end()
            self.end()
            return 1
        # Retry the progress event if there was no room for it.
        if self.is_unreported:
            self._report_progress()
        return written

    def _note_end(self) -> None:
        self.is_drained = self.image.is_end_of_stream and not self.image.is_publication_revoked
        self.is_cut = not self.is_drained

    def _has_begun(self) -> bool:
        assert self._adding is not None
        try:
            counter = self._adding.poll()
        except MainstemError as error:
            self.end(f"the position counter of recording {self.recording_id} cannot be added: {error}")
            return False
        if counter is None:
            return False
        self._adding, self._counter = None, counter
        counter.set_release(self.position)
        owner, descriptor = self.owner, self.writer.descriptor
        owner.control.signal(
            self._signal, owner.correlation_id, self.recording_id, owner.registration_id, self.position
        )
        self._events.send(
            "RecordingStarted",
            recording_id=self.recording_id,
            start_position=self.position,
            session_id=descriptor.session_id,
            stream_id=descriptor.stream_id,
            channel=descriptor.original_channel,
            source_identity=descriptor.source_identity,
        )
        return True

    def _report_progress(self) -> None:
        position = self.position
        if self._events.send(
            "RecordingProgress",
            attempts=1,
            recording_id=self.recording_id,
            start_position=self._start_position,
            position=position,
        ):
            self._reported = position

    def end(self, error: str = "", code: ArchiveErrorCode = ArchiveErrorCode.GENERIC) -> None:
        """Stop the recording at its current position, and report it."""
        self.stop(error, code)
        self.signal_stop()

    def stop(self, error: str = "", code: ArchiveErrorCode = ArchiveErrorCode.GENERIC) -> None:
        """Stop the recording at its current position. The caller calls ``signal_stop`` next, after signals that precede it."""
        if self.is_done:
            return
        self.is_done = True
        try:
            if self.image.is_end_of_stream:
                self.writer.end_life()
            self._files.stop(self.writer)
        except Exception as failure:
            error = error or f"recording {self.recording_id} cannot be stopped in the catalog: {reason_of(failure)}"
        if error:
            log.error("%s", error)
            self.owner.fail(error, code)
        self._events.send(
            "RecordingStopped",
            recording_id=self.recording_id,
            start_position=self._start_position,
            stop_position=self.position,
        )
        if self._adding is not None:
            self._adding.cancel()
        if self._counter is not None:
            self._counter.close()

    def signal_stop(self) -> None:
        """Send the signal STOP. Can be called twice."""
        if not self._is_signaled:
            self._is_signaled = True
            owner = self.owner
            owner.control.signal(
                RecordingSignal.STOP, owner.correlation_id, self.recording_id, owner.registration_id, self.position
            )

"""The recorder: copies subscriptions into segments, run by run, each byte once, even across crashes.

Theory of operation
-------------------

One thread of one process records into a directory by calling ``do_work``. A lock on ``mainstem-recorder.lock`` keeps other
recorders out; the kernel releases it if the process dies. Readers in other threads and processes take no lock and write nothing.
For each image, the recorder walks the available whole frames in the image's term and writes the run, in this order:

1. the run of frames, from the term into its segment (``SegmentWriter.write``);
2. the index entries that are due in it (``IndexWriter.append``); with ``durable``, both are flushed to the device;
3. the recorded position, in one aligned release store (``IndexWriter.publish``);
4. the image's subscriber position (``image.release``), which lets the publisher continue.

So at any moment, even if the process is killed, start position <= subscriber position <= recorded position <= frames written. A
reader trusts everything before the recorded position and nothing after it. The kernel keeps what a killed process has written, so
steps 1 to 3 are ordered both for readers and for kills. Only a power failure can reorder them, unless ``durable`` is set.
Recordings, and runs of different images, can be written in any order. The catalog changes only when a recording starts, is extended
or stops. A recording becomes active (stop position unknown) after its positions are published, and stops after its files are
closed.

A recording starts with the first frame of its image, so an empty stream leaves nothing behind. The time to start a recording does
not depend on the number of recordings in the directory (``known_recordings``). The number of starts is limited (``start_limits``).
Beyond the limit a stream waits, and so does its publisher.

If the recorder itself dies, nothing is lost or repeated:

* Because of step 4, the subscriber position that the driver sees never passes the recorded position.
* A driver keeps the subscription of a dead client, which stalls the publisher, until the client liveness timeout (10 s by default).
  A new subscriber joins the image at the lowest position of all its subscribers. So a recorder that restarts within that time joins
  at or before the recorded position, and skips by position what is recorded already.
* For longer absences, a ``RecorderSlot`` (``recording.recorder_slot``) in any other process keeps the image, and so the publisher,
  at the recorded position until the recorder is back.
* A recorder that joins *past* the recorded position (the timeout passed without a slot) starts a new recording, whose start
  position shows the gap, and logs that.
* A position identifies a place in a stream, but not the life of the stream: a publisher that starts again can reuse its ids. So the
  index file names the recorded image and its driver (``life.StreamLife``). The same image means the same life, whose recording is
  extended. Another image from the network continues a recording only if it starts exactly where the recording ends, comes from the
  same source, and the publisher has not ended the stream, because a driver creates a new image of a stream that it meets again.
  Another image over IPC, or of a spy, is another publication. In all other cases, a new recording starts.
* After the host was restarted, the recorder determines the end of each recording again when it opens (``crash_recovery``), and
  truncates torn data. Only then can readers see the recorded position decrease.
"""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mainstem._core.log.columns import FrameWalk
from mainstem._internal.clock import NS_PER_MS, SYSTEM_CLOCK, Clock
from mainstem._internal.printable import printable
from mainstem.errors import MainstemError, RecordingError
from mainstem.recording.archive import local_archive
from mainstem.recording.catalog import NULL, RecordingDescriptor, check_texts
from mainstem.recording.directory import RecordingDirectory, call_all, stream_of
from mainstem.recording.known_recordings import KnownRecordings
from mainstem.recording.life import NO_LIFE, StreamLife
from mainstem.recording.reader import Progress, RecordingReader
from mainstem.recording.start_limits import MAX_NEW_RECORDINGS, RETRY_NS, StartLimits
from mainstem.store.disk import DISK, Disk

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainstem.recording.protocols import RecordableImage, RecordableSubscription
    from mainstem.recording.writer import RecordingWriter

log = logging.getLogger("mainstem.recording")

DEFAULT_SEGMENT_LENGTH = 128 << 20


def may_write_later(error: Exception) -> bool:
    """Return whether only a write failed, which the next call can repeat. Some of Mainstem's own errors are an OSError too."""
    return isinstance(error, OSError) and not isinstance(error, MainstemError)


def _log_gap(previous: RecordingDescriptor, join_position: int) -> None:
    log.warning(
        "stream %d session %d: joined at %d, but recording %d ends at %d; a new recording starts",
        previous.stream_id,
        previous.session_id,
        join_position,
        previous.recording_id,
        previous.stop_position,
    )


class Recorder:
    """Records into one directory, as its only recorder. Run ``do_work`` often; ``close`` ends the recordings.

    Opening it recovers. A recording that was not ended, because its recorder was killed or the host crashed, is
    ended at its recorded position, or earlier if its frames end earlier. After a power failure, recordings that ended shortly
    before it are checked as well. A recording that cannot be recovered is logged, and the others are recovered.

    Args:
        directory: The directory. If missing, it is created with mode 0750 minus the umask. Files in it get its mode without x,
            and its group.
        segment_length: The size of a segment file in bytes. The term length of a stream is used if it is larger.
        durable: Whether the recorded position advances only after the frames are on the device.
        clock: The source of recorded times.
        mode: The exact mode of the directory, such as ``0o770``, whether or not it exists.
        group: The group of the directory, by name or number.
        max_new_recordings: How many recordings can begin per hour, a quarter of them from one source. Other streams wait.
        disk: The file operations. Those of a simulation can fail at any step.
        on_recovery: Called about once a second while recovery takes long, with an object whose ``recording_id``, ``checked`` and
            ``total`` say how many bytes of which recording have been checked.

    Raises:
        RecordingError: Another recorder, or an Aeron Archive, is using the directory.
        ConfigurationError: The mode or group of the directory cannot be set, or ``max_new_recordings`` is less than 1.

    Example:
        ``with Recorder("tides") as recorder: recorder.add_subscription(subscription)``
    """

    def __init__(
        self,
        directory: Path | str,
        *,
        segment_length: int = DEFAULT_SEGMENT_LENGTH,
        durable: bool = False,
        clock: Clock = SYSTEM_CLOCK,
        mode: int | None = None,
        group: str = "",
        max_new_recordings: int = MAX_NEW_RECORDINGS,
        disk: Disk = DISK,
        on_recovery: Callable[[Any], object] = lambda _: None,
    ) -> None:
        self._limits = StartLimits(max_new_recordings)
        self.directory = Path(directory)
        self._segment_length = segment_length
        self._clock = clock
        self._subscriptions: list[RecordableSubscription] = []
        self._images: dict[int, ImageRecording] = {}
        self._refusals: set[str] = set()
        self._delayed = self._unrecorded = 0
        self._failed: dict[int, RecordableImage] = {}
        self._failures = 0
        self._directory = RecordingDirectory(
            self.directory, durable=durable, clock=clock, disk=disk, mode=mode, group=group
        )
        self._known = KnownRecordings(self.directory, self._directory.catalog, self._directory.recover(on_recovery))

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- recordings --------------------------------------------------------------------------------------------------

    def start(
        self,
        *,
        session_id: int,
        stream_id: int,
        initial_term_id: int,
        term_buffer_length: int,
        mtu_length: int,
        join_position: int,
        channel: str = "",
        source_identity: str = "",
        life: StreamLife = NO_LIFE,
    ) -> RecordingWriter:
        """Start or extend the recording of a stream that is available from ``join_position`` on.

        If a recording of the same life of the stream ended at or after ``join_position``, it is extended from its end, and the
        caller must skip what lies before that. Otherwise, a new recording starts at ``join_position``.

        Args:
            session_id: The session.
            stream_id: The stream.
            initial_term_id: The initial term id of the stream.
            term_buffer_length: The size of a term in bytes.
            mtu_length: The longest frame in bytes.
            join_position: The first available position.
            channel: The channel URI.
            source_identity: The address of the source, as in an image.
            life: The image of a stream that comes from a driver. Without it, the caller provides the stream. It has one life, and a
                recording with the same ids and channel belongs to it.

        Returns:
            The writer; end it with ``stop``.

        Raises:
            RecordingError: The previous recording is corrupt.
        """
        stream = RecordingDescriptor(
            recording_id=NULL,
            start_timestamp=NULL,
            start_position=join_position,
            initial_term_id=initial_term_id,
            term_buffer_length=term_buffer_length,
            mtu_length=mtu_length,
            session_id=session_id,
            stream_id=stream_id,
            stripped_channel=channel,
            original_channel=channel,
            source_identity=source_identity,
        )
        return self._extended(stream, life) or self._added(stream, life)

    def _extended(self, stream: RecordingDescriptor, life: StreamLife) -> RecordingWriter | None:
        """Extend the recording that a stream continues. Return None if there is none."""
        previous = self._known.previous(stream, life, self._directory.writers)
        if previous is None:
            return None
        if not previous.start_position <= stream.start_position <= previous.stop_position:
            _log_gap(previous, stream.start_position)
            return None
        with RecordingReader(local_archive(self.directory), previous) as reader:
            count = reader.count_before(previous.stop_position)
        return self._directory.open_writer(previous, count, life)

    def _added(self, stream: RecordingDescriptor, life: StreamLife) -> RecordingWriter:
        descriptor = self._directory.add_stream(stream, life, self._segment_length)
        self._known.add(descriptor)
        return self._directory.open_writer(descriptor, Progress(descriptor.stop_position, 0), life)

    def stop(self, writer: RecordingWriter) -> RecordingDescriptor:
        """End a recording: close its files and write its stop position to the catalog.

        Args:
            writer: The writer that ``start`` returned.

        Returns:
            The final descriptor.
        """
        return self._directory.stop(writer)

    @property
    def written(self) -> dict[int, int]:
        """How many messages this recorder has written to each recording, by recording id."""
        return self._directory.written

    # -- subscriptions -----------------------------------------------------------------------------------------------

    def add_subscription(self, subscription: RecordableSubscription) -> None:
        """Record all present and future images of a subscription. The caller closes the subscription.

        Args:
            subscription: An Aeron subscription, or an object like it.

        Raises:
            RecordingError: The channel is too long: an archive could not list its recordings.
        """
        check_texts(subscription.channel, subscription.channel)
        self._subscriptions.append(subscription)

    def do_work(self) -> int:
        """Write the available frames to the segments.

        An error is raised after the other images have been recorded. The recorder can continue after it.

        Returns:
            The number of bytes.

        Raises:
            RecordingError: An image cannot be recorded, for example because it contains something other than frames. Its recording
                has ended, and later calls ignore the image (``has_failed``). Or another process has cut the mark file short.
            OSError: A write failed. The recorded position has not advanced past it. The next call tries again.
        """
        self._directory.mark.touch()
        bytes_moved = 0
        live: set[int] = set()
        failure: Exception | None = None
        for subscription in self._subscriptions:
            for image in subscription.images:
                if image.closed:
                    continue
                key = id(image)
                live.add(key)
                if key in self._failed:
                    continue
                try:
                    recording = self._images.get(key) or self._joined(subscription, image)
                    bytes_moved += recording.do_work()
                except Exception as error:
                    if not may_write_later(error):
                        self._give_up(image, error)
                    failure = failure or error
        for key in [key for key in self._failed if key not in live]:
            del self._failed[key]
        for key in [key for key in self._images if key not in live]:
            recording = self._images.pop(key)
            try:
                self._end(recording)
            except Exception as error:
                if not may_write_later(error):
                    self._note_failure(recording.image, error)
                failure = failure or error
        if failure is not None:
            raise failure
        return bytes_moved

    def _give_up(self, image: RecordableImage, error: Exception) -> None:
        """Stop the recording of an image that cannot be recorded, and ignore the image from now on."""
        self._failed[id(image)] = image
        self._note_failure(image, error)
        recording = self._images.pop(id(image), None)
        if recording is not None and recording.writer is not None:
            try:
                self.stop(recording.writer)
            except Exception as another:
                self._note_failure(image, another)

    def _note_failure(self, image: RecordableImage, error: Exception) -> None:
        self._failures += 1
        log.error(
            "stream %d session %d from %s is no longer recorded: %s",
            image.stream_id,
            image.session_id,
            printable(image.source_identity),
            printable(str(error) if isinstance(error, RecordingError) else f"{type(error).__name__}: {error}"),
            exc_info=None if isinstance(error, RecordingError) else error,
        )

    def _end(self, recording: ImageRecording) -> None:
        if recording.writer is None:
            self._unrecorded += recording.waits
            return
        if recording.image.is_end_of_stream:
            recording.writer.end_life()
        self.stop(recording.writer)

    def _joined(self, subscription: RecordableSubscription, image: RecordableImage) -> ImageRecording:
        life = StreamLife(image.driver_start_ms, image.correlation_id)
        stream = stream_of(image, subscription.channel)
        recording = ImageRecording(
            image, self._extended(stream, life), self._clock, lambda: self._admitted(recording, stream, life)
        )
        self._images[id(image)] = recording
        return recording

    def _admitted(
        self, recording: ImageRecording, stream: RecordingDescriptor, life: StreamLife
    ) -> RecordingWriter | None:
        """Start the recording of an image that has frames. Return None if it must wait because of a limit."""
        writer = self._extended(stream, life)
        if writer is not None:
            return writer
        if self._directory.catalog.is_full:
            refusal = "the catalog is full; record into another directory"
        else:
            refusal = self._limits.refusal(
                stream.source_identity, len(self._directory.writers), self._clock.monotonic_ns()
            )
        if not refusal:
            return self._added(stream, life)
        self._delayed += not recording.waits
        if refusal not in self._refusals:
            self._refusals.add(refusal)
            log.warning(
                "stream %d session %d from %s waits to be recorded, and others may: %s",
                stream.stream_id,
                stream.session_id,
                printable(stream.source_identity),
                refusal,
            )
        return None

    @property
    def delayed(self) -> int:
        """How many streams with frames have had to wait because of a limit on recordings (``max_new_recordings``, for example)."""
        return self._delayed

    @property
    def unrecorded(self) -> int:
        """How many of the delayed streams are waiting now, or ended before they could be recorded."""
        return self._unrecorded + sum(recording.waits for recording in self._images.values())

    @property
    def failures(self) -> int:
        """How many failures ended the recording of a stream. Each is logged with its reason."""
        return self._failures

    def has_failed(self, image: Any) -> bool:
        """Return whether a failure ended the recording of ``image``."""
        return id(image) in self._failed

    @property
    def writers(self) -> tuple[RecordingWriter, ...]:
        """The recordings that are being written."""
        return tuple(self._directory.writers.values())

    @property
    def active(self) -> dict[int, int]:
        """The recorded position of each recording that is being written, by recording id."""
        return {recording_id: writer.position for recording_id, writer in self._directory.writers.items()}

    def close(self) -> None:
        """End every recording and unlock the directory. Idempotent."""
        ends = [partial(self._end, recording) for recording in self._images.values()]
        self._images.clear()
        call_all([*ends, self._directory.close])


# -- one image ---------------------------------------------------------------------------------------------------------


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

"""The recorder: any subscription, moved run by run into segments, each byte once, whatever is killed when.

Theory of operation
-------------------

One thread of one process records into a directory: it calls ``do_work``, and a lock on ``mainstem-recorder.lock``, which the
kernel releases when the process dies, keeps every other recorder out. Readers are other threads and processes; they take no
lock and write nothing. For each image the recorder walks the frames that are available in the image's term, as far as they
are whole, and writes the run. What it writes, and in which order:

1. an entry of the index, where one is due, before any frame past its position (``positions.append``);
2. the run of frames into its segment (``segments.write``); with ``durable``, to the device;
3. the recorded position, in one aligned release store (``positions.publish``);
4. the subscriber's position of the image (``image.release``), which lets the publisher go on.

So: start position <= subscriber position <= recorded position <= frames written, at any moment, of any process that is
alive or was killed. A reader trusts everything before the recorded position and nothing behind it. The kernel keeps what a
killed process has written, so steps 1 to 3 are ordered for readers and for kills; only a loss of power may reorder them, unless
``durable``. Recordings, and runs of different images, may be written in any order. The catalog changes only when a recording
starts, is extended or stops: a recording becomes active (stop position unknown) after its positions are published, and stops
after its files are closed.

How nothing is lost or doubled over the recorder's own death:

* Because of step 4 the subscriber position that the driver sees never passes the recorded position.
* A driver keeps a dead client's subscription until the client liveness timeout (10 s by default) has passed, and its position
  goes on holding the publisher back; a new subscriber joins the image at the lowest position of all its subscribers. A
  recorder that comes back within that time therefore joins at or before the recorded position. What it reads again it
  skips, by position.
* For longer absences a ``PositionHold`` (``recording.position_hold``), in any process that lives on, holds the image at the
  recorded position, and so the publisher, until the recorder is back.
* A recorder that joins *past* the recorded position (the timeout has passed and no one held the image) hides nothing: it
  starts a new recording, whose start position shows the gap, and logs it.
* Positions say where, not of which life of the stream: a publisher that begins again may have the ids that it had. So the
  positions file names the image that is recorded, and the driver it is of (``life.StreamLife``). The same image is the
  same life, and its recording is extended. Another image of the network continues a recording only exactly where that ends, from
  the same source, and if the publisher had not ended the stream: a driver makes a new image of a stream that it met again.
  Another image over IPC or of a spy is another publication. Everything else begins a new recording.
* After the machine itself went down, the end of each recording is determined by a walk of its frames: what is torn is cut.
  Recovery runs when the recorder opens, before the first run is written; readers see the recorded position go back then, and
  only then.
"""

from __future__ import annotations

import fcntl
import logging
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING

from mainstem._core.layout import WALK_TORN
from mainstem._core.log.columns import FrameWalk
from mainstem.access import RECORDINGS_MODE, make_directory
from mainstem.clock import NS_PER_MS, SYSTEM_CLOCK, Clock
from mainstem.errors import RecordingError
from mainstem.recording.catalog import NULL, Catalog, RecordingDescriptor
from mainstem.recording.disk import DISK, Disk
from mainstem.recording.ends import find_end
from mainstem.recording.life import ENDED, NO_LIFE, OF_ARCHIVE, StreamLife, is_of_network
from mainstem.recording.mark_file import ArchiveMark
from mainstem.recording.positions import open_positions
from mainstem.recording.reader import Progress, RecordingReader
from mainstem.recording.segments import recording_ids
from mainstem.recording.writer import RecordingWriter

if TYPE_CHECKING:
    from mainstem.recording.protocols import RecordableImage, RecordableSubscription

log = logging.getLogger(__name__)

LOCK_FILE = "mainstem-recorder.lock"
# A run is written and released at once: enough to make a system call worth its price, and the index fine enough.
MAX_RUN_LENGTH = 256 << 10
DEFAULT_SEGMENT_LENGTH = 128 << 20


class ImageRecording:
    """One image and the recording that it is written to. Frames before the recorded position are skipped."""

    def __init__(self, image: RecordableImage, writer: RecordingWriter, clock: Clock) -> None:
        self.image, self.writer, self._clock = image, writer, clock
        self._walk = FrameWalk()

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
        skip = min(max(self.writer.position - position, 0), length)
        if skip < length:
            run = log.view(offset + skip, length - skip)
            try:
                self.writer.write(run, self._clock.epoch_ms() * NS_PER_MS)
            finally:
                run.release()
        assert self.writer.position >= position + length, "frames are released that are not recorded"
        if length:
            image.release(position + length)
        return length


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

    Opening it recovers: a recording that was not ended, because its recorder was killed or the machine went down, is
    ended at its recorded position, or earlier where its frames end earlier.

    Args:
        directory: Is created where it is missing, with the mode 0750 less the umask. Files in it have its mode, without x,
            and its group (``mainstem.access``).
        segment_length: Bytes of a segment file; at least the term length of each stream.
        durable: Whether the recorded position moves only when the frames are on the device.
        clock: The time that is recorded.
        mode: The exact mode of the directory, as ``0o770``, whether it is there or not.
        group: Its group, by name or number.
        disk: What files are written through; a simulation's may fail at any step.

    Raises:
        RecordingError: Another recorder, or an Aeron Archive, has the directory.
        ConfigurationError: The directory cannot be given that mode or group.

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
        disk: Disk = DISK,
    ) -> None:
        self.directory = Path(directory)
        make_directory(self.directory, default=RECORDINGS_MODE, mode=mode, group=group)
        self._segment_length = segment_length
        self._durable = durable
        self._clock = clock
        self._disk = disk
        self._lock = disk.open(self.directory / LOCK_FILE)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            disk.close(self._lock)
            raise RecordingError(f"another recorder is at work in {self.directory}") from error
        self._subscriptions: list[RecordableSubscription] = []
        self._images: dict[int, ImageRecording] = {}
        self._writers: dict[int, RecordingWriter] = {}
        self._closed = False
        with ExitStack() as stack:
            stack.callback(disk.close, self._lock)
            self._mark = ArchiveMark(self.directory, clock, disk)
            stack.callback(self._mark.end)
            self._catalog = Catalog(self.directory, durable=durable, disk=disk)
            stack.callback(self._catalog.close)
            self._recover()
            stack.pop_all()

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- recovery ----------------------------------------------------------------------------------------------------

    def _recover(self) -> None:
        for descriptor in self._catalog.recordings():
            if descriptor.stop_position == NULL:
                end = self._recovered_end(descriptor)
                self._catalog.stop(descriptor, end, self._clock.epoch_ms())

    def _recovered_end(self, descriptor: RecordingDescriptor) -> int:
        positions = open_positions(self.directory, descriptor)
        if positions is None:
            return find_end(self.directory, descriptor).suspect
        recorded = positions.recorded_position
        positions.close()
        end = find_end(self.directory, descriptor, limit=recorded)
        if end.position < recorded:
            log.warning(
                "recording %d was recorded up to %d, but its frames end at %d (%s): it is cut there",
                descriptor.recording_id,
                recorded,
                end.position,
                end.reason,
            )
        return end.position

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
        """Starts or extends the recording of a stream that is available from ``join_position`` on.

        A recording of the same life of the stream that ended at or after ``join_position`` is extended from its end, and the caller
        skips what lies before that; else a new recording starts at ``join_position``.

        Args:
            session_id: The session.
            stream_id: The stream.
            initial_term_id: The initial term id of the stream.
            term_buffer_length: Bytes of a term.
            mtu_length: The longest frame in bytes.
            join_position: The first position that is available.
            channel: The channel URI.
            source_identity: The address of the source, as an image names it.
            life: The image, of a stream from a driver. Without it the stream is the caller's own: it has one life, and a
                recording of the same ids and channel is of it.

        Returns:
            The writer; end it with ``stop``.

        Raises:
            RecordingError: The previous recording is damaged.

        Example:
            ``ImageRecording`` shows it.
        """
        ids = (session_id, stream_id, initial_term_id, term_buffer_length)
        previous = self._previous(ids, life, join_position, channel, source_identity)
        if previous is not None and previous.start_position <= join_position <= previous.stop_position:
            with RecordingReader(self.directory, previous) as reader:
                count = reader.count_before(previous.stop_position)
            descriptor, position = previous, previous.stop_position
        else:
            if previous is not None:
                _log_gap(previous, join_position)
            position, count = join_position, Progress(join_position, 0)
            descriptor = self._catalog.add(
                RecordingDescriptor(
                    recording_id=NULL,
                    start_timestamp=self._clock.epoch_ms(),
                    start_position=join_position,
                    stop_position=join_position,
                    initial_term_id=initial_term_id,
                    segment_file_length=max(self._segment_length, term_buffer_length),
                    term_buffer_length=term_buffer_length,
                    mtu_length=mtu_length,
                    session_id=session_id,
                    stream_id=stream_id,
                    stripped_channel=channel,
                    original_channel=channel,
                    source_identity=source_identity,
                    control_session_id=life.driver_start_ms,
                    correlation_id=life.image_id,
                ),
                # Segments without an entry are of a recording whose entry was lost: they stay.
                min_id=max(recording_ids(self.directory), default=-1) + 1,
            )
        whole = count.position == position
        writer = RecordingWriter(
            self.directory,
            descriptor,
            position,
            messages=count.messages,
            whole=whole,
            life=life,
            durable=self._durable,
            disk=self._disk,
        )
        # Active in the catalog only once its positions are published: a reader of an active recording trusts those.
        writer.descriptor = self._catalog.extend(descriptor)
        self._writers[descriptor.recording_id] = writer
        return writer

    def _previous(
        self, ids: tuple[int, int, int, int], life: StreamLife, join_position: int, channel: str, source_identity: str
    ) -> RecordingDescriptor | None:
        """The last recording of the same life of a stream; None where there is none, or it is being written."""
        of_channel: RecordingDescriptor | None = None
        for d in reversed(self._catalog.recordings()):
            if (d.session_id, d.stream_id, d.initial_term_id, d.term_buffer_length) != ids:
                continue
            recorded = self._recorded_life(d)
            if recorded == life and (life != NO_LIFE or d.original_channel == channel):
                return d if d.recording_id not in self._writers else None
            if of_channel is None and d.original_channel == channel:
                of_channel = d
                may_go_on = recorded not in (None, NO_LIFE, ENDED) and d.recording_id not in self._writers
        if of_channel is None or not may_go_on or not is_of_network(channel, source_identity):
            return None
        # A driver makes a new image of a stream that it meets again, and a publisher's position never goes back.
        is_same_source = of_channel.source_identity == source_identity
        return of_channel if is_same_source and of_channel.stop_position <= join_position else None

    def _recorded_life(self, descriptor: RecordingDescriptor) -> StreamLife | None:
        """What a recording is of; None for one that an archive wrote or extended."""
        positions = open_positions(self.directory, descriptor)
        if positions is None:
            # Its recorder was killed when it had only the entry.
            is_empty = descriptor.start_position == descriptor.stop_position
            return descriptor.origin if is_empty and descriptor.origin != OF_ARCHIVE else None
        with closing(positions):
            return positions.life

    def stop(self, writer: RecordingWriter) -> RecordingDescriptor:
        """Ends a recording: closes its files and writes its stop position to the catalog.

        Args:
            writer: What ``start`` returned.

        Returns:
            The final descriptor.

        Example:
            ``recorder.stop(writer).stop_position``
        """
        writer.close()
        self._writers.pop(writer.descriptor.recording_id, None)
        return self._catalog.stop(writer.descriptor, writer.position, self._clock.epoch_ms())

    # -- subscriptions -----------------------------------------------------------------------------------------------

    def add_subscription(self, subscription: RecordableSubscription) -> None:
        """Records every image of a subscription, present and future. The caller closes the subscription.

        Args:
            subscription: An Aeron subscription, or an object like it.

        Example:
            ``recorder.add_subscription(aeron.add_subscription("aeron:ipc", 1001))``
        """
        self._subscriptions.append(subscription)

    def do_work(self) -> int:
        """Writes the frames that are available to the segments.

        Returns:
            The number of bytes.

        Raises:
            RecordingError: An image holds what is not frames.
            OSError: The disk refused a write; the recorded position has not moved over what failed.

        Example:
            ``while running: recorder.do_work() or time.sleep(0.001)``
        """
        self._mark.touch()
        bytes_moved = 0
        live: set[int] = set()
        for subscription in self._subscriptions:
            for image in subscription.images:
                if image.is_closed:
                    continue
                live.add(id(image))
                recording = self._images.get(id(image)) or self._joined(subscription, image)
                bytes_moved += recording.do_work()
        for key in [key for key in self._images if key not in live]:
            self._end(self._images.pop(key))
        return bytes_moved

    def _end(self, recording: ImageRecording) -> None:
        if recording.image.is_end_of_stream:
            recording.writer.end_life()
        self.stop(recording.writer)

    def _joined(self, subscription: RecordableSubscription, image: RecordableImage) -> ImageRecording:
        writer = self.start(
            session_id=image.session_id,
            stream_id=image.stream_id,
            initial_term_id=image.initial_term_id,
            term_buffer_length=image.term_length,
            mtu_length=image.mtu,
            join_position=image.position,
            channel=subscription.channel,
            source_identity=image.source_identity,
            life=StreamLife(image.driver_start_ms, image.correlation_id),
        )
        recording = self._images[id(image)] = ImageRecording(image, writer, self._clock)
        return recording

    @property
    def writers(self) -> tuple[RecordingWriter, ...]:
        """The recordings that are being written."""
        return tuple(self._writers.values())

    @property
    def active(self) -> dict[int, int]:
        """The recorded position of each recording that is being written, by recording id."""
        return {recording_id: writer.position for recording_id, writer in self._writers.items()}

    def close(self) -> None:
        """Ends every recording and unlocks the directory. May be called twice.

        Example:
            ``recorder.close()``
        """
        if self._closed:
            return
        self._closed = True
        while self._images:
            self._end(self._images.popitem()[1])
        for writer in list(self._writers.values()):
            self.stop(writer)
        self._catalog.close()
        self._mark.end()
        self._disk.close(self._lock)

"""The archive's recordings: the subscriptions that clients asked for, and one recording for each of their images."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from mainstem.aeron.channel import ChannelUri
from mainstem.archive.channels import recording_channel, recording_key, stripped
from mainstem.archive.messages import NULL, RecordingSignal, SourceLocation
from mainstem.archive.server.duty_cycle import step_each
from mainstem.archive.server.extension import Extension
from mainstem.archive.server.recording_session import (
    POSITION_COUNTER,
    RecordingSession,
    RecordingSubscription,
    position_counter,
)
from mainstem.archive.server.request_errors import reason_of, request_error
from mainstem.errors import ArchiveError, ArchiveErrorCode, MainstemError
from mainstem.recording.catalog import check_texts
from mainstem.recording.start_limits import RETRY_NS

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainstem._internal.clock import Clock
    from mainstem.aeron.client import Aeron
    from mainstem.archive.messages import Message
    from mainstem.archive.server.active_recordings import ActiveRecordings
    from mainstem.archive.server.control_session import ControlSession
    from mainstem.archive.server.counters import DiskTimes
    from mainstem.archive.server.deletions import Deletions
    from mainstem.archive.server.duty_cycle import DutyCycle
    from mainstem.archive.server.files import ArchiveFiles
    from mainstem.archive.server.recording_session import RecordingEvents
    from mainstem.archive.server.refused_requests import RefusedRequests
    from mainstem.archive.server.settings import ArchiveSettings
    from mainstem.recording.catalog import RecordingDescriptor
    from mainstem.recording.writer import RecordingWriter

# Bytes of frames written per cycle, about two milliseconds of work, shared by the recordings that have frames to write. Each gets
# at least MIN_SHARE, which fits the longest frame.
BYTES_PER_CYCLE, MIN_SHARE = 4 << 20, 64 << 10
IMAGES_PER_RETRY = 64  # waiting images of a subscription for which the limits are checked again at once


class Recordings:
    """Starts, extends, runs and stops recordings. ``subscriptions`` has the open subscriptions by key, so requests find each."""

    def __init__(
        self,
        aeron: Aeron,
        files: ArchiveFiles,
        settings: ArchiveSettings,
        clock: Clock,
        cycle: DutyCycle,
        active: ActiveRecordings,
        deletions: Deletions,
        events: RecordingEvents,
        refused: RefusedRequests,
        writes: DiskTimes,
    ) -> None:
        self._aeron, self._files, self._settings, self._clock = aeron, files, settings, clock
        self._cycle, self.active, self._deletions = cycle, active, deletions
        self._events, self._refused, self._writes = events, refused, writes
        self.subscriptions: dict[str, RecordingSubscription] = {}
        # Subscriptions with a pending command or with new images.
        self._changed: dict[RecordingSubscription, None] = {}
        # Subscriptions with images that wait for a limit of recordings, and when the limits are checked again.
        self._waiting: dict[RecordingSubscription, None] = {}
        self._retry_ns = cycle.now_ns
        self._extensions: list[Extension] = []
        self._steps: tuple[Callable[[], int], ...] = (
            self._work_of_subscriptions,
            self._work_of_waiting_images,
            self._work_of_extensions,
            self._work_of_recordings,
        )

    def do_work(self) -> int:
        return self._cycle.run(self._steps)

    def end(self) -> None:
        """End all recordings. ``close`` closes their subscriptions."""
        self._cycle.run([each.close for each in self._extensions])
        self._cycle.run([recording.end for recording in self.active])
        self._extensions.clear()
        self.active.clear()

    def close(self) -> None:
        self._cycle.run([each.close for each in self.subscriptions.values()])

    # -- starting ----------------------------------------------------------------------------------------------------

    def start(self, session: ControlSession, request: Message) -> None:
        self._check_recordings()
        self._check_space()
        self._subscribe(session, request, extends=None)

    def extend(self, session: ControlSession, request: Message) -> RecordingSubscription:
        """Extend a recording. Return the subscription that does it."""
        self._check_recordings()
        descriptor = self._files.known(request.recording_id)
        if descriptor.stream_id != request.stream_id:
            raise request_error(
                f"cannot extend recording {descriptor.recording_id} with streamId={request.stream_id} "
                f"for existing streamId={descriptor.stream_id}",
                ArchiveErrorCode.UNKNOWN_RECORDING,
            )
        self._check_extendable(descriptor)
        self._check_space()
        return self._subscribe(session, request, extends=descriptor.recording_id)

    def start_extension(self, session: ControlSession, request: Message) -> None:
        self.extend(session, request)

    def _check_recordings(self) -> None:
        count = len(self.active) + sum(entry.latest is None for entry in self.subscriptions.values())
        limit = self._settings.max_concurrent_recordings
        if count >= limit:
            raise request_error(f"max concurrent recordings reached {limit}", ArchiveErrorCode.MAX_RECORDINGS)
        limit = self._settings.max_recording_subscriptions
        if len(self.subscriptions) >= limit:
            raise request_error(f"max recording subscriptions reached {limit}", ArchiveErrorCode.MAX_RECORDINGS)

    def _check_space(self) -> None:
        free, threshold = self._files.free_space, self._settings.low_storage_space_threshold
        if free <= threshold:
            raise request_error(
                f"low storage threshold={threshold} <= usableSpace={free}", ArchiveErrorCode.STORAGE_SPACE
            )

    def _check_extendable(self, descriptor: RecordingDescriptor) -> None:
        recording_id = descriptor.recording_id
        self.active.check_inactive("extend", recording_id)
        if self._deletions.reaches(recording_id, descriptor.stop_position):
            raise request_error(f"cannot extend recording {recording_id} due to an outstanding delete operation")

    def _subscribe(self, session: ControlSession, request: Message, *, extends: int | None) -> RecordingSubscription:
        uri = ChannelUri.parse(request.channel)
        check_texts(stripped(uri), request.channel)
        key = recording_key(uri, request.stream_id)
        if key in self.subscriptions:
            raise request_error(
                f"recording exists for streamId={request.stream_id} channel={request.channel}",
                ArchiveErrorCode.ACTIVE_SUBSCRIPTION,
            )
        entry = RecordingSubscription(
            session,
            request.correlation_id,
            key=key,
            channel=recording_channel(uri, local=request.source_location == SourceLocation.LOCAL),
            original_channel=request.channel,
            stripped_channel=stripped(uri),
            stream_id=request.stream_id,
            auto_stop=request.values.get("auto_stop") == 1,
            extends=extends,
        )

        def on_available_image(image: Any) -> None:
            entry.arrived.append(image)
            self._changed[entry] = None

        entry.operation = self._aeron.async_add_subscription(
            entry.channel, request.stream_id, on_available_image=on_available_image
        )
        self.subscriptions[key] = entry
        self._changed[entry] = None
        return entry

    def _work_of_subscriptions(self) -> int:
        return step_each(list(self._changed), self._work_of_subscription, self._fail_subscription)

    def _work_of_subscription(self, entry: RecordingSubscription) -> int:
        work = 0
        if entry.operation is not None:
            work += self._subscribed(entry)
        if entry.operation is None:
            del self._changed[entry]
            while entry.arrived and entry.subscription is not None:
                self._admit(entry, entry.arrived.popleft())
                work += 1
        return work

    def _admit(self, entry: RecordingSubscription, image: Any) -> None:
        """Record an image, or let it wait if a limit is reached. It is not read while it waits, which stalls its publisher."""
        limit = self._recording_limit(entry, image)
        if not limit:
            self._record(entry, image)
            return
        self._refused.note(
            "recordings", image, f"stream {image.stream_id} session {image.session_id} waits to be recorded: {limit}"
        )
        if not entry.waiting:  # the client is not told of each of a flood of images
            entry.fail(limit, ArchiveErrorCode.MAX_RECORDINGS)
        entry.waiting.append(image)
        self._waiting[entry] = None

    def _recording_limit(self, entry: RecordingSubscription, image: Any) -> str:
        """Return which limit keeps an image from being recorded now; an empty string if none does, which counts its start."""
        others = (each for each in self.subscriptions.values() if each is not entry)
        limit = self._settings.max_concurrent_recordings
        # Subscriptions that never had a recording have one coming: their requests were admitted.
        if len(self.active) + sum(each.latest is None for each in others) >= limit:
            return f"max concurrent recordings reached {limit}"
        return "" if entry.extends is not None else self._files.start_refusal(image)

    def _work_of_waiting_images(self) -> int:
        if not self._waiting or self._cycle.now_ns < self._retry_ns:
            return 0
        self._retry_ns = self._cycle.now_ns + RETRY_NS
        return step_each(list(self._waiting), self._retry, self._fail_subscription)

    def _retry(self, entry: RecordingSubscription) -> int:
        work = 0
        for _ in range(min(len(entry.waiting), IMAGES_PER_RETRY)):
            image = entry.waiting.popleft()
            if image.closed:
                work += 1
            elif self._recording_limit(entry, image):
                entry.waiting.append(image)
            else:
                self._record(entry, image)
                work += 1
        if not entry.waiting:
            self._waiting.pop(entry, None)
        return work

    def _fail_subscription(self, entry: RecordingSubscription, text: str) -> None:
        entry.fail(text)
        self._end_subscription(entry)
        self._changed.pop(entry, None)

    def _subscribed(self, entry: RecordingSubscription) -> int:
        assert entry.operation is not None
        try:
            subscription = entry.operation.poll()
        except MainstemError as error:
            entry.operation = None
            entry.fail(str(error))
            self._end_subscription(entry)
            return 1
        if subscription is None:
            return 0
        entry.operation, entry.subscription = None, subscription
        entry.registration_id = subscription.registration_id
        entry.control.respond(entry.correlation_id, entry.registration_id)
        return 1

    def _record(self, entry: RecordingSubscription, image: Any) -> None:
        if entry.extends is None:
            self._begin(entry, image, RecordingSignal.START, partial(self._new_recording, entry, image))
            return
        try:
            descriptor = self._extendable(entry.extends, image)
        except Exception as error:
            self._fail_to_begin(entry, error)
            return
        recording_id = descriptor.recording_id
        self._extensions.append(Extension(entry, image, recording_id, self._files.earlier_frames(descriptor)))
        self.active.reserved.add(recording_id)

    def _new_recording(self, entry: RecordingSubscription, image: Any) -> RecordingWriter:
        return self._files.begin(image, stripped=entry.stripped_channel, original=entry.original_channel)

    def _work_of_extensions(self) -> int:
        """Examine recordings that images continue, one after the other, in a slice of the cycle. Extend those that are done."""
        work = 0
        while self._extensions and not (work and self._cycle.is_over):
            work += 1
            extension = self._extensions[0]
            try:
                if not extension.step():
                    continue
            except Exception as error:
                self._end_extension(extension)
                self._fail_to_begin(extension.entry, error)
                continue
            self._end_extension(extension)
            self._begin(
                extension.entry, extension.image, RecordingSignal.EXTEND, partial(self._extended_recording, extension)
            )
        return work

    def _extended_recording(self, extension: Extension) -> RecordingWriter:
        assert extension.earlier is not None
        # The catalog's entry may have moved in the meantime.
        descriptor = self._extendable(extension.recording_id, extension.image)
        return self._files.extend(descriptor, extension.image, extension.earlier)

    def _end_extension(self, extension: Extension) -> None:
        self._extensions.remove(extension)
        self.active.reserved.discard(extension.recording_id)
        extension.close()

    def _fail_to_begin(
        self, entry: RecordingSubscription, error: Exception, writer: RecordingWriter | None = None
    ) -> None:
        entry.fail(reason_of(error), error.code if isinstance(error, ArchiveError) else ArchiveErrorCode.GENERIC)
        if writer is not None:
            self._files.stop(writer)
        if entry.auto_stop:
            self._end_subscription(entry)

    def _begin(
        self,
        entry: RecordingSubscription,
        image: Any,
        signal: RecordingSignal,
        open_writer: Callable[[], RecordingWriter],
    ) -> None:
        writer: RecordingWriter | None = None
        try:
            writer = open_writer()
            key, label = position_counter(writer.descriptor, self._settings.id)
            adding = self._aeron.async_add_counter(POSITION_COUNTER, label, key=key)
        except Exception as error:
            self._fail_to_begin(entry, error, writer)
            return
        recording = RecordingSession(
            entry, image, writer, signal, adding, self._files, self._events, self._clock, self._writes
        )
        entry.latest = recording
        entry.sessions.append(recording)
        self.active.add(recording)

    def _extendable(self, recording_id: int, image: Any) -> RecordingDescriptor:
        d = descriptor = self._files.known(recording_id)
        self._check_extendable(descriptor)
        for name, joined, of_recording, recorded in (
            ("joinPosition", image.join_position, "stopPosition", d.stop_position),
            ("initialTermId", image.initial_term_id, "initialTermId", d.initial_term_id),
            ("termBufferLength", image.term_length, "termBufferLength", d.term_buffer_length),
            ("mtuLength", image.mtu, "mtuLength", d.mtu_length),
        ):
            if joined != recorded:
                raise request_error(
                    f"cannot extend recording {recording_id} image.{name}={joined} != rec.{of_recording}={recorded}",
                    ArchiveErrorCode.INVALID_EXTENSION,
                )
        return descriptor

    def _work_of_recordings(self) -> int:
        ready = self.active.ready()
        share = max(MIN_SHARE, BYTES_PER_CYCLE // max(1, len(ready)))

        def step(recording: RecordingSession) -> int:
            work = 0 if recording.is_done else recording.do_work(share)
            if recording.is_done:
                self._ended(recording)
            return work

        return step_each(ready, step, self._fail_recording)

    def _fail_recording(self, recording: RecordingSession, text: str) -> None:
        recording.end(f"recording {recording.recording_id}: {text}")
        self._ended(recording)

    def _ended(self, recording: RecordingSession) -> None:
        self.active.discard(recording)
        entry = recording.owner
        if recording in entry.sessions:
            entry.sessions.remove(recording)
        if entry.auto_stop or (entry.ends_when_idle and not entry.sessions):
            self._end_subscription(entry)

    def _end_subscription(self, entry: RecordingSubscription) -> None:
        """Stop all recordings of a subscription, close it, and forget it. Can be called twice."""
        for recording in self.stop_subscription(entry):
            recording.signal_stop()

    def stop_subscription(self, entry: RecordingSubscription) -> list[RecordingSession]:
        """End a subscription. Return its recordings, whose STOP the caller signals.

        Nothing else forgets a subscription: while one is open, its recordings can be stopped, and new images can be recorded.
        """
        if self.subscriptions.get(entry.key) is entry:
            del self.subscriptions[entry.key]
        entry.arrived.clear()
        entry.waiting.clear()
        for extension in [each for each in self._extensions if each.entry is entry]:
            self._end_extension(extension)
        self._waiting.pop(entry, None)
        stopped = list(entry.sessions)
        for recording in stopped:
            recording.stop()
            self.active.discard(recording)
        entry.sessions.clear()
        entry.close()
        return stopped

    # -- stopping ----------------------------------------------------------------------------------------------------

    def stop(self, session: ControlSession, request: Message) -> None:
        key = recording_key(ChannelUri.parse(request.channel), request.stream_id)
        entry = self.subscriptions.get(key)
        if entry is None:
            raise request_error(
                f"no recording found for streamId={request.stream_id} channel={request.channel}",
                ArchiveErrorCode.UNKNOWN_SUBSCRIPTION,
            )
        self._stop_all_of(entry, session, request)

    def stop_by_subscription(self, session: ControlSession, request: Message) -> None:
        entry = next(
            (each for each in self.subscriptions.values() if each.registration_id == request.subscription_id), None
        )
        if entry is None or entry.registration_id < 0:
            raise request_error(
                f"no recording subscription found for subscriptionId={request.subscription_id}",
                ArchiveErrorCode.UNKNOWN_SUBSCRIPTION,
            )
        self._stop_all_of(entry, session, request)

    def _stop_all_of(self, entry: RecordingSubscription, session: ControlSession, request: Message) -> None:
        if entry.operation is not None:
            entry.fail("the recording was stopped before its subscription was added")
        # The STOP signals follow the response.
        session.respond(request.correlation_id)
        self._end_subscription(entry)

    def stop_by_identity(self, session: ControlSession, request: Message) -> int | None:
        recording = self.active.get(request.recording_id)
        if recording is None:
            self._files.known(request.recording_id)
            return 0
        # Other recordings of the subscription continue. It ends with the last of them.
        recording.owner.ends_when_idle = True
        session.respond(request.correlation_id, 1)
        recording.end()
        self._ended(recording)
        return None

    # -- positions ---------------------------------------------------------------------------------------------------

    def start_position(self, _: ControlSession, request: Message) -> int:
        return self._files.known(request.recording_id).start_position

    def stop_position(self, _: ControlSession, request: Message) -> int:
        return self._files.known(request.recording_id).stop_position

    def recording_position(self, _: ControlSession, request: Message) -> int:
        recording = self.active.get(self._files.known(request.recording_id).recording_id)
        return NULL if recording is None else recording.position

    def max_recorded_position(self, _: ControlSession, request: Message) -> int:
        descriptor = self._files.known(request.recording_id)
        recording = self.active.get(descriptor.recording_id)
        return descriptor.stop_position if recording is None else recording.position

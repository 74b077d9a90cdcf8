"""The archive's only agent: it reads requests and runs control sessions, recordings and replays.

``do_work`` is one duty cycle and never blocks. The agent sends commands to the driver and checks their results in later cycles. A
session queues responses that the client has no room for. Time is an argument.

A duty cycle consists of steps of requests, recordings, replays and so on. An exception of any type ends only what the step
belongs to, and its client receives an error (``_step_each``).
"""

from __future__ import annotations

import logging
import secrets
from collections import Counter, deque
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

from mainstem._core.layout import DATA_HEADER_LENGTH, FRAME_ALIGNMENT
from mainstem._internal.log_throttle import LogThrottle
from mainstem._internal.once import warn_once
from mainstem._internal.printable import printable
from mainstem.aeron.agent import AgentTerminated
from mainstem.aeron.channel import ChannelUri, with_values
from mainstem.archive.messages import NULL, MessageReader, RecordingSignal, ResponseCode, SourceLocation, encode
from mainstem.archive.server.channels import (
    own_channel,
    recording_channel,
    recording_key,
    replay_channel,
    stripped,
)
from mainstem.archive.server.counters import ArchiveCounters
from mainstem.archive.server.deletions import Deletions
from mainstem.archive.server.recordings import (
    POSITION_COUNTER,
    ActiveRecordings,
    Extension,
    RecordingEvents,
    RecordingSession,
    RecordingSubscription,
    position_counter,
)
from mainstem.archive.server.refusals import reason_of, refusal
from mainstem.archive.server.replays import CounterLimit, RecordingLimit, ReplaySession
from mainstem.archive.server.replications import Replication, ReplicationRequest
from mainstem.archive.server.sessions import ControlSessions, refusal_of_limit
from mainstem.archive.server.slices import Slice
from mainstem.errors import ArchiveError, ArchiveErrorCode, MainstemError
from mainstem.recording.catalog import MAX_TEXTS_LENGTH, check_texts
from mainstem.recording.start_limits import RETRY_NS

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator

    from mainstem._internal.clock import Clock
    from mainstem.aeron.client import Aeron
    from mainstem.archive.messages import Message
    from mainstem.archive.server.access import Authenticator, Authorizer
    from mainstem.archive.server.control_session import ControlSession
    from mainstem.archive.server.files import ArchiveFiles
    from mainstem.archive.server.replays import Limit
    from mainstem.archive.server.settings import ArchiveSettings
    from mainstem.recording.catalog import RecordingDescriptor
    from mainstem.recording.writer import RecordingWriter

    _Handler = Callable[["ArchiveConductor", ControlSession, Message], int | None]
    _T = TypeVar("_T")

log = logging.getLogger("mainstem.archive")
_throttle = LogThrottle(log)

_REQUESTS = ("Request", "Request2", "ChallengeResponse")  # suffixes of the names of requests
REQUESTS_PER_CYCLE = 10  # from each control subscription
# Bytes of frames written per cycle, about two milliseconds of work, shared by the recordings that have frames to write. Each gets
# at least MIN_SHARE, which fits the longest frame.
BYTES_PER_CYCLE, MIN_SHARE = 4 << 20, 64 << 10
IMAGES_PER_RETRY = 64  # waiting images of a subscription for which the limits are checked again at once
ENTRIES_PER_CYCLE = 64  # catalog entries per cycle for one listing or search, fewer if the cycle has no time left
MIN_ENTRIES_PER_CYCLE = 2
MAX_SEARCHES = 16  # of one session at once
MAX_UPDATES = 16  # of channels of recordings, by one session at once
MAX_CHANNEL_PART = MAX_TEXTS_LENGTH  # characters of a channel that a listing or a search looks for
MAX_REQUEST_LENGTH = 64 << 10  # bytes: enough for three channels of maximum length and credentials
MAX_TOKENS = 64  # valid replay tokens of one session
MAX_POSITION = (1 << 63) - 1
ALL_AND_FOLLOW, ALL_AND_STOP = -1, -2


@dataclass(frozen=True, slots=True)
class ArchiveStats:
    """An archive's current activity.

    Attributes:
        control_sessions: Open control sessions.
        recordings: Active recordings.
        replays: Running replays.
        replications: Running replications into this archive.
        refused: Number of requests refused without a response, by reason. ``dropped`` are connect requests whose sessions made
            way for others before their clients had authenticated.
    """

    control_sessions: int
    recordings: int
    replays: int
    replications: int
    refused: dict[str, int]


class ArchiveConductor:
    """The archive's agent. It owns the files and closes them.

    It runs the conductor of ``aeron``. ``random_bits`` returns a random integer with the given number of bits.
    """

    role_name = "archive-conductor"

    def __init__(
        self,
        aeron: Aeron,
        files: ArchiveFiles,
        settings: ArchiveSettings,
        authenticator: Authenticator,
        authorizer: Authorizer,
        clock: Clock,
        random_bits: Callable[[int], int] = secrets.randbits,
    ) -> None:
        self._aeron, self._files, self._settings = aeron, files, settings
        self._authorizer, self._clock = authorizer, clock
        self._reader = MessageReader()
        self._refused: Counter[str] = Counter()
        self._random_bits = random_bits
        self._next_session_id = random_bits(31)
        self._tokens: dict[int, ReplayToken] = {}
        self._image: Any = None  # that the current request came from
        self._replays_made = 0
        self._sessions = ControlSessions(aeron, settings, authenticator)
        # Every open recording subscription by its key, so that requests find each active recording.
        self._subscriptions: dict[str, RecordingSubscription] = {}
        # Subscriptions with a pending command or with new images.
        self._changed: dict[RecordingSubscription, None] = {}
        # Subscriptions with images that wait for a limit of recordings, and when the limits are checked again.
        self._waiting: dict[RecordingSubscription, None] = {}
        self._retry_ns = self._now_ns = clock.monotonic_ns()
        self._recordings = ActiveRecordings()
        self._extensions: list[Extension] = []
        self._slice = Slice(clock)
        self._listings: deque[tuple[ControlSession, Listing]] = deque()
        self._updates: deque[tuple[ControlSession, int, Generator[None, None, None]]] = deque()
        self._replays: list[ReplaySession] = []
        self._replications: dict[int, Replication] = {}
        self._deletions = Deletions(files, self._recordings, lambda: self._replays, self._slice)
        self._buffer = bytearray(settings.file_io_max_length)
        self._counters = ArchiveCounters(aeron, settings.id, settings.threading_mode, clock)
        self._events = RecordingEvents(
            aeron.add_exclusive_publication(settings.recording_events_channel, settings.recording_events_stream_id)
            if settings.recording_events_channel
            else None
        )
        control = []
        if settings.control_channel:
            control.append((settings.control_channel, settings.control_stream_id))
        control.append((settings.local_control_channel, settings.local_control_stream_id))
        self._control = [aeron.add_subscription(self._control_channel(channel), stream) for channel, stream in control]
        self._parts: tuple[Callable[[], int], ...] = (
            self._touch,
            self._work_of_requests,
            self._work_of_subscriptions,
            self._work_of_waiting_images,
            self._work_of_extensions,
            self._work_of_recordings,
            self._work_of_replays,
            self._work_of_replications,
            self._work_of_listings,
            self._work_of_updates,
            self._deletions.do_work,
            self._work_of_sessions,
        )

    def _control_channel(self, channel: str) -> str:
        if "sparse=" in channel:
            return channel
        sparse = str(self._settings.control_term_buffer_sparse).lower()
        return with_values(channel, {"sparse": sparse})

    @property
    def control_addresses(self) -> list[str]:
        return self._control[0].local_addresses if self._settings.control_channel else []

    def stats(self) -> ArchiveStats:
        return ArchiveStats(
            len(self._sessions),
            len(self._recordings),
            len(self._replays),
            len(self._replications),
            dict(self._refused + self._reader.refused + Counter(dropped=self._sessions.dropped)),
        )

    # -- the duty cycle ----------------------------------------------------------------------------------------------

    def do_work(self, now_ns: int) -> int:
        """Run one duty cycle. Raises AgentTerminated once the driver has ended."""
        self._now_ns = now_ns
        self._slice.begin()
        self._counters.begin_cycle(now_ns)
        work = self._aeron.invoke()
        if self._aeron.closed:
            raise AgentTerminated
        work += self._step_each(self._parts, lambda part: part(), self._note_failure)
        errors = self._refused.total() + self._reader.refused.total()
        self._counters.update(errors, len(self._sessions), len(self._recordings), len(self._replays))
        return work

    def _step_each(self, items: Iterable[_T], step: Callable[[_T], int], fail: Callable[[_T, str], None]) -> int:
        """Call ``step`` for each item. Return the sum of the work counts.

        If it raises, call ``fail`` with the item and the reason, and go on with the other items.
        """
        work = 0
        for item in items:
            try:
                work += step(item)
            except Exception as error:
                work += 1
                try:
                    fail(item, reason_of(error))
                except Exception as another:
                    reason_of(another)
        return work

    def _note_failure(self, part: object, text: str) -> None:
        _throttle.log(logging.ERROR, part, f"a part of the archive's duty cycle failed: {text}", self._now_ns)

    def _touch(self) -> int:
        self._files.touch()
        return 0

    def on_close(self) -> None:
        """End recordings, replays and sessions, and release the directory. The caller closes the client."""
        for replication in self._replications.values():
            replication.stop()
        closing: list[Callable[[], object]] = [self._work_of_replications]
        closing += [extension.close for extension in self._extensions]
        closing += [steps.close for _, _, steps in self._updates]
        closing += [recording.end for recording in self._recordings]
        owned: tuple[Iterable[Any], ...] = (
            self._replays,
            self._subscriptions.values(),
            self._sessions,
            self._control,
        )
        closing += [each.close for each in chain(*owned)]
        closing += [self._events.close, self._counters.close, self._files.close]
        self._step_each(closing, lambda close: bool(close()), self._note_failure)
        self._extensions.clear()
        self._recordings.clear()
        self._replays.clear()

    # -- requests ----------------------------------------------------------------------------------------------------

    def _work_of_requests(self) -> int:
        return self._step_each(self._control, self._read_requests, self._note_failure)

    def _read_requests(self, subscription: Any) -> int:
        return self._step_each(
            subscription.poll_limited(REQUESTS_PER_CYCLE, MAX_REQUEST_LENGTH + 1),
            self._handle,
            lambda message, text: self._refuse("failure", message.image, text),
        )

    def _handle(self, message: Any) -> int:
        self._read(message)
        return 1

    def _read(self, message: Any) -> None:
        if len(message.payload) > MAX_REQUEST_LENGTH:
            self._refuse("length", message.image, f"a request of more than {MAX_REQUEST_LENGTH} bytes")
            return
        request = self._reader.read(message.payload)
        if request is None:
            return
        if request.name == "AuthConnectRequest":
            self._connect(request, length_of_frame(len(message.payload)), message.image)
            return
        self._image = message.image
        if not request.name.endswith(_REQUESTS):
            self._refuse("not a request", message.image, f"{request.name}, which archives send")
            return
        if _has_token(request):
            self._handle_token(request)
            return
        session = self._sessions.get(request.values.get("control_session_id", NULL))
        if session is None:
            self._refuse("unknown session", message.image, f"{request.name} for an unknown control session")
        elif session.image is not message.image:
            self._refuse("foreign session", message.image, f"{request.name} for the control session of another client")
        elif request.name == "CloseSessionRequest":
            session.close()
        elif request.name == "ChallengeResponse":
            session.answer_challenge(request.correlation_id, request.encoded_credentials)
        else:
            self._carry_out(session, request)

    def _handle_token(self, request: Message) -> None:
        """Carry out a replay over a response channel. The token determines the session, whichever client sent the request."""
        token = self._tokens.get(request.replay_token)
        if token is None or token.recording_id != request.recording_id or self._now_ns >= token.deadline_ns:
            self._refuse("replay token", self._image, f"{request.name} with a token that is not valid")
        else:
            self._carry_out(token.session, request)

    def _token(self, session: ControlSession, request: Message) -> int:
        now_ns = self._now_ns
        # The oldest ones, which expire first, are at the front.
        while self._tokens and now_ns >= (oldest := next(iter(self._tokens.values()))).deadline_ns:
            del self._tokens[next(iter(self._tokens))]
            oldest.session.tokens -= 1
        if session.tokens >= MAX_TOKENS:
            raise refusal(f"{MAX_TOKENS} replay tokens of this session are valid, as many as there may be")
        session.tokens += 1
        key = NULL
        while key == NULL or key in self._tokens:
            key = self._random_bits(64) - (1 << 63)
        self._tokens[key] = ReplayToken(session, request.recording_id, now_ns + self._settings.connect_timeout_ns)
        return key

    def _refuse(self, rule: str, image: Any, text: str) -> None:
        self._refused[rule] += 1
        source = printable(image.source_identity)
        _throttle.log(logging.WARNING, f"refused {rule}", f"refused from {source}: {text}", self._now_ns)

    def _carry_out(self, session: ControlSession, request: Message) -> None:
        if not session.activate():
            self._refuse("session state", session.image, f"{request.name} before the session was established")
            return
        if request.name == "KeepAliveRequest":
            return
        correlation_id = request.correlation_id
        handler = _HANDLERS[request.name]
        try:
            if not self._is_authorized(request.name, session):
                raise refusal(f"{request.name} is not authorized", ArchiveErrorCode.UNAUTHORISED_ACTION)
            result = handler(self, session, request)
        except ArchiveError as error:
            session.fail(correlation_id, str(error), error.code)
        except Exception as error:
            session.fail(correlation_id, reason_of(error))
        else:
            if result is not None:
                session.respond(correlation_id, result)

    def _is_authorized(self, name: str, session: ControlSession) -> bool:
        try:
            return self._authorizer(name, session.principal)
        except Exception as error:
            text = f"{name} is refused: the authorizer failed: {error!r}"
            _throttle.log(logging.ERROR, "authorizer", text, self._now_ns, error=error)
            return False

    # -- control sessions --------------------------------------------------------------------------------------------

    def _connect(self, request: Message, length: int, image: Any) -> None:
        session_id = self._take_id()
        try:
            limit = self._sessions.connect(session_id, request, length, image, self._now_ns)
        except MainstemError as error:
            self._refuse("connect", image, f"connect request: {error}")
            return
        if limit:
            self._refuse(limit, image, refusal_of_limit(limit, self._settings))

    def _take_id(self) -> int:
        """Return the id of the next session or replication."""
        taken = self._next_session_id
        self._next_session_id = (taken + 1) % (1 << 63)
        return taken

    def _work_of_sessions(self) -> int:
        busy = self._sessions.busy(self._now_ns)
        return self._step_each(busy, self._work_of_session, lambda session, _text: session.close())

    def _work_of_session(self, session: ControlSession) -> int:
        if session.image.closed:
            session.close()
        work = self._sessions.step(session)
        if session.is_done:
            if session.rejects_image and not session.image.closed:
                session.image.async_reject(session.rejects_image)
            work += 1
        return work

    def _archive_id(self, _session: ControlSession, _request: Message) -> int:
        return self._settings.id

    # -- recording ---------------------------------------------------------------------------------------------------

    def _start(self, session: ControlSession, request: Message) -> None:
        self._check_recordings()
        self._check_space()
        self._subscribe(session, request, extends=None)

    def _extend(self, session: ControlSession, request: Message) -> None:
        self.extend(session, request)

    def extend(self, session: ControlSession, request: Message) -> RecordingSubscription:
        self._check_recordings()
        descriptor = self._files.known(request.recording_id)
        if descriptor.stream_id != request.stream_id:
            raise refusal(
                f"cannot extend recording {descriptor.recording_id} with streamId={request.stream_id} "
                f"for existing streamId={descriptor.stream_id}",
                ArchiveErrorCode.UNKNOWN_RECORDING,
            )
        self._check_extendable(descriptor)
        self._check_space()
        return self._subscribe(session, request, extends=descriptor.recording_id)

    def _check_recordings(self) -> None:
        count = len(self._recordings) + sum(entry.latest is None for entry in self._subscriptions.values())
        limit = self._settings.max_concurrent_recordings
        if count >= limit:
            raise refusal(f"max concurrent recordings reached {limit}", ArchiveErrorCode.MAX_RECORDINGS)
        limit = self._settings.max_recording_subscriptions
        if len(self._subscriptions) >= limit:
            raise refusal(f"max recording subscriptions reached {limit}", ArchiveErrorCode.MAX_RECORDINGS)

    def _check_space(self) -> None:
        free, threshold = self._files.free_space, self._settings.low_storage_space_threshold
        if free <= threshold:
            raise refusal(f"low storage threshold={threshold} <= usableSpace={free}", ArchiveErrorCode.STORAGE_SPACE)

    def _check_extendable(self, descriptor: RecordingDescriptor) -> None:
        recording_id = descriptor.recording_id
        self._recordings.check_inactive("extend", recording_id)
        if self._deletions.reaches(recording_id, descriptor.stop_position):
            raise refusal(f"cannot extend recording {recording_id} due to an outstanding delete operation")

    def _subscribe(self, session: ControlSession, request: Message, *, extends: int | None) -> RecordingSubscription:
        uri = ChannelUri.parse(request.channel)
        check_texts(stripped(uri), request.channel)
        key = recording_key(uri, request.stream_id)
        if key in self._subscriptions:
            raise refusal(
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
        self._subscriptions[key] = entry
        self._changed[entry] = None
        return entry

    def _work_of_subscriptions(self) -> int:
        return self._step_each(list(self._changed), self._work_of_subscription, self._fail_subscription)

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
        self._refuse(
            "recordings", image, f"stream {image.stream_id} session {image.session_id} waits to be recorded: {limit}"
        )
        if not entry.waiting:  # the client is not told of each of a flood of images
            entry.fail(limit, ArchiveErrorCode.MAX_RECORDINGS)
        entry.waiting.append(image)
        self._waiting[entry] = None

    def _recording_limit(self, entry: RecordingSubscription, image: Any) -> str:
        """Return which limit keeps an image from being recorded now; an empty string if none does, which counts its start."""
        others = (each for each in self._subscriptions.values() if each is not entry)
        limit = self._settings.max_concurrent_recordings
        # Subscriptions that never had a recording have one coming: their requests were admitted.
        if len(self._recordings) + sum(each.latest is None for each in others) >= limit:
            return f"max concurrent recordings reached {limit}"
        return "" if entry.extends is not None else self._files.start_refusal(image)

    def _work_of_waiting_images(self) -> int:
        if not self._waiting or self._now_ns < self._retry_ns:
            return 0
        self._retry_ns = self._now_ns + RETRY_NS
        return self._step_each(list(self._waiting), self._retry, self._fail_subscription)

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
        self._recordings.reserved.add(recording_id)

    def _new_recording(self, entry: RecordingSubscription, image: Any) -> RecordingWriter:
        return self._files.begin(image, stripped=entry.stripped_channel, original=entry.original_channel)

    def _work_of_extensions(self) -> int:
        """Examine recordings that images continue, one after the other, in a slice of the cycle. Extend those that are done."""
        work = 0
        while self._extensions and not (work and self._slice.is_over):
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
        self._recordings.reserved.discard(extension.recording_id)
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
            entry, image, writer, signal, adding, self._files, self._events, self._clock, self._counters.writes
        )
        entry.latest = recording
        entry.sessions.append(recording)
        self._recordings.add(recording)

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
                raise refusal(
                    f"cannot extend recording {recording_id} image.{name}={joined} != rec.{of_recording}={recorded}",
                    ArchiveErrorCode.INVALID_EXTENSION,
                )
        return descriptor

    def _work_of_recordings(self) -> int:
        ready = self._recordings.ready()
        share = max(MIN_SHARE, BYTES_PER_CYCLE // max(1, len(ready)))

        def step(recording: RecordingSession) -> int:
            work = 0 if recording.is_done else recording.do_work(share)
            if recording.is_done:
                self._ended(recording)
            return work

        return self._step_each(ready, step, self._fail_recording)

    def _fail_recording(self, recording: RecordingSession, text: str) -> None:
        recording.end(f"recording {recording.recording_id}: {text}")
        self._ended(recording)

    def _ended(self, recording: RecordingSession) -> None:
        self._recordings.discard(recording)
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
        if self._subscriptions.get(entry.key) is entry:
            del self._subscriptions[entry.key]
        entry.arrived.clear()
        entry.waiting.clear()
        for extension in [each for each in self._extensions if each.entry is entry]:
            self._end_extension(extension)
        self._waiting.pop(entry, None)
        stopped = list(entry.sessions)
        for recording in stopped:
            recording.stop()
            self._recordings.discard(recording)
        entry.sessions.clear()
        entry.close()
        return stopped

    def _stop(self, session: ControlSession, request: Message) -> None:
        key = recording_key(ChannelUri.parse(request.channel), request.stream_id)
        entry = self._subscriptions.get(key)
        if entry is None:
            raise refusal(
                f"no recording found for streamId={request.stream_id} channel={request.channel}",
                ArchiveErrorCode.UNKNOWN_SUBSCRIPTION,
            )
        self._stop_all_of(entry, session, request)

    def _stop_subscription(self, session: ControlSession, request: Message) -> None:
        entry = next(
            (each for each in self._subscriptions.values() if each.registration_id == request.subscription_id), None
        )
        if entry is None or entry.registration_id < 0:
            raise refusal(
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

    def _stop_identity(self, session: ControlSession, request: Message) -> int | None:
        recording = self._recordings.get(request.recording_id)
        if recording is None:
            self._files.known(request.recording_id)
            return 0
        # Other recordings of the subscription continue. It ends with the last of them.
        recording.owner.ends_when_idle = True
        session.respond(request.correlation_id, 1)
        recording.end()
        self._ended(recording)
        return None

    # -- queries -----------------------------------------------------------------------------------------------------

    def _start_position(self, _: ControlSession, request: Message) -> int:
        return self._files.known(request.recording_id).start_position

    def _stop_position(self, _: ControlSession, request: Message) -> int:
        return self._files.known(request.recording_id).stop_position

    def _recording_position(self, _: ControlSession, request: Message) -> int:
        recording = self._recordings.get(self._files.known(request.recording_id).recording_id)
        return NULL if recording is None else recording.position

    def _max_recorded_position(self, _: ControlSession, request: Message) -> int:
        descriptor = self._files.known(request.recording_id)
        recording = self._recordings.get(descriptor.recording_id)
        return descriptor.stop_position if recording is None else recording.position

    def _find_last_matching(self, session: ControlSession, request: Message) -> None:
        if request.min_recording_id < 0:
            raise refusal(f"minRecordingId={request.min_recording_id} < 0", ArchiveErrorCode.UNKNOWN_RECORDING)
        if session.searches >= MAX_SEARCHES:
            raise refusal(f"{MAX_SEARCHES} searches of this session are in progress, as many as there may be")
        _check_part(request)
        session.searches += 1
        self._listings.append((session, Listing(request.correlation_id, self._last_matching(session, request))))

    def _last_matching(self, session: ControlSession, request: Message) -> Iterator[bytes | None]:
        found = NULL
        for d in self._files.newest_first():
            if d.recording_id < request.min_recording_id:
                break
            if (d.session_id, d.stream_id) == (request.session_id, request.stream_id) and (
                request.channel in d.original_channel
            ):
                found = d.recording_id
                break
            yield None
        yield session.encode_response(request.correlation_id, found, ResponseCode.OK)

    def _update_channel(self, session: ControlSession, request: Message) -> int | None:
        if session.listing is not None:
            raise refusal("active listing already in progress", ArchiveErrorCode.ACTIVE_LISTING)
        descriptor = self._files.find(request.recording_id)
        if descriptor is None:
            session.respond(request.correlation_id, request.recording_id, ResponseCode.RECORDING_UNKNOWN)
            return None
        if sum(owner is session for owner, _, _ in self._updates) >= MAX_UPDATES:
            raise refusal(f"{MAX_UPDATES} updates of this session are in progress, as many as there may be")
        uri = ChannelUri.parse(request.channel)
        check_texts(stripped(uri), request.channel)
        steps = self._files.update_channel(descriptor.recording_id, stripped=stripped(uri), original=request.channel)
        self._updates.append((session, request.correlation_id, steps))
        return None

    def _work_of_updates(self) -> int:
        """Update channels of recordings, one after the other, in a slice of the cycle."""
        work = 0
        while self._updates and not (work and self._slice.is_over):
            work += 1
            session, correlation_id, steps = self._updates[0]
            try:
                next(steps)
            except StopIteration:
                self._updates.popleft()
                session.respond(correlation_id, 0)
            except Exception as error:
                self._updates.popleft()
                code = error.code if isinstance(error, ArchiveError) else ArchiveErrorCode.GENERIC
                session.fail(correlation_id, reason_of(error), code)
        return work

    # -- listings ----------------------------------------------------------------------------------------------------

    def _list_recordings(self, session: ControlSession, request: Message) -> None:
        self._begin_listing(session, request, self._recordings_of(session, request))

    def _list_recording(self, session: ControlSession, request: Message) -> None:
        self._begin_listing(session, request, self._one_recording(session, request))

    def _list_subscriptions(self, session: ControlSession, request: Message) -> None:
        self._begin_listing(session, request, self._subscriptions_of(session, request))

    def _begin_listing(self, session: ControlSession, request: Message, messages: Iterator[bytes | None]) -> None:
        if session.listing is not None:
            raise refusal("active listing already in progress", ArchiveErrorCode.ACTIVE_LISTING)
        _check_part(request)
        session.listing = Listing(request.correlation_id, messages)
        self._list(session, session.listing)

    def _work_of_listings(self) -> int:
        """Continue listings and searches, one after the other, in a slice of the cycle. The rest go first in the next one."""
        work = 0
        for _ in range(len(self._listings)):
            if work and self._slice.is_over:
                break
            work += self._list(*self._listings.popleft())
        return work

    def _list(self, session: ControlSession, listing: Listing) -> int:
        """Continue a listing or a search. Return the work count."""
        if session.is_done:
            return 0
        work = listing.send(session, self._slice)
        if not listing.is_done:
            self._listings.append((session, listing))
        elif session.listing is listing:
            session.listing = None
        else:
            session.searches -= 1
        return work

    def _recordings_of(self, session: ControlSession, request: Message) -> Iterator[bytes | None]:
        left, following = request.record_count, request.from_recording_id
        is_of_uri = request.name == "ListRecordingsForUriRequest"
        if left > 0:
            for d in self._files.from_id(request.from_recording_id):
                following = d.recording_id + 1
                if is_of_uri and (d.stream_id != request.stream_id or request.channel not in d.original_channel):
                    yield None
                    continue
                yield self._describe(session, request.correlation_id, d)
                left -= 1
                if not left:
                    return
        yield _unknown(session, request.correlation_id, following)

    def _one_recording(self, session: ControlSession, request: Message) -> Iterator[bytes]:
        descriptor = self._files.find(request.recording_id)
        if descriptor is None:
            yield _unknown(session, request.correlation_id, request.recording_id)
        else:
            yield self._describe(session, request.correlation_id, descriptor)

    def _subscriptions_of(self, session: ControlSession, request: Message) -> Iterator[bytes | None]:
        entries = [entry for entry in self._subscriptions.values() if entry.registration_id >= 0]
        left = request.subscription_count if request.pseudo_index >= 0 else 0
        if left > 0:
            for entry in entries[request.pseudo_index :]:
                if (request.apply_stream_id == 1 and entry.stream_id != request.stream_id) or (
                    request.channel not in entry.channel
                ):
                    yield None
                    continue
                yield encode(
                    "RecordingSubscriptionDescriptor",
                    control_session_id=session.session_id,
                    correlation_id=request.correlation_id,
                    subscription_id=entry.registration_id,
                    stream_id=entry.stream_id,
                    stripped_channel=entry.channel,
                )
                left -= 1
                if not left:
                    return
        yield session.encode_response(request.correlation_id, 0, ResponseCode.SUBSCRIPTION_UNKNOWN)

    def _describe(self, session: ControlSession, correlation_id: int, d: RecordingDescriptor) -> bytes:
        texts = ("stripped_channel", "original_channel", "source_identity")
        values = vars(d) | {name: _ascii(getattr(d, name)) for name in texts}
        values |= {"control_session_id": session.session_id, "correlation_id": correlation_id}
        message = encode("RecordingDescriptor", **values)
        excess = len(message) - session.max_message_length
        if excess > 0:
            # Another program recorded it. Its channels are shown in part, because a message that cannot be sent ends the listing.
            warn_once(
                log,
                f"recording {d.recording_id}: its channels are too long for a message of {session.max_message_length} bytes, "
                "and clients see their beginnings; replace them with update_channel",
            )
            length = (sum(len(values[name]) for name in texts) - excess) // len(texts)
            shown = {name: values[name] for name in texts if len(values[name]) > length}
            values |= {name: f"{text[: length - 3]}..." for name, text in shown.items()}
            message = encode("RecordingDescriptor", **values)
        return message

    # -- replays -----------------------------------------------------------------------------------------------------

    def _replay(self, session: ControlSession, request: Message) -> None:
        limit = self._settings.max_concurrent_replays
        if len(self._replays) >= limit:
            raise refusal(f"max concurrent replays reached {limit}", ArchiveErrorCode.MAX_REPLAYS)
        descriptor = self._files.known(request.recording_id)
        recording_id = descriptor.recording_id
        recording = self._recordings.get(recording_id)
        follows: Limit | None = None
        if request.name == "BoundedReplayRequest":
            follows = CounterLimit(self._aeron.counters, request.limit_counter_id)
        elif recording is not None:
            follows = RecordingLimit(recording)
        stop = follows.read()[0] if follows is not None else descriptor.stop_position
        position = self._replay_position(request, descriptor, stop, is_limited=follows is not None)
        max_length = request.file_io_max_length if request.file_io_max_length > 0 else self._settings.file_io_max_length
        if max_length < descriptor.mtu_length:
            raise refusal(f"fileIoMaxLength={max_length} < mtuLength={descriptor.mtu_length}")
        longest = (MAX_POSITION if follows is not None else stop) - position
        if request.length == ALL_AND_FOLLOW:
            length = longest
        elif request.length == ALL_AND_STOP:
            length = stop - position
            if length == 0:
                raise refusal(
                    f"When replaying and stopping the replay length must be non-zero, recordingId={recording_id}",
                    ArchiveErrorCode.EMPTY_RECORDING,
                )
        else:
            length = min(request.length, longest)
        if length < 0:
            raise refusal(
                f"replay length must be positive: replayLength={length}, length={request.length}, "
                f"stopPosition={stop}, replayPosition={position} for recording {recording_id}"
            )
        uri = ChannelUri.parse(request.replay_channel)
        if uri.is_response and request.replay_token == NULL:
            raise refusal("a replay over a response channel needs a replay token")
        if self._deletions.reaches(recording_id, descriptor.stop_position) and stop > descriptor.stop_position != NULL:
            raise refusal(f"cannot replay recording {recording_id} due to an outstanding delete operation")
        linger_ns = self._settings.replay_linger_timeout_ns
        self._replays_made += 1
        self._replays.append(
            ReplaySession(
                self._aeron,
                self._files.directory,
                session,
                request.correlation_id,
                number=self._replays_made,
                descriptor=descriptor,
                channel=replay_channel(
                    uri, descriptor, position, linger_ns=linger_ns, image_id=self._image.correlation_id
                ),
                stream_id=request.replay_stream_id,
                position=position,
                end=position + length,
                limit=follows,
                max_length=max_length,
                now_ns=self._now_ns,
                connect_timeout_ns=self._settings.connect_timeout_ns,
                reads=self._counters.reads,
            )
        )

    def _replay_position(
        self, request: Message, descriptor: RecordingDescriptor, stop: int, *, is_limited: bool
    ) -> int:
        start, recording_id = descriptor.start_position, descriptor.recording_id
        position: int = request.position
        if position == NULL:
            position = start
        elif position % FRAME_ALIGNMENT:
            raise refusal(
                f"requested replay start position={position} is not a multiple of FRAME_ALIGNMENT ({FRAME_ALIGNMENT}) "
                f"for recording {recording_id}"
            )
        elif position < start:
            raise refusal(
                f"requested replay start position={position} is less than recording start position={start} "
                f"for recording {recording_id}",
                ArchiveErrorCode.INVALID_POSITION,
            )
        elif descriptor.stop_position != NULL and position >= descriptor.stop_position:
            raise refusal(
                f"requested replay start position={position} must be less than the limit "
                f"position={descriptor.stop_position} for recording {recording_id}",
                ArchiveErrorCode.INVALID_POSITION,
            )
        if is_limited and position > stop:
            raise refusal(
                f"requested replay start position={position} must be less than the limit position={stop} "
                f"for recording {recording_id}",
                ArchiveErrorCode.INVALID_POSITION,
            )
        return position

    def _work_of_replays(self) -> int:
        work = self._step_each(
            self._replays,
            lambda replay: replay.do_work(self._now_ns, self._buffer),
            lambda replay, _text: replay.close(),
        )
        if any(replay.is_done for replay in self._replays):
            self._replays = [replay for replay in self._replays if not replay.is_done]
        return work

    def _stop_replay(self, _: ControlSession, request: Message) -> int:
        for replay in self._replays:
            if replay.session_id == request.replay_session_id:
                replay.close()
        return 0

    def _stop_all_replays(self, _: ControlSession, request: Message) -> int:
        for replay in self._replays:
            if request.recording_id in (NULL, replay.descriptor.recording_id):
                replay.close()
        return 0

    # -- replications ------------------------------------------------------------------------------------------------

    def _replicate(self, session: ControlSession, request: Message) -> int:
        limit = self._settings.max_concurrent_replications
        if len(self._replications) >= limit:
            raise refusal(f"max concurrent replications reached {limit}")
        settings = self._settings
        own = own_channel(settings.control_channel)
        asked = ReplicationRequest(
            request,
            replication_channel=settings.replication_channel or own,
            response_channel=settings.control_response_channel or own,
        )
        if asked.target_id != NULL:
            if self._files.find(asked.target_id) is None:
                raise refusal(f"unknown destination recording id {asked.target_id}", ArchiveErrorCode.UNKNOWN_RECORDING)
            self._recordings.check_inactive("replicate to", asked.target_id)
        replication_id = self._take_id()
        self._replications[replication_id] = Replication(self, session, replication_id, asked)
        return replication_id

    def _work_of_replications(self) -> int:
        work = self._step_each(
            list(self._replications.values()),
            lambda replication: replication.do_work(),
            lambda replication, _text: replication.stop(),
        )
        if any(replication.is_done for replication in self._replications.values()):
            self._replications = {key: each for key, each in self._replications.items() if not each.is_done}
        return work

    def _stop_replication(self, _: ControlSession, request: Message) -> int:
        replication = self._replications.get(request.replication_id)
        if replication is None:
            raise refusal(f"unknown replication id {request.replication_id}", ArchiveErrorCode.UNKNOWN_REPLICATION)
        replication.stop()
        return 0


@dataclass(frozen=True, slots=True)
class ReplayToken:
    """Lets a client send a replay request on behalf of another client's session."""

    session: ControlSession
    recording_id: int
    deadline_ns: int


def length_of_frame(length: int) -> int:
    """Return how many bytes of datagrams a message takes at least."""
    return (DATA_HEADER_LENGTH + length + FRAME_ALIGNMENT - 1) // FRAME_ALIGNMENT * FRAME_ALIGNMENT


def _has_token(request: Message) -> bool:
    """Whether a request asks for a replay over a response channel with a token."""
    if request.values.get("replay_token", NULL) == NULL:
        return False
    try:
        return ChannelUri.parse(request.replay_channel).is_response
    except MainstemError:
        return False


class Listing:
    """Sends descriptors to a session as its client has room, looking at a limited number of catalog entries per cycle.

    ``messages`` yields None for an entry that does not match.
    """

    def __init__(self, correlation_id: int, messages: Iterator[bytes | None]) -> None:
        self._correlation_id = correlation_id
        self._messages = messages
        self._unsent: bytes | None = None
        self.is_done = False

    def send(self, session: ControlSession, cycle: Slice) -> int:
        """Send as many messages as the client has room for, and the cycle time. Return the number of entries looked at or sent."""
        work = 0
        try:
            for number in range(ENTRIES_PER_CYCLE + 1):
                if self._unsent is None:
                    # Also if the cycle has no time left: a client that has the last message may ask for another listing.
                    self._unsent = next(self._messages)
                    work += 1
                if number == ENTRIES_PER_CYCLE or (number >= MIN_ENTRIES_PER_CYCLE and cycle.is_over):
                    break
                if self._unsent is not None:
                    if not session.try_send(self._unsent):
                        break
                    self._unsent = None
                    work += 1
        except StopIteration:
            self.is_done = True
        except Exception as error:
            self.is_done = True
            session.fail(self._correlation_id, f"the listing ended: {reason_of(error)}")
        return work


def _check_part(request: Message) -> None:
    """Refuse a part of a channel that no channel can contain. It would be held as long as the listing takes."""
    length = len(request.values.get("channel", ""))
    if length > MAX_CHANNEL_PART:
        raise refusal(f"{length} characters of a channel to look for exceed {MAX_CHANNEL_PART}")


def _unknown(session: ControlSession, correlation_id: int, recording_id: int) -> bytes:
    return session.encode_response(correlation_id, recording_id, ResponseCode.RECORDING_UNKNOWN)


def _ascii(text: str) -> str:
    return text if text.isascii() else text.encode("ascii", "replace").decode("ascii")


def _deletion(handler: Callable[[Deletions, ControlSession, Message], int | None]) -> _Handler:
    return lambda conductor, session, request: handler(conductor._deletions, session, request)


_HANDLERS: dict[str, _Handler] = {
    "ArchiveIdRequest": ArchiveConductor._archive_id,
    "StartRecordingRequest": ArchiveConductor._start,
    "StartRecordingRequest2": ArchiveConductor._start,
    "ExtendRecordingRequest": ArchiveConductor._extend,
    "ExtendRecordingRequest2": ArchiveConductor._extend,
    "StopRecordingRequest": ArchiveConductor._stop,
    "StopRecordingSubscriptionRequest": ArchiveConductor._stop_subscription,
    "StopRecordingByIdentityRequest": ArchiveConductor._stop_identity,
    "ListRecordingsRequest": ArchiveConductor._list_recordings,
    "ListRecordingsForUriRequest": ArchiveConductor._list_recordings,
    "ListRecordingRequest": ArchiveConductor._list_recording,
    "ListRecordingSubscriptionsRequest": ArchiveConductor._list_subscriptions,
    "UpdateChannelRequest": ArchiveConductor._update_channel,
    "FindLastMatchingRecordingRequest": ArchiveConductor._find_last_matching,
    "StartPositionRequest": ArchiveConductor._start_position,
    "StopPositionRequest": ArchiveConductor._stop_position,
    "RecordingPositionRequest": ArchiveConductor._recording_position,
    "MaxRecordedPositionRequest": ArchiveConductor._max_recorded_position,
    "ReplayRequest": ArchiveConductor._replay,
    "BoundedReplayRequest": ArchiveConductor._replay,
    "ReplayTokenRequest": ArchiveConductor._token,
    "StopReplayRequest": ArchiveConductor._stop_replay,
    "StopAllReplaysRequest": ArchiveConductor._stop_all_replays,
    "ReplicateRequest": ArchiveConductor._replicate,
    "ReplicateRequest2": ArchiveConductor._replicate,
    "TaggedReplicateRequest": ArchiveConductor._replicate,
    "StopReplicationRequest": ArchiveConductor._stop_replication,
    "TruncateRecordingRequest": _deletion(Deletions.truncate),
    "PurgeRecordingRequest": _deletion(Deletions.purge),
    "DetachSegmentsRequest": _deletion(Deletions.detach),
    "DeleteDetachedSegmentsRequest": _deletion(Deletions.delete_detached),
    "PurgeSegmentsRequest": _deletion(Deletions.purge_segments),
    "AttachSegmentsRequest": _deletion(Deletions.attach),
    "MigrateSegmentsRequest": _deletion(Deletions.migrate),
}

"""The archive's only agent: it reads requests and runs control sessions, recordings and replays.

``do_work`` is one duty cycle and never blocks. The agent sends commands to the driver and checks their results in later cycles. A
session queues responses that the client has no room for. Time is an argument.
"""

from __future__ import annotations

import logging
import secrets
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mainstem._internal.log_throttle import LogThrottle
from mainstem._internal.printable import printable
from mainstem.aeron.agent import AgentTerminated
from mainstem.aeron.channel import ChannelUri
from mainstem.archive.messages import NULL, MessageReader, RecordingSignal, ResponseCode, SourceLocation, encode
from mainstem.archive.server.channels import (
    is_response,
    own_channel,
    recording_channel,
    recording_key,
    replay_channel,
    response_channel,
    stripped,
)
from mainstem.archive.server.control_session import ControlSession
from mainstem.archive.server.counters import ArchiveCounters, session_counter
from mainstem.archive.server.deletions import Deletions
from mainstem.archive.server.recordings import (
    POSITION_COUNTER,
    ActiveRecordings,
    RecordingEvents,
    RecordingSession,
    RecordingSubscription,
    position_counter,
)
from mainstem.archive.server.refusals import refusal
from mainstem.archive.server.replays import CounterLimit, RecordingLimit, ReplaySession
from mainstem.archive.server.replications import Replication, ReplicationRequest
from mainstem.errors import ArchiveError, ArchiveErrorCode, MainstemError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mainstem._internal.clock import Clock
    from mainstem.aeron.client import Aeron
    from mainstem.archive.messages import Message
    from mainstem.archive.server.access import Authenticator, Authorizer
    from mainstem.archive.server.files import ArchiveFiles
    from mainstem.archive.server.replays import Limit
    from mainstem.archive.server.settings import ArchiveSettings
    from mainstem.recording.catalog import RecordingDescriptor

    _Handler = Callable[["ArchiveConductor", ControlSession, Message], int | None]

log = logging.getLogger("mainstem.archive")
_throttle = LogThrottle(log)

_REQUESTS = ("Request", "Request2", "ChallengeResponse")  # suffixes of the names of requests
REQUESTS_PER_CYCLE = 10  # from each control subscription
# Bytes of frames written per cycle, about two milliseconds of work, shared by the recordings that have frames to write. Each gets
# at least MIN_SHARE, which fits the longest frame.
BYTES_PER_CYCLE, MIN_SHARE = 4 << 20, 64 << 10
ENTRIES_PER_CYCLE = 64  # catalog entries per cycle for one listing
MAX_REQUEST_LENGTH = 64 << 10  # bytes: enough for three channels of maximum length and credentials
MAX_TOKENS = 64  # valid replay tokens of one session
MAX_SESSIONS_OF_IMAGE = 8  # control sessions over one request publication; official clients open one
MAX_POSITION = (1 << 63) - 1
ALL_AND_FOLLOW, ALL_AND_STOP = -1, -2
FRAME_ALIGNMENT = 32


@dataclass(frozen=True, slots=True)
class ArchiveStats:
    """An archive's current activity.

    Attributes:
        control_sessions: Open control sessions.
        recordings: Active recordings.
        replays: Running replays.
        replications: Running replications into this archive.
        refused: Number of requests refused without a response, by reason.
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
        self._authenticator, self._authorizer, self._clock = authenticator, authorizer, clock
        self._reader = MessageReader()
        self._refused: Counter[str] = Counter()
        self._random_bits = random_bits
        self._next_session_id = random_bits(31)
        self._tokens: dict[int, ReplayToken] = {}
        self._image: Any = None  # that the current request came from
        self._replays_made = 0
        self._sessions: dict[int, ControlSession] = {}
        self._subscriptions: dict[str, RecordingSubscription] = {}
        self._unlisted: list[RecordingSubscription] = []
        # Subscriptions with a pending command or with new images.
        self._changed: dict[RecordingSubscription, None] = {}
        self._recordings = ActiveRecordings()
        self._stopping: list[RecordingSession] = []
        self._replays: list[ReplaySession] = []
        self._replications: dict[int, Replication] = {}
        self._deletions = Deletions(files, self._recordings, lambda: self._replays)
        self._buffer = bytearray(settings.file_io_max_length)
        self._now_ns = clock.monotonic_ns()
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

    def _control_channel(self, channel: str) -> str:
        if "sparse=" in channel:
            return channel
        sparse = str(self._settings.control_term_buffer_sparse).lower()
        return f"{channel}{'|' if '?' in channel else '?'}sparse={sparse}"

    @property
    def control_addresses(self) -> list[str]:
        return self._control[0].local_addresses if self._settings.control_channel else []

    def stats(self) -> ArchiveStats:
        return ArchiveStats(
            len(self._sessions),
            len(self._recordings),
            len(self._replays),
            len(self._replications),
            dict(self._refused + self._reader.refused),
        )

    # -- the duty cycle ----------------------------------------------------------------------------------------------

    def do_work(self, now_ns: int) -> int:
        """Run one duty cycle. Raises AgentTerminated once the driver has ended."""
        self._now_ns = now_ns
        self._counters.begin_cycle(now_ns)
        work = self._aeron.invoke()
        if self._aeron.closed:
            raise AgentTerminated
        self._files.touch()
        for subscription in self._control:
            for message in subscription.poll_with_metadata(REQUESTS_PER_CYCLE):
                self._handle(message)
                work += 1
        work += self._work_of_subscriptions()
        work += self._work_of_recordings()
        work += self._work_of_replays()
        work += self._work_of_replications()
        work += self._deletions.do_work()
        work += self._work_of_sessions()
        errors = self._refused.total() + self._reader.refused.total()
        self._counters.update(errors, len(self._sessions), len(self._recordings), len(self._replays))
        return work

    def on_close(self) -> None:
        """End recordings, replays and sessions, and release the directory. The caller closes the client."""
        for replication in self._replications.values():
            replication.stop()
        self._work_of_replications()
        for recording in self._recordings:
            recording.end()
        for replay in self._replays:
            replay.close()
        for entry in (*self._subscriptions.values(), *self._unlisted):
            entry.close()
        for session in self._sessions.values():
            session.close()
        for subscription in self._control:
            subscription.close()
        self._events.close()
        self._counters.close()
        self._recordings.clear()
        self._replays.clear()
        self._sessions.clear()
        self._files.close()

    # -- requests ----------------------------------------------------------------------------------------------------

    def _handle(self, message: Any) -> None:
        if len(message.payload) > MAX_REQUEST_LENGTH:
            self._refuse("length", message.image, f"a request of {len(message.payload)} bytes")
            return
        request = self._reader.read(message.payload)
        if request is None:
            return
        if request.name == "AuthConnectRequest":
            self._connect(request, message.image)
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
        # Only a few tokens exist at a time, since each expires after a few seconds.
        self._tokens = {
            key: each for key, each in self._tokens.items() if now_ns < each.deadline_ns and not each.session.is_done
        }
        if sum(each.session is session for each in self._tokens.values()) >= MAX_TOKENS:
            raise refusal(f"{MAX_TOKENS} replay tokens of this session are valid, as many as there may be")
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
        except (MainstemError, OSError, ValueError, IndexError) as error:
            session.fail(correlation_id, str(error))
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

    def _connect(self, request: Message, image: Any) -> None:
        settings = self._settings
        if len(self._sessions) >= settings.max_control_sessions:
            self._refuse("sessions", image, f"{len(self._sessions)} sessions are open, as many as max_control_sessions")
            return
        if sum(session.image is image for session in self._sessions.values()) >= MAX_SESSIONS_OF_IMAGE:
            # A single client must not be able to use up max_control_sessions.
            self._refuse("sessions of a client", image, f"{MAX_SESSIONS_OF_IMAGE} sessions came by its publication")
            return
        defaults: dict[str, object] = {
            "term-length": settings.control_term_buffer_length,
            "sparse": str(settings.control_term_buffer_sparse).lower(),
        }
        if settings.control_mtu_length:
            defaults["mtu"] = settings.control_mtu_length
        session_id = self._next_session_id
        try:
            channel = response_channel(ChannelUri.parse(request.response_channel), defaults, image.correlation_id)
            session = ControlSession(
                self._aeron,
                settings,
                self._authenticator,
                session_id=session_id,
                image=image,
                request=request,
                channel=channel,
                counter=session_counter(settings.id, session_id, request.client_info, image),
                now_ns=self._now_ns,
            )
        except MainstemError as error:
            self._refuse("connect", image, f"connect request: {error}")
            return
        self._next_session_id = (session_id + 1) % (1 << 63)
        self._sessions[session_id] = session

    def _work_of_sessions(self) -> int:
        work = 0
        for session in list(self._sessions.values()):
            if session.is_quiet(self._now_ns):
                continue
            if session.image.closed:
                session.close()
            work += session.do_work(self._now_ns)
            if session.is_active and session.listing is not None:
                work += self._list(session)
            if session.is_done:
                del self._sessions[session.session_id]
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
                f"cannot extend recording {descriptor.recording_id} of stream {descriptor.stream_id} "
                f"by stream {request.stream_id}",
                ArchiveErrorCode.UNKNOWN_RECORDING,
            )
        self._check_extendable(descriptor)
        self._check_space()
        return self._subscribe(session, request, extends=descriptor.recording_id)

    def _check_recordings(self) -> None:
        entries = (*self._subscriptions.values(), *self._unlisted)
        count = len(self._recordings) + sum(not entry.sessions for entry in entries)
        limit = self._settings.max_concurrent_recordings
        if count >= limit:
            raise refusal(f"max concurrent recordings reached {limit}", ArchiveErrorCode.MAX_RECORDINGS)

    def _check_space(self) -> None:
        free, threshold = self._files.free_space, self._settings.low_storage_space_threshold
        if free <= threshold:
            raise refusal(
                f"low storage space: {free} bytes are free, threshold {threshold}", ArchiveErrorCode.STORAGE_SPACE
            )

    def _check_extendable(self, descriptor: RecordingDescriptor) -> None:
        recording_id = descriptor.recording_id
        self._recordings.check_inactive("extend", recording_id)
        if self._deletions.reaches(recording_id, descriptor.stop_position):
            raise refusal(f"cannot extend recording {recording_id} due to an outstanding delete operation")

    def _subscribe(self, session: ControlSession, request: Message, *, extends: int | None) -> RecordingSubscription:
        uri = ChannelUri.parse(request.channel)
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
        work = 0
        for entry in list(self._changed):
            if entry.operation is not None:
                work += self._subscribed(entry)
            if entry.operation is None:
                del self._changed[entry]
                while entry.arrived and entry.subscription is not None:
                    self._record(entry, entry.arrived.popleft())
                    work += 1
        return work

    def _subscribed(self, entry: RecordingSubscription) -> int:
        assert entry.operation is not None
        try:
            subscription = entry.operation.poll()
        except MainstemError as error:
            entry.operation = None
            self._forget(entry)
            entry.fail(str(error))
            return 1
        if subscription is None:
            return 0
        entry.operation, entry.subscription = None, subscription
        entry.registration_id = subscription.registration_id
        entry.control.respond(entry.correlation_id, entry.registration_id)
        return 1

    def _record(self, entry: RecordingSubscription, image: Any) -> None:
        try:
            if entry.extends is None:
                writer = self._files.begin(image, stripped=entry.stripped_channel, original=entry.original_channel)
                signal = RecordingSignal.START
            else:
                writer = self._files.extend(self._extendable(entry.extends, image), image)
                signal = RecordingSignal.EXTEND
            key, label = position_counter(writer.descriptor, self._settings.id)
            adding = self._aeron.async_add_counter(POSITION_COUNTER, label, key=key)
        except (MainstemError, OSError) as error:
            entry.fail(str(error), error.code if isinstance(error, ArchiveError) else ArchiveErrorCode.GENERIC)
            if entry.auto_stop:
                self._forget(entry)
                self._close_if_unused(entry)
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
        recorded = (d.stop_position, d.initial_term_id, d.term_buffer_length, d.mtu_length)
        joined = (image.join_position, image.initial_term_id, image.term_length, image.mtu)
        if recorded != joined:
            names = "(position, initial term id, term length, mtu length)"
            raise refusal(
                f"cannot extend recording {recording_id}: its {names} is {recorded}, the image's is {joined}",
                ArchiveErrorCode.INVALID_EXTENSION,
            )
        return descriptor

    def _work_of_recordings(self) -> int:
        work = len(self._stopping)
        stopping, self._stopping = self._stopping, []
        for recording in stopping:
            recording.end()
            self._ended(recording)
        ready = self._recordings.ready()
        share = max(MIN_SHARE, BYTES_PER_CYCLE // max(1, len(ready)))
        for recording in ready:
            work += 0 if recording.is_done else recording.do_work(share)
            if recording.is_done:
                self._ended(recording)
        return work

    def _ended(self, recording: RecordingSession) -> None:
        self._recordings.discard(recording)
        entry = recording.owner
        if recording in entry.sessions:
            entry.sessions.remove(recording)
        if entry.auto_stop:
            self._end_subscription(entry)
        elif not entry.is_listed:
            self._close_if_unused(entry)

    def _end_subscription(self, entry: RecordingSubscription) -> None:
        """Forget a subscription and stop all of its recordings."""
        self._forget(entry)
        for recording in list(entry.sessions):
            recording.end()
            self._recordings.discard(recording)
        entry.sessions.clear()
        self._close_if_unused(entry)

    def _forget(self, entry: RecordingSubscription) -> None:
        """Remove a subscription from the list, so that later requests do not find it."""
        if entry.is_listed:
            entry.is_listed = False
            del self._subscriptions[entry.key]
            self._unlisted.append(entry)

    def _close_if_unused(self, entry: RecordingSubscription) -> None:
        if not entry.sessions:
            entry.close()
            if entry in self._unlisted:
                self._unlisted.remove(entry)

    def _stop(self, _: ControlSession, request: Message) -> int:
        key = recording_key(ChannelUri.parse(request.channel), request.stream_id)
        entry = self._subscriptions.get(key)
        if entry is None:
            raise refusal(
                f"no recording found for streamId={request.stream_id} channel={request.channel}",
                ArchiveErrorCode.UNKNOWN_SUBSCRIPTION,
            )
        return self._stopped(entry)

    def _stop_subscription(self, _: ControlSession, request: Message) -> int:
        entry = next(
            (each for each in self._subscriptions.values() if each.registration_id == request.subscription_id), None
        )
        if entry is None or entry.registration_id < 0:
            raise refusal(
                f"no recording subscription found for subscriptionId={request.subscription_id}",
                ArchiveErrorCode.UNKNOWN_SUBSCRIPTION,
            )
        return self._stopped(entry)

    def _stopped(self, entry: RecordingSubscription) -> int:
        if entry.operation is not None:
            entry.fail("the recording was stopped before its subscription was added")
        self._forget(entry)
        entry.arrived.clear()
        # The recordings end later in this cycle, so the STOP signals follow the response.
        self._stopping += entry.sessions
        self._close_if_unused(entry)
        return 0

    def _stop_identity(self, _: ControlSession, request: Message) -> int:
        recording_id = self._files.known(request.recording_id).recording_id
        recording = self._recordings.get(recording_id)
        if recording is None or not recording.owner.is_listed:
            return 0
        self._forget(recording.owner)
        self._stopping.append(recording)
        return 1

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

    def _find_last_matching(self, _: ControlSession, request: Message) -> int:
        if request.min_recording_id < 0:
            raise refusal(f"unknown recording id: {request.min_recording_id}", ArchiveErrorCode.UNKNOWN_RECORDING)
        for d in self._files.newest_first():
            if d.recording_id < request.min_recording_id:
                break
            if (d.session_id, d.stream_id) == (request.session_id, request.stream_id) and (
                request.channel in d.original_channel
            ):
                return d.recording_id
        return NULL

    def _update_channel(self, session: ControlSession, request: Message) -> int | None:
        if session.listing is not None:
            raise refusal("active listing already in progress", ArchiveErrorCode.ACTIVE_LISTING)
        descriptor = self._files.find(request.recording_id)
        if descriptor is None:
            session.respond(request.correlation_id, request.recording_id, ResponseCode.RECORDING_UNKNOWN)
            return None
        uri = ChannelUri.parse(request.channel)
        self._files.update_channel(descriptor, stripped=stripped(uri), original=request.channel)
        return 0

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
        session.listing = Listing(request.correlation_id, messages)
        self._list(session)

    def _list(self, session: ControlSession) -> int:
        sent: int = session.listing.send(session)
        if session.listing is not None and session.listing.is_done:
            session.listing = None
        return sent

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
        return encode("RecordingDescriptor", **values)

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
                raise refusal(f"recording {recording_id} is empty at {position}", ArchiveErrorCode.EMPTY_RECORDING)
        else:
            length = min(request.length, longest)
        if length < 0:
            raise refusal(f"replay length must be positive: {request.length}")
        uri = ChannelUri.parse(request.replay_channel)
        if is_response(uri) and request.replay_token == NULL:
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
            raise refusal(f"requested replay start position={position} is not a multiple of {FRAME_ALIGNMENT}")
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
        work = 0
        for replay in self._replays:
            work += replay.do_work(self._now_ns, self._buffer)
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
            self._files.known(asked.target_id)
            self._recordings.check_inactive("replicate to", asked.target_id)
        replication_id = self._next_session_id
        self._replications[replication_id] = Replication(self, session, replication_id, asked)
        self._next_session_id = (replication_id + 1) % (1 << 63)
        return replication_id

    def _work_of_replications(self) -> int:
        work = 0
        for replication in list(self._replications.values()):
            work += replication.do_work()
            if replication.is_done:
                del self._replications[replication.replication_id]
        return work

    def _stop_replication(self, _: ControlSession, request: Message) -> int:
        replication = self._replications.get(request.replication_id)
        if replication is None:
            raise refusal(f"unknown replication id: {request.replication_id}", ArchiveErrorCode.UNKNOWN_REPLICATION)
        replication.stop()
        return 0


@dataclass(frozen=True, slots=True)
class ReplayToken:
    """Lets a client send a replay request on behalf of another client's session."""

    session: ControlSession
    recording_id: int
    deadline_ns: int


def _has_token(request: Message) -> bool:
    """Whether a request asks for a replay over a response channel with a token."""
    if request.values.get("replay_token", NULL) == NULL:
        return False
    try:
        return is_response(ChannelUri.parse(request.replay_channel))
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

    def send(self, session: ControlSession) -> int:
        """Send as many messages as the client has room for. Return their number."""
        sent = 0
        try:
            for _ in range(ENTRIES_PER_CYCLE):
                if self._unsent is None:
                    self._unsent = next(self._messages)
                if self._unsent is not None:
                    if not session.try_send(self._unsent):
                        break
                    self._unsent = None
                    sent += 1
        except StopIteration:
            self.is_done = True
        except (MainstemError, OSError, ValueError) as error:
            self.is_done = True
            session.fail(self._correlation_id, f"the listing ended: {error}")
        return sent


def _unknown(session: ControlSession, correlation_id: int, recording_id: int) -> bytes:
    return session.encode_response(correlation_id, recording_id, ResponseCode.RECORDING_UNKNOWN)


def _ascii(text: str) -> str:
    return text if text.isascii() else text.encode("ascii", "replace").decode("ascii")


def _deletion(handler: Callable[[Deletions, ControlSession, Message], int]) -> _Handler:
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

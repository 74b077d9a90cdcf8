"""The archive's only agent: it reads requests and runs its parts, such as control sessions, recordings and replays.

``do_work`` is one duty cycle and never blocks. The agent sends commands to the driver and checks their results in later cycles. A
session queues responses that the client has no room for. Time is an argument.

Each part has its own state. A duty cycle consists of steps of requests, recordings, replays and so on. An exception of any type
ends only what the step belongs to, and its client receives an error (``duty_cycle.step_each``).
"""

from __future__ import annotations

import logging
import secrets
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mainstem._core.layout import DATA_HEADER_LENGTH
from mainstem._internal.log_throttle import LogThrottle
from mainstem.aeron.agent import AgentTerminated
from mainstem.aeron.channel import with_values
from mainstem.aeron.logbuffer import align_frame
from mainstem.archive.messages import NULL, MessageReader
from mainstem.archive.server.active_recordings import ActiveRecordings
from mainstem.archive.server.channel_updates import ChannelUpdates
from mainstem.archive.server.counters import ArchiveCounters
from mainstem.archive.server.deletions import Deletions
from mainstem.archive.server.duty_cycle import DutyCycle, step_each
from mainstem.archive.server.listings import Listings
from mainstem.archive.server.recording_session import RecordingEvents
from mainstem.archive.server.recordings import Recordings
from mainstem.archive.server.refused_requests import RefusedRequests
from mainstem.archive.server.replays import Replays, has_token
from mainstem.archive.server.replications import Replications
from mainstem.archive.server.request_errors import reason_of, request_error
from mainstem.archive.server.sessions import ControlSessions
from mainstem.errors import ArchiveError, ArchiveErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainstem._internal.clock import Clock
    from mainstem.aeron.client import Aeron
    from mainstem.archive.messages import Message
    from mainstem.archive.server.access import Authenticator, Authorizer
    from mainstem.archive.server.control_session import ControlSession
    from mainstem.archive.server.files import ArchiveFiles
    from mainstem.archive.server.settings import ArchiveSettings

    _Handler = Callable[[ControlSession, Message], int | None]

_throttle = LogThrottle(logging.getLogger("mainstem.archive"))

_REQUESTS = ("Request", "Request2", "ChallengeResponse")  # suffixes of the names of requests
REQUESTS_PER_CYCLE = 10  # from each control subscription
MAX_REQUEST_LENGTH = 64 << 10  # bytes: enough for three channels of maximum length and credentials


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
        self._aeron, self._files, self._settings, self._authorizer = aeron, files, settings, authorizer
        self._reader = MessageReader()
        self._cycle = cycle = DutyCycle(clock)
        self._refused = refused = RefusedRequests(cycle)
        self._sessions = ControlSessions(aeron, settings, authenticator, cycle, refused, random_bits)
        self._counters = counters = ArchiveCounters(aeron, settings.id, settings.threading_mode, clock)
        self._events = RecordingEvents(
            aeron.add_exclusive_publication(settings.recording_events_channel, settings.recording_events_stream_id)
            if settings.recording_events_channel
            else None
        )
        self._active = active = ActiveRecordings()
        self._deletions = deletions = Deletions(files, active, lambda: list(self._replays), cycle)
        self._recordings = Recordings(
            aeron, files, settings, clock, cycle, active, deletions, self._events, refused, counters.writes
        )
        self._replays = Replays(aeron, files, settings, cycle, active, deletions, counters.reads, random_bits)
        self._replications = Replications(aeron, files, settings, self._recordings, self._sessions.take_id)
        self._listings = Listings(files, self._recordings, cycle)
        self._updates = ChannelUpdates(files, cycle)
        self._handlers = self._table()
        control = []
        if settings.control_channel:
            control.append((settings.control_channel, settings.control_stream_id))
        control.append((settings.local_control_channel, settings.local_control_stream_id))
        self._control = [aeron.add_subscription(self._control_channel(channel), stream) for channel, stream in control]
        self._parts: tuple[Callable[[], int | None], ...] = (
            files.touch,
            self._work_of_requests,
            self._recordings.do_work,
            self._replays.do_work,
            self._replications.do_work,
            self._listings.do_work,
            self._updates.do_work,
            deletions.do_work,
            self._sessions.do_work,
        )

    def _table(self) -> dict[str, _Handler]:
        """Return what handles each request. A result that is not None is sent to the client."""
        deletions, listings, recordings, replays = self._deletions, self._listings, self._recordings, self._replays
        return {
            "ArchiveIdRequest": lambda _session, _request: self._settings.id,
            "StartRecordingRequest": recordings.start,
            "StartRecordingRequest2": recordings.start,
            "ExtendRecordingRequest": recordings.start_extension,
            "ExtendRecordingRequest2": recordings.start_extension,
            "StopRecordingRequest": recordings.stop,
            "StopRecordingSubscriptionRequest": recordings.stop_by_subscription,
            "StopRecordingByIdentityRequest": recordings.stop_by_identity,
            "ListRecordingsRequest": listings.recordings,
            "ListRecordingsForUriRequest": listings.recordings,
            "ListRecordingRequest": listings.recording,
            "ListRecordingSubscriptionsRequest": listings.subscriptions,
            "UpdateChannelRequest": self._updates.add,
            "FindLastMatchingRecordingRequest": listings.last_matching,
            "StartPositionRequest": recordings.start_position,
            "StopPositionRequest": recordings.stop_position,
            "RecordingPositionRequest": recordings.recording_position,
            "MaxRecordedPositionRequest": recordings.max_recorded_position,
            "ReplayRequest": replays.start,
            "BoundedReplayRequest": replays.start,
            "ReplayTokenRequest": replays.token,
            "StopReplayRequest": replays.stop,
            "StopAllReplaysRequest": replays.stop_all,
            "ReplicateRequest": self._replications.start,
            "ReplicateRequest2": self._replications.start,
            "TaggedReplicateRequest": self._replications.start,
            "StopReplicationRequest": self._replications.stop,
            "TruncateRecordingRequest": deletions.truncate,
            "PurgeRecordingRequest": deletions.purge,
            "DetachSegmentsRequest": deletions.detach,
            "DeleteDetachedSegmentsRequest": deletions.delete_detached,
            "PurgeSegmentsRequest": deletions.purge_segments,
            "AttachSegmentsRequest": deletions.attach,
            "MigrateSegmentsRequest": deletions.migrate,
        }

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
            len(self._active),
            len(self._replays),
            len(self._replications),
            dict(self._refused.counts + self._reader.refused + Counter(dropped=self._sessions.dropped)),
        )

    # -- the duty cycle ----------------------------------------------------------------------------------------------

    def do_work(self, now_ns: int) -> int:
        """Run one duty cycle. Raises AgentTerminated once the driver has ended."""
        self._cycle.begin(now_ns)
        self._counters.begin_cycle(now_ns)
        work = self._aeron.invoke()
        if self._aeron.closed:
            raise AgentTerminated
        work += self._cycle.run(self._parts)
        errors = self._refused.counts.total() + self._reader.refused.total()
        self._counters.update(errors, len(self._sessions), len(self._active), len(self._replays))
        return work

    def on_close(self) -> None:
        """End recordings, replays and sessions, and release the directory. The caller closes the client."""
        self._cycle.run(
            [
                self._replications.close,
                self._updates.close,
                self._recordings.end,
                self._replays.close,
                self._recordings.close,
                self._sessions.close,
                *(subscription.close for subscription in self._control),
                self._events.close,
                self._counters.close,
                self._files.close,
            ]
        )

    # -- requests ----------------------------------------------------------------------------------------------------

    def _work_of_requests(self) -> int:
        return step_each(self._control, self._read_requests, self._cycle.note_failure)

    def _read_requests(self, subscription: Any) -> int:
        return step_each(
            subscription.poll_limited(REQUESTS_PER_CYCLE, MAX_REQUEST_LENGTH + 1),
            self._handle,
            lambda message, text: self._refused.note("failure", message.image, text),
        )

    def _handle(self, message: Any) -> int:
        self._read(message)
        return 1

    def _read(self, message: Any) -> None:
        refuse, image = self._refused.note, message.image
        if len(message.payload) > MAX_REQUEST_LENGTH:
            refuse("length", image, f"a request of more than {MAX_REQUEST_LENGTH} bytes")
            return
        request = self._reader.read(message.payload)
        if request is None:
            return
        if request.name == "AuthConnectRequest":
            self._sessions.connect(request, length_of_frame(len(message.payload)), image)
            return
        if not request.name.endswith(_REQUESTS):
            refuse("not a request", image, f"{request.name}, which archives send")
            return
        if has_token(request):
            self._handle_token(request, image)
            return
        session = self._sessions.get(request.values.get("control_session_id", NULL))
        if session is None:
            refuse("unknown session", image, f"{request.name} for an unknown control session")
        elif session.image is not image:
            refuse("foreign session", image, f"{request.name} for the control session of another client")
        elif request.name == "CloseSessionRequest":
            session.close()
        elif request.name == "ChallengeResponse":
            session.answer_challenge(request.correlation_id, request.encoded_credentials)
        else:
            self._carry_out(session, request)

    def _handle_token(self, request: Message, image: Any) -> None:
        """Carry out a replay over a response channel. The token determines the session, whichever client sent the request."""
        session = self._replays.session_of(request)
        if session is None:
            self._refused.note("replay token", image, f"{request.name} with a token that is not valid")
        else:
            self._carry_out(session, request, lambda session, request: self._replays.start(session, request, image))

    def _carry_out(self, session: ControlSession, request: Message, handler: _Handler | None = None) -> None:
        if not session.activate():
            self._refused.note("session state", session.image, f"{request.name} before the session was established")
            return
        if request.name == "KeepAliveRequest":
            return
        correlation_id = request.correlation_id
        handler = handler or self._handlers[request.name]
        try:
            if not self._is_authorized(request.name, session):
                raise request_error(f"{request.name} is not authorized", ArchiveErrorCode.UNAUTHORISED_ACTION)
            result = handler(session, request)
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
            _throttle.log(logging.ERROR, "authorizer", text, self._cycle.now_ns, error=error)
            return False


def length_of_frame(length: int) -> int:
    """Return how many bytes of datagrams a message takes at least."""
    return align_frame(DATA_HEADER_LENGTH + length)

"""The archive's replays, and the tokens with which clients start replays over response channels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mainstem._core.layout import FRAME_ALIGNMENT
from mainstem.aeron.channel import ChannelUri
from mainstem.archive.channels import replay_channel
from mainstem.archive.messages import NULL
from mainstem.archive.server.duty_cycle import step_each
from mainstem.archive.server.replay_session import CounterLimit, RecordingLimit, ReplaySession
from mainstem.archive.server.request_errors import request_error
from mainstem.errors import ArchiveErrorCode, MainstemError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mainstem.aeron.client import Aeron
    from mainstem.archive.messages import Message
    from mainstem.archive.server.active_recordings import ActiveRecordings
    from mainstem.archive.server.control_session import ControlSession
    from mainstem.archive.server.counters import DiskTimes
    from mainstem.archive.server.deletions import Deletions
    from mainstem.archive.server.duty_cycle import DutyCycle
    from mainstem.archive.server.files import ArchiveFiles
    from mainstem.archive.server.replay_session import Limit
    from mainstem.archive.server.settings import ArchiveSettings
    from mainstem.recording.catalog import RecordingDescriptor

MAX_TOKENS = 64  # valid replay tokens of one session
MAX_POSITION = (1 << 63) - 1
ALL_AND_FOLLOW, ALL_AND_STOP = -1, -2


@dataclass(frozen=True, slots=True)
class ReplayToken:
    """Lets a client send a replay request on behalf of another client's session."""

    session: ControlSession
    recording_id: int
    deadline_ns: int


class Replays:
    """Starts, runs and stops replays. ``random_bits`` returns a random integer with the given number of bits, for tokens."""

    def __init__(
        self,
        aeron: Aeron,
        files: ArchiveFiles,
        settings: ArchiveSettings,
        cycle: DutyCycle,
        active: ActiveRecordings,
        deletions: Deletions,
        reads: DiskTimes,
        random_bits: Callable[[int], int],
    ) -> None:
        self._aeron, self._files, self._settings, self._cycle = aeron, files, settings, cycle
        self._active, self._deletions, self._reads, self._random_bits = active, deletions, reads, random_bits
        self._sessions: list[ReplaySession] = []
        self._number = 0  # of the last replay
        self._tokens: dict[int, ReplayToken] = {}
        self._buffer = bytearray(settings.file_io_max_length)

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[ReplaySession]:
        return iter(self._sessions)

    def close(self) -> None:
        self._cycle.run([each.close for each in self._sessions])
        self._sessions.clear()

    # -- starting ----------------------------------------------------------------------------------------------------

    def start(self, session: ControlSession, request: Message, image: Any = None) -> None:
        """Start a replay. ``image`` is the one that a request with a token came from."""
        requester = session.image if image is None else image
        limit = self._settings.max_concurrent_replays
        if len(self._sessions) >= limit:
            raise request_error(f"max concurrent replays reached {limit}", ArchiveErrorCode.MAX_REPLAYS)
        descriptor = self._files.known(request.recording_id)
        recording_id = descriptor.recording_id
        recording = self._active.get(recording_id)
        follows: Limit | None = None
        if request.name == "BoundedReplayRequest":
            follows = CounterLimit(self._aeron.counters, request.limit_counter_id)
        elif recording is not None:
            follows = RecordingLimit(recording)
        stop = follows.read()[0] if follows is not None else descriptor.stop_position
        position = self._replay_position(request, descriptor, stop, is_limited=follows is not None)
        max_length = request.file_io_max_length if request.file_io_max_length > 0 else self._settings.file_io_max_length
        if max_length < descriptor.mtu_length:
            raise request_error(f"fileIoMaxLength={max_length} < mtuLength={descriptor.mtu_length}")
        longest = (MAX_POSITION if follows is not None else stop) - position
        if request.length == ALL_AND_FOLLOW:
            length = longest
        elif request.length == ALL_AND_STOP:
            length = stop - position
            if length == 0:
                raise request_error(
                    f"When replaying and stopping the replay length must be non-zero, recordingId={recording_id}",
                    ArchiveErrorCode.EMPTY_RECORDING,
                )
        else:
            length = min(request.length, longest)
        if length < 0:
            raise request_error(
                f"replay length must be positive: replayLength={length}, length={request.length}, "
                f"stopPosition={stop}, replayPosition={position} for recording {recording_id}"
            )
        uri = ChannelUri.parse(request.replay_channel)
        if uri.is_response and request.replay_token == NULL:
            raise request_error("a replay over a response channel needs a replay token")
        if self._deletions.reaches(recording_id, descriptor.stop_position) and stop > descriptor.stop_position != NULL:
            raise request_error(f"cannot replay recording {recording_id} due to an outstanding delete operation")
        linger_ns = self._settings.replay_linger_timeout_ns
        self._number += 1
        self._sessions.append(
            ReplaySession(
                self._aeron,
                self._files.directory,
                session,
                request.correlation_id,
                number=self._number,
                descriptor=descriptor,
                channel=replay_channel(
                    uri, descriptor, position, linger_ns=linger_ns, image_id=requester.correlation_id
                ),
                stream_id=request.replay_stream_id,
                position=position,
                end=position + length,
                limit=follows,
                max_length=max_length,
                now_ns=self._cycle.now_ns,
                connect_timeout_ns=self._settings.connect_timeout_ns,
                reads=self._reads,
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
            raise request_error(
                f"requested replay start position={position} is not a multiple of FRAME_ALIGNMENT ({FRAME_ALIGNMENT}) "
                f"for recording {recording_id}"
            )
        elif position < start:
            raise request_error(
                f"requested replay start position={position} is less than recording start position={start} "
                f"for recording {recording_id}",
                ArchiveErrorCode.INVALID_POSITION,
            )
        elif descriptor.stop_position != NULL and position >= descriptor.stop_position:
            raise request_error(
                f"requested replay start position={position} must be less than the limit "
                f"position={descriptor.stop_position} for recording {recording_id}",
                ArchiveErrorCode.INVALID_POSITION,
            )
        if is_limited and position > stop:
            raise request_error(
                f"requested replay start position={position} must be less than the limit position={stop} "
                f"for recording {recording_id}",
                ArchiveErrorCode.INVALID_POSITION,
            )
        return position

    def do_work(self) -> int:
        work = step_each(
            self._sessions,
            lambda replay: replay.do_work(self._cycle.now_ns, self._buffer),
            lambda replay, _text: replay.close(),
        )
        if any(replay.is_done for replay in self._sessions):
            self._sessions = [replay for replay in self._sessions if not replay.is_done]
        return work

    def stop(self, _: ControlSession, request: Message) -> int:
        for replay in self._sessions:
            if replay.session_id == request.replay_session_id:
                replay.close()
        return 0

    def stop_all(self, _: ControlSession, request: Message) -> int:
        for replay in self._sessions:
            if request.recording_id in (NULL, replay.descriptor.recording_id):
                replay.close()
        return 0

    def token(self, session: ControlSession, request: Message) -> int:
        now_ns = self._cycle.now_ns
        # The oldest ones, which expire first, are at the front.
        while self._tokens and now_ns >= (oldest := next(iter(self._tokens.values()))).deadline_ns:
            del self._tokens[next(iter(self._tokens))]
            oldest.session.tokens -= 1
        if session.tokens >= MAX_TOKENS:
            raise request_error(f"{MAX_TOKENS} replay tokens of this session are valid, as many as there may be")
        session.tokens += 1
        key = NULL
        while key == NULL or key in self._tokens:
            key = self._random_bits(64) - (1 << 63)
        self._tokens[key] = ReplayToken(session, request.recording_id, now_ns + self._settings.connect_timeout_ns)
        return key

    def session_of(self, request: Message) -> ControlSession | None:
        """Return the session of a request's token; None if the token is not valid."""
        token = self._tokens.get(request.replay_token)
        if token is None or token.recording_id != request.recording_id or self._cycle.now_ns >= token.deadline_ns:
            return None
        return token.session


def has_token(request: Message) -> bool:
    """Whether a request asks for a replay over a response channel with a token."""
    if request.values.get("replay_token", NULL) == NULL:
        return False
    try:
        return ChannelUri.parse(request.replay_channel).is_response
    except MainstemError:
        return False

"""Replications: copy recordings of another archive into this one.

Theory of operation. This archive connects to the source like any client and asks it to replay the recording to this archive. The
replay extends one of this archive's recordings: either a new one with the source's description, or one from an earlier
replication. The replay publishes the source's frames at the source's positions, so the copy is identical byte for byte, and a
replication that ended early can continue at the copy's stop position.

With a live destination, the subscription has two destinations, as in ``ReplayMerge``: the replay and, once the copy is near the
source's recorded position, the live stream. When both feed the image and the copy has caught up with the source, the archive
removes the replay and continues to record without the source.

A replication is a generator. Each duty cycle resumes it once, and it yields wherever it has to wait. Each of its requests to the
source is limited by the message timeout. However it ends, its client receives the signal REPLICATE_END, preceded by an error if
the replication failed, and followed, as in the reference, by the signal STOP if the copy was still being recorded.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from mainstem._internal.clock import NS_PER_MS, NS_PER_SECOND, Deadline
from mainstem._internal.printable import printable
from mainstem.aeron.channel import ChannelUri, with_values
from mainstem.archive.calls import Calls, ReplayOptions, replay_session
from mainstem.archive.channels import has_any_port, own_channel, with_bound_port
from mainstem.archive.merge import join_live
from mainstem.archive.messages import NULL, RecordingSignal, SourceLocation, decode, encode
from mainstem.archive.server.duty_cycle import step_each
from mainstem.archive.server.request_errors import reason_of, request_error
from mainstem.errors import ArchiveError, ArchiveErrorCode, MainstemError, Timeout

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainstem.aeron.client import Aeron
    from mainstem.aeron.client.subscription import Subscription
    from mainstem.aeron.client.waiting import Steps
    from mainstem.archive.messages import Message
    from mainstem.archive.server.control_session import ControlSession
    from mainstem.archive.server.files import ArchiveFiles
    from mainstem.archive.server.recording_session import RecordingSession, RecordingSubscription
    from mainstem.archive.server.recordings import Recordings
    from mainstem.archive.server.settings import ArchiveSettings
    from mainstem.recording.catalog import RecordingDescriptor

log = logging.getLogger("mainstem.archive")

POLL_INTERVAL_NS = 100 * NS_PER_MS  # how often the source's messages are read while no request is pending
JOIN_ATTEMPTS = 3  # requests for the source's recorded position that may time out before the live stream is joined


class _ReportedError(Exception):
    """The copy cannot be recorded, and the client has already been told why."""


class _JavaError(ArchiveError):
    """An error whose text is that of Java's archive, as a whole."""


class ReplicationRequest:
    """A client's request for a replication. Older messages lack some of the fields; the channels are defaults.

    Raises ArchiveError if a channel is missing, or the request contradicts itself.
    """

    def __init__(self, request: Message, *, replication_channel: str, response_channel: str) -> None:
        values = request.values
        self.source_id: int = request.src_recording_id
        self.target_id: int = request.dst_recording_id
        self.control_channel: str = request.src_control_channel
        self.control_stream_id: int = request.src_control_stream_id
        self.live_destination: str = request.live_destination
        self.stop_position: int = values.get("stop_position", NULL)
        self.channel_tag: int = values.get("channel_tag_id", NULL)
        self.subscription_tag: int = values.get("subscription_tag_id", NULL)
        self.file_io_max_length: int = values.get("file_io_max_length", NULL)
        self.session_id: int = values.get("replication_session_id", NULL)
        self.credentials: bytes = values.get("encoded_credentials", b"")
        self.channel: str = values.get("replication_channel") or replication_channel
        self.response_channel: str = values.get("src_response_channel") or response_channel
        self.is_tagged = (self.channel_tag, self.subscription_tag) != (NULL, NULL)
        for name, channel in (
            ("replication_channel", self.channel),
            ("control_response_channel", self.response_channel),
        ):
            if not channel:
                raise request_error(
                    f"cannot replicate: no channel in the request, and none is set: set {name} of the archive"
                )
        self.is_by_response = ChannelUri.parse(self.channel).is_response
        if self.is_by_response and self.live_destination:
            raise request_error("response channels can't be used with live destinations")
        if self.is_by_response and self.is_tagged:
            raise request_error("response channels can't be used with tagged replication")

    @property
    def has_destinations(self) -> bool:
        """Whether the subscription has destinations instead of an endpoint."""
        return self.is_tagged or bool(self.live_destination)


class Replication:
    """One replication. Call ``do_work`` repeatedly until ``is_done``. Signals and errors go to ``control``."""

    def __init__(
        self,
        aeron: Aeron,
        files: ArchiveFiles,
        settings: ArchiveSettings,
        recordings: Recordings,
        control: ControlSession,
        replication_id: int,
        request: ReplicationRequest,
    ) -> None:
        self.replication_id = replication_id
        self.is_done = False
        self.is_stopped = False
        self._files, self._recordings = files, recordings
        self._control, self._request = control, request
        self._timeout = settings.message_timeout_ns / NS_PER_SECOND
        self._target_id = request.target_id
        self._entry: RecordingSubscription | None = None
        self._replay_id: int | None = None
        self._replay_destination = ""
        self._session_id = NULL
        self._is_merged = False
        self._end_position = NULL  # the position that completes the copy, if it is known
        self._attempts_left = JOIN_ATTEMPTS
        self._calls: Calls[Subscription] = Calls(
            aeron,
            request.control_channel,
            response_channel=request.response_channel,
            stream_id=request.control_stream_id,
            response_stream_id=settings.control_response_stream_id,
            credentials=request.credentials,
            on_challenge=_refuse_challenge,
            client_name=f"archiveId={settings.id} replicationSessionId={replication_id}",
            reconnects=False,
        )
        self._next_poll = self._soon()
        self._steps = self._replicating()

    def do_work(self) -> int:
        if self.is_stopped:
            self._end()
            return 1
        try:
            next(self._steps)
        except (StopIteration, _ReportedError):
            self._end()
        except ArchiveError as error:
            # The source's error codes refer to its own recordings, not to those of the client that receives this error.
            is_own = error.correlation_id == NULL
            is_whole = isinstance(error, _JavaError)
            self._fail(str(error), error.code if is_own else ArchiveErrorCode.GENERIC, is_whole=is_whole)
        except Exception as error:
            self._fail(reason_of(error))
        return int(self.is_done)

    def stop(self) -> None:
        """End the replication in the next cycle. The copy keeps what it has."""
        self.is_stopped = True

    # -- the steps ---------------------------------------------------------------------------------------------------

    def _replicating(self) -> Steps[None]:
        calls, request = self._calls, self._request
        try:
            yield from calls.connecting(self._timeout)
        except (MainstemError, ValueError) as error:
            raise _JavaError(
                f"Replication connection failed={error}", code=ArchiveErrorCode.REPLICATION_CONNECTION_FAILURE
            ) from error
        source = yield from calls.list_recording(request.source_id, timeout=self._timeout)
        if source is None:
            raise _JavaError(f"unknown src recording id {request.source_id}", code=ArchiveErrorCode.UNKNOWN_RECORDING)
        if source.recording_id != request.source_id:
            raise request_error(
                f"the source described recording {source.recording_id} when asked for {request.source_id}"
            )
        source.check_new()  # the source decides what it says
        if 0 < request.file_io_max_length < source.mtu_length:
            raise _JavaError(
                f"Replication fileIoMaxLength ({request.file_io_max_length}) is less than than the recording mtuLength"
                f" ({source.mtu_length})",
                code=ArchiveErrorCode.GENERIC,
            )
        target = yield from self._prepare_target(source)
        position = target.stop_position
        if request.live_destination and source.stop_position != NULL:
            raise _no_live_source()
        if source.stop_position in (source.start_position, position):
            self._signal(RecordingSignal.SYNC, position)
            return
        if request.stop_position != NULL and request.stop_position <= position:
            return
        live_position = 0
        if request.live_destination:
            live_position = yield from self._source_position()
        entry = yield from self._extending(source, target.recording_id)
        self._end_position = source.stop_position if request.stop_position == NULL else request.stop_position
        yield from self._start_replay(entry, source, position)
        recording = yield from self._recording(entry)
        stop_position = source.stop_position
        if request.live_destination:
            self._is_merged = yield from self._merging(entry, recording, live_position)
            if self._is_merged:
                self._signal(RecordingSignal.MERGE, recording.position)
                return
            stop_position = yield from self._stop_position()
        yield from self._copying(entry, recording, stop_position)

    def _prepare_target(self, source: RecordingDescriptor) -> Steps[RecordingDescriptor]:
        """Return the stopped recording that receives the copy."""
        files = self._files
        if self._target_id == NULL:
            target = files.add_replica(source)
            self._target_id = target.recording_id
            self._signal(RecordingSignal.REPLICATE, target.start_position)
            return target
        target, active = files.known(self._target_id), self._recordings.active
        active.check_inactive("replicate to", self._target_id)
        if target.start_position != target.stop_position:
            return target
        active.reserved.add(self._target_id)
        try:
            return (yield from files.become_replica(target, source))
        finally:
            active.reserved.discard(self._target_id)

    def _source_position(self) -> Steps[int]:
        source_id = self._request.source_id
        position = yield from self._calls.recording_position(source_id, timeout=self._timeout)
        if position is None:
            raise _no_live_source()
        return position

    def _stop_position(self) -> Steps[int]:
        """Return the stop position of the source's recording; -1 while it is active."""
        source_id = self._request.source_id
        found = yield from self._calls.stop_position(source_id, timeout=self._timeout)
        return NULL if found is None else found

    def _extending(self, source: RecordingDescriptor, target_id: int) -> Steps[RecordingSubscription]:
        """Subscribe to the replay and record it. Return the subscription."""
        request = self._request
        is_session_free = request.session_id == NULL or request.live_destination
        session_id = source.session_id if is_session_free else request.session_id
        self._session_id = session_id
        values: dict[str, object] = {"rejoin": "false"}
        without: tuple[str, ...] = ()
        if not request.is_by_response:
            values["session-id"] = session_id
        if request.has_destinations:
            tags = (request.channel_tag, request.subscription_tag)
            values["tags"] = ",".join(str(self.replication_id if tag == NULL else tag) for tag in tags)
            values["control-mode"] = "manual"
            without = ("endpoint",)
        extension = encode(
            "ExtendRecordingRequest2",
            control_session_id=self._control.session_id,
            correlation_id=self.replication_id,
            recording_id=target_id,
            stream_id=source.stream_id,
            source_location=SourceLocation.REMOTE,
            auto_stop=1,
            channel=with_values(request.channel, values, without=without),
        )
        self._entry = entry = self._recordings.extend(self._control, decode(extension))
        deadline = self._deadline()
        while entry.subscription is None:
            self._check_entry(entry)
            yield from self._wait(deadline, "the subscription of the replay")
        return entry

    def _start_replay(self, entry: RecordingSubscription, source: RecordingDescriptor, position: int) -> Steps[None]:
        calls, request, channel = self._calls, self._request, self._request.channel
        options = ReplayOptions(
            source.recording_id,
            channel,
            source.stream_id,
            position,
            length=None if request.stop_position == NULL else request.stop_position - position,
            file_io_max_length=request.file_io_max_length,
        )
        deadline = self._deadline()
        if request.is_by_response:
            started = yield from calls.start_replay_by_response(entry.registration_id, options, deadline)
            self._replay_id = started.replay_id
            return
        if request.has_destinations:
            self._replay_destination = _destination(channel)
            adding = calls.conductor.add_destination(entry.subscription, self._replay_destination)
            yield from calls.result_of(adding, deadline, "the replay's destination")
        if has_any_port(channel):
            while not (addresses := entry.subscription.local_addresses):
                self._check_entry(entry)
                yield from self._wait(deadline, "the port of the replication channel")
            channel = with_bound_port(channel, addresses[0])
        values: dict[str, object] = {"session-id": self._session_id}
        if request.live_destination:
            values |= {"linger": 0, "eos": "false"}
        options = replace(options, channel=with_values(channel, values))
        started = yield from calls.request_replay(options, self._timeout)
        self._replay_id = started.replay_id

    def _recording(self, entry: RecordingSubscription) -> Steps[RecordingSession]:
        """Wait for the replay's image. Return its recording."""
        assert self._replay_id is not None, "the replay has begun"
        session_id = replay_session(self._replay_id)
        deadline = self._deadline()
        while entry.latest is None or entry.latest.image.session_id != session_id:
            self._check_entry(entry)
            self._check_source()
            if entry.is_examining:  # the copy so far, which takes as long as reading it
                deadline = self._deadline()
            yield from self._wait(deadline, "the image of the replay")
        return entry.latest

    def _copying(self, entry: RecordingSubscription, recording: RecordingSession, stop_position: int) -> Steps[None]:
        """Wait until the copy is complete or the replay ends. ``stop_position`` is the source's."""
        wanted = self._request.stop_position
        while True:
            position = recording.position
            if stop_position != NULL and position >= stop_position:
                self._signal(RecordingSignal.SYNC, position, entry.registration_id)
                return
            if wanted != NULL and position >= wanted:
                return
            if self._has_ended(entry, recording):
                break
            self._check_source()
            yield None
        # When the source archive is killed, its driver ends the replay's stream as if the replay were complete.
        if stop_position == NULL and recording.is_drained:
            stop_position = (yield from self._calls.settled_stop_position(self._request.source_id)) or NULL
            if stop_position == recording.position:
                return
            self._end_position = max(stop_position, self._end_position)
        raise self._cut(recording)

    def _has_ended(self, entry: RecordingSubscription, recording: RecordingSession) -> bool:
        """Whether the recording has ended, with the replay or because it was stopped. Raises ArchiveError if it failed."""
        if not recording.is_done:
            return False
        self._check_entry(entry)
        if recording.is_cut:
            raise self._cut(recording)
        return True

    def _cut(self, recording: RecordingSession) -> ArchiveError:
        what = "the replay ended" if recording.is_cut or recording.is_drained else "the copy was stopped"
        end = "the end of the recording" if self._end_position == NULL else f"position {self._end_position}"
        return request_error(f"{what} at position {recording.position}, before {end}")

    def _merging(self, entry: RecordingSubscription, recording: RecordingSession, target: int) -> Steps[bool]:
        """Join the live stream. Return whether it feeds the copy; False if the source or the copy stopped in the meantime."""
        calls = self._calls

        def has_ended() -> bool:
            if self._has_ended(entry, recording):
                return True
            self._check_source()
            return False

        is_joined = yield from join_live(
            calls,
            entry.subscription,
            recording.image,
            self._request.live_destination,
            target,
            position=lambda: recording.position,
            ask=self._ask_position,
            has_ended=has_ended,
            note=lambda _: None,
            timeout=self._timeout,
        )
        if not is_joined:
            return False
        # Nothing limits the progress of a replication, so its commands have a limit of their own, unlike those of a ReplayMerge.
        removing = calls.conductor.remove_destination(entry.subscription, self._replay_destination)
        yield from calls.result_of(removing, self._deadline(), "the removal of the replay's destination")
        return True

    def _ask_position(self) -> Steps[int | None]:
        """Ask the source for its recorded position. Retry if the request times out."""
        source_id = self._request.source_id
        while True:
            try:
                return (yield from self._calls.recording_position(source_id, timeout=self._timeout))
            except Timeout:
                self._attempts_left -= 1
                if not self._attempts_left:
                    raise

    # -- waiting -----------------------------------------------------------------------------------------------------

    def _deadline(self) -> Deadline:
        return Deadline(self._calls.clock, self._timeout)

    def _soon(self) -> Deadline:
        return Deadline(self._calls.clock, POLL_INTERVAL_NS / NS_PER_SECOND)

    def _wait(self, deadline: Deadline, step: str) -> Steps[None]:
        if deadline.expired:
            raise request_error(f"timed out after {self._timeout:g} s waiting for {step}")
        yield None

    @staticmethod
    def _check_entry(entry: RecordingSubscription) -> None:
        """Raise _ReportedError if the copy cannot be recorded. The client has already been told."""
        if entry.error:
            raise _ReportedError

    def _check_source(self) -> None:
        """Raise the error that the source has reported since the last check, if any. Raise if the source is gone."""
        if not self._next_poll.expired:
            return
        self._next_poll = self._soon()
        self._calls.poll()
        events = self._calls.session.events
        while events:
            event = events.popleft()
            if isinstance(event, ArchiveError):
                raise event

    # -- the end -----------------------------------------------------------------------------------------------------

    def _signal(self, signal: RecordingSignal, position: int, subscription_id: int = NULL) -> None:
        self._control.signal(signal, self.replication_id, self._target_id, subscription_id, position)

    def _fail(self, why: str, code: ArchiveErrorCode = ArchiveErrorCode.GENERIC, *, is_whole: bool = False) -> None:
        # The client called replicate, whichever request to the source has failed.
        text = f"replicate recording {self._request.source_id} of the source archive: {why}"
        log.warning("replication %d failed: %s", self.replication_id, printable(text))
        self._control.fail(self.replication_id, why if is_whole else text, code)
        self._end()

    def _end(self) -> None:
        """Disconnect from the source. Stop recording the copy, unless it has merged with the live stream."""
        if self.is_done:
            return
        self.is_done = True
        stopped: list[RecordingSession] = []
        try:
            self._steps.close()
            if self._entry is not None and not self._is_merged:
                stopped = self._recordings.stop_subscription(self._entry)
            with suppress(MainstemError):
                if self._replay_id is not None and self._calls.lost is None:
                    self._calls.send_once("StopReplayRequest", replay_session_id=self._replay_id)
                self._calls.end()
        finally:
            self._signal(RecordingSignal.REPLICATE_END, NULL)
            for recording in stopped:
                recording.signal_stop()


def _destination(channel: str) -> str:
    """Return the destination that receives the replay."""
    uri = ChannelUri.parse(channel)
    values = "|".join(f"{key}={uri.values[key]}" for key in ("endpoint", "interface") if key in uri.values)
    return f"aeron:{uri.media}?{values}"


def _refuse_challenge(challenge: bytes) -> bytes:
    del challenge
    raise request_error("Replication does not support challenge/response authentication")


def _no_live_source() -> ArchiveError:
    return _JavaError("cannot live merge without active source recording", code=ArchiveErrorCode.GENERIC)


class Replications:
    """Starts, runs and stops replications. ``take_id`` returns the id of the next one."""

    def __init__(
        self,
        aeron: Aeron,
        files: ArchiveFiles,
        settings: ArchiveSettings,
        recordings: Recordings,
        take_id: Callable[[], int],
    ) -> None:
        self._aeron, self._files, self._settings = aeron, files, settings
        self._recordings, self._take_id = recordings, take_id
        self._sessions: dict[int, Replication] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def close(self) -> None:
        for replication in self._sessions.values():
            replication.stop()
        self.do_work()

    def start(self, session: ControlSession, request: Message) -> int:
        limit = self._settings.max_concurrent_replications
        if len(self._sessions) >= limit:
            raise request_error(f"max concurrent replications reached {limit}")
        settings = self._settings
        own = own_channel(settings.control_channel)
        asked = ReplicationRequest(
            request,
            replication_channel=settings.replication_channel or own,
            response_channel=settings.control_response_channel or own,
        )
        if asked.target_id != NULL:
            if self._files.find(asked.target_id) is None:
                raise request_error(
                    f"unknown destination recording id {asked.target_id}", ArchiveErrorCode.UNKNOWN_RECORDING
                )
            self._recordings.active.check_inactive("replicate to", asked.target_id)
        replication_id = self._take_id()
        self._sessions[replication_id] = Replication(
            self._aeron, self._files, settings, self._recordings, session, replication_id, asked
        )
        return replication_id

    def do_work(self) -> int:
        work = step_each(
            list(self._sessions.values()),
            lambda replication: replication.do_work(),
            lambda replication, _text: replication.stop(),
        )
        if any(replication.is_done for replication in self._sessions.values()):
            self._sessions = {key: each for key, each in self._sessions.items() if not each.is_done}
        return work

    def stop(self, _: ControlSession, request: Message) -> int:
        replication = self._sessions.get(request.replication_id)
        if replication is None:
            raise request_error(
                f"unknown replication id {request.replication_id}", ArchiveErrorCode.UNKNOWN_REPLICATION
            )
        replication.stop()
        return 0

"""The blocking client of an Aeron Archive."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from mainstem._internal.exit_cleanup import close_at_exit
from mainstem._internal.made import Made
from mainstem.aeron.agent import AgentRunner
from mainstem.aeron.client.client import Aeron
from mainstem.aeron.client.resource import Closing
from mainstem.aeron.client.subscription import Subscription
from mainstem.aeron.client.waiting import Wait, Waiting, run
from mainstem.archive.calls import (
    CONTROL_STREAM_ID,
    RESPONSE_STREAM_ID,
    TIMEOUT,
    WORKER_INTERVAL_S,
    Calls,
    ClientBase,
    Events,
    Listing,
    document,
)
from mainstem.archive.merge import PROGRESS_TIMEOUT, MergeBase

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator

    from mainstem.aeron.client.waiting import Steps
    from mainstem.archive.session import Signal
    from mainstem.errors import ArchiveError
    from mainstem.recording.catalog import RecordingDescriptor

P = ParamSpec("P")
T = TypeVar("T")


class BlockingCalls(Calls[Subscription]):
    """Calls that wait in the caller's thread. A thread reads what the archive sends between them, with the idle strategy below."""

    name = Calls.role_name

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        # Reentrant, because a signal handler may make a call in the middle of a step.
        self.lock = threading.RLock()
        self.stopped = threading.Event()

    def run(self, steps: Steps[T]) -> T:
        waiting = Waiting(self.conductor.invokers)
        return run(steps, lambda _: waiting(Wait(subscription=self._responses)), lambda: self.lock)

    def do_work(self, now_ns: int) -> int:
        with self.lock:
            return super().do_work(now_ns)

    def idle(self, work_count: int) -> None:
        if not work_count:
            self.stopped.wait(WORKER_INTERVAL_S)

    def reset(self) -> None: ...

    def leave_to_parent(self) -> None:
        self.lock = threading.RLock()
        super().leave_to_parent()


def blocks(method: Callable[Concatenate[Any, P], Steps[T]]) -> Callable[Concatenate[Any, P], T]:
    """Make a client's method from a call in `Calls`, with its parameters and documentation."""

    def call(self: Client, /, *arguments: P.args, **options: P.kwargs) -> T:
        return self._calls.run(method(self._calls, *arguments, **options))

    document(call, method)
    return call


def lists(
    method: Callable[Concatenate[Any, P], Listing],
) -> Callable[Concatenate[Any, P], Iterator[RecordingDescriptor]]:
    """Make a client's method that iterates over a listing."""

    def call(self: Client, /, *arguments: P.args, **options: P.kwargs) -> Iterator[RecordingDescriptor]:
        return self._listing(method(self._calls, *arguments, **options))

    document(call, method, "Iterator[RecordingDescriptor]")
    return call


class ReplayMerge(MergeBase, Closing):
    """A recording followed by the live stream that is being recorded, without a gap or a duplicate. Only one thread may use it.

    ``Client.replay_merge`` creates it. It uses resources of the driver and the archive only while it is read. Closing it leaves
    the subscription open.

    Attributes:
        subscription: The subscription that receives both.
        recording_id: The recording.

    Example:
        >>> with client.replay_merge(subscription, 7, "aeron:udp?endpoint=localhost:0", live) as merge:
        ...     for message in merge.messages():
        ...         print(message)
    """

    def messages(self, *, timeout: float | None = None) -> Iterator[bytes]:
        """Yield whole messages as they arrive, until the live stream ends or this merge is closed.

        Args:
            timeout: Seconds to wait for the next message; None waits forever.

        Yields:
            One message after another. A message that was not consumed comes in the next iteration.

        Raises:
            Timeout: No message arrived in time, or the merge made no progress for ``progress_timeout``.
            ArchiveError: The archive refused or ended the replay.
            ConnectionLost: The image or the session with the archive ended before the merge was complete.
        """
        waiting = Waiting(self._calls.conductor.invokers)
        while run(self._taking(timeout), waiting):
            while self._taken:
                yield self._hand_out()
            waiting.restart()


class Client(ClientBase[Subscription], Closing, metaclass=Made, made_by="mainstem.archive.connect()"):
    """A session with an Aeron Archive, opened by `connect`. A context manager. Any number of threads may call it.

    The session stays alive between calls: a thread reads what the archive sends, and keeps signals and late errors for
    ``events``.

    Every call takes ``timeout``, the number of seconds it may wait, and raises Timeout after that; None waits forever. Its request
    has been sent by then, and the archive may still carry it out, unless the error's ``may_retry`` is true or it is a
    BackPressured. Every call raises ArchiveError if the archive refuses the request.

    When the archive ends or restarts, calls that are waiting for its response raise ConnectionLost; the archive may or may not
    have carried them out. The next call reconnects, within its ``timeout``, and raises ConnectTimeout if the archive is
    unreachable. Recordings and replays of the earlier session are not resumed.

    Example:
        >>> with connect("aeron:udp?endpoint=localhost:8010") as client:
        ...     client.start_recording("aeron:ipc", 1001)
        ...     for recording in client.list_recordings():
        ...         print(recording.recording_id, recording.original_channel)
    """

    _calls: BlockingCalls

    def __init__(self, calls: BlockingCalls, owned: Aeron | None, timeout: float | None) -> None:
        super().__init__(calls)
        self._owned = owned
        self._worker: AgentRunner | None = None
        calls.run(calls.connecting(timeout))
        self._worker = AgentRunner(calls, calls, clock=calls.clock).start()
        close_at_exit(self)

    start_recording = blocks(Calls.start_recording)
    extend_recording = blocks(Calls.extend_recording)
    stop_recording = blocks(Calls.stop_recording)
    stop_recording_subscription = blocks(Calls.stop_recording_subscription)
    stop_recording_by_identity = blocks(Calls.stop_recording_by_identity)
    list_recordings = lists(Calls.list_recordings)
    list_recordings_for_uri = lists(Calls.list_recordings_for_uri)
    list_recording = blocks(Calls.list_recording)
    list_recording_subscriptions = blocks(Calls.list_recording_subscriptions)
    find_last_matching_recording = blocks(Calls.find_last_matching_recording)
    start_position = blocks(Calls.start_position)
    recording_position = blocks(Calls.recording_position)
    stop_position = blocks(Calls.stop_position)
    max_recorded_position = blocks(Calls.max_recorded_position)
    truncate_recording = blocks(Calls.truncate_recording)
    purge_recording = blocks(Calls.purge_recording)
    detach_segments = blocks(Calls.detach_segments)
    delete_detached_segments = blocks(Calls.delete_detached_segments)
    purge_segments = blocks(Calls.purge_segments)
    attach_segments = blocks(Calls.attach_segments)
    migrate_segments = blocks(Calls.migrate_segments)
    update_channel = blocks(Calls.update_channel)
    replicate = blocks(Calls.replicate)
    stop_replication = blocks(Calls.stop_replication)
    start_replay = blocks(Calls.start_replay)
    replay = blocks(Calls[Subscription].replay)
    stop_replay = blocks(Calls.stop_replay)
    stop_all_replays = blocks(Calls.stop_all_replays)

    def _listing(self, listing: Listing) -> Iterator[RecordingDescriptor]:
        while not listing.is_over:
            yield from self._calls.run(listing.next_page())

    def replay_merge(
        self,
        subscription: Subscription,
        recording_id: int,
        replay_destination: str,
        live_destination: str,
        *,
        position: int | None = None,
        progress_timeout: float = PROGRESS_TIMEOUT,
    ) -> ReplayMerge:
        """Read an active recording, then switch to the live stream. The merge does nothing until it is read.

        Args:
            subscription: A subscription with ``control-mode=manual`` and the recording's stream id, without destinations.
            recording_id: The recording.
            replay_destination: The destination for the replay, such as ``aeron:udp?endpoint=localhost:0``.
            live_destination: The destination for the live stream, such as
                ``aeron:udp?endpoint=localhost:0|control=192.0.2.1:20121``.
            position: The position to begin at; None for the start of the recording.
            progress_timeout: Seconds without progress after which the merge fails.

        Returns:
            The merge.

        Raises:
            ConfigurationError: The subscription's control mode is not manual, or a destination is not UDP.
        """
        destinations = replay_destination, live_destination
        return ReplayMerge(self._calls, subscription, recording_id, destinations, position, progress_timeout)

    def events(self, *, timeout: float | None = None) -> Iterator[Signal | ArchiveError]:
        """Yield recording signals and late errors as they arrive, until the client is closed.

        A yielded ArchiveError is a late error: it refers to something that the archive had accepted earlier, such as a recording
        whose disk became full, or a replay that nobody subscribed to. At most 1024 events are queued; after that, the oldest are
        dropped and counted in ``stats``.

        An iterator ends with the session that it began in, after that session's events, because events between two sessions are
        unknown. It then raises ConnectionLost.

        Args:
            timeout: Seconds to wait for the next event; None waits forever.

        Yields:
            One event after another.

        Example:
            >>> for event in client.events():
            ...     if isinstance(event, Signal) and event.signal is RecordingSignal.START:
            ...         print("recording", event.recording_id)
        """
        return self._events(Events(self._calls), timeout)

    def _events(self, waiting: Events, timeout: float | None) -> Iterator[Signal | ArchiveError]:
        events = self._calls.session.events
        while self._calls.run(waiting.wait(timeout)):
            if events:
                yield events.popleft()

    def close(self) -> None:
        """End the session, and the Aeron client that it created. Recordings continue. Calling it again does nothing."""
        with self._calls.lock:
            self._calls.end()
        if self._worker is not None:
            self._worker.stop()
            self._calls.stopped.set()
            self._worker.close()
        if self._owned is not None:
            self._owned.close()

    def _abandon(self) -> None:
        self.close()

    def _leave_to_parent(self) -> None:
        self._worker = self._owned = None
        self._calls.leave_to_parent()


def connect(
    channel: str,
    *,
    response_channel: str | None = None,
    stream_id: int = CONTROL_STREAM_ID,
    response_stream_id: int = RESPONSE_STREAM_ID,
    credentials: bytes = b"",
    on_challenge: Callable[[bytes], bytes] | None = None,
    client_name: str = "",
    timeout: float | None = TIMEOUT,
    aeron: Aeron | None = None,
    directory: str | os.PathLike[str] | None = None,
) -> Client:
    """Open a session with an archive.

    Args:
        channel: The archive's control channel, such as ``aeron:udp?endpoint=localhost:8010``, or ``aeron:ipc`` for an archive
            on the same driver.
        response_channel: The channel for the archive's responses: an address of this host that the archive can reach, such as
            ``aeron:udp?endpoint=192.0.2.1:0``, or a response channel, such as
            ``aeron:udp?control-mode=response|control=archive:8011``. By default ``aeron:ipc``, or a free port of localhost for
            an archive on this host.
        stream_id: The archive's control stream.
        response_stream_id: The stream of the responses.
        credentials: The credentials for the archive's authenticator.
        on_challenge: Called with the archive's challenge. It must return the credentials to respond with, without blocking.
        client_name: A name that the archive shows in its counters, at most 100 characters.
        timeout: Seconds to wait in total; None waits forever.
        aeron: A client of the media driver; it stays open when the session ends.
        directory: The directory of the media driver, if there is no ``aeron``; by default as for ``mainstem.connect``.

    Returns:
        The client, a context manager.

    Raises:
        ConnectTimeout: A step of connecting took too long; the error names the step.
        ArchiveError: The archive rejected the credentials, or the version of the protocol.
        RegistrationError: The driver refused a channel.
        DriverTimeout: No media driver is running.
        ConfigurationError: The archive is on another host, and no response channel is given.

    Example:
        >>> client = connect("aeron:udp?endpoint=localhost:8010", credentials=b"admin:admin")
    """
    owned = None
    if aeron is None:
        aeron = owned = Aeron.connect(directory, timeout=timeout, client_name=client_name or "mainstem-archive")
    try:
        calls = BlockingCalls(
            aeron,
            channel,
            response_channel=response_channel,
            stream_id=stream_id,
            response_stream_id=response_stream_id,
            credentials=credentials,
            on_challenge=on_challenge,
            client_name=client_name,
        )
        return Client.made(calls, owned, timeout)
    except BaseException:
        if owned is not None:
            owned.close()
        raise

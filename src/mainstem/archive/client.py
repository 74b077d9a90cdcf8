"""The blocking client of an Aeron Archive."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, TypeVar

from mainstem._internal.exit_cleanup import close_at_exit
from mainstem.aeron.agent import AgentRunner
from mainstem.aeron.client.client import Aeron
from mainstem.aeron.client.resource import Closing
from mainstem.aeron.client.subscription import Subscription
from mainstem.archive.calls import (
    CONTROL_STREAM_ID,
    RESPONSE_STREAM_ID,
    TIMEOUT,
    WORKER_INTERVAL_S,
    Calls,
    ClientBase,
    Listing,
    ReplayOptions,
)
from mainstem.archive.messages import SourceLocation

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator

    from mainstem.archive.calls import RecordingSubscription, Steps
    from mainstem.archive.session import Signal
    from mainstem.errors import ArchiveError
    from mainstem.recording.catalog import RecordingDescriptor

T = TypeVar("T")


class _Worker:
    """Reads what the archive sends while no call does; sleeps in between until it is stopped."""

    name = role_name = Calls.role_name

    def __init__(self, calls: Calls[Any], lock: threading.RLock) -> None:
        self._calls = calls
        self._lock = lock
        self._stopped = threading.Event()
        self._runner = AgentRunner(self, self, clock=calls._clock).start()

    def do_work(self, now_ns: int) -> int:
        with self._lock:
            return self._calls.do_work(now_ns)

    def idle(self, work_count: int) -> None:
        if not work_count:
            self._stopped.wait(WORKER_INTERVAL_S)

    def reset(self) -> None:
        pass

    def on_close(self) -> None:
        pass

    def close(self) -> None:
        self._runner.stop()
        self._stopped.set()
        self._runner.close()


class Client(ClientBase[Subscription], Closing):
    """A session with an Aeron Archive, opened by `connect`. A context manager. Any number of threads may call it.

    It stays connected without calls: a thread reads what the archive sends, and keeps signals and late errors for ``events``.

    Every call takes ``timeout``, the seconds that it may wait; None waits forever. A call that times out has sent its request,
    unless the error is a BackPressured, and the archive may still carry it out.

    Example:
        >>> with connect("aeron:udp?endpoint=localhost:8010") as client:
        ...     client.start_recording("aeron:ipc", 1001)
        ...     for recording in client.list_recordings():
        ...         print(recording.recording_id, recording.original_channel)
    """

    def __init__(self, calls: Calls[Subscription], owned: Aeron | None, timeout: float | None) -> None:
        self._calls = calls
        self._owned = owned
        # A signal handler may call in the middle of a step.
        self._lock = threading.RLock()
        self._worker: _Worker | None = None
        self._run(calls.connecting(timeout))
        self._worker = _Worker(calls, self._lock)
        close_at_exit(self)

    def _run(self, steps: Steps[T]) -> T:
        waiting = self._calls._conductor.waiting(None)
        try:
            while True:
                with self._lock:
                    try:
                        next(steps)
                    except StopIteration as end:
                        return end.value  # type: ignore[no-any-return]
                waiting.step(self._calls._responses)
        finally:
            with self._lock:
                steps.close()

    def start_recording(
        self,
        channel: str,
        stream_id: int,
        location: SourceLocation = SourceLocation.LOCAL,
        *,
        auto_stop: bool = False,
        timeout: float | None = TIMEOUT,
    ) -> int:
        """Start to record a stream. Each publication that the channel matches, now or later, becomes a recording of its own.

        Args:
            channel: The channel; with ``session-id`` one publication only.
            stream_id: The stream id.
            location: ``LOCAL`` for publications of the archive's driver, ``REMOTE`` to subscribe over the network.
            auto_stop: Whether the archive stops when the first recording ends.
            timeout: Seconds to wait for the archive; None waits forever.

        Returns:
            The id of the archive's recording subscription, for ``stop_recording_subscription``. The recording's own id comes with
            the signal START, once there is a publication.

        Raises:
            ArchiveError: The archive refused: the stream is being recorded, a limit is reached, or the disk is full.
            Timeout: The archive did not respond in time.
            ConnectionLost: The session has ended.
        """
        return self._run(self._calls.start_recording(channel, stream_id, location, auto_stop, timeout))

    def stop_recording(self, channel: str, stream_id: int, *, timeout: float | None = TIMEOUT) -> None:
        """Stop recording a stream: all recordings of the subscription that ``start_recording`` made with this channel.

        Args:
            channel: The channel. Parameters that select no stream, such as ``term-length``, may be omitted.
            stream_id: The stream id.
            timeout: Seconds to wait for the archive; None waits forever.

        Raises:
            ArchiveError: No recording subscription has this channel and stream id.
            Timeout: The archive did not respond in time.
            ConnectionLost: The session has ended.
        """
        self._run(self._calls.stop_recording(channel, stream_id, timeout))

    def stop_recording_subscription(self, subscription_id: int, *, timeout: float | None = TIMEOUT) -> None:
        """Stop all recordings of a recording subscription.

        Args:
            subscription_id: What ``start_recording`` returned.
            timeout: Seconds to wait for the archive; None waits forever.

        Raises:
            ArchiveError: There is no such recording subscription.
            Timeout: The archive did not respond in time.
            ConnectionLost: The session has ended.
        """
        self._run(self._calls.stop_recording_subscription(subscription_id, timeout))

    def stop_recording_by_identity(self, recording_id: int, *, timeout: float | None = TIMEOUT) -> bool:
        """Stop one recording, and leave others of its subscription running.

        Args:
            recording_id: The recording.
            timeout: Seconds to wait for the archive; None waits forever.

        Returns:
            Whether it was active.

        Raises:
            ArchiveError: There is no such recording.
            Timeout: The archive did not respond in time.
            ConnectionLost: The session has ended.
        """
        return self._run(self._calls.stop_recording_by_identity(recording_id, timeout))

    def list_recordings(
        self, from_recording_id: int = 0, *, count: int | None = None, timeout: float | None = TIMEOUT
    ) -> Iterator[RecordingDescriptor]:
        """Iterate over the archive's recordings by their ids. They are fetched as the iteration proceeds.

        Args:
            from_recording_id: The first id.
            count: The most recordings; None for all.
            timeout: Seconds to wait for the next recording; None waits forever.

        Returns:
            An iterator. The stop position and stop time of an active recording are -1.

        Raises:
            ArchiveError: The archive refused.
            Timeout: The archive did not respond in time.
            ConnectionLost: The session has ended.
        """
        return self._listing(Listing(self._calls, from_recording_id, count, None, timeout))

    def list_recordings_for_uri(
        self,
        channel: str,
        stream_id: int,
        from_recording_id: int = 0,
        *,
        count: int | None = None,
        timeout: float | None = TIMEOUT,
    ) -> Iterator[RecordingDescriptor]:
        """Iterate over the recordings of a stream by their ids.

        Args:
            channel: Text that the channel which was recorded contains; empty for any channel.
            stream_id: The stream id.
            from_recording_id: The first id.
            count: The most recordings; None for all.
            timeout: Seconds to wait for the next recording; None waits forever.

        Returns:
            An iterator. The stop position and stop time of an active recording are -1.

        Raises:
            ArchiveError: The archive refused.
            Timeout: The archive did not respond in time.
            ConnectionLost: The session has ended.
        """
        return self._listing(Listing(self._calls, from_recording_id, count, (channel, stream_id), timeout))

    def _listing(self, listing: Listing) -> Iterator[RecordingDescriptor]:
        while not listing.is_over:
            yield from self._run(listing.next_page())

    def list_recording(self, recording_id: int, *, timeout: float | None = TIMEOUT) -> RecordingDescriptor | None:
        """Describe one recording.

        Args:
            recording_id: The recording.
            timeout: Seconds to wait for the archive; None waits forever.

        Returns:
            The recording; None if there is no such recording.

        Raises:
            ArchiveError: The archive refused.
            Timeout: The archive did not respond in time.
            ConnectionLost: The session has ended.
        """
        return self._run(self._calls.list_recording(recording_id, timeout))

    def list_recording_subscriptions(
        self, channel: str = "", stream_id: int | None = None, *, timeout: float | None = TIMEOUT
    ) -> list[RecordingSubscription]:
        """List what the archive is recording, or waiting to record.

        Args:
            channel: Text that the channel contains; empty for any channel.
            stream_id: The stream id; None for any.
            timeout: Seconds to wait for the next subscription; None waits forever.

        Returns:
            The recording subscriptions, in no particular order.

        Raises:
            ArchiveError: The archive refused.
            Timeout: The archive did not respond in time.
            ConnectionLost: The session has ended.
        """
        return self._run(self._calls.list_recording_subscriptions(channel, stream_id, timeout))

    def find_last_matching_recording(
        self,
        channel: str,
        stream_id: int,
        session_id: int,
        *,
        min_recording_id: int = 0,
        timeout: float | None = TIMEOUT,
    ) -> int | None:
        """Find the newest recording of a publication.

        Args:
            channel: Text that the channel which was recorded contains; empty for any channel.
            stream_id: The stream id.
            session_id: The publication's session id.
            min_recording_id: The lowest recording id to look at.
            timeout: Seconds to wait for the archive; None waits forever.

        Returns:
            The recording's id; None if there is none.

        Raises:
            ArchiveError: The archive refused.
            Timeout: The archive did not respond in time.
            ConnectionLost: The session has ended.
        """
        return self._run(
            self._calls.find_last_matching_recording(channel, stream_id, session_id, min_recording_id, timeout)
        )

    def start_position(self, recording_id: int, *, timeout: float | None = TIMEOUT) -> int:
        """Return the position of a recording's first byte.

        Args:
            recording_id: The recording.
            timeout: Seconds to wait for the archive; None waits forever.

        Returns:
            The position.

        Raises:
            ArchiveError: There is no such recording.
            Timeout: The archive did not respond in time.
            ConnectionLost: The session has ended.
        """
        steps = self._calls.position("StartPositionRequest", "start_position", recording_id, timeout)
        return self._run(steps) or 0

    def recording_position(self, recording_id: int, *, timeout: float | None = TIMEOUT) -> int | None:
        """Return how far an active recording has come.

        Args:
            recording_id: The recording.
            timeout: Seconds to wait for the archive; None waits forever.

        Returns:
            The position; None if the recording is not active.

        Raises:
            ArchiveError: There is no such recording.
            Timeout: The archive did not respond in time.
            ConnectionLost: The session has ended.
        """
        return self._run(self._calls.position("RecordingPositionRequest", "recording_position", recording_id, timeout))

    def stop_position(self, recording_id: int, *, timeout: float | None = TIMEOUT) -> int | None:
        """Return where a recording ended.

        Args:
            recording_id: The recording.
            timeout: Seconds to wait for the archive; None waits forever.

        Returns:
            The position; None if the recording is active.

        Raises:
            ArchiveError: There is no such recording.
            Timeout: The archive did not respond in time.
            ConnectionLost: The session has ended.
        """
        return self._run(self._calls.position("StopPositionRequest", "stop_position", recording_id, timeout))

    def start_replay(
        self,
        recording_id: int,
        channel: str,
        stream_id: int,
        *,
        position: int | None = None,
        length: int | None = None,
        follow: bool = True,
        limit_counter_id: int | None = None,
        file_io_max_length: int | None = None,
        timeout: float | None = TIMEOUT,
    ) -> int:
        """Start a replay, for a subscription of your own. The archive ends it if nobody subscribes within 5 s.

        Args:
            recording_id: The recording.
            channel: Where to replay to.
            stream_id: The stream id of the replay.
            position: Where to begin; None for the start of the recording.
            length: How many bytes to replay; None for all.
            follow: Whether a replay of an active recording without ``length`` follows it until it stops.
            limit_counter_id: A counter of the archive's driver that the replay never overtakes.
            file_io_max_length: The most bytes that the archive reads at a time.
            timeout: Seconds to wait for the archive; None waits forever.

        Returns:
            The replay session id, for ``stop_replay``. Its low 32 bits are the session id of the replay's publication.

        Raises:
            ArchiveError: There is no such recording, the position is outside it, or a limit is reached.
            Timeout: The archive did not respond in time.
            ConnectionLost: The session has ended.
            ConfigurationError: ``length`` is not an integer >= 1, or is combined with ``follow=False``.
        """
        options = ReplayOptions(
            position=position,
            length=length,
            follow=follow,
            limit_counter_id=limit_counter_id,
            file_io_max_length=file_io_max_length,
        )
        return self._run(self._calls.start_replay(recording_id, channel, stream_id, options, timeout))

    def replay(
        self,
        recording_id: int,
        channel: str,
        stream_id: int,
        *,
        position: int | None = None,
        length: int | None = None,
        follow: bool = True,
        limit_counter_id: int | None = None,
        file_io_max_length: int | None = None,
        timeout: float | None = TIMEOUT,
    ) -> Subscription:
        """Start a replay, and subscribe to it. Closing the subscription ends the replay.

        Positions of the messages are those of the recording.

        Args:
            recording_id: The recording.
            channel: Where to replay to, such as ``aeron:ipc``, or ``aeron:udp?endpoint=localhost:0`` for a free port.
            stream_id: The stream id of the replay.
            position: Where to begin; None for the start of the recording.
            length: How many bytes to replay; None for all.
            follow: Whether a replay of an active recording without ``length`` follows it until it stops.
            limit_counter_id: A counter of the archive's driver that the replay never overtakes.
            file_io_max_length: The most bytes that the archive reads at a time.
            timeout: Seconds to wait for the archive, and for the driver; None waits forever.

        Returns:
            The subscription. Iterating over it ends with the replay.

        Raises:
            ArchiveError: There is no such recording, the position is outside it, or a limit is reached.
            RegistrationError: The driver refused the channel.
            Timeout: The archive did not respond in time.
            ConnectionLost: The session has ended.
            ConfigurationError: ``length`` is not an integer >= 1, or is combined with ``follow=False``.

        Example:
            >>> with client.replay(7, "aeron:ipc", 1002, follow=False) as subscription:
            ...     for message in subscription.messages(timeout=5.0):
            ...         print(message)
        """
        options = ReplayOptions(
            position=position,
            length=length,
            follow=follow,
            limit_counter_id=limit_counter_id,
            file_io_max_length=file_io_max_length,
        )
        return self._run(self._calls.replay(recording_id, channel, stream_id, options, timeout))

    def stop_replay(self, replay_session_id: int, *, timeout: float | None = TIMEOUT) -> None:
        """Stop a replay; one that has ended already is no error.

        Args:
            replay_session_id: What ``start_replay`` returned.
            timeout: Seconds to wait for the archive; None waits forever.

        Raises:
            Timeout: The archive did not respond in time.
            ConnectionLost: The session has ended.
        """
        self._run(self._calls.stop_replay(replay_session_id, timeout))

    def stop_all_replays(self, recording_id: int | None = None, *, timeout: float | None = TIMEOUT) -> None:
        """Stop all replays of a recording, including those of other clients.

        Args:
            recording_id: The recording; None for every recording.
            timeout: Seconds to wait for the archive; None waits forever.

        Raises:
            Timeout: The archive did not respond in time.
            ConnectionLost: The session has ended.
        """
        self._run(self._calls.stop_all_replays(recording_id, timeout))

    def events(self, *, timeout: float | None = None) -> Iterator[Signal | ArchiveError]:
        """Yield recording signals and late errors as they come, until the client is closed.

        An ArchiveError that is yielded belongs to something that the archive had accepted before: a recording whose disk became
        full, a replay that nobody subscribed to. At most 1024 events wait; then the oldest are dropped, which ``stats`` counts.

        Args:
            timeout: Seconds to wait for the next event; None waits forever.

        Yields:
            One event after another.

        Raises:
            Timeout: No event came in time.
            ConnectionLost: The session has ended.

        Example:
            >>> for event in client.events():
            ...     if isinstance(event, Signal) and event.signal is RecordingSignal.START:
            ...         print("recording", event.recording_id)
        """
        events = self._calls.session.events
        while self._run(self._calls.next_event(timeout)):
            if events:
                yield events.popleft()

    def close(self) -> None:
        """End the session, and the Aeron client that it made. Recordings continue. Calling it again does nothing."""
        with self._lock:
            self._calls.end()
        if self._worker is not None:
            self._worker.close()
        if self._owned is not None:
            self._owned.close()

    def _abandon(self) -> None:
        self.close()

    def _leave_to_parent(self) -> None:
        self._lock = threading.RLock()
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
        response_channel: Where the archive sends its responses: an address of this host that the archive can reach, such as
            ``aeron:udp?endpoint=192.0.2.1:0``, or a response channel, such as
            ``aeron:udp?control-mode=response|control=archive:8011``. By default ``aeron:ipc``, or a free port of localhost for
            an archive on this host.
        stream_id: The archive's control stream.
        response_stream_id: The stream of the responses.
        credentials: What the archive's authenticator receives.
        on_challenge: Called with the archive's challenge; returns the credentials that answer it. It must not wait.
        client_name: A name that the archive shows in its counters, at most 100 characters.
        timeout: Seconds for the whole; None waits forever.
        aeron: A client of the media driver; it stays open when the session ends.
        directory: The directory of the media driver, if there is no ``aeron``; by default as for ``mainstem.connect``.

    Returns:
        The client, a context manager.

    Raises:
        ConnectTimeout: A step of connecting took too long; the error names the step.
        ArchiveError: The archive rejected the credentials, or the version of the protocol.
        RegistrationError: The driver refused a channel.
        DriverTimeout: There is no media driver.
        ConfigurationError: The archive is on another host, and there is no response channel.

    Example:
        >>> client = connect("aeron:udp?endpoint=localhost:8010", credentials=b"admin:admin")
    """
    owned = None
    if aeron is None:
        aeron = owned = Aeron.connect(directory, timeout=timeout, client_name=client_name or "mainstem-archive")
    try:
        calls = Calls(
            aeron,
            Subscription,
            channel,
            response_channel=response_channel,
            stream_id=stream_id,
            response_stream_id=response_stream_id,
            credentials=credentials,
            on_challenge=on_challenge,
            client_name=client_name,
        )
        return Client(calls, owned, timeout)
    except BaseException:
        if owned is not None:
            owned.close()
        raise

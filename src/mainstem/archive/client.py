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
    Events,
    Listing,
    ReplayOptions,
    ReplicationOptions,
)
from mainstem.archive.merge import MESSAGES_AT_ONCE, PROGRESS_TIMEOUT, MergeBase
from mainstem.archive.messages import SourceLocation
from mainstem.errors import Timeout

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator

    from mainstem.archive.calls import RecordingSubscription, Steps
    from mainstem.archive.session import Signal
    from mainstem.errors import ArchiveError
    from mainstem.recording.catalog import RecordingDescriptor

T = TypeVar("T")


class _Worker:
    """Reads what the archive sends between calls. Sleeps in between until it is stopped."""

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
        waiting = self._calls._conductor.waiting(timeout)
        while True:
            self._take(MESSAGES_AT_ONCE)
            if self._taken:
                while self._taken:
                    yield self._hand_out()
                waiting.restart()
            elif self._has_ended:
                return
            elif not waiting.step(self.subscription):
                raise Timeout(f"nothing came on {self!r} for {timeout:g} s", timeout=timeout)


class Client(ClientBase[Subscription], Closing):
    """A session with an Aeron Archive, opened by `connect`. A context manager. Any number of threads may call it.

    The session stays alive between calls: a thread reads what the archive sends, and keeps signals and late errors for
    ``events``.

    Every call takes ``timeout``, the number of seconds it may wait; None waits forever. When a call times out, its request has
    been sent, and the archive may still carry it out, unless the error's ``may_retry`` is true or it is a BackPressured.

    When the archive ends or restarts, calls that are waiting for its response raise ConnectionLost; the archive may or may not
    have carried them out. The next call reconnects, within its ``timeout``, and raises ConnectTimeout if the archive is
    unreachable. Recordings and replays of the earlier session are not resumed.

    Example:
        >>> with connect("aeron:udp?endpoint=localhost:8010") as client:
        ...     client.start_recording("aeron:ipc", 1001)
        ...     for recording in client.list_recordings():
        ...         print(recording.recording_id, recording.original_channel)
    """

    def __init__(self, calls: Calls[Subscription], owned: Aeron | None, timeout: float | None) -> None:
        self._calls = calls
        self._owned = owned
        # Reentrant, because a signal handler may make a call in the middle of a step.
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
        """Start recording a stream. Each publication that matches the channel, now or later, gets its own recording.

        Args:
            channel: The channel. A ``session-id`` limits it to one publication.
            stream_id: The stream id.
            location: ``LOCAL`` for publications of the archive's driver, ``REMOTE`` to subscribe over the network.
            auto_stop: Whether the archive stops when the first recording ends.
            timeout: Seconds to wait for the archive; None waits forever.

        Returns:
            The id of the archive's recording subscription, for ``stop_recording_subscription``. The signal START has the id of
            the recording, once there is a publication.

        Raises:
            ArchiveError: The archive refused: it already records the stream, a limit is reached, or the disk is full.
            Timeout: The archive did not respond in time.
            ConnectionLost: The session was lost while the call waited.
        """
        return self._run(self._calls.start_recording(channel, stream_id, location, auto_stop, timeout))

    def extend_recording(
        self,
        recording_id: int,
        channel: str,
        stream_id: int,
        location: SourceLocation = SourceLocation.LOCAL,
        *,
        auto_stop: bool = False,
        timeout: float | None = TIMEOUT,
    ) -> int:
        """Continue a stopped recording. The publication must begin where the recording ends.

        ``extension_channel`` returns the channel for that publication. The signal EXTEND reports that recording has started. A
        publication that does not fit causes a late error, INVALID_EXTENSION.

        Args:
            recording_id: The recording.
            channel: The channel to record, as for ``start_recording``.
            stream_id: The stream id, which must be that of the recording.
            location: ``LOCAL`` for publications of the archive's driver, ``REMOTE`` to subscribe over the network.
            auto_stop: Whether the archive stops when the recording ends.
            timeout: Seconds to wait for the archive; None waits forever.

        Returns:
            The id of the archive's recording subscription.

        Raises:
            ArchiveError: There is no such recording, it is active, or another reason listed at ``start_recording``.
            Timeout: The archive did not respond in time.
            ConnectionLost: The session was lost while the call waited.
        """
        return self._run(self._calls.extend_recording(recording_id, channel, stream_id, location, auto_stop, timeout))

    def stop_recording(self, channel: str, stream_id: int, *, timeout: float | None = TIMEOUT) -> None:
        """Stop all recordings of the subscription that ``start_recording`` created with this channel.

        Args:
            channel: The channel. Parameters that select no stream, such as ``term-length``, may be omitted.
            stream_id: The stream id.
            timeout: Seconds to wait for the archive; None waits forever.

        Raises:
            ArchiveError: No recording subscription has this channel and stream id.
            Timeout: The archive did not respond in time.
            ConnectionLost: The session was lost while the call waited.
        """
        self._run(self._calls.stop_recording(channel, stream_id, timeout))

    def stop_recording_subscription(self, subscription_id: int, *, timeout: float | None = TIMEOUT) -> None:
        """Stop all recordings of a recording subscription.

        Args:
            subscription_id: The id that ``start_recording`` returned.
            timeout: Seconds to wait for the archive; None waits forever.

        Raises:
            ArchiveError: There is no such recording subscription.
            Timeout: The archive did not respond in time.
            ConnectionLost: The session was lost while the call waited.
        """
        self._run(self._calls.stop_recording_subscription(subscription_id, timeout))

    def stop_recording_by_identity(self, recording_id: int, *, timeout: float | None = TIMEOUT) -> bool:
        """Stop one recording without stopping other recordings of its subscription.

        Args:
            recording_id: The recording.
            timeout: Seconds to wait for the archive; None waits forever.

        Returns:
            Whether it was active.

        Raises:
            ArchiveError: There is no such recording.
            Timeout: The archive did not respond in time.
            ConnectionLost: The session was lost while the call waited.
        """
        return self._run(self._calls.stop_recording_by_identity(recording_id, timeout))

    def list_recordings(
        self, from_recording_id: int = 0, *, count: int | None = None, timeout: float | None = TIMEOUT
    ) -> Iterator[RecordingDescriptor]:
        """Iterate over the archive's recordings in the order of their ids. Fetch them page by page.

        Args:
            from_recording_id: The first id.
            count: The maximum number of recordings; None for all.
            timeout: Seconds to wait for the next recording; None waits forever.

        Returns:
            An iterator. The stop position and stop time of an active recording are -1.

        Raises:
            ArchiveError: The archive refused.
            Timeout: The archive did not respond in time.
            ConnectionLost: The session was lost while the call waited.
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
        """Iterate over the recordings of a stream in the order of their ids.

        Args:
            channel: Text contained in the recorded channel; empty for any channel.
            stream_id: The stream id.
            from_recording_id: The first id.
            count: The maximum number of recordings; None for all.
            timeout: Seconds to wait for the next recording; None waits forever.

        Returns:
            An iterator. The stop position and stop time of an active recording are -1.

        Raises:
            ArchiveError: The archive refused.
            Timeout: The archive did not respond in time.
            ConnectionLost: The session was lost while the call waited.
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
            ConnectionLost: The session was lost while the call waited.
        """
        return self._run(self._calls.list_recording(recording_id, timeout))

    def list_recording_subscriptions(
        self, channel: str = "", stream_id: int | None = None, *, timeout: float | None = TIMEOUT
    ) -> list[RecordingSubscription]:
        """List what the archive is recording, or waiting to record.

        Args:
            channel: Text contained in the channel; empty for any channel.
            stream_id: The stream id; None for any.
            timeout: Seconds to wait for the next subscription; None waits forever.

        Returns:
            The recording subscriptions, in no particular order.

        Raises:
            ArchiveError: The archive refused.
            Timeout: The archive did not respond in time.
            ConnectionLost: The session was lost while the call waited.
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
            channel: Text contained in the recorded channel; empty for any channel.
            stream_id: The stream id.
            session_id: The publication's session id.
            min_recording_id: The lowest recording id to consider.
            timeout: Seconds to wait for the archive; None waits forever.

        Returns:
            The recording's id; None if there is none.

        Raises:
            ArchiveError: The archive refused.
            Timeout: The archive did not respond in time.
            ConnectionLost: The session was lost while the call waited.
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
            ConnectionLost: The session was lost while the call waited.
        """
        steps = self._calls.position("StartPositionRequest", "start_position", recording_id, timeout)
        return self._run(steps) or 0

    def recording_position(self, recording_id: int, *, timeout: float | None = TIMEOUT) -> int | None:
        """Return the current position of an active recording.

        Args:
            recording_id: The recording.
            timeout: Seconds to wait for the archive; None waits forever.

        Returns:
            The position; None if the recording is not active.

        Raises:
            ArchiveError: There is no such recording.
            Timeout: The archive did not respond in time.
            ConnectionLost: The session was lost while the call waited.
        """
        return self._run(self._calls.position("RecordingPositionRequest", "recording_position", recording_id, timeout))

    def stop_position(self, recording_id: int, *, timeout: float | None = TIMEOUT) -> int | None:
        """Return the position at which a recording ended.

        Args:
            recording_id: The recording.
            timeout: Seconds to wait for the archive; None waits forever.

        Returns:
            The position; None if the recording is active.

        Raises:
            ArchiveError: There is no such recording.
            Timeout: The archive did not respond in time.
            ConnectionLost: The session was lost while the call waited.
        """
        return self._run(self._calls.position("StopPositionRequest", "stop_position", recording_id, timeout))

    def max_recorded_position(self, recording_id: int, *, timeout: float | None = TIMEOUT) -> int:
        """Return the current position of a recording, whether it is active or stopped.

        Args:
            recording_id: The recording.
            timeout: Seconds to wait for the archive; None waits forever.

        Returns:
            The position.

        Raises:
            ArchiveError: There is no such recording.
            Timeout: The archive did not respond in time.
            ConnectionLost: The session was lost while the call waited.
        """
        return self._run(self._calls.max_recorded_position(recording_id, timeout))

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
        """Start a replay for a subscription of your own. The archive ends it if nobody subscribes within 5 s.

        Args:
            recording_id: The recording.
            channel: The channel to replay to.
            stream_id: The stream id of the replay.
            position: The position to begin at; None for the start of the recording.
            length: How many bytes to replay; None for all.
            follow: Whether a replay without ``length`` follows an active recording until the recording stops.
            limit_counter_id: A counter of the archive's driver that the replay never overtakes.
            file_io_max_length: The maximum number of bytes that the archive reads at a time.
            timeout: Seconds to wait for the archive; None waits forever.

        Returns:
            The replay session id, for ``stop_replay``. Its low 32 bits are the session id of the replay's publication.

        Raises:
            ArchiveError: There is no such recording, the position is outside it, or a limit is reached.
            Timeout: The archive did not respond in time.
            ConnectionLost: The session was lost while the call waited.
            ConfigurationError: ``length`` is not an integer >= 1, or is combined with ``follow=False``.
        """
        options = ReplayOptions(
            position=position,
            length=length,
            follow=follow,
            limit_counter_id=limit_counter_id,
            file_io_max_length=file_io_max_length,
        )
        return self._run(self._calls.start_replay(recording_id, channel, stream_id, options, timeout)).replay_id

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
        """Start a replay and subscribe to it. Closing the subscription ends the replay.

        Messages have the same positions as in the recording.

        Args:
            recording_id: The recording.
            channel: The channel to replay to, such as ``aeron:ipc``, or ``aeron:udp?endpoint=localhost:0`` for a free port.
            stream_id: The stream id of the replay.
            position: The position to begin at; None for the start of the recording.
            length: How many bytes to replay; None for all.
            follow: Whether a replay without ``length`` follows an active recording until the recording stops.
            limit_counter_id: A counter of the archive's driver that the replay never overtakes.
            file_io_max_length: The maximum number of bytes that the archive reads at a time.
            timeout: Seconds to wait for the archive, and for the driver; None waits forever.

        Returns:
            The subscription. Iterating over it ends with the replay. If the archive, its session or the stream is lost before
            that, the iterator raises ConnectionLost, and another replay can continue at the error's ``position``. If the archive
            reported an error, the iterator raises that ArchiveError. ``poll`` and its variants do not report these errors.

        Raises:
            ArchiveError: There is no such recording, the position is outside it, or a limit is reached.
            RegistrationError: The driver refused the channel.
            Timeout: The archive did not respond in time.
            ConnectionLost: The session was lost while the call waited.
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
        return self._run(self._calls.checked_replay(self._run, recording_id, channel, stream_id, options, timeout))

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
        return ReplayMerge(
            self._calls,
            subscription,
            recording_id,
            replay_destination,
            live_destination,
            position=position,
            progress_timeout=progress_timeout,
            lock=self._lock,
        )

    def stop_replay(self, replay_session_id: int, *, timeout: float | None = TIMEOUT) -> None:
        """Stop a replay. Do nothing if it has already ended.

        Args:
            replay_session_id: The id that ``start_replay`` returned.
            timeout: Seconds to wait for the archive; None waits forever.

        Raises:
            Timeout: The archive did not respond in time.
            ConnectionLost: The session was lost while the call waited.
        """
        self._run(self._calls.stop_replay(replay_session_id, timeout))

    def stop_all_replays(self, recording_id: int | None = None, *, timeout: float | None = TIMEOUT) -> None:
        """Stop all replays of a recording, including those of other clients.

        Args:
            recording_id: The recording; None for every recording.
            timeout: Seconds to wait for the archive; None waits forever.

        Raises:
            Timeout: The archive did not respond in time.
            ConnectionLost: The session was lost while the call waited.
        """
        self._run(self._calls.stop_all_replays(recording_id, timeout))

    def truncate_recording(self, recording_id: int, position: int, *, timeout: float | None = TIMEOUT) -> int:
        """Truncate a recording. Its replays are stopped, and the segments after ``position`` are deleted.

        Args:
            recording_id: The recording.
            position: The new end, between the start and the stop position of the recording, at a frame boundary.
            timeout: Seconds to wait for the archive; None waits forever.

        Returns:
            The number of files to delete. The archive sends the signal DELETE when they are gone.

        Raises:
            ArchiveError: There is no such recording, it is active, or the position is invalid.
            Timeout: The archive did not respond in time.
            ConnectionLost: The session was lost while the call waited.
        """
        return self._run(
            self._calls.change(
                "TruncateRecordingRequest",
                f"truncate_recording {recording_id}",
                timeout,
                recording_id=recording_id,
                position=position,
            )
        )

    def purge_recording(self, recording_id: int, *, timeout: float | None = TIMEOUT) -> int:
        """Delete a recording with all of its segments. Its id is not reused.

        Args:
            recording_id: The recording.
            timeout: Seconds to wait for the archive; None waits forever.

        Returns:
            The number of files to delete. The archive sends the signal DELETE when they are gone.

        Raises:
            ArchiveError: There is no such recording, or it is active or being replayed.
            LocalProtocolError: The archive is too old.
            Timeout: The archive did not respond in time.
            ConnectionLost: The session was lost while the call waited.
        """
        return self._run(
            self._calls.change(
                "PurgeRecordingRequest", f"purge_recording {recording_id}", timeout, recording_id=recording_id
            )
        )

    def detach_segments(self, recording_id: int, new_start_position: int, *, timeout: float | None = TIMEOUT) -> None:
        """Make a recording start later. The files of earlier segments stay until they are deleted or attached again.

        Args:
            recording_id: The recording.
            new_start_position: The start of a segment: a multiple of the segment length from the beginning of the first term.
            timeout: Seconds to wait for the archive; None waits forever.

        Raises:
            ArchiveError: There is no such recording, or the position is invalid.
            Timeout: The archive did not respond in time.
            ConnectionLost: The session was lost while the call waited.
        """
        self._run(
            self._calls.change(
                "DetachSegmentsRequest",
                f"detach_segments of recording {recording_id}",
                timeout,
                recording_id=recording_id,
                new_start_position=new_start_position,
            )
        )

    def delete_detached_segments(self, recording_id: int, *, timeout: float | None = TIMEOUT) -> int:
        """Delete the files of detached segments.

        Args:
            recording_id: The recording.
            timeout: Seconds to wait for the archive; None waits forever.

        Returns:
            The number of files to delete. The archive sends the signal DELETE when they are gone.

        Raises:
            ArchiveError: There is no such recording.
            Timeout: The archive did not respond in time.
            ConnectionLost: The session was lost while the call waited.
        """
        return self._run(
            self._calls.change(
                "DeleteDetachedSegmentsRequest",
                f"delete_detached_segments of recording {recording_id}",
                timeout,
                recording_id=recording_id,
            )
        )

    def purge_segments(self, recording_id: int, new_start_position: int, *, timeout: float | None = TIMEOUT) -> int:
        """Make a recording start later, and delete the earlier segments. This limits the size of an active recording.

        Args:
            recording_id: The recording.
            new_start_position: The start of a segment: a multiple of the segment length from the beginning of the first term.
            timeout: Seconds to wait for the archive; None waits forever.

        Returns:
            The number of files to delete. The archive sends the signal DELETE when they are gone.

        Raises:
            ArchiveError: There is no such recording, or the position is invalid.
            Timeout: The archive did not respond in time.
            ConnectionLost: The session was lost while the call waited.
        """
        return self._run(
            self._calls.change(
                "PurgeSegmentsRequest",
                f"purge_segments of recording {recording_id}",
                timeout,
                recording_id=recording_id,
                new_start_position=new_start_position,
            )
        )

    def attach_segments(self, recording_id: int, *, timeout: float | None = TIMEOUT) -> int:
        """Attach the segments that were detached from a recording, if their files still exist.

        Args:
            recording_id: The recording.
            timeout: Seconds to wait for the archive; None waits forever.

        Returns:
            The number of segments.

        Raises:
            ArchiveError: There is no such recording, or a file is not one of its segments.
            Timeout: The archive did not respond in time.
            ConnectionLost: The session was lost while the call waited.
        """
        return self._run(
            self._calls.change(
                "AttachSegmentsRequest",
                f"attach_segments of recording {recording_id}",
                timeout,
                recording_id=recording_id,
            )
        )

    def migrate_segments(self, src_recording_id: int, dst_recording_id: int, *, timeout: float | None = TIMEOUT) -> int:
        """Move all segments of a stopped recording to one that it continues or that continues it.

        Args:
            src_recording_id: The recording that loses its segments.
            dst_recording_id: The recording that receives them, at its beginning or its end.
            timeout: Seconds to wait for the archive; None waits forever.

        Returns:
            The number of segments.

        Raises:
            ArchiveError: There is no such recording, or the two recordings are not compatible or contiguous.
            Timeout: The archive did not respond in time.
            ConnectionLost: The session was lost while the call waited.
        """
        return self._run(
            self._calls.change(
                "MigrateSegmentsRequest",
                f"migrate_segments of recording {src_recording_id} to {dst_recording_id}",
                timeout,
                src_recording_id=src_recording_id,
                dst_recording_id=dst_recording_id,
            )
        )

    def update_channel(self, recording_id: int, channel: str, *, timeout: float | None = TIMEOUT) -> None:
        """Change the channel under which a recording is listed.

        Args:
            recording_id: The recording.
            channel: The new channel.
            timeout: Seconds to wait for the archive; None waits forever.

        Raises:
            ArchiveError: There is no such recording.
            Timeout: The archive did not respond in time.
            ConnectionLost: The session was lost while the call waited.
        """
        self._run(
            self._calls.change(
                "UpdateChannelRequest",
                f"update_channel of recording {recording_id}",
                timeout,
                recording_id=recording_id,
                channel=channel,
            )
        )

    def stop_replication(self, replication_id: int, *, timeout: float | None = TIMEOUT) -> None:
        """Stop a replication. The destination keeps what it has, and can be continued by another replication.

        Args:
            replication_id: The id that ``replicate`` returned.
            timeout: Seconds to wait for the archive; None waits forever.

        Raises:
            ArchiveError: There is no such replication.
            Timeout: The archive did not respond in time.
            ConnectionLost: The session was lost while the call waited.
        """
        self._run(
            self._calls.change(
                "StopReplicationRequest", f"stop_replication {replication_id}", timeout, replication_id=replication_id
            )
        )

    def replicate(
        self,
        src_recording_id: int,
        src_control_channel: str,
        *,
        src_control_stream_id: int = CONTROL_STREAM_ID,
        dst_recording_id: int | None = None,
        stop_position: int | None = None,
        live_destination: str = "",
        replication_channel: str = "",
        channel_tag_id: int | None = None,
        subscription_tag_id: int | None = None,
        file_io_max_length: int | None = None,
        replication_session_id: int | None = None,
        credentials: bytes = b"",
        src_response_channel: str = "",
        timeout: float | None = TIMEOUT,
    ) -> int:
        """Copy a recording of another archive into this one.

        The archive connects to the other archive and requests a replay of the recording. Signals and errors of the replication are
        events with the replication id as their correlation id. The last one is the signal REPLICATE_END.

        Args:
            src_recording_id: The recording in the other archive.
            src_control_channel: The control channel of the other archive, as this archive reaches it.
            src_control_stream_id: The control stream of the other archive.
            dst_recording_id: A recording of this archive to continue, or an empty one to fill; None creates a new one.
            stop_position: The position to stop at; None for the end of the recording, which may be active.
            live_destination: A channel of the live stream. Once the copy has caught up, this archive records the live stream
                directly.
            replication_channel: The channel for the replay; empty for the one that this archive is configured with.
            channel_tag_id: The channel tag of the archive's subscription, for an application that follows the replication.
            subscription_tag_id: The tag of the subscription itself.
            file_io_max_length: The maximum number of bytes that the other archive reads at a time.
            replication_session_id: The session id of the replay.
            credentials: The credentials for the other archive's authenticator, which must not send a challenge.
            src_response_channel: The channel for the other archive's responses; empty for the one that this archive is configured
                with.
            timeout: Seconds to wait for the archive; None waits forever.

        Returns:
            The replication id, for ``stop_replication``.

        Raises:
            ArchiveError: The archive refused. Later errors are events.
            LocalProtocolError: The archive is too old for an option.
            ConfigurationError: ``live_destination`` is combined with ``replication_session_id``.
            Timeout: The archive did not respond in time.
            ConnectionLost: The session was lost while the call waited.

        Example:
            >>> replication_id = client.replicate(7, "aeron:udp?endpoint=tides.example:8010")
            >>> for event in client.events(timeout=60.0):
            ...     if isinstance(event, Signal) and event.signal is RecordingSignal.REPLICATE_END:
            ...         break
        """
        options = ReplicationOptions(
            dst_recording_id=dst_recording_id,
            stop_position=stop_position,
            live_destination=live_destination,
            replication_channel=replication_channel,
            channel_tag_id=channel_tag_id,
            subscription_tag_id=subscription_tag_id,
            file_io_max_length=file_io_max_length,
            replication_session_id=replication_session_id,
            encoded_credentials=credentials,
            src_response_channel=src_response_channel,
        )
        return self._run(
            self._calls.replicate(src_recording_id, src_control_channel, src_control_stream_id, options, timeout)
        )

    def events(self, *, timeout: float | None = None) -> Iterator[Signal | ArchiveError]:
        """Yield recording signals and late errors as they arrive, until the client is closed.

        A yielded ArchiveError is a late error: it refers to something that the archive had accepted earlier, such as a recording
        whose disk became full, or a replay that nobody subscribed to. At most 1024 events are queued; after that, the oldest are
        dropped and counted in ``stats``.

        An iterator ends with the session that it began in, after that session's events, because events between two sessions are
        unknown.

        Args:
            timeout: Seconds to wait for the next event; None waits forever.

        Yields:
            One event after another.

        Raises:
            Timeout: No event came in time.
            ConnectionLost: The session that the iterator began in was lost.

        Example:
            >>> for event in client.events():
            ...     if isinstance(event, Signal) and event.signal is RecordingSignal.START:
            ...         print("recording", event.recording_id)
        """
        return self._events(Events(self._calls), timeout)

    def _events(self, waiting: Events, timeout: float | None) -> Iterator[Signal | ArchiveError]:
        events = self._calls.session.events
        while self._run(waiting.wait(timeout)):
            if events:
                yield events.popleft()

    def close(self) -> None:
        """End the session, and the Aeron client that it created. Recordings continue. Calling it again does nothing."""
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

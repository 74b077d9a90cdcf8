"""Aeron Archive for asyncio: the same client as in `mainstem.archive`, except that it waits in the event loop.

Example:
    >>> async with aio.connect("aeron:udp?endpoint=localhost:8010") as client:
    ...     await client.start_recording("aeron:ipc", 1001)
    ...     async for recording in client.list_recordings():
    ...         print(recording.recording_id, recording.original_channel)
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from mainstem._internal.exit_cleanup import close_at_exit
from mainstem._internal.opening import Opening
from mainstem.aeron.agent import AgentTerminated
from mainstem.aeron.aio.client import Aeron
from mainstem.aeron.aio.resource import Closing
from mainstem.aeron.aio.streams import Subscription
from mainstem.aeron.aio.waiting import Pause
from mainstem.archive.calls import (
    CONTROL_STREAM_ID,
    RESPONSE_STREAM_ID,
    TIMEOUT,
    WORKER_INTERVAL_S,
    Calls,
    ClientBase,
    ClientStats,
    Events,
    Listing,
    RecordingSubscription,
    ReplayOptions,
    ReplicationOptions,
)
from mainstem.archive.channels import extension_channel
from mainstem.archive.merge import MESSAGES_AT_ONCE, PROGRESS_TIMEOUT, MergeBase
from mainstem.archive.messages import RecordingSignal, SourceLocation
from mainstem.archive.recording_events import (
    RecordingEventsBase,
    RecordingProgress,
    RecordingStarted,
    RecordingStopped,
)
from mainstem.archive.session import Signal
from mainstem.errors import Timeout
from mainstem.recording.catalog import RecordingDescriptor

if TYPE_CHECKING:
    import os
    from collections.abc import AsyncIterator, Callable

    from mainstem.archive.calls import Steps
    from mainstem.errors import ArchiveError

__all__ = [
    "Client",
    "ClientStats",
    "RecordingDescriptor",
    "RecordingEvents",
    "RecordingProgress",
    "RecordingSignal",
    "RecordingStarted",
    "RecordingStopped",
    "RecordingSubscription",
    "ReplayMerge",
    "Signal",
    "SourceLocation",
    "connect",
    "extension_channel",
]

T = TypeVar("T")


class ReplayMerge(MergeBase, Closing):
    """A recording followed by the live stream that is being recorded. Only one task may use it."""

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self.messages()

    async def messages(self, *, timeout: float | None = None) -> AsyncIterator[bytes]:
        """Yield whole messages as they arrive, until the live stream ends or this merge is closed."""
        pause = Pause.of(self._calls._conductor, timeout)
        while True:
            self._take(MESSAGES_AT_ONCE)
            if self._taken:
                while self._taken:
                    yield self._hand_out()
                # A stream that always has data must not starve the loop's other tasks.
                await asyncio.sleep(0)
                pause.restart()
            elif self._has_ended:
                return
            elif not await pause.step():
                raise Timeout(f"nothing came on {self!r} for {timeout:g} s", timeout=timeout)


class RecordingEvents(RecordingEventsBase[Subscription]):
    """The recording events of an archive, read from a subscription to its events channel."""

    def __aiter__(self) -> AsyncIterator[RecordingStarted | RecordingProgress | RecordingStopped]:
        return self.events()

    async def events(
        self, *, timeout: float | None = None
    ) -> AsyncIterator[RecordingStarted | RecordingProgress | RecordingStopped]:
        """Yield events as they arrive, until the archive ends or the subscription is closed."""
        async for data in self.subscription.messages(timeout=timeout):
            event = self._event_of(data)
            if event is not None:
                yield event


class Client(ClientBase[Subscription], Closing):
    """A session with an Aeron Archive, opened by `connect`. Any number of tasks may call it.

    If a call is cancelled, its request may already have been sent, and the archive may carry it out. Cancelling a replay ends it.
    """

    def __init__(self, calls: Calls[Subscription], owned: Aeron | None) -> None:
        self._calls = calls
        self._owned = owned
        self._worker: asyncio.Task[None] | None = None
        close_at_exit(self)

    async def _open(self, timeout: float | None) -> Client:
        await self._run(self._calls.connecting(timeout))
        self._worker = asyncio.get_running_loop().create_task(_work(self._calls), name=self._calls.role_name)
        return self

    async def _run(self, steps: Steps[T]) -> T:
        pause = Pause.of(self._calls._conductor, None)
        try:
            while True:
                try:
                    next(steps)
                except StopIteration as end:
                    return end.value  # type: ignore[no-any-return]
                await pause.step()
        finally:
            steps.close()

    async def start_recording(
        self,
        channel: str,
        stream_id: int,
        location: SourceLocation = SourceLocation.LOCAL,
        *,
        auto_stop: bool = False,
        timeout: float | None = TIMEOUT,
    ) -> int:
        """Start recording a stream."""
        return await self._run(self._calls.start_recording(channel, stream_id, location, auto_stop, timeout))

    async def extend_recording(
        self,
        recording_id: int,
        channel: str,
        stream_id: int,
        location: SourceLocation = SourceLocation.LOCAL,
        *,
        auto_stop: bool = False,
        timeout: float | None = TIMEOUT,
    ) -> int:
        """Continue a stopped recording."""
        return await self._run(
            self._calls.extend_recording(recording_id, channel, stream_id, location, auto_stop, timeout)
        )

    async def stop_recording(self, channel: str, stream_id: int, *, timeout: float | None = TIMEOUT) -> None:
        """Stop recording a stream."""
        await self._run(self._calls.stop_recording(channel, stream_id, timeout))

    async def stop_recording_subscription(self, subscription_id: int, *, timeout: float | None = TIMEOUT) -> None:
        """Stop all recordings of a recording subscription."""
        await self._run(self._calls.stop_recording_subscription(subscription_id, timeout))

    async def stop_recording_by_identity(self, recording_id: int, *, timeout: float | None = TIMEOUT) -> bool:
        """Stop one recording, and return whether it was active."""
        return await self._run(self._calls.stop_recording_by_identity(recording_id, timeout))

    def list_recordings(
        self, from_recording_id: int = 0, *, count: int | None = None, timeout: float | None = TIMEOUT
    ) -> AsyncIterator[RecordingDescriptor]:
        """Iterate over the archive's recordings in the order of their ids."""
        return self._listing(Listing(self._calls, from_recording_id, count, None, timeout))

    def list_recordings_for_uri(
        self,
        channel: str,
        stream_id: int,
        from_recording_id: int = 0,
        *,
        count: int | None = None,
        timeout: float | None = TIMEOUT,
    ) -> AsyncIterator[RecordingDescriptor]:
        """Iterate over the recordings of a stream in the order of their ids."""
        return self._listing(Listing(self._calls, from_recording_id, count, (channel, stream_id), timeout))

    async def _listing(self, listing: Listing) -> AsyncIterator[RecordingDescriptor]:
        while not listing.is_over:
            for recording in await self._run(listing.next_page()):
                yield recording

    async def list_recording(self, recording_id: int, *, timeout: float | None = TIMEOUT) -> RecordingDescriptor | None:
        """Describe one recording."""
        return await self._run(self._calls.list_recording(recording_id, timeout))

    async def list_recording_subscriptions(
        self, channel: str = "", stream_id: int | None = None, *, timeout: float | None = TIMEOUT
    ) -> list[RecordingSubscription]:
        """List what the archive is recording, or waiting to record."""
        return await self._run(self._calls.list_recording_subscriptions(channel, stream_id, timeout))

    async def find_last_matching_recording(
        self,
        channel: str,
        stream_id: int,
        session_id: int,
        *,
        min_recording_id: int = 0,
        timeout: float | None = TIMEOUT,
    ) -> int | None:
        """Find the newest recording of a publication."""
        return await self._run(
            self._calls.find_last_matching_recording(channel, stream_id, session_id, min_recording_id, timeout)
        )

    async def start_position(self, recording_id: int, *, timeout: float | None = TIMEOUT) -> int:
        """Return the position of a recording's first byte."""
        steps = self._calls.position("StartPositionRequest", "start_position", recording_id, timeout)
        return await self._run(steps) or 0

    async def recording_position(self, recording_id: int, *, timeout: float | None = TIMEOUT) -> int | None:
        """Return the current position of an active recording."""
        name = "RecordingPositionRequest"
        return await self._run(self._calls.position(name, "recording_position", recording_id, timeout))

    async def stop_position(self, recording_id: int, *, timeout: float | None = TIMEOUT) -> int | None:
        """Return the position at which a recording ended."""
        return await self._run(self._calls.position("StopPositionRequest", "stop_position", recording_id, timeout))

    async def max_recorded_position(self, recording_id: int, *, timeout: float | None = TIMEOUT) -> int:
        """Return the current position of a recording, whether it is active or stopped."""
        return await self._run(self._calls.max_recorded_position(recording_id, timeout))

    async def start_replay(
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
        """Start a replay for a subscription of your own."""
        options = ReplayOptions(
            position=position,
            length=length,
            follow=follow,
            limit_counter_id=limit_counter_id,
            file_io_max_length=file_io_max_length,
        )
        return (await self._run(self._calls.start_replay(recording_id, channel, stream_id, options, timeout))).replay_id

    async def replay(
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
        """Start a replay and subscribe to it."""
        options = ReplayOptions(
            position=position,
            length=length,
            follow=follow,
            limit_counter_id=limit_counter_id,
            file_io_max_length=file_io_max_length,
        )
        return await self._run(
            self._calls.checked_replay(self._run, recording_id, channel, stream_id, options, timeout)
        )

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
        """Read an active recording, then switch to the live stream. The merge does nothing until it is read."""
        return ReplayMerge(
            self._calls,
            subscription,
            recording_id,
            replay_destination,
            live_destination,
            position=position,
            progress_timeout=progress_timeout,
        )

    async def stop_replay(self, replay_session_id: int, *, timeout: float | None = TIMEOUT) -> None:
        """Stop a replay."""
        await self._run(self._calls.stop_replay(replay_session_id, timeout))

    async def stop_all_replays(self, recording_id: int | None = None, *, timeout: float | None = TIMEOUT) -> None:
        """Stop all replays of a recording, including those of other clients."""
        await self._run(self._calls.stop_all_replays(recording_id, timeout))

    async def truncate_recording(self, recording_id: int, position: int, *, timeout: float | None = TIMEOUT) -> int:
        """Truncate a recording. Its replays are stopped, and the segments after ``position`` are deleted."""
        return await self._run(
            self._calls.change(
                "TruncateRecordingRequest",
                f"truncate_recording {recording_id}",
                timeout,
                recording_id=recording_id,
                position=position,
            )
        )

    async def purge_recording(self, recording_id: int, *, timeout: float | None = TIMEOUT) -> int:
        """Delete a recording with all of its segments. Its id is not reused."""
        return await self._run(
            self._calls.change(
                "PurgeRecordingRequest", f"purge_recording {recording_id}", timeout, recording_id=recording_id
            )
        )

    async def detach_segments(
        self, recording_id: int, new_start_position: int, *, timeout: float | None = TIMEOUT
    ) -> None:
        """Make a recording start later. The files of earlier segments stay until they are deleted or attached again."""
        await self._run(
            self._calls.change(
                "DetachSegmentsRequest",
                f"detach_segments of recording {recording_id}",
                timeout,
                recording_id=recording_id,
                new_start_position=new_start_position,
            )
        )

    async def delete_detached_segments(self, recording_id: int, *, timeout: float | None = TIMEOUT) -> int:
        """Delete the files of detached segments."""
        return await self._run(
            self._calls.change(
                "DeleteDetachedSegmentsRequest",
                f"delete_detached_segments of recording {recording_id}",
                timeout,
                recording_id=recording_id,
            )
        )

    async def purge_segments(
        self, recording_id: int, new_start_position: int, *, timeout: float | None = TIMEOUT
    ) -> int:
        """Make a recording start later, and delete the earlier segments. This limits the size of an active recording."""
        return await self._run(
            self._calls.change(
                "PurgeSegmentsRequest",
                f"purge_segments of recording {recording_id}",
                timeout,
                recording_id=recording_id,
                new_start_position=new_start_position,
            )
        )

    async def attach_segments(self, recording_id: int, *, timeout: float | None = TIMEOUT) -> int:
        """Attach the segments that were detached from a recording, if their files still exist."""
        return await self._run(
            self._calls.change(
                "AttachSegmentsRequest",
                f"attach_segments of recording {recording_id}",
                timeout,
                recording_id=recording_id,
            )
        )

    async def migrate_segments(
        self, src_recording_id: int, dst_recording_id: int, *, timeout: float | None = TIMEOUT
    ) -> int:
        """Move all segments of a stopped recording to one that it continues or that continues it."""
        return await self._run(
            self._calls.change(
                "MigrateSegmentsRequest",
                f"migrate_segments of recording {src_recording_id} to {dst_recording_id}",
                timeout,
                src_recording_id=src_recording_id,
                dst_recording_id=dst_recording_id,
            )
        )

    async def update_channel(self, recording_id: int, channel: str, *, timeout: float | None = TIMEOUT) -> None:
        """Change the channel under which a recording is listed."""
        await self._run(
            self._calls.change(
                "UpdateChannelRequest",
                f"update_channel of recording {recording_id}",
                timeout,
                recording_id=recording_id,
                channel=channel,
            )
        )

    async def stop_replication(self, replication_id: int, *, timeout: float | None = TIMEOUT) -> None:
        """Stop a replication. The destination keeps what it has, and can be continued by another replication."""
        await self._run(
            self._calls.change(
                "StopReplicationRequest", f"stop_replication {replication_id}", timeout, replication_id=replication_id
            )
        )

    async def replicate(
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
        """Copy a recording of another archive into this one."""
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
        return await self._run(
            self._calls.replicate(src_recording_id, src_control_channel, src_control_stream_id, options, timeout)
        )

    def events(self, *, timeout: float | None = None) -> AsyncIterator[Signal | ArchiveError]:
        """Yield recording signals and late errors as they arrive, until the client is closed."""
        return self._events(Events(self._calls), timeout)

    async def _events(self, waiting: Events, timeout: float | None) -> AsyncIterator[Signal | ArchiveError]:
        events = self._calls.session.events
        while await self._run(waiting.wait(timeout)):
            if events:
                yield events.popleft()

    async def close(self) -> None:
        """End the session, and the Aeron client that it created, at once even if the call is cancelled."""
        worker = self._end_now()
        if worker is not None:
            with suppress(asyncio.CancelledError):
                await asyncio.wait([worker])
        if self._owned is not None:
            await self._owned.close()

    def _end_now(self) -> asyncio.Task[None] | None:
        self._calls.end()
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.cancel()
        return worker

    def _abandon(self) -> None:
        self._calls.end()
        if self._owned is not None:
            self._owned._end()

    def _leave_to_parent(self) -> None:
        self._worker = self._owned = None
        self._calls.leave_to_parent()


async def _work(calls: Calls[Subscription]) -> None:
    """Read what the archive sends between calls."""
    with suppress(AgentTerminated):
        while True:
            await asyncio.sleep(0 if calls.do_work(0) else WORKER_INTERVAL_S)


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
) -> Opening[Client]:
    """Open a session with an archive: use ``async with``, or ``await`` it and later ``await client.close()``.

    Errors are raised when the result is awaited or entered. ``aeron`` is a client of `mainstem.aio`.
    """

    async def open_client() -> Client:
        owned, used = None, aeron
        if used is None:
            name = client_name or "mainstem-archive"
            used = owned = await Aeron.connect(directory, timeout=timeout, client_name=name)
        try:
            calls = Calls(
                used,
                Subscription,
                channel,
                response_channel=response_channel,
                stream_id=stream_id,
                response_stream_id=response_stream_id,
                credentials=credentials,
                on_challenge=on_challenge,
                client_name=client_name,
            )
            return await Client(calls, owned)._open(timeout)
        except BaseException:
            if owned is not None:
                await owned.close()
            raise

    return Opening(open_client, "archive.aio.connect()")

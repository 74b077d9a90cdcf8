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
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from mainstem._internal.exit_cleanup import close_at_exit
from mainstem._internal.made import Made
from mainstem._internal.opening import Opening
from mainstem.aeron.agent import AgentTerminated
from mainstem.aeron.aio.client import Aeron
from mainstem.aeron.aio.resource import Closing
from mainstem.aeron.aio.streams import Subscription
from mainstem.aeron.aio.waiting import Pause, run
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
    document,
)
from mainstem.archive.channels import extension_channel
from mainstem.archive.merge import PROGRESS_TIMEOUT, MergeBase
from mainstem.archive.messages import RecordingSignal, SourceLocation
from mainstem.archive.recording_events import (
    RecordingEventsBase,
    RecordingProgress,
    RecordingStarted,
    RecordingStopped,
)
from mainstem.archive.session import Signal
from mainstem.recording.catalog import RecordingDescriptor

if TYPE_CHECKING:
    import os
    from collections.abc import AsyncIterator, Callable, Coroutine

    from mainstem.aeron.client.waiting import Steps
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

P = ParamSpec("P")
T = TypeVar("T")


class AsyncCalls(Calls[Subscription]):
    """Calls that wait in the event loop."""

    subscription_kind = Subscription

    async def run(self, steps: Steps[T]) -> T:
        return await run(steps, Pause(self.conductor.invokers))


def awaits(method: Callable[Concatenate[Any, P], Steps[T]]) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """Make a client's coroutine function from a call in `Calls`, with its parameters and documentation."""

    async def call(self: Client, /, *arguments: P.args, **options: P.kwargs) -> T:
        return await self._calls.run(method(self._calls, *arguments, **options))

    document(call, method, is_twin=True)
    return call


def lists(
    method: Callable[Concatenate[Any, P], Listing],
) -> Callable[Concatenate[Any, P], AsyncIterator[RecordingDescriptor]]:
    """Make a client's method that iterates over a listing."""

    def call(self: Client, /, *arguments: P.args, **options: P.kwargs) -> AsyncIterator[RecordingDescriptor]:
        return self._listing(method(self._calls, *arguments, **options))

    document(call, method, "AsyncIterator[RecordingDescriptor]", is_twin=True)
    return call


class ReplayMerge(MergeBase, Closing):
    """A recording followed by the live stream that is being recorded. Only one task may use it."""

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self.messages()

    async def messages(self, *, timeout: float | None = None) -> AsyncIterator[bytes]:
        """Yield whole messages as they arrive, until the live stream ends or this merge is closed."""
        pause = Pause(self._calls.conductor.invokers)
        while await run(self._taking(timeout), pause):
            while self._taken:
                yield self._hand_out()
            # A stream that always has data must not starve the loop's other tasks.
            await asyncio.sleep(0)
            pause.restart()


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


class Client(ClientBase[Subscription], Closing, metaclass=Made, made_by="mainstem.archive.aio.connect()"):
    """A session with an Aeron Archive, opened by `connect`. Any number of tasks may call it.

    Its calls are those of `mainstem.archive.Client`, which documents them in full. If a call is cancelled, its request may already
    have been sent, and the archive may carry it out. Cancelling a replay ends it.
    """

    _calls: AsyncCalls

    def __init__(self, calls: AsyncCalls, owned: Aeron | None) -> None:
        super().__init__(calls)
        self._owned = owned
        self._worker: asyncio.Task[None] | None = None
        close_at_exit(self)

    async def _open(self, timeout: float | None) -> Client:
        await self._calls.run(self._calls.connecting(timeout))
        self._worker = asyncio.get_running_loop().create_task(_work(self._calls), name=self._calls.role_name)
        return self

    start_recording = awaits(Calls.start_recording)
    extend_recording = awaits(Calls.extend_recording)
    stop_recording = awaits(Calls.stop_recording)
    stop_recording_subscription = awaits(Calls.stop_recording_subscription)
    stop_recording_by_identity = awaits(Calls.stop_recording_by_identity)
    list_recordings = lists(Calls.list_recordings)
    list_recordings_for_uri = lists(Calls.list_recordings_for_uri)
    list_recording = awaits(Calls.list_recording)
    list_recording_subscriptions = awaits(Calls.list_recording_subscriptions)
    find_last_matching_recording = awaits(Calls.find_last_matching_recording)
    start_position = awaits(Calls.start_position)
    recording_position = awaits(Calls.recording_position)
    stop_position = awaits(Calls.stop_position)
    max_recorded_position = awaits(Calls.max_recorded_position)
    truncate_recording = awaits(Calls.truncate_recording)
    purge_recording = awaits(Calls.purge_recording)
    detach_segments = awaits(Calls.detach_segments)
    delete_detached_segments = awaits(Calls.delete_detached_segments)
    purge_segments = awaits(Calls.purge_segments)
    attach_segments = awaits(Calls.attach_segments)
    migrate_segments = awaits(Calls.migrate_segments)
    update_channel = awaits(Calls.update_channel)
    replicate = awaits(Calls.replicate)
    stop_replication = awaits(Calls.stop_replication)
    start_replay = awaits(Calls.start_replay)
    replay = awaits(Calls[Subscription].replay)
    stop_replay = awaits(Calls.stop_replay)
    stop_all_replays = awaits(Calls.stop_all_replays)

    async def _listing(self, listing: Listing) -> AsyncIterator[RecordingDescriptor]:
        while not listing.is_over:
            for recording in await self._calls.run(listing.next_page()):
                yield recording

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
        destinations = replay_destination, live_destination
        return ReplayMerge(self._calls, subscription, recording_id, destinations, position, progress_timeout)

    def events(self, *, timeout: float | None = None) -> AsyncIterator[Signal | ArchiveError]:
        """Yield recording signals and late errors as they arrive, until the client is closed."""
        return self._events(Events(self._calls), timeout)

    async def _events(self, waiting: Events, timeout: float | None) -> AsyncIterator[Signal | ArchiveError]:
        events = self._calls.session.events
        while await self._calls.run(waiting.wait(timeout)):
            if events:
                yield events.popleft()

    async def close(self) -> None:
        """End the session, and the Aeron client that it created, at once even if the call is cancelled."""
        self._calls.end()
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.wait([worker])
        if self._owned is not None:
            await self._owned.close()

    def _abandon(self) -> None:
        self._calls.end()
        if self._owned is not None:
            self._owned._end()

    def _leave_to_parent(self) -> None:
        self._worker = self._owned = None
        self._calls.leave_to_parent()


async def _work(calls: AsyncCalls) -> None:
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
            calls = AsyncCalls(
                used,
                channel,
                response_channel=response_channel,
                stream_id=stream_id,
                response_stream_id=response_stream_id,
                credentials=credentials,
                on_challenge=on_challenge,
                client_name=client_name,
            )
            return await Client.made(calls, owned)._open(timeout)
        except BaseException:
            if owned is not None:
                await owned.close()
            raise

    return Opening(open_client, "archive.aio.connect()")

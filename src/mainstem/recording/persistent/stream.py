"""Coordinates the sessions of a persistent subscription: decides which one has messages next. It does not wait for messages."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from mainstem._internal.clock import NS_PER_MS, NS_PER_SECOND, Deadline
from mainstem._internal.units import parse_time
from mainstem.aeron.client.resource import raise_error_of
from mainstem.errors import ClosedError, ConfigurationError, RecordingError, Timeout
from mainstem.recording.open_archives import ReadOptions, open_archives
from mainstem.recording.persistent.session import SessionStream
from mainstem.recording.reader import RecordingReader
from mainstem.recording.rows.scan_range import first_reaching
from mainstem.store.open_store import ARCHIVE_SCHEME, scheme_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mainstem._internal.clock import Clock
    from mainstem.aeron.client.persistent_subscription import StreamClient
    from mainstem.aeron.client.subscription import Image, Subscription
    from mainstem.recording.archive import Archive
    from mainstem.recording.catalog import RecordingDescriptor

Start = str | int | datetime | dict[int, int]

# Join the live stream when at most this many recorded bytes are left to read. Live messages are held in memory until then.
NEAR_BYTES = 4 << 20
# The minimum interval between refreshes of the archive while there is nothing to read, and its minimum as a multiple of the time
# that a refresh takes.
REFRESH_NS = 10 * NS_PER_MS
REFRESH_SHARE = 10
# If the past of a stream is requested, and a live session still has no recording after this time, that is an error.
RECORDING_TIMEOUT_NS = 10 * NS_PER_SECOND


class PersistentStream:
    """The sessions of a stream, recorded and live."""

    def __init__(
        self,
        client: StreamClient,
        channel: str,
        stream_id: int,
        *,
        recordings: Archive | os.PathLike[str] | str,
        clock: Clock,
        start: Start = "earliest",
        recorded_channel: str | None = None,
        strict: bool = True,
        options: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> None:
        deadline = Deadline(clock, timeout)
        self.channel, self.stream_id = channel, stream_id
        self.client, self.clock = client, clock
        self._start, self._recorded_channel, self._strict = checked_start(start), recorded_channel, strict
        self._archive = (
            _only_archive(os.fspath(recordings), options, client)
            if isinstance(recordings, (str, os.PathLike))
            else recordings
        )
        self.live: Subscription | None = None
        self._sessions: dict[tuple[int, int, int], SessionStream] = {}
        self._lives: dict[tuple[int, int], int] = {}
        self._readers: dict[int, RecordingReader] = {}
        self._turn = 0
        self._next_refresh_ns = 0
        self.closed = False
        try:
            self._refresh()
            if deadline.expired:
                raise Timeout(f"{self._archive.url} was not read within {timeout:g} s", timeout=timeout)
            self._join(deadline.left)
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        return f"<persistent subscription to {self.channel} stream {self.stream_id}>"

    @property
    def is_live(self) -> bool:
        return (
            bool(self._sessions)
            and all(each.is_live or each.is_new or each.is_ended for each in self._sessions.values())
            and (self.live is not None)
        )

    @property
    def is_end_of_stream(self) -> bool:
        """Whether there were live publishers, all of them have ended, and all of their messages are handed out."""
        return (
            self.live is not None
            and self.live.is_end_of_stream
            and all(session.is_ended for session in self._sessions.values())
        )

    @property
    def positions(self) -> dict[int, int]:
        """The end of the last message handed out, by recording id, for ``start=``."""
        out = {}
        for session in self._sessions.values():
            for reader in session.history.readers:
                if session.position is not None and session.position >= reader.descriptor.start_position:
                    out[reader.descriptor.recording_id] = session.position
        return out

    def close(self) -> None:
        self.closed = True
        for session in self._sessions.values():
            session.close()
        for reader in self._readers.values():
            reader.close()
        self._archive.close()
        if self.live is not None:
            self.live.close()

    def ready(self) -> SessionStream | None:
        """Return a session with messages to hand out, in turn, or None if no session has any."""
        if self.closed:
            raise ClosedError(f"{self!r} is closed")
        self._take_images()
        sessions = [session for session in self._sessions.values() if session.position is not None]
        for i in range(len(sessions)):
            session = sessions[(self._turn + i) % len(sessions)]
            if session.next_batch() is not None:
                self._turn = (self._turn + i + 1) % len(sessions)
                return session
        self._when_dry()
        return None

    def _when_dry(self) -> None:
        """Refresh the archive and join the live stream. Called when there is nothing left to read."""
        if self.live is not None:
            raise_error_of(self.live)
        if self.clock.monotonic_ns() >= self._next_refresh_ns and not self.is_live:
            self._refresh()
            self._join()

    def _refresh(self) -> None:
        begin_ns = self.clock.monotonic_ns()
        self._archive.refresh()
        for descriptor in self._mine(self._archive.recordings()):
            reader = self._readers.get(descriptor.recording_id)
            if reader is None:
                self._add_recording(descriptor)
            else:
                reader.update(descriptor)
        for session in self._sessions.values():
            session.history.refresh()
        end_ns = self.clock.monotonic_ns()
        self._next_refresh_ns = end_ns + max(REFRESH_NS, REFRESH_SHARE * (end_ns - begin_ns))

    def _add_recording(self, descriptor: RecordingDescriptor) -> None:
        reader = self._readers[descriptor.recording_id] = RecordingReader(self._archive, descriptor)
        ids = (descriptor.session_id, descriptor.initial_term_id)
        session = self._latest(*ids)
        if not session.history.continues_in(descriptor):
            session = self._next_life(*ids)
        session.history.readers.append(reader)
        if session.has_begun or (
            self._is_latest and session.position is not None and session.join_position is not None
        ):
            return
        # A life that began after this subscription is read from its beginning, because none of it is in the past.
        is_later = self.live is not None and self._lives[ids] > 0
        begin = self._begin(reader, session, "earliest" if is_later else self._start)
        if begin is not None:
            session.position = max(begin, session.position or 0)

    def _mine(self, descriptors: list[RecordingDescriptor]) -> list[RecordingDescriptor]:
        """Return the recordings of this stream. Raises ConfigurationError if they belong to several channels and none is chosen."""
        of_stream = [each for each in descriptors if each.stream_id == self.stream_id]
        if self._recorded_channel is None:
            channels = sorted({each.original_channel for each in of_stream})
            if len(channels) > 1 and self.channel not in channels:
                raise ConfigurationError(
                    f"{self._archive.url} has stream {self.stream_id} of several channels: choose one by "
                    f"recorded_channel: {', '.join(channels)}"
                )
            if channels:
                self._recorded_channel = channels[0] if len(channels) == 1 else self.channel
        return [each for each in of_stream if each.original_channel == self._recorded_channel]

    def _latest(self, session_id: int, initial_term_id: int) -> SessionStream:
        ids = session_id, initial_term_id
        life = self._lives.get(ids)
        return self._next_life(*ids) if life is None else self._sessions[*ids, life]

    def _next_life(self, session_id: int, initial_term_id: int) -> SessionStream:
        ids = session_id, initial_term_id
        life = self._lives[ids] = self._lives.get(ids, -1) + 1
        session = SessionStream(session_id, strict=self._strict)
        self._sessions[*ids, life] = session
        return session

    def _session_with(self, image: Image) -> SessionStream | None:
        ids = image.session_id, image.initial_term_id
        lives = (self._sessions[*ids, life] for life in range(self._lives.get(ids, -1), -1, -1))
        return next((session for session in lives if session.has_image(image)), None)

    def _session_for(self, image: Image) -> SessionStream:
        ids = image.session_id, image.initial_term_id
        session = self._latest(*ids)
        return session if session.may_continue_in(image) else self._next_life(*ids)

    @property
    def _is_latest(self) -> bool:
        return self._start == "latest"

    def _begin(self, reader: RecordingReader, session: SessionStream, start: Start) -> int | None:
        first, last = reader.start_position, reader.end_position()
        if isinstance(start, dict):
            known = start.get(reader.descriptor.recording_id)
            return first if known is None and session.position is None else known
        if start == "latest":
            return last
        if isinstance(start, datetime):
            return max(min(reader.position_at_time(round(start.timestamp() * 1e6) * 1000), last), first)
        if isinstance(start, int):
            # Messages that end at or before the position were read already.
            return first_reaching(reader, start + 1, first, last)
        if session.position is not None:
            return None
        # A publisher may have been live before its recorder joined, so do not begin after the position at which the image joined.
        return first if session.join_position is None else min(first, session.join_position)

    def _join(self, timeout: float | None = None) -> None:
        """Subscribe to the live stream once little is left to read, or immediately if only new messages are wanted."""
        if self.live is None and (
            self._is_latest
            or all(
                session.position is not None and session.history.left_after(session.position) <= NEAR_BYTES
                for session in self._sessions.values()
            )
        ):
            self.live = self.client.add_subscription(self.channel, self.stream_id, timeout=timeout)

    def _take_images(self) -> None:
        if self.live is None:
            return
        for image in self.live.images:
            session = self._session_with(image)
            if session is None:
                if image.closed or image.is_end_of_stream:
                    continue
                session = self._session_for(image)
                session.add_image(image)
            if session.position is None:
                self._begin_live(session, image)
        for session in self._sessions.values():
            session.gather(self.clock.monotonic_ns())

    def _begin_live(self, session: SessionStream, image: Image) -> None:
        """Set where a live session begins that has no recording. A recording appears only with the first message."""
        since_ns = session.live_since_ns
        if self._is_latest:
            session.position = image.join_position
        elif since_ns is not None and self.clock.monotonic_ns() - since_ns > RECORDING_TIMEOUT_NS:
            if self._strict:
                raise RecordingError(
                    f"session {image.session_id} of stream {self.stream_id} is live, but {self._archive.url} has no "
                    "recording of it: is a recorder running?"
                )
            session.position = image.join_position


def _only_archive(location: str, options: Mapping[str, str] | None, client: StreamClient) -> Archive:
    if scheme_of(location) == ARCHIVE_SCHEME:
        options = {"aeron_dir": client.directory} | dict(options or {})
    archives = open_archives(location, ReadOptions.parse(options))
    if len(archives) == 1:
        return archives[0]
    for archive in archives:
        archive.close()
    urls = ", ".join(archive.url for archive in archives)
    raise ConfigurationError(f"{location} has several archives; choose one of {urls}")


def checked_start(start: Any) -> Start:
    """Return a valid start; a string is ``earliest``, ``latest`` or a time. Raises ConfigurationError for anything else."""
    if isinstance(start, str):
        if start in ("earliest", "latest"):
            return start
        return parse_time(
            start, name="start", expected="neither earliest nor latest, nor a time as in 2026-01-31T12:00:00"
        )
    if isinstance(start, datetime):
        return start if start.tzinfo is not None else start.replace(tzinfo=UTC)
    if isinstance(start, dict):
        return {int(key): int(value) for key, value in start.items()}
    if isinstance(start, int) and not isinstance(start, bool) and start >= 0:
        return start
    raise ConfigurationError(
        f"start must be a position, a time, 'earliest', 'latest' or positions by recording id (got {start!r})"
    )

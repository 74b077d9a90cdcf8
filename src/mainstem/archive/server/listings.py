"""Listings of recordings and subscriptions, and searches for recordings.

A listing sends its messages as its client has room for them, and looks at a limited number of catalog entries per cycle.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING

from mainstem._internal.log_throttle import warn_once
from mainstem.archive.messages import NULL, ResponseCode, encode
from mainstem.archive.server.request_errors import reason_of, request_error
from mainstem.errors import ArchiveErrorCode
from mainstem.recording.catalog import MAX_TEXTS_LENGTH

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainstem.archive.messages import Message
    from mainstem.archive.server.control_session import ControlSession
    from mainstem.archive.server.duty_cycle import DutyCycle
    from mainstem.archive.server.files import ArchiveFiles
    from mainstem.archive.server.recordings import Recordings
    from mainstem.recording.catalog import RecordingDescriptor

log = logging.getLogger("mainstem.archive")

ENTRIES_PER_CYCLE = 64  # catalog entries per cycle for one listing or search, fewer if the cycle has no time left
MIN_ENTRIES_PER_CYCLE = 2
MAX_SEARCHES = 16  # of one session at once
MAX_CHANNEL_PART = MAX_TEXTS_LENGTH  # characters of a channel that a listing or a search looks for


class ListingSession:
    """Sends descriptors to a session as its client has room, looking at a limited number of catalog entries per cycle.

    ``messages`` yields None for an entry that does not match.
    """

    def __init__(self, correlation_id: int, messages: Iterator[bytes | None]) -> None:
        self._correlation_id = correlation_id
        self._messages = messages
        self._unsent: bytes | None = None
        self.is_done = False

    def send(self, session: ControlSession, cycle: DutyCycle) -> int:
        """Send as many messages as the client has room for, and the cycle time. Return the number of entries looked at or sent."""
        work = 0
        try:
            for number in range(ENTRIES_PER_CYCLE + 1):
                if self._unsent is None:
                    # Also if the cycle has no time left: a client that has the last message may ask for another listing.
                    self._unsent = next(self._messages)
                    work += 1
                if number == ENTRIES_PER_CYCLE or (number >= MIN_ENTRIES_PER_CYCLE and cycle.is_over):
                    break
                if self._unsent is not None:
                    if not session.try_send(self._unsent):
                        break
                    self._unsent = None
                    work += 1
        except StopIteration:
            self.is_done = True
        except Exception as error:
            self.is_done = True
            session.fail(self._correlation_id, f"the listing ended: {reason_of(error)}")
        return work


class Listings:
    """Starts and runs listings and searches. A session has one listing at a time, and some searches."""

    def __init__(self, files: ArchiveFiles, recordings: Recordings, cycle: DutyCycle) -> None:
        self._files, self._recordings, self._cycle = files, recordings, cycle
        self._running: deque[tuple[ControlSession, ListingSession]] = deque()

    def recordings(self, session: ControlSession, request: Message) -> None:
        self._begin_listing(session, request, self._recordings_of(session, request))

    def recording(self, session: ControlSession, request: Message) -> None:
        self._begin_listing(session, request, self._one_recording(session, request))

    def subscriptions(self, session: ControlSession, request: Message) -> None:
        self._begin_listing(session, request, self._subscriptions_of(session, request))

    def last_matching(self, session: ControlSession, request: Message) -> None:
        if request.min_recording_id < 0:
            raise request_error(f"minRecordingId={request.min_recording_id} < 0", ArchiveErrorCode.UNKNOWN_RECORDING)
        if session.searches >= MAX_SEARCHES:
            raise request_error(f"{MAX_SEARCHES} searches of this session are in progress, as many as there may be")
        _check_part(request)
        session.searches += 1
        self._running.append((session, ListingSession(request.correlation_id, self._last_matching(session, request))))

    def _begin_listing(self, session: ControlSession, request: Message, messages: Iterator[bytes | None]) -> None:
        if session.listing is not None:
            raise request_error("active listing already in progress", ArchiveErrorCode.ACTIVE_LISTING)
        _check_part(request)
        session.listing = ListingSession(request.correlation_id, messages)
        self._list(session, session.listing)

    def do_work(self) -> int:
        """Continue listings and searches, one after the other, in a slice of the cycle. The rest go first in the next one."""
        work = 0
        for _ in range(len(self._running)):
            if work and self._cycle.is_over:
                break
            work += self._list(*self._running.popleft())
        return work

    def _list(self, session: ControlSession, listing: ListingSession) -> int:
        """Continue a listing or a search. Return the work count."""
        if session.is_done:
            return 0
        work = listing.send(session, self._cycle)
        if not listing.is_done:
            self._running.append((session, listing))
        elif session.listing is listing:
            session.listing = None
        else:
            session.searches -= 1
        return work

    def _last_matching(self, session: ControlSession, request: Message) -> Iterator[bytes | None]:
        found = NULL
        for d in self._files.newest_first():
            if d.recording_id < request.min_recording_id:
                break
            if (d.session_id, d.stream_id) == (request.session_id, request.stream_id) and (
                request.channel in d.original_channel
            ):
                found = d.recording_id
                break
            yield None
        yield session.encode_response(request.correlation_id, found, ResponseCode.OK)

    def _recordings_of(self, session: ControlSession, request: Message) -> Iterator[bytes | None]:
        left, following = request.record_count, request.from_recording_id
        is_of_uri = request.name == "ListRecordingsForUriRequest"
        if left > 0:
            for d in self._files.from_id(request.from_recording_id):
                following = d.recording_id + 1
                if is_of_uri and (d.stream_id != request.stream_id or request.channel not in d.original_channel):
                    yield None
                    continue
                yield _describe(session, request.correlation_id, d)
                left -= 1
                if not left:
                    return
        yield _unknown(session, request.correlation_id, following)

    def _one_recording(self, session: ControlSession, request: Message) -> Iterator[bytes]:
        descriptor = self._files.find(request.recording_id)
        if descriptor is None:
            yield _unknown(session, request.correlation_id, request.recording_id)
        else:
            yield _describe(session, request.correlation_id, descriptor)

    def _subscriptions_of(self, session: ControlSession, request: Message) -> Iterator[bytes | None]:
        entries = [entry for entry in self._recordings.subscriptions.values() if entry.registration_id >= 0]
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


def _check_part(request: Message) -> None:
    """Refuse a part of a channel that no channel can contain. It would be held as long as the listing takes."""
    length = len(request.values.get("channel", ""))
    if length > MAX_CHANNEL_PART:
        raise request_error(f"{length} characters of a channel to look for exceed {MAX_CHANNEL_PART}")


def _describe(session: ControlSession, correlation_id: int, d: RecordingDescriptor) -> bytes:
    texts = ("stripped_channel", "original_channel", "source_identity")
    values = vars(d) | {name: _ascii(getattr(d, name)) for name in texts}
    values |= {"control_session_id": session.session_id, "correlation_id": correlation_id}
    message = encode("RecordingDescriptor", **values)
    excess = len(message) - session.max_message_length
    if excess > 0:
        # Another program recorded it. Its channels are shown in part, because a message that cannot be sent ends the listing.
        warn_once(
            log,
            f"recording {d.recording_id}: its channels are too long for a message of {session.max_message_length} bytes, "
            "and clients see their beginnings; replace them with update_channel",
        )
        length = (sum(len(values[name]) for name in texts) - excess) // len(texts)
        shown = {name: values[name] for name in texts if len(values[name]) > length}
        values |= {name: f"{text[: length - 3]}..." for name, text in shown.items()}
        message = encode("RecordingDescriptor", **values)
    return message


def _unknown(session: ControlSession, correlation_id: int, recording_id: int) -> bytes:
    return session.encode_response(correlation_id, recording_id, ResponseCode.RECORDING_UNKNOWN)


def _ascii(text: str) -> str:
    return text if text.isascii() else text.encode("ascii", "replace").decode("ascii")

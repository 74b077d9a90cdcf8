"""Updates of the channels of recordings. An entry that grows moves the entries after it, so an update can take many cycles."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from mainstem.aeron.channel import ChannelUri
from mainstem.archive.channels import stripped
from mainstem.archive.messages import ResponseCode
from mainstem.archive.server.request_errors import reason_of, request_error
from mainstem.errors import ArchiveError, ArchiveErrorCode
from mainstem.recording.catalog import check_texts

if TYPE_CHECKING:
    from collections.abc import Generator

    from mainstem.archive.messages import Message
    from mainstem.archive.server.control_session import ControlSession
    from mainstem.archive.server.duty_cycle import DutyCycle
    from mainstem.archive.server.files import ArchiveFiles

MAX_UPDATES = 16  # by one session at once


class ChannelUpdates:
    """Updates channels of recordings, one after the other."""

    def __init__(self, files: ArchiveFiles, cycle: DutyCycle) -> None:
        self._files, self._cycle = files, cycle
        self._updates: deque[tuple[ControlSession, int, Generator[None, None, None]]] = deque()

    def close(self) -> None:
        self._cycle.run([steps.close for _, _, steps in self._updates])

    def add(self, session: ControlSession, request: Message) -> int | None:
        if session.listing is not None:
            raise request_error("active listing already in progress", ArchiveErrorCode.ACTIVE_LISTING)
        descriptor = self._files.find(request.recording_id)
        if descriptor is None:
            session.respond(request.correlation_id, request.recording_id, ResponseCode.RECORDING_UNKNOWN)
            return None
        if sum(owner is session for owner, _, _ in self._updates) >= MAX_UPDATES:
            raise request_error(f"{MAX_UPDATES} updates of this session are in progress, as many as there may be")
        uri = ChannelUri.parse(request.channel)
        check_texts(stripped(uri), request.channel)
        steps = self._files.update_channel(descriptor.recording_id, stripped=stripped(uri), original=request.channel)
        self._updates.append((session, request.correlation_id, steps))
        return None

    def do_work(self) -> int:
        """Update channels of recordings, one after the other, in a slice of the cycle."""
        work = 0
        while self._updates and not (work and self._cycle.is_over):
            work += 1
            session, correlation_id, steps = self._updates[0]
            try:
                next(steps)
            except StopIteration:
                self._updates.popleft()
                session.respond(correlation_id, 0)
            except Exception as error:
                self._updates.popleft()
                code = error.code if isinstance(error, ArchiveError) else ArchiveErrorCode.GENERIC
                session.fail(correlation_id, reason_of(error), code)
        return work

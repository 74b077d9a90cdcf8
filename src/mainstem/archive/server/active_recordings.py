"""The recordings that an archive is writing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mainstem._core.log.read import find_ready
from mainstem.archive.server.request_errors import request_error
from mainstem.errors import ArchiveErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainstem.archive.server.recording_session import RecordingSession


class ActiveRecordings:
    """The active recordings, by id.

    Most of a large number of recordings are idle and must not slow down every duty cycle. ``ready`` finds the ones that have work
    in one pass in compiled code.
    """

    def __init__(self) -> None:
        self._sessions: dict[int, RecordingSession] = {}
        self._starting: list[RecordingSession] = []
        self._begun: list[RecordingSession] = []
        self._images: list[Any] = []  # of the sessions that have begun
        self._last: list[RecordingSession] = []  # the sessions that were ready in the last cycle
        # Recordings that will be extended, and count as active for requests that change them.
        self.reserved: set[int] = set()

    def __len__(self) -> int:
        return len(self._sessions)

    def __contains__(self, recording_id: int) -> bool:
        return recording_id in self._sessions

    def __iter__(self) -> Iterator[RecordingSession]:
        return iter(list(self._sessions.values()))

    def check_inactive(self, what: str, recording_id: int) -> None:
        """Raise ArchiveError if a recording is active."""
        if recording_id in self._sessions or recording_id in self.reserved:
            raise request_error(f"cannot {what} active recording {recording_id}", ArchiveErrorCode.ACTIVE_RECORDING)

    def get(self, recording_id: int) -> RecordingSession | None:
        return self._sessions.get(recording_id)

    def add(self, session: RecordingSession) -> None:
        self._sessions[session.recording_id] = session
        self._starting.append(session)

    def discard(self, session: RecordingSession) -> None:
        """Remove a session. Do nothing if it was removed before."""
        if self._sessions.get(session.recording_id) is session:
            del self._sessions[session.recording_id]

    def clear(self) -> None:
        self._sessions.clear()

    def ready(self) -> list[RecordingSession]:
        """Return the sessions that may have work for ``do_work``."""
        begun = [session for session in self._starting if not session.is_starting]
        if begun or len(self._begun) + len(self._starting) != len(self._sessions):
            sessions = self._sessions
            current = [each for each in self._begun + begun if sessions.get(each.recording_id) is each]
            self._begun, self._images = current, [each.image for each in current]
            self._starting = [
                each for each in self._starting if each.is_starting and sessions.get(each.recording_id) is each
            ]
        found = [self._begun[at] for at in find_ready(self._images)]
        unreported = [each for each in self._last if each.is_unreported]
        self._last = list(dict.fromkeys([*self._starting, *unreported, *found]))
        return self._last
